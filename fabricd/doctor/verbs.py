"""libibverbs by ctypes: the true DMA-BUF probe and the active MTU. No GPU and no traffic is touched.

``ibv_reg_dmabuf_mr`` with file descriptor -1 reaches the driver only when it supports DMA-BUF: EBADF means yes, EOPNOTSUPP or
EPROTONOSUPPORT no (NCCL asks the same way). Symbol version IBVERBS_1.12 came with rdma-core 34.
"""

from __future__ import annotations

import ctypes
import errno
import os
from typing import Any

MTU_BYTES = {1: 256, 2: 512, 3: 1024, 4: 2048, 5: 4096}
# struct ibv_port_attr begins with state, max_mtu, active_mtu (enums); 64 bytes are more than any version of it writes.
_PORT_ATTR_BYTES = 64


class Verbs:
    """Opens devices by name. ``why`` is set when the library or the device files cannot be used."""

    def __init__(self) -> None:
        self.why = ""
        try:
            self._lib: ctypes.CDLL | None = ctypes.CDLL("libibverbs.so.1", use_errno=True)
        except OSError as error:
            self._lib, self.why = None, f"libibverbs: {error}"
            return
        for name, result, arguments in (
            ("ibv_get_device_list", ctypes.c_void_p, [ctypes.c_void_p]),
            ("ibv_free_device_list", None, [ctypes.c_void_p]),
            ("ibv_get_device_name", ctypes.c_char_p, [ctypes.c_void_p]),
            ("ibv_open_device", ctypes.c_void_p, [ctypes.c_void_p]),
            ("ibv_close_device", ctypes.c_int, [ctypes.c_void_p]),
            ("ibv_alloc_pd", ctypes.c_void_p, [ctypes.c_void_p]),
            ("ibv_dealloc_pd", ctypes.c_int, [ctypes.c_void_p]),
            ("ibv_query_port", ctypes.c_int, [ctypes.c_void_p, ctypes.c_uint8, ctypes.c_void_p]),
        ):
            function = getattr(self._lib, name)
            function.restype, function.argtypes = result, arguments

    def probe(self, device: str, port: int = 1) -> dict[str, Any]:
        """``{"dmabuf": "EBADF"|errno name|None, "active_mtu": bytes|None, "why": text}`` of one device."""
        out: dict[str, Any] = {"dmabuf": None, "active_mtu": None, "why": self.why}
        lib = self._lib
        if lib is None:
            return out
        count = ctypes.c_int()
        devices = lib.ibv_get_device_list(ctypes.byref(count))
        if not devices:
            out["why"] = "no verbs device"
            return out
        try:
            entries = ctypes.cast(devices, ctypes.POINTER(ctypes.c_void_p))
            match = next(
                (entries[i] for i in range(count.value) if lib.ibv_get_device_name(entries[i]) == device.encode()), None
            )
            context = lib.ibv_open_device(match) if match else None
            if not context:
                out["why"] = (
                    f"{device} cannot be opened: {os.strerror(ctypes.get_errno())}"
                    if match
                    else f"{device} has no verbs"
                )
                return out
            try:
                self._ask(lib, context, port, out)
            finally:
                lib.ibv_close_device(context)
        finally:
            lib.ibv_free_device_list(devices)
        return out

    @staticmethod
    def _ask(lib: ctypes.CDLL, context: int, port: int, out: dict[str, Any]) -> None:
        attributes = (ctypes.c_uint32 * (_PORT_ATTR_BYTES // 4))()
        if lib.ibv_query_port(context, port, attributes) == 0:
            out["active_mtu"] = MTU_BYTES.get(attributes[2])
        register = getattr(lib, "ibv_reg_dmabuf_mr", None)
        if register is None:
            out["why"] = "rdma-core before 34 has no ibv_reg_dmabuf_mr"
            return
        register.restype = ctypes.c_void_p
        register.argtypes = [
            ctypes.c_void_p,
            ctypes.c_uint64,
            ctypes.c_size_t,
            ctypes.c_uint64,
            ctypes.c_int,
            ctypes.c_int,
        ]
        domain = lib.ibv_alloc_pd(context)
        if not domain:
            out["why"] = f"no protection domain: {os.strerror(ctypes.get_errno())}"
            return
        try:
            ctypes.set_errno(0)
            register(domain, 0, 0, 0, -1, 0)
            code = ctypes.get_errno()
            # Python calls this number ENOTSUP; the kernel's and NCCL's word for it is EOPNOTSUPP.
            out["dmabuf"] = "EOPNOTSUPP" if code == errno.EOPNOTSUPP else errno.errorcode.get(code, str(code))
        finally:
            lib.ibv_dealloc_pd(domain)

"""The kernel's umad device: opened and registered by libibumad, then plain write, poll and read on its descriptor.

The header of ``struct ib_user_mad`` (linux/include/uapi/rdma/ib_user_mad.h) is 64 bytes with the P_Key index, which libibumad
turns on; host order: agent u32, status u32, timeout ms u32, retries u32, length u32; network order: QPN u32, Q_Key u32, LID u16;
SL u8, path bits u8, GRH present u8, GID index u8, hop limit u8, traffic class u8, GID 16 bytes, flow label u32; host order:
P_Key index u16, 6 bytes of padding. A request that timed out comes back as its own header with status 110, and is short.
"""

from __future__ import annotations

import ctypes
import ctypes.util
import os
import select
import struct
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from fabricd.ib.mad import MAD_SIZE
from fabricd.ib.transport import Address, TransportError, get_only

_HOST = struct.Struct("=IIIII")
_NET = struct.Struct(">IIHB")
_PKEY = struct.Struct("=H")
HEADER_SIZE = 64
_CLASS_VERSION = 1
_MAX_DEVICES = 128
_NAME_LEN = 20
_PRELOADED = "LD_PRELOAD"  # a simulator's library stands for the kernel then (ibsim-run)
_MODULE = Path("/sys/class/infiniband_mad")


def _library() -> Any:
    name = ctypes.util.find_library("ibumad") or "libibumad.so.3"
    try:
        library = ctypes.CDLL(name, use_errno=True)
    except OSError as error:
        raise TransportError(f"libibumad is not installed: {error}") from None
    library.umad_register.argtypes = [ctypes.c_int, ctypes.c_int, ctypes.c_int, ctypes.c_uint8, ctypes.c_void_p]
    library.umad_open_port.argtypes = [ctypes.c_char_p, ctypes.c_int]
    if library.umad_init() < 0:
        raise TransportError("umad_init failed: is the ib_umad kernel module loaded?")
    return library


def devices() -> list[str]:
    """Names of the InfiniBand devices libibumad sees. Raises TransportError when it cannot be used."""
    library = _library()
    names = (ctypes.c_char * _NAME_LEN * _MAX_DEVICES)()
    count = library.umad_get_cas_names(names, _MAX_DEVICES)
    return [bytes(names[i]).split(b"\0", 1)[0].decode(errors="replace") for i in range(max(0, count))]


class UmadTransport:
    """A umad port. ``device`` "" and ``port`` 0 mean libibumad's choice: the first active one.

    Raises TransportError when there is none, or no permission (the device files are root's by default).
    """

    size = HEADER_SIZE + MAD_SIZE
    mad_at = HEADER_SIZE
    status_at = 4
    # A read of an empty queue is EAGAIN from the kernel but no error number from the simulator's library: poll before each.
    drains = False
    reports_timeouts = True

    def __init__(self, device: str = "", port: int = 0) -> None:
        # libibumad would say so itself, on stderr and as "Operation not supported".
        if _PRELOADED not in os.environ and not _MODULE.exists():
            raise TransportError("no InfiniBand management datagrams here: the kernel module ib_umad is not loaded")
        self._library = _library()
        self._port_id = self._library.umad_open_port(device.encode() or None, port)
        where = f"{device or 'any device'} port {port}" if device or port else "the first active port"
        if self._port_id < 0:
            reason = os.strerror(-self._port_id) if -self._port_id < 256 else str(self._port_id)
            raise TransportError(f"cannot open umad of {where}: {reason}")
        self._fd: int = self._library.umad_get_fd(self._port_id)
        self._agents: dict[int, int] = {}
        poller = select.poll()
        poller.register(self._fd, select.POLLIN)
        self._poll = poller.poll
        self._send = get_only(partial(os.write, self._fd), self.mad_at)
        self._recv = partial(os.read, self._fd, self.size)

    @property
    def send(self) -> Callable[[memoryview], None]:
        return self._send

    @property
    def recv(self) -> Callable[[], bytes]:
        return self._recv

    @property
    def poll(self) -> Callable[[float], object]:
        return self._poll

    def _agent(self, management_class: int) -> int:
        """The agent of a class, registered on first use. No method mask: it gets the answers to its own requests only."""
        agent = self._agents.get(management_class)
        if agent is None:
            agent = self._library.umad_register(self._port_id, management_class, _CLASS_VERSION, 0, None)
            if agent < 0:
                raise TransportError(f"umad_register of class {management_class:#x}: {os.strerror(ctypes.get_errno())}")
            self._agents[management_class] = agent
        return agent

    def address(self, frame: memoryview, to: Address, timeout_ms: int) -> None:
        # Kernel retries are 0: the scheduler repeats a request itself, under a new transaction id.
        _HOST.pack_into(frame, 0, self._agent(to.management_class), 0, timeout_ms, 0, MAD_SIZE)
        _NET.pack_into(frame, 20, to.qp, to.qkey, to.lid, to.sl)
        _PKEY.pack_into(frame, 56, to.pkey_index)

    def close(self) -> None:
        if self._port_id >= 0:
            self._library.umad_close_port(self._port_id)
            self._port_id = -1

"""GPU memory sizes by NVML (libnvidia-ml, by ctypes) where the driver is there: what BAR1 is compared with. Optional."""

from __future__ import annotations

import ctypes


class _Memory(ctypes.Structure):
    _fields_ = (("total", ctypes.c_ulonglong), ("free", ctypes.c_ulonglong), ("used", ctypes.c_ulonglong))


class _Bar1(ctypes.Structure):
    _fields_ = (("total", ctypes.c_ulonglong), ("free", ctypes.c_ulonglong), ("used", ctypes.c_ulonglong))


def gpu_memory(addresses: list[str], library: str = "libnvidia-ml.so.1") -> dict[str, dict[str, int]]:
    """PCI address -> ``{"memory": bytes, "bar1": bytes}`` of the GPUs NVML answers for; empty without the library."""
    try:
        nvml = ctypes.CDLL(library)
        if nvml.nvmlInit_v2() != 0:
            return {}
    except (OSError, AttributeError):
        return {}
    out: dict[str, dict[str, int]] = {}
    try:
        for address in addresses:
            handle, memory, bar1 = ctypes.c_void_p(), _Memory(), _Bar1()
            if nvml.nvmlDeviceGetHandleByPciBusId_v2(address.encode(), ctypes.byref(handle)) != 0:
                continue
            if nvml.nvmlDeviceGetMemoryInfo(handle, ctypes.byref(memory)) != 0:
                continue
            out[address] = {"memory": int(memory.total)}
            if nvml.nvmlDeviceGetBAR1MemoryInfo(handle, ctypes.byref(bar1)) == 0:
                out[address]["bar1"] = int(bar1.total)
    finally:
        nvml.nvmlShutdown()
    return out

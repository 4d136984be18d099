"""Processes that use RDMA or GPUs, and of their environment only the NCCL_, UCX_ and RDMA_ names.

Anything else in ``/proc/PID/environ`` may be a secret: it is dropped while it is read, never kept, printed or captured.
"""

from __future__ import annotations

from dataclasses import dataclass

from fabricd.doctor.tree import Tree

PREFIXES = (b"NCCL_", b"UCX_", b"RDMA_")
MAX_PROCESSES = 100_000


@dataclass(frozen=True, slots=True)
class RdmaProcess:
    pid: int
    environment: dict[str, str]

    def traffic_class(self) -> int | None:
        """NCCL_IB_TC as a number, None when unset or NCCL's -1 (default)."""
        try:
            value = int(self.environment["NCCL_IB_TC"], 0)
        except (KeyError, ValueError):
            return None
        return value if 0 <= value <= 255 else None


def filter_environment(raw: bytes) -> dict[str, str]:
    """The allowed names of a NUL-separated environment; the rest is not decoded at all."""
    out: dict[str, str] = {}
    for entry in raw.split(b"\0"):
        name, equals, value = entry.partition(b"=")
        if equals and name.startswith(PREFIXES):
            out[name.decode(errors="replace")] = value.decode(errors="replace")
    return out


def rdma_processes(tree: Tree) -> list[RdmaProcess]:
    """Every readable process with at least one of those names set."""
    found = []
    for name in tree.names("/proc")[:MAX_PROCESSES]:
        if name.isdigit():
            raw, _ = tree.read_bytes(f"/proc/{name}/environ")
            environment = filter_environment(raw) if raw else {}
            if environment:
                found.append(RdmaProcess(int(name), environment))
    return found

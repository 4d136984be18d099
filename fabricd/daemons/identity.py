"""Who this process is: the node's id, and the id of this run in which sequence numbers count."""

from __future__ import annotations

import hashlib
import os
import socket
import time
from pathlib import Path

# Names that many machines have: they would make one node of all of them.
_EMPTY_NAMES = frozenset({"", "localhost", "localhost.localdomain", "(none)", "linux", "debian", "ubuntu"})
_MASK = (1 << 63) - 1


def digest64(*parts: str | int) -> int:
    """A 63-bit number from texts and numbers, the same on every machine and in every run."""
    text = "\0".join(map(str, parts)).encode("utf-8", "backslashreplace")
    return int.from_bytes(hashlib.blake2b(text, digest_size=8).digest(), "little") & _MASK


def node_id(configured: str = "", *, etc: Path = Path("/etc"), hostname: str | None = None) -> str:
    """The configured id, else the host name, else the machine id; ``unnamed`` plus a random part when there is nothing.

    Two agents can still end up with one id (a cloned image): the publisher notices a rival on its own status topic.
    """
    if configured:
        return configured
    name = (hostname if hostname is not None else socket.gethostname()).strip()
    if name.lower() not in _EMPTY_NAMES and not any(c in name for c in "+#/\0"):
        return name
    try:
        machine = (etc / "machine-id").read_text(encoding="ascii").strip()
    except (OSError, UnicodeDecodeError):
        machine = ""
    return f"machine-{machine[:12]}" if machine and machine != "uninitialized" else f"unnamed-{os.urandom(4).hex()}"


def kernel_boot_id(procfs: str = "/proc") -> str:
    """The kernel's id of this boot; empty where it cannot be read."""
    try:
        return Path(procfs, "sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
    except OSError:
        return ""


def run_id() -> int:
    """The ``boot`` of frames: differs for each run of a process, so that (boot, sequence) never names two frames."""
    return digest64(kernel_boot_id(), os.getpid(), time.time_ns(), os.urandom(8).hex())

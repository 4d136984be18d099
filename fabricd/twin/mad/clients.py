"""Programs attached to the simulator's sockets."""

from __future__ import annotations

import socket
from collections import deque
from dataclasses import dataclass, field
from pathlib import Path

from fabricd.twin.mad.subnet import Port


@dataclass(slots=True)
class Client:
    """One attached program."""

    index: int
    pid: int
    queue_pair: int
    port: Port
    is_sm: bool
    socket: socket.socket
    address: bytes
    cut: bool  # its library drops the last 32 bytes of every MAD
    waiting: deque[bytes] = field(default_factory=deque)


class Refused(Exception):
    """A client that cannot be served; the reason is logged and the client gets an error message."""


def is_alive(client: Client) -> bool:
    """Whether the program still holds its socket (connecting a datagram socket again finds out)."""
    try:
        client.socket.connect(client.address)
    except OSError:
        return False
    return True


def cuts_datagrams(pid: int) -> bool:
    """Whether the program uses libumad2sim, whose receive buffer is 64 bytes of header short of a whole MAD.

    Bytes 224 to 255 of what such a program receives are whatever its memory held, among them the 64-bit PortXmitWait.
    Switches therefore do not offer it the 64-bit error counters; it reads PortCounters, as on older hardware.
    """
    try:
        return "libumad2sim" in Path(f"/proc/{pid}/maps").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return False

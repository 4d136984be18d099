"""Telling systemd how a daemon is: readiness, reloads, watchdog (sd_notify(3)). Does nothing when systemd did not start us."""

from __future__ import annotations

import os
import select
import socket
import time
from collections.abc import Mapping

_PATIENCE_S = 1.0  # for a manager whose queue is full, at changes of state; the watchdog's beat does not wait at all
_RETRY_S = 0.05


class Notifier:
    """The notification socket of this process. Every call is cheap and never raises.

    ``environ`` names the socket (``NOTIFY_SOCKET``) and the watchdog's period (``WATCHDOG_USEC``, for ``WATCHDOG_PID``).
    """

    def __init__(self, environ: Mapping[str, str] = os.environ) -> None:
        address = environ.get("NOTIFY_SOCKET", "")
        self._address = "\0" + address[1:] if address.startswith("@") else address
        self._socket: socket.socket | None = None
        if self._address:
            self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC)
            # Never a time-out on the socket: Python would try again and again in it whatever the flags say.
            self._socket.setblocking(False)
        self.watchdog_s = _watchdog_period(environ)
        self._next_beat = 0.0

    def ready(self, status: str = "") -> None:
        self._send("READY=1", _status(status))

    def status(self, text: str) -> None:
        self._send(_status(text), patience_s=0.0)

    def reloading(self) -> None:
        """Say that a reload has begun; :meth:`ready` ends it."""
        self._send("RELOADING=1", f"MONOTONIC_USEC={time.monotonic_ns() // 1000}")

    def stopping(self) -> None:
        self._send("STOPPING=1")

    def alive(self) -> None:
        """The watchdog's beat. Call it as often as you like from the loop that must not hang: it sends twice a period."""
        if self.watchdog_s is None:
            return
        now = time.monotonic()
        if now >= self._next_beat:
            self._next_beat = now + self.watchdog_s / 2.5
            self._send("WATCHDOG=1", patience_s=0.0)

    def close(self) -> None:
        if self._socket is not None:
            self._socket.close()
            self._socket = None

    def _send(self, *lines: str, patience_s: float = _PATIENCE_S) -> None:
        text = "\n".join(line for line in lines if line).encode()
        if self._socket is None or not text:
            return
        deadline = time.monotonic() + patience_s
        while True:
            try:
                self._socket.sendto(text, self._address)
                return
            except BlockingIOError:
                # The manager does not empty its queue. Writability of a datagram socket says nothing of its peer's queue.
                if time.monotonic() >= deadline:
                    return
                select.select((), (), (), _RETRY_S)
            except OSError:
                return  # the manager is gone: a daemon must not stop for want of a listener


def _status(text: str) -> str:
    one_line = " ".join(text.split())
    return f"STATUS={one_line}" if one_line else ""


def _watchdog_period(environ: Mapping[str, str]) -> float | None:
    try:
        usec = int(environ["WATCHDOG_USEC"])
        pid = int(environ.get("WATCHDOG_PID", os.getpid()))
    except (KeyError, ValueError):
        return None
    return usec / 1e6 if usec > 0 and pid == os.getpid() else None

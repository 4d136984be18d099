"""A relay in front of ibsim that gives every management datagram a round-trip time, as a wire and a switch's firmware do.

Clients use the relay's socket name instead of ibsim's. Only the time is added: the relay neither limits what a switch answers per
second nor drops anything. Requests are held back; answers pass at once.
"""

from __future__ import annotations

import contextlib
import select
import socket
import struct
import threading
import time
import uuid
from collections import deque

from fabricd.ib.ibsim import CLIENT_INFO, CONNECT, CONTROL, DISCONNECT, REQUEST_SIZE, socket_address

_BUFFER = 8 << 20


class _Client:
    """Two sockets on either side: control and MADs."""

    def __init__(self, ident: int, base: str) -> None:
        self.ident = ident
        self.control = _bound(socket_address(base, f"ctl{ident}"))
        self.control.connect(socket_address(base, "ctl"))
        self.control.settimeout(5)
        self.inner = _bound(socket_address(base, f"in{ident}"))
        self.outer: socket.socket | None = None

    def close(self) -> None:
        for sock in (self.control, self.inner, self.outer):
            if sock is not None:
                sock.close()


def _bound(address: bytes) -> socket.socket:
    sock = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    for option in (socket.SO_RCVBUF, socket.SO_SNDBUF):
        sock.setsockopt(socket.SOL_SOCKET, option, _BUFFER)
    sock.bind(address)
    return sock


class Relay:
    """A context manager; ``name`` is what clients connect to."""

    def __init__(self, base: str, delay_s: float) -> None:
        self.name = f"relay-{uuid.uuid4().hex[:10]}"
        self._base, self._delay = base, delay_s
        self._front = _bound(socket_address(self.name, "ctl"))
        self._clients: dict[bytes, _Client] = {}
        self._held: deque[tuple[float, socket.socket, bytes]] = deque()
        self._stop = False
        self._thread = threading.Thread(target=self._run, daemon=True)

    def __enter__(self) -> Relay:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop = True
        self._thread.join(5)
        for client in self._clients.values():
            client.close()
        self._front.close()

    def _run(self) -> None:
        poller = select.poll()
        poller.register(self._front, select.POLLIN)
        by_fd: dict[int, tuple[socket.socket, _Client, bool]] = {}
        while not self._stop:
            while self._held and self._held[0][0] <= time.perf_counter():
                _, sock, data = self._held.popleft()
                sock.send(data)
            for fd, _ in poller.poll(0 if self._held else 20):
                if fd == self._front.fileno():
                    self._control(poller, by_fd)
                    continue
                sock, client, outward = by_fd[fd]
                data = sock.recv(REQUEST_SIZE)
                if outward:
                    self._held.append((time.perf_counter() + self._delay, client.inner, data))
                elif client.outer is not None:
                    with contextlib.suppress(OSError):  # the client went away with an answer still on its way
                        client.outer.send(data)

    def _control(self, poller: select.poll, by_fd: dict[int, tuple[socket.socket, _Client, bool]]) -> None:
        data, sender = self._front.recvfrom(CONTROL.size)
        kind = CONTROL.unpack(data)[2]
        client = self._clients.get(sender)
        if kind == CONNECT:
            ident = CLIENT_INFO.unpack_from(CONTROL.unpack(data)[4])[0]
            client = self._clients[sender] = _Client(ident, self._base)
        if client is None:
            return
        client.control.send(data)
        reply = client.control.recv(CONTROL.size)
        if kind == CONNECT:
            number = struct.unpack_from("=I", CONTROL.unpack(reply)[4])[0]
            client.inner.connect(socket_address(self._base, f"out{number}"))
            client.outer = _bound(socket_address(self.name, f"out{number}"))
            client.outer.connect(socket_address(self.name, f"in{client.ident}"))
            for sock, outward in ((client.outer, True), (client.inner, False)):
                by_fd[sock.fileno()] = (sock, client, outward)
                poller.register(sock, select.POLLIN)
        self._front.sendto(reply, sender)
        if kind == DISCONNECT:
            for sock in (client.outer, client.inner):
                if sock is not None:
                    poller.unregister(sock)
                    by_fd.pop(sock.fileno())
            client.close()
            del self._clients[sender]

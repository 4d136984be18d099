"""Transport to an ibsim-compatible MAD socket: ibsim itself, or the MAD server of fabricd's simulated fabric.

Two Unix datagram sockets with abstract names that begin *and end* with a NUL: control (80-byte ``sim_ctl`` in host order: magic,
client id, type, length, 64 bytes of data) and MADs (288-byte ``sim_request``: dlid, slid, dqp, sqp, status as u32, 4 bytes of
padding, length u64, the MAD; LIDs are the network-order u16 in the first two bytes). Layouts: ibsim's ``include/ibsim.h``.
"""

from __future__ import annotations

import contextlib
import errno
import itertools
import os
import select
import socket
import struct
from collections.abc import Callable
from functools import partial

from fabricd.ib.mad import MAD_SIZE, PERMISSIVE_LID, QP_SMP
from fabricd.ib.transport import Address, TransportError, get_only

MAGIC = 0xDEADBEEF
CONTROL = struct.Struct("=IIII64s")
CLIENT_INFO = struct.Struct("=III32s")
REQUEST_HEADER = struct.Struct(">HxxHxxIII4xQ")
REQUEST_SIZE = 32 + MAD_SIZE
ERROR, CONNECT, DISCONNECT, GET_PORT = 0, 1, 2, 3
_BUFFER = 4 << 20
_numbers = itertools.count()


def socket_address(base: str, name: str) -> bytes:
    """The abstract name ibsim uses for a socket of the server or of a client."""
    return b"\0" + f"{base}:{name}".encode() + b"\0"


class SimTransport:
    """A client of an ibsim-compatible server. ``base`` is its socket name (``IBSIM_SOCKNAME``), ``host`` the node to sit at.

    Raises TransportError when nothing answers there, or when it has no place for another client.
    """

    size = REQUEST_SIZE
    mad_at = 32
    status_at = 16
    drains = True
    reports_timeouts = False

    def __init__(self, base: str = "sim", host: str = "", connect_timeout: float = 5.0) -> None:
        self._closed = False
        self._id = 0
        self._control = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self._mads = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        try:
            ident = self._bind(base)
            self._control.settimeout(connect_timeout)
            self._control.connect(socket_address(base, "ctl"))
            reply = self._call(CONNECT, CLIENT_INFO.pack(ident, 0, 0, host.encode()))
            self._id = struct.unpack_from("=I", reply)[0]
            self._mads.connect(socket_address(base, f"out{self._id}"))
        except OSError as error:
            self._control.close()
            self._mads.close()
            raise TransportError(f"MAD socket {base!r}: {error.strerror or error}") from None
        except TransportError:
            self._control.close()
            self._mads.close()
            raise
        for option in (socket.SO_RCVBUF, socket.SO_SNDBUF):
            self._mads.setsockopt(socket.SOL_SOCKET, option, _BUFFER)
        self._mads.setblocking(False)
        poller = select.poll()
        poller.register(self._mads, select.POLLIN)
        self._poll = poller.poll
        self._send = get_only(self._mads.send, self.mad_at)
        self._recv = partial(self._mads.recv, self.size)

    def _bind(self, base: str) -> int:
        """Clients are told apart by a number, usually the process id; a process may hold several."""
        while True:
            ident = (os.getpid() + (next(_numbers) << 22)) & 0x7FFFFFFF
            try:
                self._control.bind(socket_address(base, f"ctl{ident}"))
            except OSError as error:
                if error.errno != errno.EADDRINUSE:
                    raise
                continue
            self._mads.bind(socket_address(base, f"in{ident}"))
            return ident

    def _call(self, kind: int, data: bytes = b"") -> bytes:
        self._control.send(CONTROL.pack(MAGIC, self._id, kind, len(data), data))
        try:
            reply = self._control.recv(CONTROL.size)
        except TimeoutError:
            raise TransportError("the MAD socket's server does not answer") from None
        if len(reply) != CONTROL.size:
            raise TransportError(f"the MAD socket's server answered {len(reply)} bytes")
        magic, _, answered, _, body = CONTROL.unpack(reply)
        if magic != MAGIC or answered == ERROR:
            raise TransportError("the MAD socket's server refused: unknown host, or no place for another client")
        return bytes(body)

    @property
    def send(self) -> Callable[[memoryview], None]:
        return self._send

    @property
    def recv(self) -> Callable[[], bytes]:
        return self._recv

    @property
    def poll(self) -> Callable[[float], object]:
        return self._poll

    def address(self, frame: memoryview, to: Address, timeout_ms: int) -> None:
        qp = 0 if to.qp == QP_SMP else 1
        source = PERMISSIVE_LID if to.lid == PERMISSIVE_LID else 0  # a directed route is answered along itself
        REQUEST_HEADER.pack_into(frame, 0, to.lid, source, qp, qp, 0, MAD_SIZE)

    @property
    def local_lid(self) -> int:
        """The LID of the port this client sits at."""
        return int.from_bytes(self._call(GET_PORT)[:2], "little" if struct.pack("=H", 1)[0] else "big")

    def close(self) -> None:
        if not self._closed:
            self._closed = True
            with contextlib.suppress(OSError, TransportError):
                self._call(DISCONNECT)
            self._control.close()
            self._mads.close()

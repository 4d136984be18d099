"""The collector's Unix socket: typed Gets for processes without umad. Bad lines are answered, never fatal."""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
from collections import Counter
from collections.abc import Callable
from pathlib import Path

from fabricd.errors import FabricdError
from fabricd.ib.gets import (
    MAX_LINE,
    REFUSED,
    GetReply,
    GetRequest,
    build,
    decode_request,
    encode_line,
    refuse,
    reply_of,
)
from fabricd.ib.keys import Keys
from fabricd.ib.limits import Limits
from fabricd.ib.scheduler import Scheduler
from fabricd.ib.transport import Transport, TransportError

_FIRST_PASSED_FD = 3


class GetServer:
    """Answers over a transport of its own, opened with the first request and anew after the device went away.

    ``counts``: requests by reply.
    """

    def __init__(self, open_transport: Callable[[], Transport], limits: Limits, m_keys: Keys, pm_keys: Keys) -> None:
        self._open = open_transport
        self._limits = limits
        self._m_keys, self._pm_keys = m_keys, pm_keys
        self._scheduler: Scheduler | None = None
        self._one_at_a_time = asyncio.Lock()
        self.counts: Counter[str] = Counter()

    async def serve(self, path: str) -> None:
        """Until cancelled. A socket passed by systemd is used, else ``path`` is made. Raises FabricdError."""
        passed = _passed_socket()
        server = await asyncio.start_unix_server(self._client, sock=passed or _listen(path), limit=MAX_LINE)
        try:
            async with server:
                await server.serve_forever()
        finally:
            self._close()
            if passed is None:
                _remove(path)

    async def _client(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while True:
                try:
                    line = await reader.readline()
                except ValueError:  # longer than any request
                    writer.write(encode_line(GetReply(REFUSED, error=f"line longer than {MAX_LINE} bytes")))
                    break
                if not line:
                    break
                writer.write(encode_line(await self._answer(line)))
                await writer.drain()
        except ConnectionError:
            pass
        finally:
            writer.close()
            with contextlib.suppress(ConnectionError):
                await writer.wait_closed()

    async def _answer(self, line: bytes) -> GetReply:
        try:
            request = decode_request(line)
        except ValueError as error:
            self.counts[REFUSED] += 1
            return refuse(line, str(error))
        async with self._one_at_a_time:
            reply = await asyncio.to_thread(self._get, request)
        self.counts[reply.reply] += 1
        return reply

    def _get(self, request: GetRequest) -> GetReply:
        try:
            if self._scheduler is None:
                self._scheduler = Scheduler(self._open(), self._limits, patient=True)
            answer = self._scheduler.get(build(request, self._m_keys.default, self._pm_keys.default))
            self._scheduler.forgive()
        except TransportError as error:
            self._close()
            return GetReply("send_failed", request.id, error=str(error))
        return reply_of(request, answer)

    def _close(self) -> None:
        if self._scheduler is not None:
            self._scheduler.transport.close()
            self._scheduler = None


def _passed_socket() -> socket.socket | None:
    """The listening socket of a systemd socket unit, if there is one (sd_listen_fds(3))."""
    if os.environ.get("LISTEN_PID") != str(os.getpid()) or os.environ.get("LISTEN_FDS") != "1":
        return None
    return socket.socket(fileno=_FIRST_PASSED_FD)


def _listen(path: str) -> socket.socket:
    """Our own socket, for our group only. One that a killed predecessor left is replaced. Raises FabricdError."""
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        Path(path).parent.mkdir(parents=True, exist_ok=True)
        if Path(path).is_socket():
            if _answers(path):
                raise FabricdError(f"collector.socket {path}: another collector is listening there")
            Path(path).unlink()
        listener.bind(path)
        Path(path).chmod(0o660)
        listener.listen()
    except OSError as error:
        listener.close()
        raise FabricdError(f"collector.socket {path}: {error.strerror or error}") from None
    except FabricdError:
        listener.close()
        raise
    return listener


def _answers(path: str) -> bool:
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        return probe.connect_ex(path) == 0


def _remove(path: str) -> None:
    Path(path).unlink(missing_ok=True)

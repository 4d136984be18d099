"""uvicorn inside our own event loop and life cycle: no signal handlers of its own, sockets bound by us."""

from __future__ import annotations

import contextlib
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import uvicorn

from fabricd.errors import FabricdError


class _Server(uvicorn.Server):
    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


def bind_tcp(host: str, port: int) -> socket.socket:
    """A listening socket; port 0 takes a free one. Raises FabricdError naming the address."""
    try:
        family, _, _, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        listener = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)  # so that asyncio switches Nagle off
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(address)
        listener.listen(128)  # whoever is told the address may connect at once
    except OSError as error:
        raise FabricdError(f"api.host = {host}, api.port = {port}: {error.strerror or error}") from None
    return listener


def bind_unix(path: str, mode: int = 0o660) -> socket.socket:
    """A listening unix socket in place of a stale one. Raises FabricdError naming the path, also when another process listens."""
    try:
        if Path(path).exists():
            with socket.socket(socket.AF_UNIX) as probe:
                try:
                    probe.connect(path)
                except ConnectionRefusedError:
                    Path(path).unlink()
                else:
                    raise FabricdError(f"aggregator.socket = {path}: another process listens there")
        Path(path).parent.mkdir(parents=True, exist_ok=True)
        listener = socket.socket(socket.AF_UNIX)
        listener.bind(path)
        Path(path).chmod(mode)
        listener.listen(128)
    except OSError as error:
        raise FabricdError(f"aggregator.socket = {path}: {error.strerror or error}") from None
    return listener


def url_of(listener: socket.socket) -> str:
    host, port = listener.getsockname()[:2]
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


async def serve(app: Any, listener: socket.socket) -> None:
    """Answer on ``listener`` until cancelled; open answers get a second to end."""
    config = uvicorn.Config(
        app,
        log_config=None,
        access_log=False,
        lifespan="off",
        timeout_graceful_shutdown=1,
        server_header=False,
        ws="none",
    )
    server = _Server(config)
    try:
        await server.serve(sockets=[listener])
    finally:
        listener.close()

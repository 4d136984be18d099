"""An ASGI application on a loopback port, inside the twin's event loop."""

from __future__ import annotations

import contextlib
import socket
import ssl
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import uvicorn

from fabricd.errors import FabricdError


@dataclass(frozen=True, slots=True)
class Tls:
    """Files of a listener that lets only clients with a certificate of ``client_ca`` in."""

    certificate: Path
    key: Path
    client_ca: Path


class _Server(uvicorn.Server):
    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


def listen(port: int = 0) -> socket.socket:
    """A loopback listener. Raises FabricdError when the port is taken."""
    # The protocol by name: asyncio switches Nagle off only on sockets that carry it, and answers then wait for no delayed ACK.
    listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind(("127.0.0.1", port))
        listener.listen(128)  # callers may connect as soon as the address is known
    except OSError as error:
        listener.close()
        raise FabricdError(f"127.0.0.1:{port}: {error.strerror}") from None
    return listener


def url(listener: socket.socket, scheme: str = "http") -> str:
    return f"{scheme}://127.0.0.1:{listener.getsockname()[1]}"


async def serve(app: Any, listener: socket.socket, tls: Tls | None = None) -> None:
    """Answer until cancelled."""
    secure: dict[str, Any] = {}
    if tls is not None:
        secure = {
            "ssl_certfile": str(tls.certificate),
            "ssl_keyfile": str(tls.key),
            "ssl_ca_certs": str(tls.client_ca),
            "ssl_cert_reqs": int(ssl.CERT_REQUIRED),
        }
    config = uvicorn.Config(
        app, log_config=None, access_log=False, lifespan="off", timeout_graceful_shutdown=1, ws="none", **secure
    )
    try:
        await _Server(config).serve(sockets=[listener])
    finally:
        listener.close()

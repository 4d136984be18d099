"""The broker of ``fabricd up``: rumqttd (of the iotcore package) in a child process, on loopback only.

It keeps sessions and retained messages in memory: for one machine and for trying things, not for a fabric (docs/aggregator.md).
"""

from __future__ import annotations

import asyncio
import ipaddress
import socket
from typing import Any

from fabricd.errors import FabricdError, UsageError

MAX_IN_FLIGHT = 1000
MAX_CONNECTIONS = 1024


def free_port(host: str = "127.0.0.1") -> int:
    """A TCP port nobody listens on at this moment."""
    with socket.socket() as probe:
        probe.bind((host, 0))
        return int(probe.getsockname()[1])


class EmbeddedBroker:
    """``async with EmbeddedBroker(...)``: listens when entered, gone when left; it also ends when this process dies.

    It has no passwords and no TLS, so an address other than loopback is refused (UsageError).
    """

    def __init__(self, port: int = 0, host: str = "127.0.0.1", max_payload: int = 64 << 20) -> None:
        try:
            loopback = ipaddress.ip_address(host).is_loopback
        except ValueError:
            loopback = False
        if not loopback:
            raise UsageError(f"the embedded broker listens on loopback only, not on {host}")
        self.host = host
        self.port = port or free_port(host)
        self._max_payload = max_payload
        self._broker: Any = None

    async def start(self) -> None:
        """Raises FabricdError when it does not come up."""
        from iotcore import Broker  # of an extra

        self._broker = Broker(
            port=self.port,
            listen=self.host,
            max_connections=MAX_CONNECTIONS,
            max_payload_size=self._max_payload,
            max_inflight_count=MAX_IN_FLIGHT,
        )
        try:
            await asyncio.to_thread(self._broker.start)
        except (OSError, RuntimeError) as error:
            raise FabricdError(f"embedded broker on {self.host}:{self.port}: {error}") from None

    async def stop(self) -> None:
        if self._broker is not None:
            await asyncio.to_thread(self._broker.stop, 2.0)
            self._broker = None

    async def __aenter__(self) -> EmbeddedBroker:
        await self.start()
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self.stop()

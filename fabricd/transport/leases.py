"""Leases on shards: over the broker for collectors on several hosts, by locked files for those that share a directory."""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import logging
import os
import random
from collections.abc import Callable
from pathlib import Path
from typing import Protocol

import aiomqtt
import msgspec

from fabricd.config.broker import BrokerConfig
from fabricd.errors import BAD_DOCUMENT, FabricdError
from fabricd.model import topics
from fabricd.transport.lease_table import LeaseMessage, LeaseTable
from fabricd.transport.login import read_password, tls_context

log = logging.getLogger(__name__)

Changed = Callable[[frozenset[int]], None]
_decoder = msgspec.json.Decoder(LeaseMessage)


class Leases(Protocol):
    """``run`` until cancelled; it calls ``changed`` with the shards held, first and whenever they change."""

    @property
    def held(self) -> frozenset[int]: ...

    @property
    def others(self) -> dict[int, str]:
        """Shards that someone else holds, by whom."""
        ...

    async def run(self, changed: Changed) -> None: ...


class NoLeases:
    """All shards are ours; nobody is asked."""

    def __init__(self, shards: int) -> None:
        self.held = frozenset(range(shards))
        self.others: dict[int, str] = {}

    async def run(self, changed: Changed) -> None:
        changed(self.held)
        await asyncio.Event().wait()


class FileLeases:
    """One locked file per shard. The kernel drops the lock when its holder ends, however it ends.

    Raises FabricdError when the directory cannot be used.
    """

    def __init__(self, directory: Path, me: str, shards: int, retry_s: float = 2.0) -> None:
        self._directory, self._me, self._shards, self._retry_s = directory, me, shards, retry_s
        self._files: dict[int, int] = {}
        self.others: dict[int, str] = {}

    @property
    def held(self) -> frozenset[int]:
        return frozenset(self._files)

    async def run(self, changed: Changed) -> None:
        changed(self.held)
        try:
            while True:
                before = self.held
                self._try_all()
                if self.held != before:
                    changed(self.held)
                await asyncio.sleep(self._retry_s)
        finally:
            for descriptor in self._files.values():
                os.close(descriptor)
            self._files.clear()

    def _try_all(self) -> None:
        for shard in sorted(set(range(self._shards)) - set(self._files)):
            path = self._directory / f"shard-{shard}"
            try:
                self._directory.mkdir(parents=True, exist_ok=True)
                descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o660)
            except OSError as error:
                raise FabricdError(f"collector.lease_dir {path}: {error.strerror}") from None
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError:
                self.others[shard] = os.read(descriptor, 256).decode(errors="replace").strip() or "unknown"
                os.close(descriptor)
                continue
            os.ftruncate(descriptor, 0)
            os.pwrite(descriptor, f"{self._me}\n".encode(), 0)
            self._files[shard] = descriptor
            self.others.pop(shard, None)


class MqttLeases:
    """Retained messages on one topic per shard; see ``lease_table`` for who wins."""

    def __init__(self, broker: BrokerConfig, fabric: str, me: str, shards: int, ttl: float) -> None:
        self._broker, self._fabric, self._me = broker, fabric, me
        self._table = LeaseTable(me, shards, ttl)
        self._last: frozenset[int] | None = None

    @property
    def held(self) -> frozenset[int]:
        return self._table.held

    @property
    def others(self) -> dict[int, str]:
        return self._table.others

    async def run(self, changed: Changed) -> None:
        pause = 0.25
        self._tell(changed)
        while True:
            try:
                await self._connection(changed)
            except aiomqtt.MqttError as error:
                log.info("leases: broker %s:%d: %s", self._broker.host, self._broker.port, error)
            finally:
                self._table.disconnected()
            self._tell(changed)
            await asyncio.sleep(random.uniform(0.05, pause))
            pause = min(pause * 2, self._broker.reconnect_max)

    def _tell(self, changed: Changed) -> None:
        if self.held != self._last:
            self._last = self.held
            changed(self.held)

    async def _connection(self, changed: Changed) -> None:
        async with aiomqtt.Client(
            self._broker.host,
            self._broker.port,
            username=self._broker.username,
            password=read_password(self._broker),
            tls_context=tls_context(self._broker),
            keepalive=self._broker.keepalive,
            logger=log,
        ) as client:
            await client.subscribe(topics.lease(self._fabric, "sweep") + "/#", qos=1)
            self._table.connected()
            tasks = [asyncio.create_task(part(client, changed)) for part in (self._listen, self._send)]
            try:
                done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
                for task in done:
                    task.result()
            except asyncio.CancelledError:
                with contextlib.suppress(aiomqtt.MqttError):
                    for shard in self.held:
                        await self._publish(client, f"shard/{shard}", LeaseMessage("release", self._me))
                raise
            finally:
                for task in tasks:
                    task.cancel()
                await asyncio.gather(*tasks, return_exceptions=True)

    async def _listen(self, client: aiomqtt.Client, changed: Changed) -> None:
        async for message in client.messages:
            self._receive(message)
            self._tell(changed)

    def _receive(self, message: aiomqtt.Message) -> None:
        kind, _, name = message.topic.value.rpartition("/")
        payload = message.payload if isinstance(message.payload, bytes | bytearray) else b""
        try:
            if kind.endswith("/peer"):
                if not message.retain:
                    self._table.peer(name)
            elif kind.endswith("/shard"):
                self._table.message(int(name), _decoder.decode(payload))
        except BAD_DOCUMENT:
            log.warning("leases: not understood: %s", message.topic)

    async def _send(self, client: aiomqtt.Client, changed: Changed) -> None:
        while True:
            await client.publish(topics.lease(self._fabric, "sweep") + f"/peer/{self._me}", b"alive", qos=1)
            for shard, message in self._table.due():
                await self._publish(client, f"shard/{shard}", message)
            self._tell(changed)
            await asyncio.sleep(self._table.ttl / 4)

    async def _publish(self, client: aiomqtt.Client, name: str, message: LeaseMessage) -> None:
        topic = topics.lease(self._fabric, "sweep") + f"/{name}"
        await client.publish(topic, msgspec.json.encode(message), qos=1, retain=True, timeout=5)

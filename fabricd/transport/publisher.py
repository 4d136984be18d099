"""A node's side of the stream: frames go to a bounded spool on disk and to the broker; the spool keeps what the aggregator lacks.

MQTT's QoS 1 is hop by hop: an acknowledgement means that the *broker* has the message. So the aggregator publishes, per node, which
(boot, sequence) are on its disk (``topics.stored``), and only those are freed here. After an outage live frames go first; what is left
in the spool follows on the backlog topic, rate-limited. The receiver drops duplicates by (boot, sequence), so sending twice is safe.

The document on the stored topic: ``{"boots": [{"boot": B, "stored": [[low, high], …]}, …]}``, ranges inclusive.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import math
import random
import time
from collections import deque
from pathlib import Path
from typing import Any

import aiomqtt
import msgspec

from fabricd.config.broker import BrokerConfig
from fabricd.errors import BAD_DOCUMENT
from fabricd.model import topics
from fabricd.model.frame import Schema
from fabricd.transport.login import read_password, tls_context
from fabricd.transport.prompt import PromptClient
from fabricd.transport.spool import Key, Spool

log = logging.getLogger(__name__)

IN_FLIGHT = 32  # publishes waiting for the broker's acknowledgement
LIVE_WAITING = 256  # live frames waiting for a free place; beyond that they are left to the backlog
GRACE_S = 1.0  # after connecting: the retained watermark comes first, so that the backlog is not sent twice


class StoredBoot(msgspec.Struct, frozen=True):
    boot: int
    stored: list[tuple[int, int]]


class StoredDocument(msgspec.Struct, frozen=True):
    """What the aggregator has of a node: per boot the inclusive ranges of sequences on its disk."""

    boots: list[StoredBoot]


_stored_decoder = msgspec.json.Decoder(StoredDocument)


class Publisher:
    """Publishes the schemas, frames and status of one node. Not thread-safe: call it from the event loop that runs ``run``.

    ``boot`` identifies this run of the publishing process: (boot, seq) must never name two different frames.
    Raises FabricdError when the spool cannot be used, UsageError when TLS or password files cannot be read.
    """

    def __init__(self, broker: BrokerConfig, fabric: str, node: str, spool_dir: Path, *, boot: int) -> None:
        self._broker = broker
        self._fabric, self._node, self._boot = fabric, node, boot
        self._tls, self._password = tls_context(broker), read_password(broker)
        self._frames_topic = topics.frames(fabric, node)
        self._backlog_topic = topics.backlog(fabric, node)
        self._status_topic = topics.status(fabric, node)
        self._stored_topic = topics.stored(fabric, node)
        self._spool = Spool(spool_dir, broker.spool_mb << 20)
        self._schemas = _SchemaShelf(spool_dir)
        self._status: dict[str, Any] = {}
        self._live: deque[tuple[int, bytes]] = deque()
        self._sent: dict[Key, float] = {}  # when, on time.monotonic's scale, in this connection
        self._backlog: deque[Key] = deque()
        self._in_flight: dict[asyncio.Task[None], float] = {}  # publishes and when they began, oldest first
        self._sending = False  # schemas and status are out, frames may follow
        self._client: aiomqtt.Client | None = None
        self._broken: aiomqtt.MqttError | None = None  # a publish failed: the connection is over
        self._stopping = False
        self._wake = asyncio.Event()
        self._counts = dict.fromkeys(
            (
                "published",
                "backlog_published",
                "freed",
                "reconnects",
                "connect_failures",
                "bad_stored",
                "rivals",
                "lost",
            ),
            0,
        )
        self._stored_at = 0.0  # when the aggregator last reported

    @property
    def connected(self) -> bool:
        return self._client is not None

    def publish_schema(self, schema: Schema) -> None:
        """Announce what a stream's frames mean; retained. Call it before the stream's first frame and after each change."""
        topic = topics.schema(self._fabric, self._node, schema.stream)
        self._schemas.put(schema, topic)
        self._send_soon(topic, schema.encode(), retain=True)

    def publish_frame(self, seq: int, payload: bytes) -> None:
        """Queue one encoded frame; never blocks and never raises for a full or broken disk (see ``stats``)."""
        kept = self._spool.append(self._boot, seq, payload)
        if self._client is None:
            self._counts["lost"] += not kept
            return
        if self._sending and not self._live and len(self._in_flight) < IN_FLIGHT:
            self._start(self._client, (self._boot, seq), self._frames_topic, payload)
        elif len(self._live) < LIVE_WAITING:
            self._live.append((seq, payload))
        elif not kept:
            self._counts["lost"] += 1  # neither on disk nor on its way

    def publish_status(self, document: dict[str, Any]) -> None:
        """The node's retained status; ``state``, ``node``, ``boot`` and ``publisher`` (our ``stats``) are added."""
        self._status = document
        self._send_soon(self._status_topic, self._status_bytes("alive"), retain=True)

    def stats(self) -> dict[str, int]:
        """Gauges and counters: ``spool_frames``, ``spool_bytes``, ``dropped``, ``reconnects`` …"""
        return {
            "connected": int(self.connected),
            "spool_frames": len(self._spool),
            "spool_bytes": self._spool.bytes,
            "dropped": self._spool.dropped,
            "spool_errors": self._spool.errors,
            "spool_torn": self._spool.torn,
            **self._counts,
        }

    async def run(self) -> None:
        """Connect, publish, reconnect; ends only by cancellation, which says ``stopped`` to the broker and closes the spool."""
        pause = 0.25
        try:
            while True:
                began = time.monotonic()
                try:
                    await self._connection()
                except aiomqtt.MqttError as error:
                    lost = self._client is not None
                    self._counts["reconnects" if lost else "connect_failures"] += 1
                    log.log(
                        logging.WARNING if lost or pause < 1 else logging.INFO,
                        "broker %s:%d: %s", self._broker.host, self._broker.port, error,
                    )  # fmt: skip
                finally:
                    self._client = None
                    self._live.clear()  # they are in the spool
                if time.monotonic() - began > 10:
                    pause = 0.25
                # Full jitter: after a broker's restart a thousand agents must not come back in the same instant.
                await asyncio.sleep(random.uniform(0.05, pause))
                pause = min(pause * 2, self._broker.reconnect_max)
        finally:
            self._spool.close()

    async def _connection(self) -> None:
        """One connection, until it breaks (MqttError) or the task is cancelled."""
        client = PromptClient(
            self._broker.host,
            self._broker.port,
            identifier=f"fabricd-{self._node}-{self._boot & 0xFFFFFFFF:08x}",
            username=self._broker.username,
            password=self._password,
            tls_context=self._tls,
            keepalive=self._broker.keepalive,
            clean_session=True,
            max_inflight_messages=IN_FLIGHT * 2,
            will=aiomqtt.Will(self._status_topic, self._status_bytes("dead"), qos=1, retain=True),
            logger=log,
        )
        client.pending_calls_threshold = IN_FLIGHT * 4
        async with client:
            await client.subscribe([(self._stored_topic, 1), (self._status_topic, 1)])
            self._client = client
            self._broken = None
            self._sent.clear()
            self._backlog.clear()
            for topic, payload, retain in self._schemas.in_order():
                await client.publish(topic, payload, qos=1, retain=retain)
            await client.publish(self._status_topic, self._status_bytes("alive"), qos=1, retain=True)
            log.info(
                "connected to broker %s:%d, %d frames in the spool",
                self._broker.host,
                self._broker.port,
                len(self._spool),
            )
            tasks = [asyncio.create_task(t) for t in (self._receive(client), self._send(client))]
            try:
                done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
                for task in done:
                    task.result()
            except asyncio.CancelledError:
                self._stopping = True
                with contextlib.suppress(aiomqtt.MqttError):
                    await client.publish(
                        self._status_topic, self._status_bytes("stopped"), qos=1, retain=True, timeout=1
                    )
                raise
            finally:
                for task in tasks:
                    task.cancel()
                await asyncio.gather(*tasks, return_exceptions=True)

    async def _receive(self, client: aiomqtt.Client) -> None:
        async for message in client.messages:
            payload = message.payload if isinstance(message.payload, bytes | bytearray) else b""
            if message.topic.value == self._stored_topic:
                self._on_stored(bytes(payload))
            elif not message.retain:
                self._on_own_status(bytes(payload))

    def _on_stored(self, payload: bytes) -> None:
        try:
            document = _stored_decoder.decode(payload)
        except BAD_DOCUMENT:
            self._counts["bad_stored"] += 1
            return
        self._stored_at = time.monotonic()
        for entry in document.boots:
            self._counts["freed"] += self._spool.free(entry.boot, entry.stored)
        self._sent = {key: when for key, when in self._sent.items() if key in self._spool}
        self._schemas.forget(keep_old=len(self._spool) > 0)

    def _on_own_status(self, payload: bytes) -> None:
        """Our topic says dead (a will sent late) or is written by another boot (two nodes with one id): ours is the truth here."""
        try:
            document = msgspec.json.decode(payload)
            boot, state = int(document["boot"]), document["state"]
        except (*BAD_DOCUMENT, TypeError, KeyError):
            return
        if boot != self._boot and state == "alive":
            self._counts["rivals"] += 1
            log.warning("another agent publishes as node %s (boot %016x)", self._node, boot)
        elif state != "alive" and not self._stopping:
            self._send_soon(self._status_topic, self._status_bytes("alive"), retain=True)

    async def _send(self, client: aiomqtt.Client) -> None:
        """What :meth:`publish_frame` could not send at once: live frames first; the backlog in the time between, at its rate."""
        now = time.monotonic()
        backlog_at = now + GRACE_S  # the next backlog frame not before
        scan_at = backlog_at
        loop = asyncio.get_running_loop()
        self._sending = True
        try:
            while self._broken is None:
                now = time.monotonic()
                found, topic = None, self._frames_topic
                if len(self._in_flight) < IN_FLIGHT:
                    if self._live:
                        seq, payload = self._live.popleft()
                        found = (self._boot, seq), payload
                    else:
                        if now >= scan_at and not self._backlog:
                            self._backlog.extend(self._due(now))
                            scan_at = now + self._broker.resend_after / 4
                        if now >= backlog_at and (found := self._next_backlog()) is not None:
                            topic = self._backlog_topic
                            size = len(found[1])
                            backlog_at = max(backlog_at, now - 0.1) + size / (self._broker.backlog_kb_per_s * 1024)
                if found is not None:
                    self._start(client, found[0], topic, found[1])
                    continue
                self._check_acknowledged()
                self._wake.clear()
                pause = (backlog_at if self._backlog else max(scan_at, backlog_at)) - now
                # A timer that sets the event: wait_for would make a task each time, on each node, for each frame.
                timer = loop.call_later(min(max(pause, 0.001), self._broker.keepalive), self._wake.set)
                await self._wake.wait()
                timer.cancel()
            raise self._broken
        finally:
            self._sending = False
            for task in self._in_flight:
                task.cancel()

    def _start(self, client: aiomqtt.Client, key: Key, topic: str, payload: bytes) -> None:
        self._sent[key] = now = time.monotonic()
        task = asyncio.create_task(self._publish(client, topic, payload))
        self._in_flight[task] = now
        task.add_done_callback(self._ended)

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._in_flight.pop(task, None)
        if self._live or self._backlog or self._broken is not None:
            self._wake.set()

    async def _publish(self, client: aiomqtt.Client, topic: str, payload: bytes) -> None:
        try:
            await client.publish(topic, payload, qos=1, timeout=math.inf)  # _check_acknowledged watches all of them
            self._counts["published" if topic == self._frames_topic else "backlog_published"] += 1
        except aiomqtt.MqttError as error:
            self._broken = error

    def _check_acknowledged(self) -> None:
        """Raises MqttError when the oldest publish waits too long: the broker lives but does not take frames."""
        oldest = next(iter(self._in_flight.values()), None)
        if oldest is not None and time.monotonic() - oldest > self._broker.keepalive:
            raise aiomqtt.MqttError(f"no acknowledgement of a frame within {self._broker.keepalive} s")

    def _due(self, now: float) -> list[Key]:
        """Frames of the spool not sent in this connection, or sent long ago although the aggregator has reported since."""
        oldest = now - self._broker.resend_after
        return [
            key
            for key in self._spool
            if (sent := self._sent.get(key)) is None or (sent < oldest and sent < self._stored_at)
        ]

    def _next_backlog(self) -> tuple[Key, bytes] | None:
        while self._backlog:
            key = self._backlog.popleft()
            payload = self._spool.read(key)
            if payload is not None:
                return key, payload
        return None

    def _status_bytes(self, state: str) -> bytes:
        document = {**self._status, "state": state, "node": self._node, "fabric": self._fabric, "boot": self._boot}
        if state == "alive":
            document["publisher"] = self.stats()
        return msgspec.json.encode(document)

    def _send_soon(self, topic: str, payload: bytes, *, retain: bool) -> None:
        """A retained document: sent now if there is a connection, else the connection's start sends it."""
        client = self._client
        if client is None:
            return
        task = asyncio.ensure_future(client.publish(topic, payload, qos=1, retain=retain))
        task.add_done_callback(_ignore_lost_connection)


def _ignore_lost_connection(task: asyncio.Future[None]) -> None:
    if not task.cancelled() and (error := task.exception()) is not None:
        log.debug("not published, the next connection will: %s", error)


class _SchemaShelf:
    """The schemas that frames in the spool may need, on disk beside it: after a restart old frames must still be readable."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._current: dict[int, tuple[str, bytes, Path]] = {}  # by stream
        self._old: list[Path] = sorted(directory.glob("schema-*.json"), key=lambda path: path.stat().st_mtime)

    def put(self, schema: Schema, topic: str) -> None:
        path = self._directory / f"schema-{schema.stream}-{schema.id:016x}.json"
        previous = self._current.get(schema.stream)
        if previous is not None and previous[2] != path:
            self._old.append(previous[2])
        self._old = [old for old in self._old if old != path]
        payload = schema.encode()
        self._current[schema.stream] = (topic, payload, path)
        try:
            path.write_bytes(payload)
        except OSError as error:
            log.warning("%s: %s", path, error.strerror)

    def in_order(self) -> list[tuple[str, bytes, bool]]:
        """(topic, payload, retain): old ones first and not retained, so that the retained one is the current."""
        out = []
        for path in self._old:
            try:
                payload = path.read_bytes()
                schema = msgspec.json.decode(payload, type=Schema)
                out.append((topics.schema(schema.fabric, schema.node, schema.stream), payload, False))
            except (OSError, *BAD_DOCUMENT) as error:
                log.warning("%s: %s", path, error)
        return out + [(topic, payload, True) for topic, payload, _ in self._current.values()]

    def forget(self, *, keep_old: bool) -> None:
        """Old schemas are needed only while the spool holds frames."""
        if not keep_old:
            for path in self._old:
                path.unlink(missing_ok=True)
            self._old.clear()

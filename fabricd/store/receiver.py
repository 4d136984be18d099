"""The aggregator's side of the stream: subscribes, hands batches to the ingest, acknowledges what is on disk, reports to the nodes."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import logging
import random
import time
from collections.abc import Sequence

import msgspec

from fabricd.config.aggregator import AggregatorConfig
from fabricd.config.broker import BrokerConfig
from fabricd.errors import FabricdError
from fabricd.model import topics
from fabricd.store.ingest import Ingest
from fabricd.store.recording import Recording
from fabricd.store.records import read_segment, segments
from fabricd.transport.login import read_password, tls_context
from fabricd.transport.subscriber import ConnectionLost, Message, Subscriber

log = logging.getLogger(__name__)

FIRST_PAUSE_S = 0.25
# A sync costs the same for one frame and for hundreds. So it waits while more arrive, but not for a broker that waits for us:
# brokers send only so many messages (mosquitto: 20) before the first acknowledgement.
GROUP_S, QUIET_S = 0.03, 0.01


class Receiver:
    """Sessions are clean: what arrives while we are away is not queued by the broker (it would be the whole fabric's stream) but
    comes again from the nodes' spools, which hold everything we have not reported as stored.

    Without a ``recording`` a frame counts as stored once it is in the columns.

    ``beside`` an aggregator: the nodes get no reports, so they free nothing on our account.

    Raises UsageError when TLS or password files cannot be read.
    """

    def __init__(
        self,
        broker: BrokerConfig,
        config: AggregatorConfig,
        ingest: Ingest,
        recording: Recording | None,
        client_id: str,
        *,
        beside: bool = False,
    ) -> None:
        self._broker, self._config = broker, config
        self._ingest, self._recording = ingest, recording
        self._client_id, self._beside = client_id, beside
        self._tls, self._password = tls_context(broker), read_password(broker)
        self._subscriber: Subscriber | None = None
        self._unacknowledged: list[int] = []
        self._work = asyncio.Event()
        self.reconnects = 0
        self.sync_errors = 0

    @property
    def connected(self) -> bool:
        return self._subscriber is not None

    async def run(self) -> None:
        """Until cancelled. Losing the broker is no reason to end."""
        # Each batch makes hundreds of short-lived tuples and no cycles: looking for cycles among all that lives would cost a tenth.
        gc.freeze()
        gc.set_threshold(100_000, 50, 50)
        tasks = [asyncio.create_task(work) for work in (self._connect(), self._acknowledge(), self._report())]
        try:
            await asyncio.gather(*tasks)
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            await self._finish()

    async def _finish(self) -> None:
        """What arrived is on disk and acknowledged before we go."""
        mids, self._unacknowledged = self._unacknowledged, []
        if await self._sync() and self._subscriber is not None:
            self._subscriber.ack(mids)
            self._publish(self._take_reports())
            self._subscriber.close()
        if self._recording is not None:
            self._recording.close()

    async def _connect(self) -> None:
        fabric, qos = self._ingest.fabric, self._config.qos
        wanted = [
            (topics.of_all_nodes(fabric, kind), kind_qos)
            for kind, kind_qos in (("schema", 1), ("status", 1), ("frames", qos), ("backlog", qos))
        ]
        pause = FIRST_PAUSE_S
        while True:
            began = time.monotonic()
            try:
                subscriber = await Subscriber.connect(
                    self._broker.host,
                    self._broker.port,
                    self._on_batch,
                    client_id=self._client_id,
                    subscriptions=wanted,
                    clean_session=True,
                    username=self._broker.username,
                    password=self._password,
                    tls=self._tls,
                    keepalive=self._broker.keepalive,
                    max_packet=self._broker.max_payload_kb << 10,
                )
                log.info("connected to broker %s:%d", self._broker.host, self._broker.port)
                self._subscriber = subscriber
                self._ingest.unreported.update(
                    self._ingest.store.nodes.values()
                )  # the broker may have forgotten our reports
                await subscriber.closed
            except (ConnectionLost, OSError) as error:
                first = self._subscriber is not None or pause == FIRST_PAUSE_S
                log.log(
                    logging.WARNING if first else logging.INFO,
                    "broker %s:%d: %s",
                    self._broker.host,
                    self._broker.port,
                    error,
                )
            finally:
                self.reconnects += self._subscriber is not None
                self._subscriber = None
                self._unacknowledged.clear()  # the next connection delivers them again, under other packet ids
            if time.monotonic() - began > 10:
                pause = FIRST_PAUSE_S
            await asyncio.sleep(random.uniform(0.05, pause))
            pause = min(pause * 2, self._broker.reconnect_max)

    def _on_batch(self, messages: Sequence[Message]) -> None:
        mids = self._ingest.batch(messages)
        if mids:
            self._unacknowledged += mids
            self._work.set()

    async def _acknowledge(self) -> None:
        """One sync for all that arrived during the one before: the disk sets the size of the group."""
        while True:
            await self._work.wait()
            await self._gather_group()
            self._work.clear()
            subscriber = self._subscriber
            if subscriber is None:
                # The first batch may arrive before the connection is complete.
                await asyncio.sleep(0.01)
                if self._unacknowledged:
                    self._work.set()
                continue
            mids, self._unacknowledged = self._unacknowledged, []
            if not await self._sync():
                await asyncio.sleep(1)
                mids, self._unacknowledged = [], mids + self._unacknowledged
                self._work.set()
            if subscriber is self._subscriber:
                subscriber.ack(mids)

    async def _gather_group(self) -> None:
        for _ in range(round(GROUP_S / QUIET_S)):
            had = len(self._unacknowledged)
            await asyncio.sleep(QUIET_S)
            if len(self._unacknowledged) == had:
                return

    async def _sync(self) -> bool:
        if not self._config.sync or self._recording is None:
            return True
        try:
            await asyncio.to_thread(self._recording.sync)
        except OSError as error:
            # Not acknowledged and not reported: the broker and the nodes keep it.
            self.sync_errors += 1
            log.error("recording: sync: %s", error.strerror)
            return False
        return True

    async def _report(self) -> None:
        while True:
            await asyncio.sleep(self._config.report_interval)
            if self._subscriber is None or not self._ingest.unreported:
                continue
            reports = self._take_reports()
            if await self._sync():
                self._publish(reports)

    def _take_reports(self) -> list[tuple[str, bytes]]:
        """What is stored now; to be published only after a sync that began later."""
        fabric = self._ingest.fabric
        nodes, self._ingest.unreported = self._ingest.unreported, set()
        out = []
        for node in nodes:
            with contextlib.suppress(ValueError):  # a name that is no topic came from no topic
                out.append(
                    (topics.stored(fabric, node.name), msgspec.json.encode(node.ledger.report(fabric, node.name)))
                )
        return out

    def _publish(self, reports: list[tuple[str, bytes]]) -> None:
        if self._subscriber is not None and not self._beside:
            for topic, payload in reports:
                self._subscriber.publish(topic, payload, retain=True)


def client_id(fabric: str) -> str:
    """One aggregator a fabric: a second one with the same id ends the first one's connection, which both report."""
    return f"fabricd-aggregator-{fabric}"


async def rebuild(ingest: Ingest, recording: Recording) -> int:
    """Fill the columns from the recording at start; returns how many records were read. Damage is counted in ``ingest.rejects``.

    Gives way now and then, so that a signal to stop is heard while gigabytes are read.

    Raises FabricdError when the directory cannot be read.
    """
    count = 0
    try:
        for path in segments(recording.directory):
            for record in read_segment(path, ingest.rejects):
                ingest.replay(record)
                count += 1
                if count % 1000 == 0:
                    await asyncio.sleep(0)
    except OSError as error:
        raise FabricdError(f"recording {recording.directory}: {error.strerror}") from None
    return count

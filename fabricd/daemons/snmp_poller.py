"""The SNMP poller: switches' counters by SNMP, published as the collector publishes its sweeps."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from fabricd import __version__
from fabricd.config.root import Config
from fabricd.daemons.identity import node_id, run_id
from fabricd.devices.snmp.targets import load_targets
from fabricd.errors import UsageError
from fabricd.sources.snmp_poll import Poll, SnmpPoller
from fabricd.transport.publisher import Publisher

log = logging.getLogger(__name__)

PATIENCE = 6  # intervals a poll may take before its workers count as hung


def open_poller(config: Config) -> SnmpPoller:
    """By [snmp]. Raises UsageError for a wrong targets or credential file."""
    settings = config.snmp
    if not settings.targets:
        raise UsageError("snmp.targets is empty: it names the file of switches to poll")
    targets = load_targets(settings.targets, settings.secrets_file)
    if not targets:
        raise UsageError(f"snmp.targets = {settings.targets}: no [[switch]] in it")
    node = settings.node or f"snmp-{node_id()}"
    return SnmpPoller(
        targets.values(), node, config.fabric.name, run_id(), workers=settings.workers, at_once=settings.at_once
    )


class SnmpDaemon:
    """Polls each interval; a poll that takes longer delays the next one, they never overlap."""

    def __init__(self, config: Config) -> None:
        self.config = config
        self.poller = open_poller(config)
        self.totals = {"polls": 0, "rows": 0}

    async def run(self, ready: Callable[[str], None]) -> None:
        """Until cancelled. Raises FabricdError when the spool cannot be used or a worker ends."""
        settings = self.config.snmp
        publisher = Publisher(
            self.config.broker, self.config.fabric.name, self.poller.node, Path(settings.spool), boot=self.poller.boot
        )
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(publisher.run())
                group.create_task(self._polls(publisher, ready))
        finally:
            self.poller.close()

    async def _polls(self, publisher: Publisher, ready: Callable[[str], None]) -> None:
        interval = self.config.snmp.interval
        due = time.monotonic()
        while True:
            poll = await asyncio.to_thread(self.poller.poll, PATIENCE * interval)
            for schema in poll.schemas:
                publisher.publish_schema(schema)
            for sequence, frame in poll.frames:
                publisher.publish_frame(sequence, frame)
            self.totals["polls"] += 1
            self.totals["rows"] += poll.rows
            publisher.publish_status(self.status(poll))
            if self.totals["polls"] == 1:
                ready(f"{poll.answered} of {poll.asked} switches answer, {poll.rows} values in {poll.seconds:.2f} s")
            due = max(due + interval, time.monotonic())
            await asyncio.sleep(due - time.monotonic())

    def status(self, poll: Poll) -> dict[str, Any]:
        """What the poller publishes of itself."""
        return {
            "version": __version__,
            "kind": "snmp",
            "interval": self.config.snmp.interval,
            "asked": poll.asked,
            "answered": poll.answered,
            "seconds": round(poll.seconds, 3),
            "totals": dict(self.totals),
            "rejects": {"counts": dict(poll.rejects.counts), "recent": poll.rejects.to_json()},
        }


async def run_snmp_poller(config: Config, ready: Callable[[str], None]) -> None:
    """The daemon."""
    await SnmpDaemon(config).run(ready)

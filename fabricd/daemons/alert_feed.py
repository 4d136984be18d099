"""Verdicts from the broker to whoever is to be told."""

from __future__ import annotations

import asyncio
import time

import msgspec

from fabricd.config.root import Config
from fabricd.errors import BAD_DOCUMENT
from fabricd.model import topics
from fabricd.model.rejects import Rejects
from fabricd.model.verdict import Verdict
from fabricd.outputs.webhooks import Alerts
from fabricd.transport.watch import watch

_decoder = msgspec.json.Decoder(Verdict)


class VerdictTopics:
    """Retained verdict messages as changes to tell: a topic that is cleared means that its verdict ended."""

    def __init__(self, alerts: Alerts) -> None:
        self.alerts = alerts
        self.rejects = Rejects()
        self._open: dict[str, Verdict] = {}

    def take(self, topic: str, payload: bytes) -> None:
        if not payload:
            verdict = self._open.pop(topic, None)
            if verdict is not None:
                self.alerts.tell(msgspec.structs.replace(verdict, end=verdict.end or time.time_ns()))
            return
        try:
            verdict = _decoder.decode(payload)
        except BAD_DOCUMENT as error:
            self.rejects.add("verdict_syntax", error, topic)
            return
        if verdict.end is None:
            self._open[topic] = verdict
        else:
            self._open.pop(topic, None)
        self.alerts.tell(verdict)


async def follow_verdicts(config: Config, alerts: Alerts) -> None:
    """Until cancelled; without receivers nothing is followed."""
    if not alerts.receivers:
        return
    told = VerdictTopics(alerts)
    async with asyncio.TaskGroup() as group:
        group.create_task(alerts.run())
        group.create_task(watch(config.broker, [topics.of_all_nodes(config.fabric.name, "verdicts")], told.take))

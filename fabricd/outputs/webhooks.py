"""Delivers alerts: signed, in order per receiver, retried with back-off from a queue on disk, until the receiver takes them."""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import json
import logging
import random
import time
from collections import Counter
from pathlib import Path
from typing import Any

import httpx

from fabricd.config.alerts import AlertsConfig, AlertTarget
from fabricd.errors import BAD_DOCUMENT, UsageError
from fabricd.model.verdict import Verdict
from fabricd.outputs.alert import Alert, alert_of, alertmanager_body, json_body, slack_body
from fabricd.outputs.alert_queue import AlertQueue

log = logging.getLogger(__name__)

FIRST_PAUSE_S = 1.0
MAX_ANSWER = 65536
# The receiver understood and will never take it: trying again changes nothing.
_FINAL = frozenset({400, 404, 405, 410, 413, 415, 422})


def sign(secret: bytes, timestamp: str, body: bytes) -> str:
    """``sha256=`` and the hex HMAC of ``timestamp.body``: a receiver recomputes it and refuses old timestamps."""
    return "sha256=" + hmac.new(secret, timestamp.encode() + b"." + body, hashlib.sha256).hexdigest()


class Receiver:
    """One target. Raises UsageError for a secret, template or CA file that cannot be read."""

    def __init__(self, target: AlertTarget, queue: AlertQueue, retry_max_s: float) -> None:
        self.target, self.queue, self.retry_max_s = target, queue, retry_max_s
        self.counts: Counter[str] = Counter()
        self.wake = asyncio.Event()
        self._secret = _first_line(target.secret_file, "secret_file")
        self._template = _template(target.template)
        self._verify: Any = target.ca_file or True
        self.url = f"{target.url.rstrip('/')}/api/v2/alerts" if target.kind == "alertmanager" else target.url

    def put(self, alert: Alert) -> None:
        self.queue.put(alert)
        self.wake.set()

    def body(self, alert: Alert) -> bytes:
        match self.target.kind:
            case "alertmanager":
                document: Any = alertmanager_body(alert)
            case "slack":
                document = slack_body(alert)
            case "json":
                document = json_body(alert, self._template)
        return json.dumps(document).encode()

    async def run(self) -> None:
        """Until cancelled."""
        pause = FIRST_PAUSE_S
        async with httpx.AsyncClient(
            verify=self._verify, timeout=self.target.timeout_s, follow_redirects=False, trust_env=False
        ) as client:
            while True:
                self.wake.clear()
                head = self.queue.head()
                if head is None:
                    await self.wake.wait()
                    continue
                path, alert = head
                if await self._send(client, alert):
                    self.queue.done(path)
                    pause = FIRST_PAUSE_S
                    continue
                await asyncio.sleep(random.uniform(0.5, 1.0) * pause)
                pause = min(2 * pause, self.retry_max_s)

    async def _send(self, client: httpx.AsyncClient, alert: Alert) -> bool:
        """True when it is over with this message: taken, or refused for good (counted)."""
        body = self.body(alert)
        headers = {"content-type": "application/json", "user-agent": "fabricd"}
        if self._secret:
            stamp = str(int(time.time()))
            headers |= {"x-fabricd-timestamp": stamp, "x-fabricd-signature": sign(self._secret, stamp, body)}
        try:
            # The time limit is on the whole exchange: a receiver that drips its answer must not hold the queue.
            async with asyncio.timeout(2 * self.target.timeout_s):
                async with client.stream("POST", self.url, content=body, headers=headers) as answer:
                    size = 0
                    async for chunk in answer.aiter_raw():
                        size += len(chunk)
                        if size > MAX_ANSWER:
                            break
                    status = answer.status_code
        except (httpx.HTTPError, TimeoutError) as error:
            self.counts["failed"] += 1
            log.warning("alert to %s: %s", self.url, error or type(error).__name__)
            return False
        if 200 <= status < 300:
            self.counts["sent"] += 1
            return True
        if status in _FINAL:
            self.counts["refused"] += 1
            log.error("alert %s refused by %s: status %d", alert.fingerprint, self.url, status)
            return True
        self.counts["failed"] += 1
        log.warning("alert to %s: status %d", self.url, status)
        return False


def _first_line(file: str, key: str) -> bytes:
    if not file:
        return b""
    try:
        line = Path(file).read_bytes().splitlines()[:1]
    except OSError as error:
        raise UsageError(f"alerts.targets.{key} = {file!r}: {error.strerror}") from None
    if not line or not line[0]:
        raise UsageError(f"alerts.targets.{key} = {file!r}: is empty")
    return line[0]


def _template(file: str) -> Any:
    if not file:
        return None
    try:
        return json.loads(Path(file).read_text(encoding="utf-8"))
    except OSError as error:
        raise UsageError(f"alerts.targets.template = {file!r}: {error.strerror}") from None
    except BAD_DOCUMENT as error:
        raise UsageError(f"alerts.targets.template = {file!r}: not JSON: {error}") from None


class Alerts:
    """All receivers. ``tell`` is called with every change of a verdict; a repeated state is told once."""

    def __init__(self, config: AlertsConfig) -> None:
        self.config = config
        self.receivers = [
            Receiver(
                target, AlertQueue(Path(config.queue_dir) / f"{number}-{target.kind}", config.keep), config.retry_max_s
            )
            for number, target in enumerate(config.targets)
        ]
        self._told: dict[str, str] = {}
        self._open: dict[str, Alert] = {}

    def tell(self, verdict: Verdict) -> None:
        alert = alert_of(verdict, self.config.page_url)
        # What changes all the time (how many ports wait) is no news; root, cause and end are.
        news = f"{alert.status} {sorted(alert.labels.items())}"
        if self._told.get(verdict.id) == news:
            return
        if verdict.end is None:
            self._told[verdict.id] = news
            self._open[verdict.id] = alert
        else:
            self._open.pop(verdict.id, None)
            if self._told.pop(verdict.id, None) is None:
                return  # it was over before anybody was told
        for receiver in self.receivers:
            receiver.put(alert)

    async def run(self) -> None:
        """Until cancelled."""
        async with asyncio.TaskGroup() as group:
            for receiver in self.receivers:
                group.create_task(receiver.run())
            group.create_task(self._repeat())

    async def _repeat(self) -> None:
        """Alertmanager resolves by itself what it does not hear of for some minutes."""
        while True:
            await asyncio.sleep(self.config.repeat_s)
            for receiver in self.receivers:
                if receiver.target.kind == "alertmanager":
                    for alert in self._open.values():
                        receiver.put(alert)

    def metric_families(self) -> list[tuple[str, str, str, list[tuple[dict[str, str], float]]]]:
        """(name, HELP, TYPE, samples) for the exposition."""
        outcomes = ("sent", "failed", "refused")
        named = [(f"{number}-{receiver.target.kind}", receiver) for number, receiver in enumerate(self.receivers)]
        sent = [({"receiver": name, "outcome": o}, float(r.counts[o])) for name, r in named for o in outcomes]
        waiting = [({"receiver": name}, float(len(r.queue))) for name, r in named]
        dropped = [({"receiver": name}, float(r.queue.dropped)) for name, r in named]
        return [
            ("fabricd_alerts_total", "Alert messages by receiver and outcome.", "counter", sent),
            ("fabricd_alerts_waiting", "Alert messages that wait for their receiver.", "gauge", waiting),
            ("fabricd_alerts_dropped_total", "Alert messages dropped because too many waited.", "counter", dropped),
        ]

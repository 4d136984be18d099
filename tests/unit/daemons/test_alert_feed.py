"""Retained verdicts become firing and resolved alerts, also when a topic is only cleared."""

from pathlib import Path

import msgspec

from fabricd.config.alerts import AlertsConfig, AlertTarget
from fabricd.daemons.alert_feed import VerdictTopics
from fabricd.outputs.webhooks import Alerts
from tests.unit.outputs.test_webhooks import verdict

TOPIC = "fabricd/default/verdicts/v1"


def statuses(alerts: Alerts) -> list[str]:
    found = []
    while (head := alerts.receivers[0].queue.head()) is not None:
        found.append(head[1].status)
        alerts.receivers[0].queue.done(head[0])
    return found


def test_firing_then_cleared(tmp_path: Path) -> None:
    alerts = Alerts(
        AlertsConfig(targets=[AlertTarget(kind="json", url="http://127.0.0.1:1/")], queue_dir=str(tmp_path))
    )
    feed = VerdictTopics(alerts)
    feed.take(TOPIC, msgspec.json.encode(verdict()))
    assert statuses(alerts) == ["firing"]
    feed.take(TOPIC, b"{not json")
    feed.take(TOPIC, b'{"id": 3}')
    assert feed.rejects.counts == {"verdict_syntax": 2}
    feed.take(TOPIC, b"")
    assert statuses(alerts) == ["resolved"]
    feed.take(TOPIC, b"")
    assert statuses(alerts) == []


def test_an_ended_verdict_resolves(tmp_path: Path) -> None:
    alerts = Alerts(
        AlertsConfig(targets=[AlertTarget(kind="slack", url="http://127.0.0.1:1/")], queue_dir=str(tmp_path))
    )
    feed = VerdictTopics(alerts)
    feed.take(TOPIC, msgspec.json.encode(verdict()))
    feed.take(TOPIC, msgspec.json.encode(verdict(end=verdict().start + 1)))
    feed.take(TOPIC, b"")
    assert statuses(alerts) == ["resolved"]

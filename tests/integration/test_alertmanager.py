"""A real Alertmanager: one verdict is exactly one alert with root, cause and victims; then it resolves."""

from __future__ import annotations

import json
import socket
import subprocess
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from fabricd.config.alerts import AlertsConfig, AlertTarget
from fabricd.outputs.webhooks import Alerts
from tests.integration.pipeline import wait_for
from tests.unit.outputs.test_webhooks import run_until, verdict


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@pytest.fixture
def alertmanager(tmp_path: Path) -> Iterator[str]:
    config = tmp_path / "alertmanager.yml"
    config.write_text("route: {receiver: none}\nreceivers: [{name: none}]\n")
    port = free_port()
    process = subprocess.Popen(
        [
            "prometheus-alertmanager", f"--config.file={config}", f"--storage.path={tmp_path / 'data'}",
            f"--web.listen-address=127.0.0.1:{port}", "--cluster.listen-address=",
        ],
        stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
    )  # fmt: skip
    url = f"http://127.0.0.1:{port}"

    def ready() -> bool:
        try:
            return bool(urllib.request.urlopen(f"{url}/-/ready", timeout=2).status == 200)
        except OSError:
            return False

    try:
        wait_for(ready, "Alertmanager is ready")
        yield url
    finally:
        process.terminate()
        process.wait(10)


def firing(url: str) -> list[dict[str, Any]]:
    with urllib.request.urlopen(f"{url}/api/v2/alerts?active=true", timeout=5) as answer:
        found: list[dict[str, Any]] = json.load(answer)
        return found


def test_one_alert_that_resolves(alertmanager: str, tmp_path: Path) -> None:
    now = time.time_ns()
    alerts = Alerts(
        AlertsConfig(targets=[AlertTarget(kind="alertmanager", url=alertmanager)], queue_dir=str(tmp_path / "q"))
    )
    for confidence in (0.7, 0.8, 0.9):
        alerts.tell(verdict(start=now - 10**9, confidence=confidence))
    run_until(alerts, lambda: alerts.receivers[0].counts["sent"] == 1)
    wait_for(lambda: len(firing(alertmanager)) == 1, "one alert fires")
    (alert,) = firing(alertmanager)
    assert alert["labels"]["cause"] == "incast"
    assert "0x0000000000000020/7" in alert["annotations"]["root"]
    assert "0x0000000000000021/0" in alert["annotations"]["victims"]
    alerts.tell(verdict(start=now - 10**9, end=now))
    run_until(alerts, lambda: alerts.receivers[0].counts["sent"] == 2)
    wait_for(lambda: firing(alertmanager) == [], "it is resolved")

"""A real Prometheus scrapes the api process, which asks a real aggregator."""

from __future__ import annotations

import contextlib
import json
import subprocess
import sys
import urllib.parse
import urllib.request
from pathlib import Path
from typing import Any

from fabricd.transport.embedded import free_port
from tests import brokers
from tests.integration.pipeline import Aggregator, Node, wait_for


def fetch(url: str) -> Any:
    with contextlib.suppress(OSError, ValueError), urllib.request.urlopen(url, timeout=5) as answer:
        return answer.read().decode()
    return None


def test_prometheus_scrapes_it(tmp_path: Path) -> None:
    broker = brokers.mosquitto(tmp_path / "broker")
    api_port, prometheus_port = free_port(), free_port()
    config = tmp_path / "prometheus.yml"
    config.write_text(
        "global: {scrape_interval: 1s}\nscrape_configs:\n- job_name: fabricd\n  honor_labels: true\n"
        f"  static_configs: [{{targets: ['127.0.0.1:{api_port}']}}]\n"
    )
    with contextlib.ExitStack() as stack:
        stack.enter_context(brokers.running(broker))
        aggregator = Aggregator(broker.port, tmp_path, FABRICD_AGGREGATOR__STALE_AFTER="3")
        stack.callback(aggregator.kill)
        api = subprocess.Popen(
            [sys.executable, "-m", "fabricd", "api", "--port", str(api_port), "--socket", str(tmp_path / "aggregator.sock")],
            stderr=subprocess.DEVNULL,
        )  # fmt: skip
        stack.callback(api.wait)
        stack.callback(api.kill)
        prometheus = subprocess.Popen(
            [
                "prometheus", f"--config.file={config}", f"--storage.tsdb.path={tmp_path}/tsdb",
                f"--web.listen-address=127.0.0.1:{prometheus_port}",
            ],
            stderr=subprocess.DEVNULL,
        )  # fmt: skip
        stack.callback(prometheus.wait)
        stack.callback(prometheus.kill)
        node = Node(broker.port, tmp_path / "spool", "host1", rate=5)
        stack.callback(node.kill)

        def query(expression: str) -> list[Any]:
            url = f"http://127.0.0.1:{prometheus_port}/api/v1/query?query={urllib.parse.quote(expression)}"
            text = fetch(url)
            return list(json.loads(text)["data"]["result"]) if text else []

        assert wait_for(lambda: query('up{job="fabricd"} == 1'), "Prometheus scrapes the api")
        found = wait_for(lambda: query('fabricd_counter_7_total{node="host1"}'), "a counter is in Prometheus")
        assert {series["metric"]["port"] for series in found} == {"1", "2"}
        assert found[0]["metric"]["fabric"] == "default"
        # 10 a frame, 5 frames a second: Prometheus' own rate over a few scrapes is about ours.
        rate = wait_for(lambda: query('rate(fabricd_counter_7_total{node="host1",port="1"}[5s])'), "a rate")
        assert 10 < float(rate[0]["value"][1]) < 80
        node.kill()
        wait_for(lambda: not query('fabricd_counter_7_total{node="host1"}'), "the series ends with its node")
        assert query('fabricd_node_up{node="host1"} == 0')
        done = subprocess.run(
            ["promtool", "check", "metrics"],
            input=fetch(f"http://127.0.0.1:{api_port}/metrics"),
            capture_output=True,
            text=True,
        )
        assert (done.returncode, done.stderr) == (0, "")
        aggregator.kill()
        wait_for(lambda: fetch(f"http://127.0.0.1:{api_port}/healthz"), "the api process lives without the aggregator")
        assert fetch(f"http://127.0.0.1:{api_port}/readyz") is None, "503"

"""``fabricd up --twin``: the whole pipeline over a simulated fabric, found only through its interfaces."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.integration.twin_tools import wait_until


@pytest.fixture(scope="module")
def up() -> Iterator[dict[str, Any]]:
    process = subprocess.Popen(
        [sys.executable, "-m", "fabricd", "up", "--twin", "incast", "--seed", "2", "--port", "0", "--json"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        assert process.stdout is not None and process.stderr is not None
        line = process.stdout.readline()
        assert line, process.stderr.read()
        yield json.loads(line)
    finally:
        process.terminate()
        process.communicate(timeout=30)


def ports(up: dict[str, Any]) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = httpx.get(f"{up['api']}/ports", params={"limit": 10000}, timeout=20).json()["ports"]
    return found


def test_every_host_has_a_living_agent(up: dict[str, Any]) -> None:
    hosts = {path.name for path in Path(up["twin"]["sysfs"]).iterdir()}

    def alive() -> set[str]:
        nodes = httpx.get(f"{up['api']}/nodes", timeout=20).json()["nodes"]
        return {node["node"] for node in nodes if node["state"] == "alive"}

    wait_until(lambda: hosts <= alive(), 60, "all hosts' agents alive")


def test_switch_ports_are_swept_and_something_waits(up: dict[str, Any]) -> None:
    truth = json.loads(Path(up["twin"]["truth"]).read_text())
    switches = {node["guid"] for node in truth["nodes"].values() if not node["name"].startswith("host")}

    def waiting() -> set[str]:
        return {
            port["guid"]
            for port in ports(up)
            for counter in port["counters"]
            if counter["name"] == "port_transmit_wait" and (counter["rate"] or 0) > 0
        }

    wait_until(lambda: switches <= {port["guid"] for port in ports(up)}, 60, "all switches are swept")
    wait_until(lambda: bool(switches & waiting()), 90, "a switch port waits")


def test_the_verdict_names_the_root_of_the_truth(up: dict[str, Any]) -> None:
    def true_roots() -> set[tuple[str, int]]:
        truth = json.loads(Path(up["twin"]["truth"]).read_text())
        return {
            (truth["nodes"][str(node)]["guid"], port)
            for episode in truth["episodes"]
            if episode["cause"] == "incast"
            for node, port in episode["roots"]
        }

    def named() -> set[tuple[str, int]]:
        verdicts = httpx.get(f"{up['api']}/verdicts", timeout=20).json()["verdicts"]
        return {(guid, port) for v in verdicts if v["cause"] == "incast" for guid, port in v["roots"]}

    wait_until(lambda: bool(true_roots()), 60, "the incast begins")
    wait_until(lambda: bool(true_roots() & named()), 60, "a verdict names the root")


def test_a_wrong_scenario_is_one_line(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "fabricd", "up", "--twin", "incest", "--port", "0"],
        capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    assert done.returncode != 0 and "Traceback" not in done.stderr
    assert "unknown scenario 'incest'" in done.stderr

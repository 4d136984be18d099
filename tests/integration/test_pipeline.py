"""Nothing is lost end to end: brokers, aggregators and agents are killed under load, and every frame is stored once and in order."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from fabricd.transport.spool import Spool
from tests import brokers
from tests.integration.pipeline import Aggregator, Node, recorded, wait_for


def everything_once(aggregator: Aggregator, nodes: list[Node]) -> None:
    """End the frames, wait until all are stored, and compare the recording with what was sent."""
    for node in nodes:
        node.end_frames()
    time.sleep(0.3)
    for node in nodes:
        wait_for(lambda n=node: aggregator.stored(n.name) >= n.sent + 1, f"all frames of {node.name} stored")
    for node in nodes:
        node.stop()
    aggregator.stop()
    got = recorded(aggregator.recording)
    assert {key: len(seqs) for key, seqs in got.items()} == {(n.name, n.boot): n.sent + 1 for n in nodes}
    for node in nodes:
        assert got[node.name, node.boot] == list(range(node.sent + 1))


def published(nodes: list[Node], more: int) -> None:
    """Wait until each node has handed on so many more frames."""
    wanted = {node.name: node.sent + more for node in nodes}
    wait_for(lambda: all(node.sent >= wanted[node.name] for node in nodes), "the nodes publish")


@pytest.mark.parametrize("kind", ["mosquitto", "embedded"])
def test_broker_killed_and_restarted_under_load(kind: str, tmp_path: Path) -> None:
    broker = brokers.KINDS[kind](tmp_path / "broker")
    with contextlib.ExitStack() as stack:
        stack.enter_context(brokers.running(broker))
        aggregator = Aggregator(broker.port, tmp_path)
        stack.callback(aggregator.kill)
        nodes = [Node(broker.port, tmp_path / f"spool{i}", f"node{i}.example") for i in range(3)]
        for node in nodes:
            stack.callback(node.kill)
        published(nodes, 100)
        broker.kill()
        published(nodes, 100)
        broker.start()
        published(nodes, 100)
        broker.kill()
        broker.start()
        published(nodes, 100)
        everything_once(aggregator, nodes)


@pytest.mark.parametrize("kind", ["mosquitto", "embedded", "nats"])
def test_aggregator_killed_under_load(kind: str, tmp_path: Path) -> None:
    broker = brokers.KINDS[kind](tmp_path / "broker")
    with contextlib.ExitStack() as stack:
        stack.enter_context(brokers.running(broker))
        aggregator = Aggregator(broker.port, tmp_path)
        stack.callback(lambda: aggregator.kill())
        nodes = [Node(broker.port, tmp_path / f"spool{i}", f"node{i}.example", rate=50) for i in range(2)]
        for node in nodes:
            stack.callback(node.kill)
        for _ in range(2):
            published(nodes, 60)
            wait_for(lambda: aggregator.stored(nodes[0].name) > 20, "frames stored")
            aggregator.kill()
            published(nodes, 30)
            aggregator.start()
        published(nodes, 30)
        everything_once(aggregator, nodes)


def test_agent_killed_with_a_full_spool(tmp_path: Path) -> None:
    """No broker until the spool overflows; then the agent is killed. What its disk held arrives, and the next run's frames."""
    broker = brokers.mosquitto(tmp_path / "broker")
    with contextlib.ExitStack() as stack:
        first = Node(broker.port, tmp_path / "spool", "node", rate=2000, spool_mb=1)
        stack.callback(first.kill)
        wait_for(lambda: first.sent > 1000, "more frames than a spool of 1 MiB holds")
        first.kill()
        spool = Spool(tmp_path / "spool", 1 << 20)
        survivors = [seq for boot, seq in spool if boot == first.boot]
        spool.close()
        assert 300 < len(survivors) < first.sent
        # The line that says a sequence was sent is written after the frame is on disk: the last may be one ahead of it.
        assert survivors == list(range(survivors[0], survivors[-1] + 1))
        assert survivors[-1] in (first.sent, first.sent + 1)
        stack.enter_context(brokers.running(broker))
        aggregator = Aggregator(broker.port, tmp_path)
        stack.callback(aggregator.kill)
        second = Node(broker.port, tmp_path / "spool", "node", rate=50, spool_mb=64)
        stack.callback(second.kill)
        published([second], 50)
        second.end_frames()
        time.sleep(0.3)
        wait_for(lambda: aggregator.stored("node") >= len(survivors) + second.sent + 1, "both runs stored")
        second.stop()
        aggregator.stop()
        got = recorded(aggregator.recording)
        assert got == {("node", first.boot): survivors, ("node", second.boot): list(range(second.sent + 1))}
        again = Spool(tmp_path / "spool", 1 << 20)
        assert not [key for key in again if key[0] == first.boot], "what is stored was freed"
        again.close()


def test_live_frames_go_before_the_backlog(tmp_path: Path) -> None:
    """After an outage the newest reading is there at once, although the backlog takes its time."""
    broker = brokers.mosquitto(tmp_path / "broker")
    with contextlib.ExitStack() as stack:
        node = Node(broker.port, tmp_path / "spool", "node", rate=100)
        stack.callback(node.kill)
        published([node], 400)
        behind = node.sent
        stack.enter_context(brokers.running(broker))
        aggregator = Aggregator(broker.port, tmp_path)
        stack.callback(aggregator.kill)

        def newest() -> int:
            nodes = aggregator.json("/api/v1/nodes").get("nodes", ())
            return int(nodes[0]["seq"] or 0) if nodes else 0

        wait_for(lambda: newest() > behind, "live frames arrive")
        node.end_frames()
        time.sleep(0.3)
        wait_for(lambda: aggregator.stored("node") >= node.sent + 1, "the backlog arrives")
        assert aggregator.json("/api/v1/nodes")["nodes"][0]["late"] >= behind
        everything_once(aggregator, [node])


@pytest.mark.parametrize("kind", list(brokers.KINDS))
def test_stops_cleanly_and_in_time(kind: str, tmp_path: Path) -> None:
    broker = brokers.KINDS[kind](tmp_path / "broker")
    with contextlib.ExitStack() as stack:
        stack.enter_context(brokers.running(broker))
        aggregator = Aggregator(broker.port, tmp_path)
        stack.callback(aggregator.kill)
        node = Node(broker.port, tmp_path / "spool", "host-7.rack 3.example", rate=50)
        stack.callback(node.kill)
        wait_for(lambda: aggregator.stored(node.name) > 20, f"frames through {kind}")
        assert aggregator.json("/readyz") == {"ready": True, "problems": []}
        assert aggregator.stop() < 5
        assert len(recorded(aggregator.recording)[node.name, node.boot]) > 20


def test_without_a_broker_it_waits_and_says_so(tmp_path: Path) -> None:
    broker = brokers.mosquitto(tmp_path / "broker")
    aggregator = Aggregator(broker.port, tmp_path)
    try:
        status, body = aggregator.get("/readyz")
        assert status == 503
        assert f"not connected to broker 127.0.0.1:{broker.port}".encode() in body
        with brokers.running(broker):
            wait_for(lambda: aggregator.get("/readyz")[0] == 200, "ready once the broker is there")
    finally:
        aggregator.kill()


def test_recording_beside_frees_nothing(tmp_path: Path) -> None:
    """``fabricd record`` gets what is live and leaves the nodes' spools to the aggregator."""
    broker = brokers.mosquitto(tmp_path / "broker")
    with contextlib.ExitStack() as stack:
        stack.enter_context(brokers.running(broker))
        node = Node(broker.port, tmp_path / "spool", "node", rate=50)
        stack.callback(node.kill)
        published([node], 20)
        done = subprocess.run(
            [sys.executable, "-m", "fabricd", "record", str(tmp_path / "recording"), "--seconds", "3", "--json"],
            env=os.environ | {"FABRICD_BROKER__PORT": str(broker.port)}, capture_output=True, text=True, check=True,
        )  # fmt: skip
        summary = json.loads(done.stdout)
        node.kill()
        (seqs,) = recorded(tmp_path / "recording").values()
        assert summary["nodes"] == ["node"]
        assert len(seqs) == summary["frames"] > 20
        spool = Spool(tmp_path / "spool", 64 << 20)
        assert [seq for _, seq in spool][: node.sent] == list(range(node.sent))
        spool.close()

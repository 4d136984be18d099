"""Polling switches by SNMP: the frames hold what the agents say, silence costs itself only, a restart is another epoch."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

from fabricd.devices.snmp.targets import load_targets
from fabricd.model.sample import Flag
from fabricd.sources.snmp_poll import Poll, SnmpPoller
from fabricd.store.decode import decode_frame
from tests.brokers import mosquitto, running
from tests.integration.snmp_bench import free_port, snmpd, write_targets
from tests.integration.test_twin_snmp import walk
from tests.integration.twin_tools import running_twin

CTL = 'user = "fabmon"'


def table(poll: Poll, at: int = 0) -> dict[tuple[int, str, int | None], int]:
    """(port, metric, priority) -> value of a frame."""
    schema = poll.schemas[at]
    values, flags = decode(poll.frames[at][1])
    return {
        (row.port, column.name, column.priority): int(values[r, c])
        for r, row in enumerate(schema.rows)
        for c, column in enumerate(schema.columns)
        if flags[r, c] & Flag.VALID
    }


def decode(frame: bytes) -> tuple[Any, Any]:
    decoded = decode_frame(frame)
    return decoded.values, decoded.flags


def test_frames_of_the_twin_s_switches(tmp_path: Path) -> None:
    with running_twin("pfc-storm", "--hosts", "8", "--begin", "0.5", "--seed", "4") as addresses:
        rows = {name: (address, "onyx", CTL) for name, address in addresses["snmp"].items()}
        rows["gone"] = (f"127.0.0.1:{free_port()}", "onyx", CTL)
        targets = load_targets(*write_targets(tmp_path, rows, timeout=1.0))
        with SnmpPoller(targets.values(), "poller", "default", 1) as poller:
            name = next(iter(addresses["snmp"]))
            before = walk(addresses["snmp"][name], ".1.3.6.1.4.1.33049.15.1.1.8")
            poll = poller.poll()
            after = walk(addresses["snmp"][name], ".1.3.6.1.4.1.33049.15.1.1.8")
            assert (poll.asked, poll.answered) == (len(rows), len(rows) - 1)
            assert poll.rejects.counts["snmp_silent"] == 1
            assert {schema.rows[0].device for schema in poll.schemas} == set(addresses["snmp"])
            assert len({schema.rows[0].guid for schema in poll.schemas}) == len(poll.schemas)
            at = next(i for i, schema in enumerate(poll.schemas) if schema.rows[0].device == name)
            got = table(poll, at)
            for key, first in before.items():
                port, priority = map(int, key.split("."))
                assert int(first) <= got[port, "pfc_receive_frames", priority] <= int(after[key])
            assert poll.schemas[at].rows[0].netdev == walk(addresses["snmp"][name], ".1.3.6.1.2.1.31.1.1.1.1")["1"]
            assert poll.schemas[at].rows[0].rate_gbps in (400.0, 800.0)
            stopped = [v for (_, metric, _), v in got.items() if metric == "pfc_receive_pause_duration"]
            assert all(value % 1_000_000 == 0 for value in stopped)
            again = poller.poll()
            assert again.schemas == [] and again.answered == len(rows) - 1


def test_an_agent_s_restart_is_another_epoch_and_its_missing_objects_are_said_once(tmp_path: Path) -> None:
    with snmpd(tmp_path) as agent:
        rows = {"a": (f"127.0.0.1:{agent.port}", "ieee", CTL + '\nguid = "0xb83fd20300000001"')}
        targets = load_targets(*write_targets(tmp_path, rows, timeout=0.5))
        with SnmpPoller(targets.values(), "poller", "default", 1) as poller:
            first = poller.poll()
            assert first.rejects.counts["snmp_no_object"] > 5
            assert table(first)[2, "global_pause_receive_frames", None] == 200
            again = poller.poll()
            assert "snmp_no_object" not in again.rejects.counts and epoch(again) == epoch(first)
            agent.stop()
            silent = poller.poll()
            assert (silent.frames, silent.rejects.counts["snmp_silent"]) == ([], 1)
            agent.start()
            back = poller.poll()
            while not back.frames:
                back = poller.poll()
            assert epoch(back) == epoch(first) + 1


def epoch(poll: Poll) -> int:
    return int(decode(poll.frames[0][1])[0][0, 1])


def test_one_poll_for_people(tmp_path: Path) -> None:
    with snmpd(tmp_path) as agent:
        rows = {"a": (f"127.0.0.1:{agent.port}", "ieee", 'community = "lab"\nguid = "0xb83fd20300000001"')}
        targets, secrets = write_targets(tmp_path, rows)
        config = tmp_path / "fabricd.toml"
        config.write_text(f'[snmp]\ntargets = "{targets}"\nsecrets_file = "{secrets}"\nworkers = 1\n')

        def run(*more: str) -> subprocess.CompletedProcess[str]:
            command = [sys.executable, "-m", "fabricd", "snmp", "--config", str(config), "--once", *more]
            return subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)

        done = run("--json")
        document = json.loads(done.stdout)
        assert (done.returncode, document["answered"], len(document["switches"][0]["ports"])) == (0, 1, 2)
        assert "global_pause_receive_frames" in document["switches"][0]["counters"]
        assert "snmp_no_object" in run().stderr
        config.write_text("[snmp]\n")
        done = run()
        assert (done.returncode, done.stderr.count("\n")) == (2, 1) and "snmp.targets" in done.stderr


def test_the_daemon_publishes_schemas_and_frames(tmp_path: Path) -> None:
    with snmpd(tmp_path) as agent, running(mosquitto(tmp_path / "broker")) as broker:
        rows = {"a": (f"127.0.0.1:{agent.port}", "ieee", CTL + '\nguid = "0xb83fd20300000001"')}
        targets, secrets = write_targets(tmp_path, rows)
        config = tmp_path / "fabricd.toml"
        config.write_text(
            f'[broker]\nhost = "127.0.0.1"\nport = {broker.port}\n[snmp]\ntargets = "{targets}"\nsecrets_file = "{secrets}"\n'
            f'workers = 1\ninterval = 1\nnode = "poller"\nspool = "{tmp_path / "spool"}"\n'
        )
        daemon = subprocess.Popen([sys.executable, "-m", "fabricd", "snmp", "--config", str(config)])
        try:
            seen = subprocess.run(
                ["mosquitto_sub", "-p", str(broker.port), "-t", "#", "-C", "6", "-W", "60", "-F", "%t %l"],
                capture_output=True, text=True, timeout=90, check=True,
            ).stdout  # fmt: skip
        finally:
            daemon.terminate()
            assert daemon.wait(timeout=30) == 0
    topics = [line.split()[0].removeprefix("fabricd/default/") for line in seen.splitlines()]
    assert set(topics) == {"status/poller", "schema/poller/0", "frames/poller"}
    assert topics.index("schema/poller/0") < topics.index("frames/poller")

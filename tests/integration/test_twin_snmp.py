"""The switches' SNMP agents by net-snmp's own tools: counters of the model, neighbours, and sets that act on it."""

from __future__ import annotations

import json
import os
import re
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.integration.twin_tools import TOOLS_PATH, running_twin, wait_until

V2_READ = ("-v2c", "-c", "public")
V3_WRITE = ("-v3", "-l", "authPriv", "-u", "fabctl", "-a", "SHA-256", "-A", "authpass-0123456789",
            "-x", "AES", "-X", "privpass-0123456789")  # fmt: skip
V3_READ = tuple("fabmon" if word == "fabctl" else word for word in V3_WRITE)
IF_X = ".1.3.6.1.2.1.31.1.1.1"
CISCO_RECEIVED = ".1.3.6.1.4.1.9.9.813.1.2.1.3"
ONYX_RECEIVED = ".1.3.6.1.4.1.33049.15.1.1.8"
ONYX_STOPPED_MS = ".1.3.6.1.4.1.33049.15.1.1.9"
ARISTA_MARKS = ".1.3.6.1.4.1.30065.3.13.1.8.1.2"
DCBX = ".1.3.111.2.802.1.1.13.1.5.32962.5.1.4"
FASTPATH = ".1.3.6.1.4.1.674.10895.5000.2.6132.1.1"
LLDP_REMOTE = ".1.0.8802.1.1.2.1.4.1.1"


def snmp(command: str, *arguments: str, ok: bool = True) -> str:
    environment = os.environ | {"PATH": TOOLS_PATH, "MIBS": ""}
    done = subprocess.run(
        [command, "-On", "-t", "3", "-r", "5", *arguments],
        env=environment,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert (done.returncode == 0) == ok, (command, arguments, done.stdout, done.stderr)
    return done.stdout if ok else done.stderr


def walk(agent: str, column: str, *how: str) -> dict[str, str]:
    """Index below ``column`` -> value."""
    out = {}
    for line in snmp("snmpbulkwalk", "-Cr50", *(how or V2_READ), agent, column).splitlines():
        name, _, value = line.partition(" = ")
        out[name.removeprefix(f"{column}.")] = value.split(": ", 1)[-1].strip('"')
    return out


@pytest.fixture(scope="module")
def twin() -> Iterator[dict[str, Any]]:
    with running_twin("pfc-storm", "--begin", "0.5", "--seed", "4") as addresses:
        yield addresses


@pytest.fixture(scope="module")
def stormed(twin: dict[str, Any]) -> tuple[str, int]:
    """The switch port at the host that asserts pause all the time: (agent, port)."""
    # On a busy machine the fabric's time runs slower than ours, so ports are compared with each other.
    stopped: dict[tuple[str, int], int] = {}
    for _ in range(10):
        for agent in twin["snmp"].values():
            before = walk(agent, ONYX_STOPPED_MS)
            time.sleep(0.3)
            after = walk(agent, ONYX_STOPPED_MS)
            for port in _hosts(agent):
                stopped[agent, port] = int(after[f"{port}.3"]) - int(before[f"{port}.3"])
        if max(stopped.values()) > 0:
            return max(stopped, key=lambda key: stopped[key])
    raise AssertionError("no host stops its switch")


def _hosts(agent: str) -> dict[int, str]:
    """Local port -> host name, by LLDP."""
    return {
        int(key.split(".")[1]): name for key, name in walk(agent, f"{LLDP_REMOTE}.9").items() if name.startswith("host")
    }


def test_interfaces_count_what_the_model_moves(twin: dict[str, Any]) -> None:
    agent = next(iter(twin["snmp"].values()))
    names, speed = walk(agent, f"{IF_X}.1"), walk(agent, f"{IF_X}.15")
    assert set(names.values()) == {f"swp{index}" for index in names}
    assert set(speed.values()) <= {"400000", "800000"}
    before = walk(agent, f"{IF_X}.6")
    time.sleep(1)
    after = walk(agent, f"{IF_X}.6")
    assert all(int(after[index]) >= int(before[index]) for index in before)
    assert sum(map(int, after.values())) > sum(map(int, before.values()))


def test_version_3_reads_the_same_and_needs_privacy(twin: dict[str, Any]) -> None:
    agent = next(iter(twin["snmp"].values()))
    assert walk(agent, f"{IF_X}.1", *V3_READ) == walk(agent, f"{IF_X}.1")
    plain = ("-v3", "-l", "authNoPriv", "-u", "fabmon", "-a", "SHA-256", "-A", "authpass-0123456789")
    assert "authorizationError" in snmp("snmpget", *plain, agent, f"{IF_X}.1.1", ok=False)


def test_neighbours_agree_with_the_truth(twin: dict[str, Any]) -> None:
    truth = json.loads(Path(twin["truth"]).read_text())
    names = {node["name"] for node in truth["nodes"].values()}
    pairs: set[tuple[str, str]] = set()
    for switch, agent in twin["snmp"].items():
        assert snmp("snmpget", "-Oqv", *V2_READ, agent, ".1.3.6.1.2.1.1.5.0").strip().strip('"') == switch
        for neighbour in walk(agent, f"{LLDP_REMOTE}.9").values():
            pairs.add((switch, neighbour))
    assert {a for a, _ in pairs} == set(twin["snmp"])
    assert {b for _, b in pairs} - set(twin["snmp"]) <= names | {name.rpartition("-nic")[0] for name in names}
    for a, b in pairs:
        if b in twin["snmp"]:
            assert (b, a) in pairs


def test_vendors_objects_show_the_same_pause(stormed: tuple[str, int]) -> None:
    agent, port = stormed
    before = int(walk(agent, ONYX_RECEIVED)[f"{port}.3"])
    cisco = int(walk(agent, CISCO_RECEIVED)[f"{port}.3"])
    after = int(walk(agent, ONYX_RECEIVED)[f"{port}.3"])
    assert before <= cisco <= after
    assert set(walk(agent, ARISTA_MARKS)) == set(walk(agent, CISCO_RECEIVED))


def test_switching_flow_control_off_ends_the_storm(stormed: tuple[str, int]) -> None:
    agent, port = stormed
    column = f"{DCBX}.3.2.1.2.{port}.3"
    assert snmp("snmpget", "-Oqv", *V2_READ, agent, column).strip() == "1"
    snmp("snmpset", *V3_WRITE, agent, column, "i", "2")
    assert snmp("snmpget", "-Oqv", *V3_READ, agent, column).strip() == "2"
    other_mib = f"{FASTPATH}.47.1.2.1.2.{port}.3"
    assert snmp("snmpget", "-Oqv", *V2_READ, agent, other_mib).strip() == "1"

    def sent(index: str = f"{port}") -> int:
        return int(walk(agent, f"{IF_X}.10")[index])

    def moves() -> bool:
        before = sent()
        time.sleep(0.5)
        return sent() > before

    wait_until(moves, 20, "the port sends again")
    snmp("snmpset", *V3_WRITE, agent, other_mib, "i", "2")
    assert snmp("snmpget", "-Oqv", *V2_READ, agent, column).strip() == "1"
    wait_until(lambda: not moves(), 20, "it is stopped again")


def test_shares_must_add_up_in_one_request(twin: dict[str, Any]) -> None:
    agent = next(iter(twin["snmp"].values()))
    share = f"{DCBX}.1.3.1.2.1"
    shares = {priority: int(value) for priority, value in walk(agent, share).items()}
    assert sum(shares.values()) == 100
    assert "inconsistentValue" in snmp("snmpset", *V3_WRITE, agent, f"{share}.3", "u", "90", ok=False)
    assert {priority: int(value) for priority, value in walk(agent, share).items()} == shares
    wanted = {"0": 5, "1": 5, "2": 5, "3": 60, "4": 25}
    request = [word for priority, value in wanted.items() for word in (f"{share}.{priority}", "u", str(value))]
    snmp("snmpset", *V3_WRITE, agent, *request)
    assert {priority: int(value) for priority, value in walk(agent, share).items() if int(value)} == wanted


@pytest.mark.parametrize(
    ("column", "kind", "value", "error"),
    [
        (f"{DCBX}.3.2.1.2.1.3", "i", "5", "wrongValue"),
        (f"{DCBX}.3.2.1.2.1.3", "u", "1", "wrongType"),
        (f"{DCBX}.3.2.1.2.1.9", "i", "1", "notWritable"),
        (f"{DCBX}.1.3.1.2.1.7", "u", "10", "wrongValue"),
        (f"{IF_X}.6.1", "u", "1", "notWritable"),
        (f"{FASTPATH}.3.3.2.5.1.7.1.3.1", "i", "101", "wrongValue"),
    ],
)
def test_wrong_sets_are_refused(twin: dict[str, Any], column: str, kind: str, value: str, error: str) -> None:
    agent = next(iter(twin["snmp"].values()))
    assert error in snmp("snmpset", *V3_WRITE, agent, column, kind, value, ok=False)


def test_only_the_writing_user_may_write(twin: dict[str, Any]) -> None:
    agent = next(iter(twin["snmp"].values()))
    column = f"{DCBX}.3.2.1.2.1.3"
    for who in (V2_READ, V3_READ):
        assert re.search("noAccess|authorizationError", snmp("snmpset", *who, agent, column, "i", "1", ok=False))


def test_marking_thresholds_are_percent_of_the_buffer_and_marks_follow(tmp_path: Path) -> None:
    with running_twin("incast", "--kind", "ethernet", "--hosts", "16", "--begin", "0.5", "--seed", "2") as addresses:
        marks = f"{FASTPATH}.3.3.2.5.1"

        def total() -> int:
            return sum(int(v) for agent in addresses["snmp"].values() for v in walk(agent, ARISTA_MARKS).values())

        for agent in addresses["snmp"].values():
            rows = [f"{port}.3.1" for port in walk(agent, f"{IF_X}.1")]
            wanted = [("7", "1"), ("8", "2"), ("9", "100")]
            request = [word for row in rows for c, value in wanted for word in (f"{marks}.{c}.{row}", "i", value)]
            snmp("snmpset", "-v2c", "-c", "private", agent, *request)
        agent = next(iter(addresses["snmp"].values()))
        assert walk(agent, f"{marks}.8.1")["3.1"] == "2"
        before = total()
        wait_until(lambda: total() > before, 20, "packets are marked")


def test_a_shut_interface_goes_down_and_up(twin: dict[str, Any]) -> None:
    name, agent = next(iter(twin["snmp"].items()))
    admin, state = ".1.3.6.1.2.1.2.2.1.7.1", ".1.3.6.1.2.1.2.2.1.8.1"
    snmp("snmpset", *V3_WRITE, agent, admin, "i", "2")
    wait_until(lambda: snmp("snmpget", "-Oqv", *V2_READ, agent, state).strip() == "2", 10, f"{name} port 1 down")
    snmp("snmpset", *V3_WRITE, agent, admin, "i", "1")
    wait_until(lambda: snmp("snmpget", "-Oqv", *V2_READ, agent, state).strip() == "1", 10, f"{name} port 1 up")

"""The SNMP adapter against a real snmpd, and against the twin's switches where a SET changes what the fabric does."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from fabricd.config.control import ControlConfig
from fabricd.control.adapters.base import AdapterError, Conflict, Unreachable
from fabricd.control.adapters.dry_run import DryRun
from fabricd.control.adapters.snmp import SnmpAdapter, open_adapter
from fabricd.devices.snmp.targets import load_targets
from fabricd.model.action import Change, Lever
from tests.integration.snmp_bench import AUTH, DCBX, FASTPATH, PRIVACY, Snmpd, snmpd, write_targets
from tests.integration.twin_tools import running_twin, wait_until

CTL, MON = 'user = "fabctl"', 'user = "fabmon"'


@pytest.fixture(scope="module")
def agent(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Snmpd]:
    with snmpd(tmp_path_factory.mktemp("snmpd")) as running:
        yield running


@pytest.fixture(scope="module")
def adapter(agent: Snmpd, tmp_path_factory: pytest.TempPathFactory) -> SnmpAdapter:
    return make(agent, tmp_path_factory.mktemp("targets"))


def make(agent: Snmpd, directory: Path, timeout: float = 2.0) -> SnmpAdapter:
    address = f"127.0.0.1:{agent.port}"
    rows = {
        "dcbx": (address, "ieee", CTL), "dell": (address, "fastpath", CTL), "reader": (address, "fastpath", MON),
        "v2": (address, "fastpath", 'community = "lab"'), "sonic": (address, "sonic", CTL),
        "wrong": (address, "ieee", 'user = "wrong"'),
    }  # fmt: skip
    return SnmpAdapter(load_targets(*write_targets(directory, rows, timeout)))


def lever(device: str, name: str, key: str) -> Lever:
    return Lever(adapter="snmp", device=device, name=name, key=key)


def change(adapter: SnmpAdapter, device: str, name: str, key: str, new: Any) -> Change:
    which = lever(device, name, key)
    return Change(lever=which, old=adapter.read(which), new=new)


def there_and_back(adapter: SnmpAdapter, made: Change) -> None:
    assert adapter.push(made).device_seconds > 0
    assert adapter.read_back(made.lever) == made.new
    adapter.push(Change(lever=made.lever, old=made.new, new=made.old))
    assert adapter.read_back(made.lever) == made.old


def pfc(*on: int) -> list[bool]:
    return [priority in on for priority in range(8)]


@pytest.mark.parametrize(
    ("device", "name", "key", "value"),
    [
        ("dcbx", "pfc", "1", pfc()), ("dcbx", "pfc", "2", pfc(0, 3, 4)), ("dcbx", "ets", "1", [20, 0, 0, 80, 0, 0, 0, 0]),
        ("dcbx", "port_admin", "2", "down"), ("dell", "pfc", "1", pfc()), ("dell", "ecn", "1 3", {"kmin": 5, "kmax": 20, "pmax": 0}),
    ],
)  # fmt: skip
def test_levers_of_version_3(adapter: SnmpAdapter, device: str, name: str, key: str, value: Any) -> None:
    there_and_back(adapter, change(adapter, device, name, key, value))


def test_a_trial_by_the_value_that_is_there_tells_what_can_be_written(adapter: SnmpAdapter) -> None:
    found = {(capability.device, capability.name): capability for capability in adapter.probe()}
    assert found["dcbx", "pfc"].writable and found["dcbx", "ets"].writable and found["dell", "ecn"].writable
    assert "notWritable" in found["dell", "ets"].why  # this agent narrows it to read-only
    assert "noAccess" in found["reader", "pfc"].why
    assert "SNMPv3" in found["v2", "pfc"].why
    assert "gNMI" in found["sonic", "pfc"].why and not found["sonic", "port_admin"].writable
    assert "no object for ecn" in found["dcbx", "ecn"].why
    assert not found["wrong", "pfc"].writable and AUTH not in found["wrong", "pfc"].why


def test_version_2_reads_and_does_not_write(adapter: SnmpAdapter) -> None:
    made = change(adapter, "v2", "pfc", "1", pfc())
    assert made.old == pfc(3)
    with pytest.raises(AdapterError, match="SNMPv3") as refused:
        adapter.push(made)
    assert not refused.value.reached


def test_a_refused_set_changed_nothing(adapter: SnmpAdapter) -> None:
    with pytest.raises(AdapterError, match="noAccess") as refused:
        adapter.push(change(adapter, "reader", "pfc", "1", pfc()))
    assert not refused.value.reached
    with pytest.raises(AdapterError, match="notWritable"):
        adapter.push(change(adapter, "dell", "ets", "1", [50, 0, 0, 40, 0, 0, 0, 0]))
    assert adapter.read(lever("dell", "pfc", "1")) == pfc(3)


def test_a_wrong_type_is_the_agent_s_word(agent: Snmpd, tmp_path: Path) -> None:
    profile = tmp_path / "mine.toml"
    profile.write_text(
        'title = "wrong"\nsource = "none"\n[write.pfc]\non = 1\noff = 2\n'
        f'value = {{ oid = "{DCBX}.3.2.1.2.{{port}}.{{priority}}", type = "gauge" }}\n'
    )
    rows = {"mine": (f"127.0.0.1:{agent.port}", str(profile), CTL)}
    adapter = SnmpAdapter(load_targets(*write_targets(tmp_path, rows)))
    with pytest.raises(AdapterError, match="wrongType") as refused:
        adapter.push(change(adapter, "mine", "pfc", "1", pfc()))
    assert not refused.value.reached


def test_values_no_switch_takes_are_not_sent(adapter: SnmpAdapter) -> None:
    for name, key, value in (
        ("pfc", "1", [True]), ("ets", "1", [50, 0, 0, 40, 0, 0, 0, 0]), ("ets", "1", [255, 0, 0, 0, 0, 0, 0, 0]),
        ("port_admin", "1", "off"), ("pfc", "x", pfc()),
    ):  # fmt: skip
        with pytest.raises(AdapterError):
            adapter.plan(Change(lever=lever("dcbx", name, key), new=value))
    for value in ({"kmin": 50, "kmax": 20, "pmax": 1}, {"kmin": 1}, {"kmin": 1, "kmax": 2, "pmax": 101}):
        with pytest.raises(AdapterError):
            adapter.plan(Change(lever=lever("dell", "ecn", "1 3"), new=value))
    with pytest.raises(AdapterError, match="no object"):
        adapter.read(lever("dcbx", "pfc", "77"))
    with pytest.raises(AdapterError, match="no target"):
        adapter.read(lever("nobody", "pfc", "1"))


def test_somebody_else_s_write_is_a_conflict(agent: Snmpd, adapter: SnmpAdapter) -> None:
    made = change(adapter, "dcbx", "pfc", "1", pfc())
    agent.set_by_somebody_else(f"{DCBX}.3.2.1.2.1.4", "i", 1)
    with pytest.raises(Conflict):
        adapter.push(made)
    assert adapter.read(made.lever) == pfc(3, 4)
    agent.set_by_somebody_else(f"{DCBX}.3.2.1.2.1.4", "i", 2)


def test_all_shares_go_in_one_request(adapter: SnmpAdapter) -> None:
    (shown,) = adapter.plan(Change(lever=lever("dcbx", "ets", "1"), new=[20, 0, 0, 80, 0, 0, 0, 0])).shown
    lines = shown.splitlines()
    assert len(lines) == 9 and lines[1] == f"{DCBX}.1.3.1.2.1.0 = gauge 20"
    assert "***" in lines[0] and AUTH not in shown and PRIVACY not in shown


def test_a_dry_run_shows_and_sends_nothing(adapter: SnmpAdapter) -> None:
    dry = DryRun(adapter)
    made = change(adapter, "dell", "ecn", "2 3", {"kmin": 1, "kmax": 2, "pmax": 3})
    ack = dry.push(made)
    assert f"{FASTPATH}.3.3.2.5.1.7.2.3.1 = integer 1" in ack.answer
    assert dry.read_back(made.lever) == made.new
    assert adapter.read(made.lever) == made.old
    dry.push(Change(lever=made.lever, old=made.new, new=made.old))
    assert dry.read(made.lever) == made.old


def test_silence_is_unreachable_and_a_write_into_it_may_have_taken_effect(agent: Snmpd, tmp_path: Path) -> None:
    adapter = make(agent, tmp_path, timeout=0.5)
    made = change(adapter, "dcbx", "pfc", "1", pfc())
    agent.silence(True)
    try:
        with pytest.raises(Unreachable) as failed:
            adapter.read(made.lever)
        assert not failed.value.reached
    finally:
        agent.silence(False)
    switch, handler = adapter._place(made.lever)
    writes = handler.writes(made.lever, made.new)
    agent.silence(True)
    try:
        with pytest.raises(Exception, match="no answer") as lost:
            switch.client.set(writes)
        assert lost.value.reached  # type: ignore[attr-defined]
    finally:
        agent.silence(False)
    wait_until(lambda: adapter.read(made.lever) in (made.old, made.new), 20, "the agent answers again")
    now = adapter.read(made.lever)
    if now == made.new:  # it had been carried out after all
        adapter.push(Change(lever=made.lever, old=now, new=made.old))


def test_an_agent_restarted_between_two_writes(tmp_path: Path) -> None:
    """Its engine starts anew, and what was set is gone: the undo finds the old value there, and writes nothing."""
    with snmpd(tmp_path) as agent:
        adapter = make(agent, tmp_path)
        made = change(adapter, "dcbx", "pfc", "1", pfc())
        adapter.push(made)
        assert adapter.read_back(made.lever) == made.new
        agent.stop()
        with pytest.raises(Unreachable):
            adapter.read(made.lever)
        agent.start()
        deadline = time.monotonic() + 30
        while True:
            try:
                now = adapter.read(made.lever)
                break
            except AdapterError:
                assert time.monotonic() < deadline, "never read again"
        assert now == made.old
        there_and_back(adapter, made)


def test_wrong_keys_are_said_without_the_keys(adapter: SnmpAdapter) -> None:
    with pytest.raises(AdapterError) as refused:
        adapter.read(lever("wrong", "pfc", "1"))
    assert AUTH not in str(refused.value) and PRIVACY not in str(refused.value)
    assert AUTH not in repr(adapter._switches["wrong"].target)


def test_settings(agent: Snmpd, tmp_path: Path) -> None:
    targets, secrets = write_targets(tmp_path, {"a": (f"127.0.0.1:{agent.port}", "ieee", CTL)})
    config = ControlConfig(snmp_targets=targets, snmp_secrets_file=secrets)
    adapter = open_adapter(config)
    assert not adapter.probe_by_writing  # observe mode
    assert {c.name: c.writable for c in adapter.probe()} == {"pfc": True, "ets": True, "ecn": False, "port_admin": True}


def test_flow_control_off_ends_a_storm_in_the_twin(tmp_path: Path) -> None:
    with running_twin("pfc-storm", "--hosts", "8", "--begin", "0.5", "--seed", "4") as addresses:
        rows = {name: (address, "ieee", CTL) for name, address in addresses["snmp"].items()}
        adapter = SnmpAdapter(load_targets(*write_targets(tmp_path, rows)))
        found = {(c.device, c.name): c for c in adapter.probe()}
        assert all(found[name, "pfc"].writable and found[name, "ets"].writable for name in rows)
        device = next(iter(rows))
        there_and_back(adapter, change(adapter, device, "pfc", "1", pfc()))
        shares = adapter.read(lever(device, "ets", "1"))
        assert sum(shares) == 100
        there_and_back(adapter, change(adapter, device, "ets", "1", [5, 5, 5, 60, 25, 0, 0, 0]))
        there_and_back(adapter, change(adapter, device, "port_admin", "1", "down"))


def test_the_command_lists_what_can_be_written(agent: Snmpd, tmp_path: Path) -> None:
    address = f"127.0.0.1:{agent.port}"
    targets, secrets = write_targets(tmp_path, {"dell": (address, "fastpath", CTL), "sonic": (address, "sonic", CTL)})
    config = tmp_path / "fabricd.toml"
    config.write_text(f'[control]\nadapters = ["snmp"]\nsnmp_targets = "{targets}"\nsnmp_secrets_file = "{secrets}"\n')

    def run(*more: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "fabricd", "adapters", "--config", str(config), *more]
        return subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)

    levers = json.loads(run("--json", "--write").stdout)["levers"]
    assert {(row["device"], row["name"]): row["writable"] for row in levers} == {
        ("dell", "pfc"): True, ("dell", "ets"): False, ("dell", "ecn"): True, ("dell", "port_admin"): True,
        ("sonic", "pfc"): False, ("sonic", "ets"): False, ("sonic", "ecn"): False, ("sonic", "port_admin"): False,
    }  # fmt: skip
    shown = run().stdout
    assert "snmp    dell         ets             writable" in shown  # by the profile; nothing was tried
    config.write_text("[control]\n")
    assert run().returncode == 2

"""The opensm adapter on a real opensm that programs a twin's fabric: pushed, read back by SMP, taken back."""

from __future__ import annotations

import asyncio
import contextlib
import re
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from fabricd.control.adapters.base import AdapterError, Conflict, Unreachable
from fabricd.control.adapters.opensm import OpenSmAdapter
from fabricd.control.journal import SqliteJournal
from fabricd.control.life import Life
from fabricd.daemons.get_server import GetServer
from fabricd.devices.base import DeviceUnreachable
from fabricd.devices.opensm.far_end import RemoteHost
from fabricd.devices.opensm.plane import CollectorGetter
from fabricd.ib.ibsim import SimTransport
from fabricd.ib.keys import Keys
from fabricd.ib.limits import Limits
from fabricd.model.action import Action, Change, Lever, Proposal, Touched
from fabricd.model.ident import format_guid
from tests.integration.opensm_bench import LEVELS, QOS, Bench, opensm_bench
from tests.integration.twin_tools import OpenSm, Tools, wait_until

SWAPPED = ",".join(str(1 - int(lane)) for lane in LEVELS.split(","))


@pytest.fixture(scope="module")
def bench(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Bench]:
    with opensm_bench(tmp_path_factory.mktemp("opensm")) as bench:
        yield bench


@pytest.fixture(scope="module")
def filed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Bench]:
    """opensm with the file engine."""
    with opensm_bench(tmp_path_factory.mktemp("filed"), extra="routing_engine file,minhop\n") as bench:
        yield bench


def leaf(bench: Bench) -> tuple[int, dict[int, int]]:
    """(GUID, forwarding table) of a switch with hosts."""
    plane = bench.adapter._desk.plane
    assert plane is not None
    guid = next(guid for guid in plane.switches() if len(plane.active_ports(guid, 8)) > 4)
    return guid, plane.table(guid)


def there_and_back(bench: Bench, change: Change) -> None:
    """Push, read back, undo, read back: the change shows on the devices and is gone again."""
    assert bench.adapter.push(change).device_seconds > 0
    assert bench.adapter.read_back(change.lever) == bench.adapter.read(change.lever) == change.new
    bench.adapter.push(Change(lever=change.lever, old=change.new, new=change.old))
    assert bench.adapter.read_back(change.lever) == bench.adapter.read(change.lever) == change.old


def test_probing_says_what_can_be_written_and_why_not(bench: Bench, filed: Bench) -> None:
    found = {capability.name: capability for capability in bench.adapter.probe()}
    assert found["option"].writable and found["hop_weight"].writable and found["partition"].writable
    assert not found["routes"].writable and "file,minhop" in found["routes"].why
    found = {capability.name: capability for capability in filed.adapter.probe()}
    assert found["routes"].writable and "takes no notice" in found["hop_weight"].why


def test_a_hop_weight_moves_all_and_comes_back_with_reroute(bench: Bench) -> None:
    guid, table = leaf(bench)
    uplink = max(table.values())
    change = bench.change("hop_weight", f"{format_guid(guid)} {uplink}", 4)
    assert "console: reroute" in bench.adapter.plan(Change(lever=change.lever, old=4, new=None)).shown[-1]
    bench.adapter.push(change)
    assert uplink not in leaf(bench)[1].values()
    bench.adapter.push(Change(lever=change.lever, old=4, new=None))
    assert uplink in leaf(bench)[1].values()
    assert bench.adapter.read_back(change.lever) is None


@pytest.mark.parametrize(
    ("option", "value"),
    [
        ("qos_vlarb_low", "0:10,1:20"), ("qos_swe_vlarb_low", "0:1,1:2"), ("qos_vlarb_high", "0:3"), ("qos_sl2vl", SWAPPED),
        ("qos_high_limit", "9"), ("qos_swe_high_limit", "2"), ("qos_ca_vlarb_low", "0:7"), ("sweep_interval", "20"),
        ("cc_sw_cong_setting_threshold", "0x0F"),
    ],
)  # fmt: skip
def test_options_reach_the_ports_and_are_taken_back(bench: Bench, option: str, value: str) -> None:
    there_and_back(bench, bench.change("option", option, value))


def test_weights_are_seen_by_smpquery_too(bench: Bench) -> None:
    guid, _ = leaf(bench)
    change = bench.change("option", "qos_swe_vlarb_low", "0:10,1:21")
    bench.adapter.push(change)
    shown = bench.tools.run("smpquery", "-G", "vlarb", format_guid(guid), "1")
    assert re.search(r"WEIGHT: \|0xA\s*\|0x15", shown)
    bench.adapter.push(Change(lever=change.lever, old=change.new, new=change.old))


def test_an_option_for_a_restart_and_a_key_are_refused_unsent(bench: Bench) -> None:
    before = bench.conf.read_text()
    for option, value in (("routing_engine", "updn"), ("lmc", "1"), ("no_such_option", "1"), ("ar_sl_mask", "0xFFFF")):
        with pytest.raises(AdapterError) as refused:
            bench.adapter.push(bench.change("option", option, value))
        assert not refused.value.reached
    with pytest.raises(AdapterError, match="key"):
        bench.adapter.read(Lever(adapter="opensm", device="sm", name="option", key="m_key"))
    assert bench.conf.read_text() == before


def test_a_path_rule_gives_pairs_another_level(bench: Bench) -> None:
    hosts = [line.split()[2] for line in bench.tools.run("ibhosts").splitlines() if line.startswith("Ca")]
    lids = [bench.tools.fields("smpquery", "-G", "portinfo", f"0x{int(guid, 16) + 1:x}")["Lid"] for guid in hosts[:2]]
    source, destination = (format_guid(int(guid, 16) + 1) for guid in hosts[:2])

    def level() -> str:
        record = bench.tools.run("saquery", "-p", "--src-to-dst", ":".join(lids))
        found = re.search(r"qos_class\S*|^\s+sl\.+(\S+)", record, re.M)
        levels = re.findall(r"^\s+sl\.+(0x[0-9A-Fa-f]+|\d+)", record, re.M)
        assert found and levels, record
        return str(int(levels[0], 0))

    assert level() == "0"
    rule = {"sl": 3, "source": [source], "destination": [destination]}
    change = bench.change("qos_policy", "fabricd-7f3a", rule)
    bench.adapter.push(change)
    assert level() == "3"
    assert bench.adapter.read_back(change.lever) == rule
    bench.adapter.push(Change(lever=change.lever, old=rule, new=None))
    assert level() == "0"
    assert bench.adapter.read_back(change.lever) is None


def test_a_partition_comes_into_the_tables_and_goes(bench: Bench) -> None:
    there_and_back(bench, bench.change("partition", "0x8005", "gpu=0x8005, ipoib, sl=1, mtu=5 : ALL=full"))


def test_a_partition_opensm_would_stumble_over_is_not_written(bench: Bench) -> None:
    before = bench.partitions.read_text()
    for bad in (
        "gpu=0x8005, bogus : ALL=full",
        "gpu=0x8005 : ALLL=full",
        "gpu=0x8006 : ALL=full",
        "gpu=0x8005 : ALL=full; x",
    ):
        with pytest.raises(AdapterError) as refused:
            bench.adapter.push(bench.change("partition", "0x8005", bad))
        assert not refused.value.reached
    assert bench.partitions.read_text() == before


def test_somebody_else_s_write_is_a_conflict(bench: Bench) -> None:
    change = bench.change("option", "qos_high_limit", "8")
    bench.conf.write_text(bench.conf.read_text().replace("qos_high_limit 4", "qos_high_limit 6"))
    before = bench.conf.read_text()
    try:
        with pytest.raises(Conflict, match='"6"'):
            bench.adapter.push(change)
        assert bench.conf.read_text() == before
    finally:
        bench.conf.write_text(before.replace("qos_high_limit 6", "qos_high_limit 4"))


def test_what_opensm_silently_ignores_is_caught_by_the_read_back(bench: Bench) -> None:
    """The file says so, the log is content, the ports say otherwise."""
    lever = Lever(adapter="opensm", device="sm", name="option", key="qos_vlarb_low")
    text = bench.conf.read_text()
    bench.conf.write_text(text.replace("qos_vlarb_low 0:64,1:64", "qos_vlarb_low 0:99,1:1"))  # and no SIGHUP
    try:
        assert bench.adapter.read(lever) == "0:99,1:1"
        assert bench.adapter.read_back(lever) == "0:64,1:64"
    finally:
        bench.conf.write_text(text)


def test_destinations_move_one_by_one_and_the_file_goes_with_the_last(filed: Bench) -> None:
    guid, table = leaf(filed)
    uplink = max(table.values())
    lid = next(lid for lid, port in table.items() if port == uplink)
    change = filed.change("routes", str(lid), {str(lid): uplink - 1}, format_guid(guid))
    filed.adapter.push(change)
    assert leaf(filed)[1] == {**table, lid: uplink - 1}
    assert filed.adapter.read_back(change.lever) == change.new
    assert (filed.directory / "lfts.conf").read_text().count("Unicast lids") == 6
    filed.adapter.push(Change(lever=change.lever, old=change.new, new=change.old))
    assert leaf(filed)[1] == table
    assert not (filed.directory / "lfts.conf").exists()
    with pytest.raises(AdapterError, match="not active"):
        filed.adapter.push(filed.change("routes", str(lid), {str(lid): 99}, format_guid(guid)))


def test_ufm_rewrites_opensm_conf_at_sm_start(tmp_path: Path) -> None:
    """A new start with a fresh file: another epoch, everything is read again, and what is gone is said to be lost."""
    with opensm_bench(tmp_path) as bench:
        journal = SqliteJournal(str(tmp_path / "journal.db"))
        life = Life(journal, {"opensm": bench.adapter})
        lever = Lever(adapter="opensm", device="sm", name="option", key="qos_swe_vlarb_low")
        change = Change(lever=lever, new="0:1,1:2")
        action = Action(proposal=_proposal(change))
        action.advance("admitted", 1)
        assert life.push(action, int(120e9)), action.events[-1]
        assert action.state == "confirmed"
        before = bench.adapter.epoch()
        assert bench.adapter.epoch() == before
        bench.start()
        assert bench.adapter.epoch() != before
        (again,) = life.reconcile()
        assert (again.state, bench.adapter.read(lever)) == ("lost", None)
        journal.close()


def test_a_standby_is_another_epoch_and_takes_no_writes(tmp_path: Path) -> None:
    """Another manager of a higher priority takes over: nothing more is written to the first one's files."""
    with opensm_bench(tmp_path) as bench:
        lever = Lever(adapter="opensm", device="sm", name="option", key="qos_swe_vlarb_low")
        bench.adapter.push(Change(lever=lever, old=None, new="0:1,1:2"))
        before = bench.adapter.epoch()
        host = [line.split()[2] for line in bench.tools.run("ibhosts").splitlines() if line.startswith("Ca")][1]
        elsewhere = Tools(bench.tools.environment["IBSIM_SOCKNAME"], tmp_path, f"H-{int(host, 16):016x}")
        other = OpenSm(elsewhere, tmp_path / "other", f"sm_priority 15\n{QOS.format(LEVELS)}")
        try:
            wait_until(lambda: other.lines("Entering STANDBY state") > 0, 60, "the second one found the first")
            bench.manager._process.send_signal(
                signal.SIGHUP
            )  # a master hands over when a heavy sweep finds a better one
            wait_until(lambda: "STANDBY" in bench.adapter.epoch(), 30, "the first one stands by")
            assert bench.adapter.epoch() != before
            text = bench.conf.read_text()
            with pytest.raises(Unreachable, match="not the master"):
                bench.adapter.push(Change(lever=lever, old="0:1,1:2", new=None))
            assert bench.conf.read_text() == text
        finally:
            other.stop()


def test_opensm_on_another_machine_is_reached_by_an_allow_listed_command(bench: Bench, tmp_path: Path) -> None:
    settings = tmp_path / "sm-host.toml"
    settings.write_text(
        f'[control]\nopensm_conf = "{bench.conf}"\nopensm_log = "{bench.home / "opensm.log"}"\nopensm_pid_file = "{bench.pid_file}"\n'
        f'opensm_console = "127.0.0.1:{bench.console}"\nopensm_directories = ["{bench.directory}"]\n'
        f'opensm_cache_dir = "{bench.home}"\n'
    )
    host = RemoteHost([sys.executable, "-m", "fabricd", "sm-host", "--config", str(settings)])
    try:
        adapter = OpenSmAdapter(host, str(bench.conf), str(bench.home), bench.getter, console=True, hangup=True)
        lever = Lever(adapter="opensm", device="sm", name="option", key="qos_vlarb_low")
        old: Any = adapter.read(lever)
        adapter.push(Change(lever=lever, old=old, new="0:5,1:6"))
        assert adapter.read_back(lever) == "0:5,1:6"
        adapter.push(Change(lever=lever, old="0:5,1:6", new=old))
        assert adapter.epoch() == bench.adapter.epoch()
        outside = tmp_path / "elsewhere"
        with pytest.raises(Exception, match="not in a directory"):
            host.write(str(outside), "x")
        with pytest.raises(Exception, match="not one of"):
            host.console("exit")
        assert not outside.exists()
    finally:
        host.close()


def _proposal(change: Change) -> Proposal:
    return Proposal(
        id="a1", verdict_id="v1", cause="incast", remedy="arbitration", changes=(change,), touched=Touched(), gain=0.5, cost=0.1,
        why="test", created_ns=1,
    )  # fmt: skip


def test_the_tables_are_read_through_the_collector(bench: Bench, tmp_path: Path) -> None:
    """As the controller does it: over the collector's socket, without a MAD device of its own."""
    path = tmp_path / "collector.sock"
    hosts = [line.split()[2] for line in bench.tools.run("ibhosts").splitlines() if line.startswith("Ca")]
    base, host = bench.tools.environment["IBSIM_SOCKNAME"], f"H-{int(hosts[2], 16):016x}"
    server = GetServer(lambda: SimTransport(base, host), Limits(), Keys(), Keys())
    ends: list[Callable[[], object]] = []

    async def serve() -> None:
        loop, serving = asyncio.get_running_loop(), asyncio.current_task()
        assert serving is not None
        ends.append(lambda: loop.call_soon_threadsafe(serving.cancel))
        with contextlib.suppress(asyncio.CancelledError):
            await server.serve(str(path))

    thread = threading.Thread(target=lambda: asyncio.run(serve()), daemon=True)
    thread.start()
    try:
        wait_until(path.exists, 30, "the socket")
        get = CollectorGetter(str(path))
        adapter = OpenSmAdapter(bench.host(), str(bench.conf), str(bench.home), get, console=True, hangup=True)
        lever = Lever(adapter="opensm", device="sm", name="option", key="qos_vlarb_low")
        adapter.push(Change(lever=lever, old="0:64,1:64", new="0:7,1:8"))
        assert adapter.read_back(lever) == "0:7,1:8"
        adapter.push(Change(lever=lever, old="0:7,1:8", new="0:64,1:64"))
        with pytest.raises(DeviceUnreachable, match="LID 9999"):
            get("NodeInfo", 9999, 0, 0, 0)
    finally:
        ends[0]()
        thread.join(30)
    with pytest.raises(DeviceUnreachable, match="collector socket"):
        CollectorGetter(str(path))("NodeInfo", 1, 0, 0, 0)

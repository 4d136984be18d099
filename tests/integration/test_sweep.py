"""The sweep against real opensm and ibsim, over the umad interface and over the simulator's socket."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fabricd.ib.ibsim import SimTransport
from fabricd.ib.limits import Limits
from fabricd.ib.mad import CLASS_PMA, Pma, pma_get
from fabricd.ib.scheduler import Request, Scheduler
from fabricd.ib.transport import gmp_address
from fabricd.model.sample import Flag
from fabricd.sources.perfquery import PerfquerySweeper
from fabricd.sources.pma import PmaSweeper, SweepOptions
from fabricd.sources.pma_layout import LAYOUT, decode
from fabricd.sources.pma_reading import COLUMNS
from fabricd.sources.pma_targets import Target, targets_of
from fabricd.topology.discovery import Discoverer, to_topology
from tests.ibsim import Fabric, leaf_spine, three_tier

SWITCH, PORT = "leaf01", 8  # no cable: nothing but the console moves its counters
FABRICD = str(Path(sys.executable).with_name("fabricd"))

# Attribute -> (name on ibsim's console, our raw name -> its name there where they differ)
CONSOLE: dict[Pma, tuple[str, dict[str, str]]] = {
    Pma.PORT_COUNTERS: ("PortCounters", {}),
    Pma.PORT_COUNTERS_EXTENDED: (
        "PortCountersExtended",
        {"PortMulticastXmitPkts": "PortMultiCastXmitPkts", "PortMulticastRcvPkts": "PortMultiCastRcvPkts"},
    ),
    Pma.RCV_ERROR_DETAILS: ("PortRcvErrorDetails", {"PortMalformedPktErrors": "PortMalformedPacketErrors"}),
    Pma.XMIT_DISCARD_DETAILS: ("PortXmitDiscardDetails", {}),
    Pma.OP_RCV_COUNTERS: ("PortOpRcvCounters", {}),
    Pma.FLOW_CTL_COUNTERS: ("PortFlowCtlCounters", {}),
    Pma.VL_OP_PACKETS: ("PortVLOpPackets", {}),
    Pma.VL_OP_DATA: ("PortVLOpData", {}),
    Pma.VL_XMIT_FLOW_CTL_ERRORS: ("PortVLXmitFlowCtlUpdateErrors", {}),
    Pma.VL_XMIT_WAIT: (
        "PortVLXmitWaitCounters",
        {f"PortVLXmitWait{i}": f"PortVLXmitWaitCounters{i}" for i in range(16)},
    ),
}

NEVER_SENT = {"QP1Dropped", "PortMulticastRcvPkts", "PortVLOpData15"}


def settable(attribute: Pma) -> list[tuple[str, int]]:
    """(raw name, bits) of what ibsim answers of an attribute: the first eight of 0x1D, no QP1Dropped in 0x12.

    It takes the last counter of two attributes on its console but never sends it: perfquery shows 0 too.
    """
    found = [(c.raw, c.bits) for c in LAYOUT[attribute] if c.raw not in NEVER_SENT]
    return found[:7] if attribute is Pma.PORT_COUNTERS_EXTENDED else found


def values_of(attribute: Pma) -> dict[str, int]:
    """A different value for each counter, using its whole width but not all ones; wide ones stay within a cell when in bytes."""
    return {
        raw: (0x9E3779B97F4A7C15 * (i + 1 + attribute) % 2**64 >> max(64 - bits, 3)) % (2**bits - 1) or 1
        for i, (raw, bits) in enumerate(settable(attribute))
    }


def set_all(fabric: Fabric) -> None:
    commands = []
    for attribute, (name, other) in CONSOLE.items():
        for raw, value in values_of(attribute).items():
            commands.append(f'PerformanceSet "{SWITCH}"[{PORT}] {name}.{other.get(raw, raw)}={value}')
    fabric.console(*commands)
    said = (fabric.directory / "ibsim.out").read_text()
    assert said.count("has been set") >= len(commands), said[-800:]


@pytest.fixture(scope="module")
def fabric() -> Iterator[Fabric]:
    with Fabric(leaf_spine(4, 2, hosts=4, ports=8)) as fabric:
        set_all(fabric)
        yield fabric


@pytest.fixture
def transport(fabric: Fabric) -> Iterator[SimTransport]:
    transport = SimTransport(fabric.socket_name, fabric.hosts[0])
    yield transport
    transport.close()


def targets(transport: SimTransport) -> list[Target]:
    found, rejects = targets_of(to_topology(Discoverer(transport).discover()))
    assert not rejects.total
    return found


@pytest.mark.parametrize("attribute", CONSOLE, ids=lambda a: a.name)
def test_what_the_console_sets_is_read_back(fabric: Fabric, transport: SimTransport, attribute: Pma) -> None:
    lid = next(t.lid for t in targets(transport) if t.name == SWITCH)
    answer = Scheduler(transport).get(Request(pma_get(attribute, PORT), gmp_address(lid, CLASS_PMA), lid))
    assert answer.ok and answer.mad is not None
    raw = decode(attribute, np.frombuffer(answer.mad, np.uint8).reshape(1, 256))[0].tolist()
    got = dict(zip((c.raw for c in LAYOUT[attribute]), raw, strict=True))
    assert {name: got[name] for name in values_of(attribute)} == values_of(attribute)


def command(fabric: Fabric, *options: str, direct: bool) -> dict[str, Any]:
    if direct:
        options = (*options, "--mad-socket", fabric.socket_name, "--mad-host", fabric.hosts[0])
        done = subprocess.run(
            [FABRICD, "sweep", "--json", *options], capture_output=True, text=True, timeout=60, check=True
        )
    else:
        done = fabric.run(FABRICD, "sweep", "--json", *options)
    document: dict[str, Any] = json.loads(done.stdout)
    return document


@pytest.mark.parametrize("direct", [False, True], ids=["umad", "socket"])
def test_the_command_shows_every_counter(fabric: Fabric, direct: bool) -> None:
    document = command(fabric, "--counters", "--optional", direct=direct)
    assert set(document) == {"ports", "answered", "sweeps", "rejects", "counters"}
    assert document["ports"] == document["answered"] == 48 and document["rejects"] == []
    port = next(p for p in document["counters"] if p["name"] == SWITCH and p["port"] == PORT)
    by_source = {(c["source"], c["raw"]): c for c in port["counters"].values()}
    compared = 0
    for attribute in CONSOLE:
        for raw, value in values_of(attribute).items():
            found = by_source.get((f"pma:0x{attribute:02x}", raw))
            if found is None:
                continue
            assert found["value"] == value * (4 if found["unit"] == "bytes" else 1), (raw, found)
            assert found["flags"] == []
            compared += 1
    # All but OpRcvCounters, and the four of traffic that are read in their wide form.
    assert compared == sum(len(values_of(a)) for a in CONSOLE if a is not Pma.OP_RCV_COUNTERS) - 4
    assert port["counters"]["qp1_dropped"]["value"] is None
    assert port["counters"]["qp1_dropped"]["flags"] == ["not_observable"]


def test_counts_sweeps_and_a_table_for_people(fabric: Fabric) -> None:
    document = command(fabric, "--count", "3", "--interval", "0", direct=False)
    assert set(document) == {"ports", "answered", "sweeps", "rejects"}
    assert [s["answered"] for s in document["sweeps"]] == [48, 48, 48]
    assert all(0 < s["seconds"] < 30 for s in document["sweeps"])
    shown = fabric.run(FABRICD, "sweep", "--count", "2", "--interval", "0.05", "--rows", "3").stdout
    assert "48 of 48 ports answered" in shown and f"{SWITCH}/{PORT} " in shown
    assert "TX Gb/s" in shown  # rates with the second sweep


def test_full_sticky_counters_are_saturated(fabric: Fabric) -> None:
    fabric.console(
        'PerformanceSet "leaf02"[1] PortCounters.PortXmitWait=4294967295',
        'PerformanceSet "leaf02"[1] PortCounters.LinkDownedCounter=255',
        'PerformanceSet "leaf02"[1] PortVLXmitWaitCounters.PortVLXmitWaitCounters0=65535',
    )
    document = command(fabric, "--counters", "--optional", direct=True)
    port = next(p["counters"] for p in document["counters"] if p["name"] == "leaf02" and p["port"] == 1)
    for name, most in (("port_transmit_wait", 2**32 - 1), ("link_downed", 255), ("vl_transmit_wait_0", 65535)):
        assert port[name]["value"] == most and port[name]["flags"] == ["saturated"]


def test_perfquery_reads_the_same(fabric: Fabric, transport: SimTransport) -> None:
    found = targets(transport)
    sweep = PmaSweeper(transport, found).sweep()
    target = next(t for t in found if t.name == SWITCH)
    text = fabric.run("perfquery", "-x", str(target.lid), str(PORT)).stdout
    row = np.flatnonzero((sweep.table.guid == target.guid) & (sweep.table.port == PORT))[0]
    for line in text.splitlines():
        name, _, value = line.partition(":")
        if name in COLUMNS[:8]:
            scale = 4 if name.endswith("Data") else 1
            assert int(sweep.values[row, COLUMNS.index(name)]) == int(value.strip(".")) * scale, name


def test_spawning_perfquery_gives_the_same_sweep(
    fabric: Fabric, transport: SimTransport, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The real tool; one port that the switch does not have ends its run, and the rest is asked in another."""
    found = targets(transport)
    ours = PmaSweeper(transport, found).sweep()
    odd = [replace(t, ports=(1, 2, 99, 3, *t.ports[3:])) if t.name == SWITCH else t for t in found]
    monkeypatch.chdir(fabric.directory)  # the simulator's library makes a directory there
    env = fabric.env(fabric.hosts[3])
    prefix = ["env", *(f"{key}={env[key]}" for key in ("LD_PRELOAD", "IBSIM_SOCKNAME", "SIM_HOST"))]
    theirs = PerfquerySweeper(odd, [*prefix, "perfquery"], timeout=30).sweep()
    assert theirs.answered == ours.answered == 48
    assert {reject.what for reject in theirs.rejects.recent if reject.kind == "perfquery_port"} == {"port 99"}
    row = {key: i for i, key in enumerate(zip(ours.table.guid.tolist(), ours.table.port.tolist(), strict=True))}
    for i, key in enumerate(zip(theirs.table.guid.tolist(), theirs.table.port.tolist(), strict=True)):
        if key[1] == 99:
            assert not theirs.flags[i].any()
            continue
        assert theirs.flags[i].tolist() == ours.flags[row[key]].tolist()
        assert theirs.values[i, 4:].tolist() == ours.values[row[key], 4:].tolist()  # traffic goes on meanwhile


def test_requests_that_are_lost_on_the_way_cost_only_themselves(fabric: Fabric, transport: SimTransport) -> None:
    """ibsim drops a third of one attribute at one switch; port 0 stands for all of it."""
    found = targets(transport)
    sweeper = PmaSweeper(transport, found)
    sweeper.prepare()
    fabric.console('Error "leaf03"[0] 30 0x1d')
    try:
        sweeps = [sweeper.sweep() for _ in range(10)]
    finally:
        fabric.console('Error "leaf03"[0] 0')
    guid = next(t.guid for t in found if t.name == "leaf03")
    for sweep in sweeps:
        assert (sweep.flags[sweep.table.guid != guid, 0] & int(Flag.VALID)).all()
    assert sum(sweep.counts["retried"] for sweep in sweeps) > 0
    for _ in range(3):
        sweep = sweeper.sweep()
    assert sweep.answered == 48


def test_a_switch_that_is_cut_off_is_silent_and_comes_back() -> None:
    with Fabric(leaf_spine(3, 2, hosts=2)) as fabric:
        transport = SimTransport(fabric.socket_name, fabric.hosts[0])
        try:
            sweeper = PmaSweeper(transport, targets(transport), Limits(timeout_ms=50))
            assert sweeper.sweep().answered == len(sweeper.sweep().table) == 20
            fabric.console('Unlink "leaf02"[3]', 'Unlink "leaf02"[4]')
            cut = sweeper.sweep()
            assert [t.name for t in sweeper.silent] == ["leaf02"]
            assert cut.answered == 16 and len(cut.table) == 20
            fabric.console('ReLink "leaf02"[3]', 'ReLink "leaf02"[4]')
            deadline = time.monotonic() + 30  # opensm brings the links up when the simulator's trap reaches it
            while sweeper.sweep().answered < 20 and time.monotonic() < deadline:
                time.sleep(0.05)
            assert sweeper.sweep().answered == 20 and not sweeper.silent
        finally:
            transport.close()


@pytest.mark.slow
def test_thirty_four_thousand_ports() -> None:
    net = three_tier(32, 18, 9, 81, hosts=9, ports=36)
    with Fabric(net) as fabric:
        transport = SimTransport(fabric.socket_name, fabric.hosts[5])
        try:
            sweeper = PmaSweeper(transport, targets(transport), options=SweepOptions())
            for _ in range(2):
                sweep = sweeper.sweep()
                assert sweep.answered == len(sweep.table) == net.switch_ports == 34_020
        finally:
            transport.close()

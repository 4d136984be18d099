"""History becomes a trace: ports found by any of their names, ticks by device, what is not known left out."""

from __future__ import annotations

from array import array

import numpy as np
import pytest

from fabricd.errors import FabricdError
from fabricd.model.series import LINK_RATE, History, Owner, Series, Wire
from fabricd.model.topology import CA, SWITCH, Link, Node, Topology
from fabricd.outputs.history_trace import build, width_and_speed
from fabricd.topology.routes import ASSUMED

SWITCH_IB, QUANTUM2 = 0xCB20, 0xD2F2
BIG = 0xFC6A1C0300AABBCC  # a GUID with its highest bit set


def fabric(device_id: int = QUANTUM2) -> Topology:
    topology = Topology()
    topology.nodes[BIG] = Node(BIG, SWITCH, "leaf", 64, device_id=device_id)
    topology.nodes[0x20] = Node(
        0x20, CA, "gpu1 mlx5_0", 1, port_guids={1: 0x21}, host="gpu1", labels={"device": "mlx5_0"}
    )
    topology.nodes[0x30] = Node(0x30, CA, "gpu2 mlx5_0", 1, host="gpu2", labels={"device": "mlx5_0"})
    topology.links = [Link((BIG, 1), (0x20, 1), 400.0, 4, "NDR"), Link((BIG, 2), (0x30, 1), 400.0, 4, "NDR")]
    return topology


def one(owner: Owner, counter: str, *values: float, prio: int | None = None) -> Series:
    return Series(owner, counter, prio, array("q", [10**9 * i for i in range(len(values))]), array("d", values))


@pytest.mark.parametrize(
    ("owner", "guid"),
    [
        (Owner(BIG, 1), BIG),
        (Owner(0x20, 1), 0x20),
        (Owner(0x21, 1), 0x20),  # port GUID
        (Owner(None, 1, "gpu1", "mlx5_0", True), 0x20),
        (Owner(None, 1, "gpu2.cluster.example", "mlx5_0", True), 0x30),
        (Owner(None, 1, "gpu2", "eth9", True), 0x30),  # its only adapter
    ],
)
def test_ports_are_found(owner: Owner, guid: int) -> None:
    trace = build(History([one(owner, "port_transmit_data_bytes", 1, 2)]), fabric())
    assert [trace.ids[node - 1] for node in trace.counters.node] == [f"0x{guid:016x}"] * 2
    assert trace.routes.sources == (ASSUMED,)


@pytest.mark.parametrize("owner", [Owner(0x99, 1), Owner(BIG, 9), Owner(None, 1, "gpu9", "mlx5_0"), Owner(0x20, 2)])
def test_strangers_are_counted(owner: Owner) -> None:
    history = History([one(Owner(BIG, 1), "port_transmit_data_bytes", 1), one(owner, "port_transmit_data_bytes", 1)])
    assert dict(build(history, fabric()).rejects.counts) == {"port_not_in_topology": 1}
    with pytest.raises(FabricdError, match="none of 1 ports"):
        build(History([one(owner, "port_transmit_data_bytes", 1)]), fabric())


@pytest.mark.parametrize(("device", "tick_ns"), [(QUANTUM2, 0.16), (0, 0.16), (SWITCH_IB, 2.56)])
def test_a_tick_is_what_the_device_counts(device: int, tick_ns: float) -> None:
    """Eight bytes of link time on Quantum, 32 bytes a lane on Switch-IB: at 400 Gb/s."""
    trace = build(History([one(Owner(BIG, 1), "port_transmit_wait", 0, 100)]), fabric(device))
    assert trace.counters.values["xmit_wait_ns"].tolist() == pytest.approx([0, 100 * tick_ns])


def test_ticks_without_a_speed_are_no_time() -> None:
    topology = fabric()
    topology.links[0].rate_gbps = 0.0
    history = History(
        [one(Owner(BIG, 1), "port_transmit_wait", 5, 9), one(Owner(BIG, 1), "port_transmit_data_bytes", 5, 9)]
    )
    trace = build(history, topology)
    assert "xmit_wait_ns" not in trace.counters.values
    assert any("waits of 1 ports" in note for note in trace.notes)


def test_waits_of_adapters_are_not_used() -> None:
    history = History(
        [one(Owner(0x20, 1), "port_transmit_wait", 5, 9), one(Owner(0x20, 1), "port_receive_data_bytes", 5, 9)]
    )
    assert set(build(history, fabric()).counters.values) == {"rx_bytes"}


def test_counters_of_an_instant_are_one_row() -> None:
    wait = Series(Owner(BIG, 1), "port_transmit_wait", None, array("q", [10**9]), array("d", [3.0]))
    trace = build(History([one(Owner(BIG, 1), "port_transmit_data_bytes", 7, 8), wait]), fabric())
    assert trace.counters.t_ns.tolist() == [0, 10**9]
    assert np.isnan(trace.counters.values["xmit_wait_ns"]).tolist() == [True, False]


def test_priorities_go_before_whole_ports() -> None:
    owner = Owner(0x20, 1)
    history = History([one(owner, "global_pause_receive_frames", 1, 1), one(owner, "pfc_receive_frames", 2, 3, prio=3)])
    trace = build(history, fabric())
    assert trace.counters.prio.tolist() == [3, 3] and trace.counters.values["pfc_rx"].tolist() == [2, 3]


def test_without_cabling_there_is_no_trace() -> None:
    history = History([one(Owner(BIG, 1), "port_transmit_data_bytes", 1)])
    with pytest.raises(FabricdError, match="--topology FILE"):
        build(history)
    with pytest.raises(FabricdError, match="no link"):
        build(history, Topology())


def test_cabling_of_the_history_and_duplicate_ends() -> None:
    wires = [
        Wire((1, 1), SWITCH, "a", (2, 1), SWITCH, "b"), Wire((2, 1), SWITCH, "b", (1, 1), SWITCH, "a"),
        Wire((1, 2), SWITCH, "a", (3, 1), CA, "gpu1 mlx5_0"),
    ]  # fmt: skip
    series = [one(Owner(1, 1), "port_transmit_data_bytes", 1, 2), one(Owner(2, 1), LINK_RATE, 1000e9, 1000e9)]
    trace = build(History(series, wires))
    assert [(link.rate_gbps, link.width, link.speed) for link in trace.topology.links] == [
        (800.0, 4, "XDR"),
        (0.0, 0, ""),
    ]
    assert trace.topology.nodes[3].host == "gpu1"


def test_widths_and_speeds() -> None:
    assert width_and_speed(1000) == (4, "XDR") and width_and_speed(800) == (4, "XDR")
    assert width_and_speed(400) == (4, "NDR") and width_and_speed(100) == (4, "EDR")
    assert width_and_speed(250) == (4, "HDR") or width_and_speed(250) == (1, "XDR")
    assert width_and_speed(0) == (0, "") and width_and_speed(123) == (0, "")

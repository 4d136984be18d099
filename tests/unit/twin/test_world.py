"""The model behind the protocol: rows, readings, levers that change what it does, truth."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from fabricd.errors import UsageError
from fabricd.flow.scenarios import SCENARIOS, build
from fabricd.flow.settings import Kind
from fabricd.flow.staging import Draw
from fabricd.twin.face import BY_LANE, BY_LEVEL, BY_PORT, Marking, SourceControl
from fabricd.twin.runtime import Twin, TwinSettings
from fabricd.twin.truth import Truth
from fabricd.twin.world import World


def world(scenario: str = "incast", kind: Kind = "infiniband", hosts: int = 16, begin: float = 0.0) -> World:
    return World(build(scenario, Draw(seed=2, hosts=hosts, kind=kind, begin_s=begin, length_s=1000)))


def busiest_link(fabric: World) -> int:
    """A row between two switches that carries much."""
    plan, counters = fabric.plan, fabric.read()
    between = [
        row
        for row in range(plan.rows)
        if plan.row_peer[row] >= 0
        and "adapter" not in (plan.node_of(row).kind, plan.node_of(int(plan.row_peer[row])).kind)
    ]
    return max(between, key=lambda row: int(counters.tx_bytes[row].sum()))


def sent(fabric: World, row: int, seconds: float) -> int:
    before = int(fabric.read().tx_bytes[row].sum())
    fabric.advance(seconds)
    return int(fabric.read().tx_bytes[row].sum()) - before


@pytest.mark.parametrize("scenario", sorted(SCENARIOS))
@pytest.mark.parametrize("kind", ["infiniband", "ethernet"])
def test_readings_have_the_plan_s_shape_and_only_grow(scenario: str, kind: Kind) -> None:
    fabric = world(scenario, kind, begin=0.5)
    plan = fabric.plan
    assert (plan.row_peer[plan.row_peer[plan.row_peer >= 0]] == np.flatnonzero(plan.row_peer >= 0)).all()
    before = fabric.read()
    fabric.advance(1.5)
    after = fabric.read()
    assert after.tick == before.tick + 1
    for name in (*BY_LANE, *BY_LEVEL, *BY_PORT):
        array = getattr(after, name)
        assert array.shape[0] == plan.rows
        if name != "queue_bytes":
            assert (array >= getattr(before, name)).all(), name
    assert after.tx_bytes.sum() > 0
    adapters = [node for node in plan.adapters if node.kind == "adapter"]
    assert all(len(nodes) == len({node.nic for node in nodes}) for nodes in plan.hosts.values()) and adapters


def test_routes_and_tables_say_the_same() -> None:
    fabric = world()
    routes = fabric.routes()
    for position, _ in enumerate(fabric.plan.switches):
        fabric.set_routes(position, routes[position])
    assert fabric.managed and (fabric.routes() == routes).all()


def test_a_table_entry_moves_traffic() -> None:
    fabric = world()
    fabric.advance(2)
    row = busiest_link(fabric)
    switch = fabric.plan.node_of(row)
    position = fabric.plan.switches.index(switch)
    peers = {n: int(fabric.plan.row_peer[fabric.plan.row(switch, n)]) for n in range(1, switch.ports + 1)}
    uplinks = [n for n, peer in peers.items() if fabric.plan.node_of(peer).kind == "switch"]
    others = [n for n in uplinks if n != fabric.plan.row_port[row]]
    table = fabric.routes()[position]
    assert sent(fabric, row, 1) > 0
    table[table == fabric.plan.row_port[row]] = others[0] if switch.tier == 1 else 0
    fabric.set_routes(position, table)
    fabric.advance(1)
    assert sent(fabric, row, 1) == 0


def test_isolation_moves_traffic_and_gives_it_back() -> None:
    fabric = world()
    fabric.advance(2)
    row = busiest_link(fabric)
    fabric.set_isolated(row, True)
    fabric.advance(1)
    assert sent(fabric, row, 1) == 0
    assert fabric.read().up[row]
    fabric.set_isolated(row, False)
    fabric.advance(1)
    assert sent(fabric, row, 1) > 0


def test_a_disabled_port_stays_down_until_both_ends_are_enabled() -> None:
    fabric = world()
    fabric.advance(1)
    row = busiest_link(fabric)
    peer = int(fabric.plan.row_peer[row])
    fabric.set_enabled(row, False)
    fabric.set_enabled(peer, False)
    fabric.advance(0.5)
    assert not fabric.read().up[row] and fabric.read().link_downed[row] == 1
    fabric.set_enabled(row, True)
    fabric.advance(0.5)
    assert not fabric.read().up[row]
    fabric.set_enabled(peer, True)
    fabric.advance(0.5)
    assert fabric.read().up[row] and fabric.read().up[peer]


def test_a_rate_limit_holds_a_sender() -> None:
    fabric = world()
    fabric.advance(1)
    counters = fabric.read()
    row = max((node.first_row for node in fabric.plan.adapters), key=lambda r: int(counters.tx_bytes[r].sum()))
    assert sent(fabric, row, 2) > 2 * 1.25e9
    fabric.set_rate_limit(row, None, 10)
    fabric.advance(1)
    assert sent(fabric, row, 4) < 1.3 * 4 * 1.25e9
    fabric.set_rate_limit(row, None, None)
    fabric.advance(1)
    assert sent(fabric, row, 2) > 2 * 1.25e9


def test_congestion_control_of_infiniband_marks_and_slows_down() -> None:
    fabric = world()
    fabric.advance(2)

    def waited() -> int:
        before = int(fabric.read().port_wait_ns.sum())
        fabric.advance(2)
        return int(fabric.read().port_wait_ns.sum()) - before

    before = waited()
    assert before > 0
    for position, _ in enumerate(fabric.plan.switches):
        fabric.set_threshold(position, 15, 0)
    control = SourceControl(True, increase=4, timer_us=150, limit=127, table=tuple(float(i) for i in range(128)))
    for node in fabric.plan.adapters:
        fabric.set_source_control(node.first_row, 0, control)
    fabric.advance(3)
    assert waited() < 0.7 * before
    assert fabric.read().sl_fecn.sum() > 0 and fabric.read().sl_becn.sum() > 0


def test_ethernet_levers_read_back() -> None:
    fabric = world(kind="ethernet")
    row = fabric.plan.switches[0].first_row
    assert fabric.pfc(row, 3) and not fabric.pfc(row, 0)
    fabric.set_pfc(row, 3, False)
    assert not fabric.pfc(row, 3)
    assert sum(fabric.shares(row)) == 100
    fabric.set_shares(row, (10, 10, 10, 50, 20, 0, 0, 0))
    assert fabric.shares(row) == (10, 10, 10, 50, 20, 0, 0, 0)
    fabric.set_marking(row, 3, Marking(True, 10_000, 20_000, 0.5))
    assert fabric.marking(row, 3) == Marking(True, 10_000, 20_000, 0.5)


def test_levels_of_a_partition_s_members_change() -> None:
    fabric = world()
    fabric.advance(1)
    rows = [node.first_row for node in fabric.plan.adapters]
    before = fabric.read().sl_tx_bytes.copy()
    fabric.set_service_level(rows, 1)
    fabric.advance(1)
    middle = fabric.read().sl_tx_bytes.copy()
    fabric.advance(1)
    grown = fabric.read().sl_tx_bytes - middle
    assert before[:, 1].sum() == 0 and grown[rows, 1].sum() > 0 and grown[rows, 0].sum() == 0


def test_one_seed_gives_one_history() -> None:
    first, second = world("multi-tenant"), world("multi-tenant")
    for fabric in (first, second):
        for _ in range(20):
            fabric.advance(0.1)
    assert (first.read().tx_bytes == second.read().tx_bytes).all()


def test_the_truth_names_the_root(tmp_path: Path) -> None:
    fabric = world(begin=1.0)
    truth = Truth(fabric.scene, tmp_path / "truth.json")
    for _ in range(12):
        fabric.advance(1)
        truth.advance()
    truth.write()
    document = json.loads((tmp_path / "truth.json").read_text())
    (episode,) = [e for e in document["episodes"] if e["cause"] == "incast"][:1]
    receiver = fabric.plan.adapters[document["intent"]["receiver"]]
    home = int(fabric.plan.row_peer[receiver.first_row])
    node, port = episode["roots"][0]
    assert int(document["nodes"][str(node)]["guid"], 16) == fabric.plan.node_of(home).guid
    assert port == fabric.plan.row_port[home]


@pytest.mark.parametrize(("scenario", "hosts"), [("incest", None), ("incast", 3), ("incast", 5000)])
def test_what_cannot_be_drawn_is_one_clear_error(scenario: str, hosts: int | None) -> None:
    with pytest.raises(UsageError):
        Twin(TwinSettings(scenario, hosts=hosts))

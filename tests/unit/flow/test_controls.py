"""Every lever acts on the next slots: routing, lanes, arbitration, pause, marking, links, hosts."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from fabricd.errors import UsageError
from fabricd.flow.fabric import FlowModel
from fabricd.flow.settings import BufferSettings, CcSettings, EcnSettings, FabricSettings, Kind
from fabricd.flow.topologies import dragonfly, leaf_spine
from fabricd.model.topology import PortRef

BIG = 1 << 50


def fabric(kind: Kind = "infiniband", lanes: int = 4, spines: int = 2, **settings: Any) -> FlowModel:
    """Three leaves of four hosts; leaf ports 1-4 are hosts, 5.. the spines."""
    chosen = FabricSettings(kind=kind, lanes=lanes, buffers=BufferSettings(pool_bytes=8 << 20), **settings)
    return FlowModel(leaf_spine(3, 4, spines, 100, 100), chosen, seed=1)


def saturate(model: FlowModel, src: int, dst: int, sl: int = 0) -> int:
    flow = model.add_flow(src, dst, sl)
    model.offer(flow, BIG)
    return flow


def run(model: FlowModel, slots: int = 400) -> None:
    model.step(slots * model.engine.dt)


def rate(model: FlowModel, flow: int, slots: int = 600) -> float:
    """Gb/s delivered on a flow over the next slots."""
    before = int(model.engine.flows.delivered[flow])
    run(model, slots)
    return (int(model.engine.flows.delivered[flow]) - before) * 8e-9 / (slots * model.engine.dt)


def leaf(model: FlowModel, n: int = 0) -> int:
    return next(g for g, node in model.graph.topology.nodes.items() if node.name == f"leaf{n}")


def tx(model: FlowModel, ref: PortRef) -> int:
    return int(model.counters.tx_bytes[model.graph.port(*ref)].sum())


def test_a_lone_flow_gets_line_rate_and_counts_its_packets() -> None:
    model = fabric()
    flow = saturate(model, 0, 5)
    run(model, 50)
    assert rate(model, flow) == pytest.approx(100, rel=0.02)
    port = int(model.graph.endpoints[0])
    assert model.counters.tx_pkts[port, 0] == -(-model.counters.tx_bytes[port, 0] // 4096)
    assert model.counters.sl_tx_bytes[port, 0] == model.counters.tx_bytes[port, 0]


def test_a_forwarding_entry_moves_the_traffic_to_another_spine() -> None:
    model = fabric()
    saturate(model, 0, 4)
    here = leaf(model)
    run(model)
    first, other = (5, 6) if tx(model, (here, 5)) else (6, 5)
    assert tx(model, (here, other)) == 0
    model.set_lft(here, 4, other)
    assert model.lft(here)[4] == other
    run(model, 20)
    before = tx(model, (here, first))
    run(model)
    assert tx(model, (here, first)) == before
    assert tx(model, (here, other)) > 0


def test_a_missing_entry_discards_and_the_source_tries_again() -> None:
    model = fabric()
    flow = saturate(model, 0, 4)
    model.set_lft(leaf(model), 4, None)
    run(model)
    assert model.counters.drops.sum() > 0
    assert model.engine.flows.delivered[flow] == 0
    model.set_lft(leaf(model), 4, 5)
    assert rate(model, flow, 2000) > 50


def test_adaptive_routing_spreads_one_flow_over_the_set() -> None:
    model = fabric()
    model.set_adaptive(0, True)
    saturate(model, 0, 4)
    run(model)
    shares = [tx(model, (leaf(model), port)) for port in (5, 6)]
    assert min(shares) > 0.2 * sum(shares)


def test_an_ethernet_hash_spreads_flows_but_keeps_each_on_one_path() -> None:
    model = fabric("ethernet")
    flow = saturate(model, 0, 4)
    run(model)
    assert sorted(tx(model, (leaf(model), port)) > 0 for port in (5, 6)) == [False, True]
    assert model.engine.flows.delivered[flow] > 0
    many = fabric("ethernet", spines=4)
    for k in range(64):
        many.offer(many.add_flow(k % 4, 4 + k % 8), 1 << 20)
    run(many, 2000)
    assert all(tx(many, (leaf(many), port)) > 0 for port in (5, 6, 7, 8))


def test_isolating_a_link_empties_it_and_giving_it_back_fills_it() -> None:
    model = fabric()
    for src, dst in ((0, 4), (1, 5), (2, 6), (3, 7)):
        saturate(model, src, dst)
    run(model)
    ref = (leaf(model), 5)
    model.isolate(ref, True)
    run(model, 200)  # what was queued there drains
    before = tx(model, ref)
    run(model)
    assert tx(model, ref) == before
    model.isolate(ref, False)
    run(model)
    assert tx(model, ref) > before


def test_a_link_that_goes_down_counts_and_traffic_finds_another_way() -> None:
    model = fabric(reroute_delay_s=1e-5)
    flow = saturate(model, 0, 4)
    run(model)
    ref = next((leaf(model), port) for port in (5, 6) if tx(model, (leaf(model), port)))
    port = model.graph.port(*ref)
    model.set_link(ref, up=False)
    assert model.counters.link_downed[port] == 1
    assert model.counters.link_downed[model.graph.peer[port]] == 1
    assert model.reported_gbps(port) == 0
    run(model, 200)
    assert rate(model, flow) == pytest.approx(100, rel=0.05)
    model.set_link(ref, up=True)
    assert model.counters.link_recovers[port] == 1
    flows = model.engine.flows
    assert flows.offered[flow] == flows.backlog[flow] + flows.sent[flow] - flows.lost[flow]


def test_a_degraded_link_slows_down_and_shows_its_rate_only_when_it_reports() -> None:
    model = fabric(spines=1)
    flow = saturate(model, 0, 4)
    ref = (leaf(model), 5)
    port = model.graph.port(*ref)
    model.set_link(ref, rate_gbps=25)
    run(model, 200)
    assert rate(model, flow) == pytest.approx(25, rel=0.05)
    assert model.reported_gbps(port) == 25
    model.set_link(ref, rate_gbps=50, reported=False)
    assert rate(model, flow, 1500) == pytest.approx(50, rel=0.1)
    assert model.reported_gbps(port) == 100
    assert [round(bps * 8e-9) for _, end, bps in model.link_events if end == port] == [25]


def test_arbitration_weights_share_a_saturated_egress() -> None:
    model = fabric()
    light, heavy = saturate(model, 0, 8, 0), saturate(model, 1, 8, 1)
    for ref in model.graph.ports:
        model.set_vlarb(ref, [(0, 32), (1, 96)])
    run(model, 200)
    start = model.engine.flows.delivered[[light, heavy]].copy()
    run(model, 4000)
    got = model.engine.flows.delivered[[light, heavy]] - start
    assert got[1] / got.sum() == pytest.approx(0.75, abs=0.03)


def test_the_high_table_goes_first_up_to_its_limit() -> None:
    model = fabric()
    low, high = saturate(model, 0, 8, 0), saturate(model, 1, 8, 1)
    for ref in model.graph.ports:
        model.set_vlarb(ref, low=[(0, 64)], high=[(1, 64)], high_limit=255)
    run(model, 400)
    before = int(model.engine.flows.delivered[low])
    run(model, 1000)
    assert model.engine.flows.delivered[low] - before < 0.05 * model.engine.flows.delivered[high]
    for ref in model.graph.ports:
        model.set_vlarb(ref, low=[(0, 64)], high=[(1, 64)], high_limit=4)  # 16 KiB of high, then one of low
    run(model, 400)
    start = model.engine.flows.delivered[[low, high]].copy()
    run(model, 2000)
    got = model.engine.flows.delivered[[low, high]] - start
    assert 0.4 < got[0] / got.sum() < 0.6


def test_a_lane_without_weight_starves() -> None:
    model = fabric()
    flow = saturate(model, 0, 8, 1)
    ref = model.graph.ports[int(model.graph.peer[model.graph.endpoints[8]])]
    model.set_vlarb(ref, low=[(0, 64)])
    run(model, 300)
    before = int(model.engine.flows.delivered[flow])
    run(model, 500)
    assert model.engine.flows.delivered[flow] == before


def test_ets_shares_and_strict_priority() -> None:
    model = fabric("ethernet")
    a, b = saturate(model, 0, 8, 0), saturate(model, 1, 8, 1)
    for ref in model.graph.ports:
        model.set_ets(ref, [20, 80, 0, 0])
    run(model, 400)
    start = model.engine.flows.delivered[[a, b]].copy()
    run(model, 4000)
    got = model.engine.flows.delivered[[a, b]] - start
    assert got[0] / got.sum() == pytest.approx(0.2, abs=0.03)
    with pytest.raises(UsageError, match="sum to 90"):
        model.set_ets(ref, [10, 80, 0, 0])


def test_sl2vl_moves_a_level_to_another_lane_and_15_discards() -> None:
    model = fabric()
    saturate(model, 0, 4, 2)
    here = leaf(model)
    table = [sl % 4 for sl in range(16)]
    table[2] = 3
    for port in (5, 6):
        model.set_sl2vl((here, port), table)
    run(model)
    lanes = sum(model.counters.tx_bytes[model.graph.port(here, port)] for port in (5, 6))
    assert lanes[3] > 0
    assert lanes[2] == 0
    table[2] = 15
    for port in (5, 6):
        model.set_sl2vl((here, port), table)
    run(model)
    assert model.counters.drops.sum() > 0
    with pytest.raises(UsageError, match="not a modelled VL"):
        model.set_sl2vl((here, 5), [9] * 16)


def test_without_pause_a_priority_loses_packets_and_with_it_none() -> None:
    def lost(on: bool) -> int:
        model = fabric("ethernet", lanes=2)
        for ref in model.graph.ports:
            model.set_pfc(ref, 1, on)
        for src in range(4, 12):
            saturate(model, src, 0, 1)
        run(model, 1500)
        assert (model.counters.pfc_tx[:, 1].sum() > 0) == on
        return int(model.counters.drops.sum())

    assert lost(True) == 0
    assert lost(False) > 0


def test_marks_follow_the_thresholds() -> None:
    def marked(kmin: float, kmax: float, pmax: float) -> int:
        model = fabric("ethernet", lanes=1)
        model.set_ecn(None, None, kmin, kmax, pmax)
        for src in (4, 5, 8):
            saturate(model, src, 0)
        run(model, 1000)
        congested = model.counters.time_congested_ns
        assert congested.max() <= 1000 * model.engine.dt * 1e9 * 1.01
        assert (congested > 0).sum() >= (model.counters.ecn_marked > 0).sum()
        return int(model.counters.ecn_marked.sum())

    assert marked(1e5, 4e5, 0.0) == 0
    some, more = marked(2e5, 4e6, 0.05), marked(2e4, 2e5, 0.5)
    assert 0 < some < more


@pytest.mark.parametrize("kind", ["ethernet", "infiniband"])
def test_source_control_takes_the_pause_out_of_an_incast(kind: Kind) -> None:
    def waited(controlled: bool) -> float:
        model = fabric(kind, lanes=1, ecn=EcnSettings(kmin_bytes=40_000, kmax_bytes=160_000, ref_gbps=100))
        if controlled:
            common: dict[str, Any] = {"cnp_interval_s": 2e-6, "increase_timer_s": 1e-4, "alpha_timer_s": 2e-5}
            cc = (
                CcSettings(kind="dcqcn", min_rate=0.01, **common)
                if kind == "ethernet"
                else CcSettings(kind="ib_cc", threshold=15, cnp_interval_s=2e-6, ccti_increase=2)
            )
            model.set_cc(cc)
        for src in (4, 5, 6, 8):
            saturate(model, src, 0)
        run(model, 2000)
        if controlled:
            assert model.counters.cnp_tx.sum() > 0
            assert model.counters.cnp_rx.sum() > 0
            assert model.counters.sl_fecn.sum() > 0
        before = model.counters.xmit_wait_ns.sum()
        run(model, 2000)
        return float(model.counters.xmit_wait_ns.sum() - before)

    assert waited(True) < 0.3 * waited(False)


def test_a_slow_host_and_a_storm_stop_their_senders() -> None:
    model = fabric("ethernet", lanes=1)
    flow = saturate(model, 4, 0)
    model.set_drain(0, 10)
    run(model, 500)
    assert rate(model, flow, 2000) == pytest.approx(10, rel=0.1)
    model.set_storm(0, True)
    run(model, 100)
    before = int(model.engine.flows.delivered[flow])
    run(model, 500)
    assert model.engine.flows.delivered[flow] == before
    tor = int(model.graph.peer[model.graph.endpoints[0]])
    paused = float(model.counters.paused_ns[tor].sum())
    run(model, 500)
    assert model.counters.paused_ns[tor].sum() - paused == pytest.approx(500 * model.engine.dt * 1e9, rel=0.02)
    model.set_storm(0, False)
    model.set_drain(0, None)
    run(model, 200)
    assert rate(model, flow) == pytest.approx(100, rel=0.05)


@pytest.mark.parametrize("kind", ["infiniband", "ethernet"])
def test_a_slow_host_with_two_lanes_recovers_at_any_time_scale(kind: Kind) -> None:
    model = fabric(kind, slowdown=100_000)
    flows = [saturate(model, 4, 0, 0), saturate(model, 5, 0, 1)]
    model.set_drain(0, 10)
    run(model, 2000)
    model.set_drain(0, None)
    run(model, 400)
    start = model.engine.flows.delivered[flows].copy()
    run(model, 1000)
    got = (model.engine.flows.delivered[flows] - start) * 8e-9 / (1000 * model.engine.dt)
    assert got.sum() == pytest.approx(100, rel=0.05)
    assert got.min() > 40


def test_head_of_queue_lifetime_discards_what_cannot_leave() -> None:
    def run_with(life: float | None) -> FlowModel:
        model = fabric(head_of_queue_life_s=life)
        saturate(model, 4, 0)
        model.set_storm(0, True)
        run(model, 1000)
        return model

    patient, strict = run_with(None), run_with(2e-5)
    assert patient.counters.drops.sum() == 0
    assert strict.counters.hoq_discards.sum() == strict.counters.drops.sum() > 0
    tor = int(strict.graph.peer[strict.graph.endpoints[0]])
    assert strict.counters.hoq_discards[tor] > 0
    flows = strict.engine.flows
    assert (flows.offered == flows.backlog + flows.sent - flows.lost).all()


def test_a_rate_limit_holds_one_level_and_leaves_the_other() -> None:
    model = fabric()
    limited, free = saturate(model, 0, 4, 0), saturate(model, 0, 8, 1)
    model.set_rate_limit(0, 0, 20)
    run(model, 200)
    start = model.engine.flows.delivered[[limited, free]].copy()
    run(model, 3000)
    got = (model.engine.flows.delivered[[limited, free]] - start) * 8e-9 / (3000 * model.engine.dt)
    assert got[0] == pytest.approx(20, rel=0.05)
    assert got[1] == pytest.approx(80, rel=0.05)


def test_xmit_wait_ticks_are_eight_bytes_of_port_time() -> None:
    model = fabric(lanes=1)
    model.set_drain(0, 10)
    saturate(model, 4, 0)
    run(model, 2000)
    tor = int(model.graph.peer[model.graph.endpoints[0]])
    share = model.counters.port_wait_ns[tor] / (2000 * model.engine.dt * 1e9)
    assert 0.6 < share < 0.95
    assert model.xmit_wait_ticks()[tor] == pytest.approx(share * 2000 * model.engine.dt * 12.5e9 / 8, rel=1e-6)


def test_symbol_errors_come_at_their_rate() -> None:
    model = fabric()
    ref = (leaf(model), 5)
    model.set_symbol_errors(ref, 1e9)
    run(model, 500)
    expected = 1e9 * 500 * model.engine.dt
    assert model.counters.symbol_errors[model.graph.port(*ref)] == pytest.approx(expected, rel=0.2)
    assert model.counters.symbol_errors.sum() == model.counters.symbol_errors[model.graph.port(*ref)]


def test_wrong_names_are_refused_in_one_line() -> None:
    model = fabric()
    for call in (
        lambda: model.set_link((1, 1), up=False),
        lambda: model.set_lft(12345, 0, 1),
        lambda: model.add_flow(0, 99),
        lambda: model.add_flow(3, 3),
        lambda: model.set_pfc((leaf(model), 1), 9, True),
        lambda: model.step(-1),
        lambda: model.offer(0, 0),
        lambda: model.set_vlarb((leaf(model), 1), [(0, 300)]),
    ):
        with pytest.raises(UsageError) as caught:
            call()
        assert "\n" not in str(caught.value)


def test_dragonfly_reaches_everybody() -> None:
    model = FlowModel(dragonfly(4, 3, 2, 100), FabricSettings(lanes=2), seed=1)
    for src in range(model.endpoints):
        for dst in range(0, model.endpoints, 5):
            if src != dst:
                model.offer(model.add_flow(src, dst), 65536)
    run(model, 4000)
    np.testing.assert_array_equal(model.engine.flows.delivered, model.engine.flows.offered)

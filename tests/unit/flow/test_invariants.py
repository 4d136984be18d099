"""What must hold in every history: nothing is lost on lossless lanes, bytes are conserved, buffers and credits keep their bounds."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fabricd.flow.fabric import FlowModel
from fabricd.flow.settings import BufferSettings, CcSettings, FabricSettings, Kind
from fabricd.flow.topologies import dragonfly, fat_tree, leaf_spine, rail_pods
from fabricd.model.topology import Topology

SHAPES = {
    "leaf-spine": lambda: leaf_spine(3, 3, 2, 100, 100),
    "uneven": lambda: leaf_spine(2, 4, 1, 100, 200),
    "fat-tree": lambda: fat_tree(4, 100),
    "rails": lambda: rail_pods(2, 2, 2, 2, 100),
    "dragonfly": lambda: dragonfly(3, 2, 2, 100),
}


def stressed(kind: Kind, shape: str, seed: int, cc: bool) -> FlowModel:
    """A fabric under far more load than it can carry, with a slow host and a storm in it."""
    topology: Topology = SHAPES[shape]()
    model = FlowModel(
        topology,
        FabricSettings(
            kind=kind,
            lanes=2,
            slowdown=50,
            buffers=BufferSettings(pool_bytes=4 << 20),
            cc=CcSettings(kind="dcqcn" if kind == "ethernet" else "ib_cc") if cc else CcSettings(),
        ),
        seed=seed,
    )
    if cc and kind == "infiniband":
        model.set_cc(CcSettings(kind="ib_cc", threshold=8))
    rng = np.random.default_rng(seed)
    n = model.endpoints
    for _ in range(4 * n):
        a, b = rng.choice(n, 2, replace=False)
        flow = model.add_flow(int(a), int(b), int(rng.integers(2)))
        model.offer(flow, int(rng.integers(1, 40)) * model.engine.quantum + 77)
    model.at(40 * model.engine.dt, lambda: model.set_drain(0, 5.0))
    model.at(400 * model.engine.dt, lambda: model.set_drain(0, None))
    model.at(100 * model.engine.dt, lambda: model.set_storm(1, True))
    model.at(250 * model.engine.dt, lambda: model.set_storm(1, False))
    return model


def check(model: FlowModel) -> None:
    engine, counters = model.engine, model.counters
    flows = engine.flows
    on_cable = engine.cable_bytes()
    queued = model.queue_bytes()
    assert (flows.sent - flows.lost - flows.delivered).sum() == on_cable.sum() + queued.sum()
    assert (flows.offered - flows.backlog - flows.sent + flows.lost == 0).all()
    np.testing.assert_array_equal(counters.tx_bytes - counters.rx_bytes[model.graph.peer], on_cable)
    switch = model.graph.is_switch[model.graph.node_of]
    held = model.ingress_bytes()
    assert (held >= 0).all()
    per_node = np.bincount(model.graph.node_of[switch], weights=queued[switch].sum(axis=1))
    np.testing.assert_array_equal(per_node, np.bincount(model.graph.node_of[switch], weights=held[switch].sum(axis=1)))
    most = model.graph.rate[:, None] * engine.now + engine.quantum
    assert (counters.tx_bytes.sum(axis=1, keepdims=True) <= most + engine.quantum).all()
    seconds = engine.now * 1e9 * (1 + 1e-9)
    assert (counters.xmit_wait_ns <= counters.paused_ns + 1e-3).all()
    assert counters.paused_ns.max() <= seconds


@settings(max_examples=12, deadline=None)
@given(st.sampled_from(sorted(SHAPES)), st.integers(0, 10_000), st.booleans())
def test_infiniband_credits_are_never_negative_and_never_invented(shape: str, seed: int, cc: bool) -> None:
    model = stressed("infiniband", shape, seed, cc)
    credit = model.engine.credit
    assert credit is not None
    for _ in range(60):
        model.step(10 * model.engine.dt)
        check(model)
        assert (credit.credits >= 0).all()
        peers_hold = model.ingress_bytes()[model.graph.peer]
        assert (credit.credits + model.engine.cable_bytes() + peers_hold <= credit.capacity).all()
        assert (model.ingress_bytes() <= credit.capacity[model.graph.peer]).all()
    assert model.counters.drops.sum() == 0
    assert model.counters.xmit_wait_ns.sum() > 0


@settings(max_examples=12, deadline=None)
@given(st.sampled_from(sorted(SHAPES)), st.integers(0, 10_000), st.booleans())
def test_pause_keeps_every_ingress_within_threshold_and_headroom(shape: str, seed: int, cc: bool) -> None:
    model = stressed("ethernet", shape, seed, cc)
    pause = model.engine.pause
    assert pause is not None
    switch = model.graph.is_switch[model.graph.node_of]
    for _ in range(60):
        model.step(10 * model.engine.dt)
        check(model)
        over = model.ingress_bytes() - pause.reserve - np.where(np.isinf(pause.frozen), pause.pool.max(), pause.frozen)
        assert (over[switch] <= pause.headroom[switch, None]).all()
    assert model.counters.drops.sum() == 0
    assert model.counters.pfc_tx.sum() > 0
    np.testing.assert_array_less(model.counters.pfc_rx, model.counters.pfc_tx[model.graph.peer] + 1e-6)


@pytest.mark.parametrize("kind", ["infiniband", "ethernet"])
def test_everything_offered_arrives_once_the_trouble_is_over(kind: Kind) -> None:
    model = stressed(kind, "fat-tree", 5, cc=False)
    for _ in range(40):
        model.step(200 * model.engine.dt)
        if not (model.engine.flows.offered > model.engine.flows.delivered).any():
            break
    flows = model.engine.flows
    np.testing.assert_array_equal(flows.delivered, flows.offered)
    assert all(message.done_s is not None for message in model.messages.all)
    assert model.queue_bytes().sum() == 0


@pytest.mark.parametrize("kind", ["infiniband", "ethernet"])
def test_one_seed_gives_one_history(kind: Kind) -> None:
    def history(seed: int) -> list[int]:
        model = stressed(kind, "leaf-spine", seed, cc=True)
        for sl in range(2):
            model.set_adaptive(sl, True)
        model.step(500 * model.engine.dt)
        c = model.counters
        return [
            *c.tx_bytes.reshape(-1).tolist(),
            *c.xmit_wait_ns.reshape(-1).astype(int).tolist(),
            int(c.ecn_marked.sum()),
        ]

    assert history(3) == history(3)
    assert history(3) != history(4)


def test_step_length_does_not_change_the_history() -> None:
    one, many = (stressed("infiniband", "leaf-spine", 9, cc=False) for _ in range(2))
    one.step(300 * one.engine.dt)
    for _ in range(100):
        many.step(3 * many.engine.dt)
    np.testing.assert_array_equal(one.counters.tx_bytes, many.counters.tx_bytes)


@settings(max_examples=8, deadline=None)
@given(st.sampled_from(["infiniband", "ethernet"]), st.integers(0, 1000))
def test_flapping_links_lose_nothing_for_good(kind: Kind, seed: int) -> None:
    model = stressed(kind, "fat-tree", seed, cc=False)
    rng = np.random.default_rng(seed)
    between = np.flatnonzero(
        model.graph.is_switch[model.graph.node_of] & (model.graph.endpoint_of[model.graph.peer] < 0)
    )
    slot = model.engine.dt
    for port in rng.choice(between, 3, replace=False).tolist():
        ref, down = model.graph.ports[port], float(rng.uniform(50, 300)) * slot
        model.at(down, lambda ref=ref: model.set_link(ref, up=False))
        model.at(down + 150 * slot, lambda ref=ref: model.set_link(ref, up=True))
    flows, credit = model.engine.flows, model.engine.credit
    for _ in range(40):
        model.step(500 * slot)
        under_way = model.engine.cable_bytes().sum() + model.queue_bytes().sum()
        assert (flows.sent - flows.lost - flows.delivered).sum() == under_way
        if not (flows.offered > flows.delivered).any():
            break
    np.testing.assert_array_equal(flows.delivered, flows.offered)
    if credit is not None:
        model.step(50 * slot)
        np.testing.assert_array_equal(credit.credits, credit.capacity)

"""Load generators: rates, dependencies of collectives, repeatability."""

from __future__ import annotations

import pytest

from fabricd.flow.collectives import AllToAll, RingAllReduce, TreeAllReduce
from fabricd.flow.fabric import FlowModel, Workload
from fabricd.flow.settings import FabricSettings
from fabricd.flow.topologies import leaf_spine
from fabricd.flow.workloads import Bursts, PacedPairs, PoissonPairs, Saturating


def fabric(serial: bool = False) -> FlowModel:
    return FlowModel(
        leaf_spine(2, 4, 4, 100, 100), FabricSettings(lanes=2, quantum_bytes=65536), seed=1, serial_messages=serial
    )


def offered(workload: Workload, seconds: float) -> int:
    model = fabric()
    model.attach(workload)
    model.step(seconds)
    return int(model.engine.flows.offered.sum())


def test_ring_takes_the_time_of_its_rounds() -> None:
    model = fabric()
    size = 64 << 20
    ring = RingAllReduce([0, 1, 2, 3], size, compute_s=1e-3, jitter=0)
    model.attach(ring)
    model.step(0.05)
    assert len(ring.steps) >= 3
    ideal = 6 * (size / 4) / 12.5e9
    for _, took in ring.steps:
        assert took == pytest.approx(ideal, rel=0.03)
    gaps = [b[0] - a[0] - a[1] for a, b in zip(ring.steps, ring.steps[1:], strict=False)]
    assert gaps == pytest.approx([1e-3] * len(gaps), rel=0.05)


def test_one_slow_member_slows_the_whole_ring() -> None:
    def mean_step(slow: bool) -> float:
        model = fabric()
        ring = RingAllReduce([0, 1, 2, 3], 8 << 20, compute_s=1e-4)
        model.attach(ring)
        if slow:
            model.set_drain(2, 20)
        model.step(0.04)
        return sum(took for _, took in ring.steps) / len(ring.steps)

    assert mean_step(True) > 3 * mean_step(False)


@pytest.mark.parametrize("members", [2, 5, 8])
def test_tree_and_all_to_all_finish_and_move_the_right_bytes(members: int) -> None:
    for make, total in (
        (lambda: TreeAllReduce(list(range(members)), 1 << 20, 1.0, pieces=4), 2 * (members - 1) * (1 << 20)),
        (lambda: AllToAll(list(range(members)), members << 18, 1.0), members * (members - 1) * (1 << 18)),
    ):
        model = fabric()
        work = make()
        model.attach(work)
        model.step(0.02)
        assert len(work.steps) == 1
        assert model.engine.flows.delivered.sum() == total


def test_rates_of_open_loop_load() -> None:
    seconds, rate = 0.02, 1e9
    poisson = offered(PoissonPairs([(0, 5), (1, 6)], rate, 100_000, seed=3), seconds)
    assert poisson == pytest.approx(rate * seconds, rel=0.25)
    paced = offered(PacedPairs([(0, 5), (1, 6)], rate, 100_000, seed=3), seconds)
    assert paced == pytest.approx(2 * rate * seconds, rel=0.1)
    bursts = offered(Bursts([(0, 5), (1, 5)], 50_000, 1e-3, seed=3), seconds)
    assert bursts == pytest.approx(2 * 50_000 * 20, rel=0.2)


def test_saturating_flows_keep_the_line_full_and_stop() -> None:
    model = fabric()
    load = Saturating([(0, 5)], 1 << 20, begin=1e-3, stop=11e-3)
    model.attach(load)
    model.step(11e-3)
    sent = model.engine.flows.delivered.sum() / (10e-3 * 12.5e9)
    assert sent == pytest.approx(1, abs=0.03)
    model.step(5e-3)
    assert model.engine.flows.offered.sum() == model.engine.flows.delivered.sum()


def test_bounded_work_does_not_pile_up_behind_a_slow_host() -> None:
    model = fabric()
    model.set_drain(5, 1)
    model.attach(PacedPairs([(0, 5)], 6e9, 1 << 20, seed=1))
    model.step(0.05)
    assert model.engine.flows.backlog[0] <= 6 << 20


def test_load_is_repeatable_by_seed() -> None:
    def run(seed: int) -> int:
        return offered(PoissonPairs([(0, 5), (1, 6)], 1e9, 50_000, seed=seed), 0.005)

    assert run(1) == run(1)
    assert run(1) != run(2)


def test_serial_messages_wait_for_the_acknowledgement() -> None:
    def total(serial: bool) -> int:
        model = fabric(serial)
        flow = model.add_flow(0, 5)
        for _ in range(1000):
            model.offer(flow, 65536)
        model.step(0.004)
        return int(model.engine.flows.delivered[flow])

    assert total(True) < 0.7 * total(False)


def test_messages_know_when_they_were_asked_for_begun_and_done() -> None:
    model = fabric()
    flow = model.add_flow(0, 5)
    model.offer(flow, 1 << 20)
    model.offer(flow, 1 << 20)
    model.step(0.002)
    first, second = model.messages.all
    assert first.done_s is not None
    assert second.done_s is not None
    assert second.start_s == first.done_s
    assert second.request_s == first.request_s == 0
    assert second.done_s - first.done_s == pytest.approx((1 << 20) / 12.5e9, rel=0.05)

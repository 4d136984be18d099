"""Jobs on the flow model: rail-wise rings with compute phases. Step time within 2 %, planted faults told apart."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import pytest

from fabricd.flow.collectives import RingAllReduce
from fabricd.flow.fabric import FlowModel
from fabricd.flow.messages import Message
from fabricd.flow.settings import FabricSettings
from fabricd.flow.topologies import leaf_spine
from fabricd.jobs.job import Job
from fabricd.jobs.watch import JobWatch, Nic

HOSTS, RAILS, GBPS = 4, 3, 100
SECONDS, POLLS = 0.3, (1.0e-3, 0.7e-3)


class RailRings:
    """One ring a rail (leaf), started together; the next step begins when the slowest is done and compute is over."""

    def __init__(self, size: int, compute_s: float, seed: int) -> None:
        self.rings = [
            RingAllReduce([r * HOSTS + h for h in range(HOSTS)], size, 1e9, seed=seed, jitter=0) for r in range(RAILS)
        ]
        self.compute_s = compute_s
        self.starts: list[float] = []
        self._due = 0.0

    def start(self, model: FlowModel) -> None:
        for ring in self.rings:
            ring.start(model)

    def poll(self, model: FlowModel, now: float) -> None:
        if self._due <= now:
            self._due = np.inf
            self.starts.append(now)
            for ring in self.rings:
                ring._due = now
                ring.poll(model, now)

    def completed(self, model: FlowModel, messages: Sequence[Message]) -> None:
        for ring in self.rings:
            ring.completed(model, messages)
        if self._due == np.inf and all(ring._since is None for ring in self.rings):
            self._due = model.engine.now + self.compute_s


def observe(plant: Callable[[FlowModel], None], seed: int = 1) -> tuple[JobWatch, float]:
    """Run a job of four hosts on three rails, poll its NICs by two schedules; (watch, true step time)."""
    model = FlowModel(leaf_spine(RAILS, HOSTS, 2, GBPS, GBPS), FabricSettings(lanes=1, quantum_bytes=131072), seed=seed)
    work = RailRings(24 << 20, 5e-3, seed)
    model.attach(work)
    plant(model)
    watch = JobWatch()
    watch.set_jobs([Job(id="j", nodes=tuple(f"h{h}" for h in range(HOSTS)))])
    ports = {(h, r): model.graph.endpoints[r * HOSTS + h] for h in range(HOSTS) for r in range(RAILS)}
    watch.set_nics(
        {f"{h}-{r}": Nic(f"h{h}", r, model.reported_gbps(int(port)) * 1.25e8, r) for (h, r), port in ports.items()}
    )
    due = sorted({(round(k * poll, 7), s) for s, poll in enumerate(POLLS) for k in range(int(SECONDS / poll))})
    now = 0.0
    for t, sampling in due:
        if t > now:
            model.step(t - now)
            now = t
        for (h, r), port in ports.items():
            sent = int(model.counters.tx_bytes[port].sum())
            waited = int(model.counters.port_wait_ns[port])
            # The watch is told in seconds; a thousandth of real time is as good as any other scale.
            watch.observe(f"{h}-{r}", t, float(sent), float(waited), sampling)
    return watch, float(np.mean(np.diff(work.starts)))


def found(watch: JobWatch) -> list[tuple[str, str, int | None]]:
    return [(s["kind"], s["host"], s["rail"]) for s in watch.report("j")["stragglers"]]


def test_step_time_is_the_models() -> None:
    watch, step = observe(lambda model: None)
    report = watch.report("j")
    assert report["step"]["seconds"] == pytest.approx(step, rel=0.02), report["step"]
    assert report["stragglers"] == []


def test_a_slow_nic_is_told_from_a_slow_receiver() -> None:
    def slow_link(model: FlowModel) -> None:
        guid, number = model.graph.ports[int(model.graph.endpoints[1 * HOSTS + 2])]
        model.set_link((guid, number), rate_gbps=GBPS / 2)

    watch, step = observe(slow_link)
    assert found(watch) == [("slow_nic", "h2", 1)]
    assert watch.report("j")["step"]["seconds"] == pytest.approx(step, rel=0.02)

    watch, _ = observe(lambda model: model.set_drain(1 * HOSTS + 2, GBPS / 2))
    kinds = found(watch)
    assert {rail for _, _, rail in kinds} == {1}
    assert "slow_nic" not in {kind for kind, _, _ in kinds}

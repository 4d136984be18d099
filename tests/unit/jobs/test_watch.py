"""From readings of NICs to what is said of a job."""

import numpy as np
import pytest

from fabricd.jobs.job import Job
from fabricd.jobs.watch import JobWatch, Nic, Ring

LINE = 50e9


def feed(
    watch: JobWatch, job: Job, *, step: float = 12.0, seconds: float = 300, slow: tuple[str, int] | None = None
) -> None:
    rng = np.random.default_rng(7)
    starts = np.cumsum(step * (1 + 0.02 * rng.standard_normal(int(seconds / step) + 1)))
    nics = {f"{host}-{rail}": Nic(host, rail, LINE, rail) for host in job.nodes for rail in range(4)}
    watch.set_nics(nics)
    fine = np.arange(0, seconds, 0.01)
    for key, nic in nics.items():
        length, rate = (4.0 * 1.6, 0.8 * LINE / 1.6) if slow == (nic.host, nic.rail) else (4.0, 0.8 * LINE)
        on = np.zeros_like(fine)
        for start in starts:
            on += (fine >= start) & (fine < start + length)
        total = np.cumsum(np.minimum(on, 1) * rate * 0.01)
        for sampling, interval in ((0, 1.0), (1, 0.7)):
            for t in np.arange(0, seconds - 1, interval):
                watch.observe(key, t, float(np.interp(t, fine, total)), 0.0, sampling)


def test_step_time_and_no_straggler() -> None:
    watch = JobWatch()
    job = Job(id="1", name="llm", nodes=("a", "b", "c"), gpus_per_node=4)
    watch.set_jobs([job])
    feed(watch, job)
    report = watch.report("1")
    assert report["step"]["seconds"] == pytest.approx(12.0, rel=0.02)
    assert report["stragglers"] == []
    assert report["nics_seen"] == 12
    low, high = report["exposed_communication"]
    assert low <= 4 / 12 <= high
    assert report["bytes_per_rail_per_step"][0] == pytest.approx(4.0 * 0.8 * LINE, rel=0.06)


def test_a_slow_nic_shows_in_the_report() -> None:
    watch = JobWatch()
    job = Job(id="1", nodes=("a", "b", "c"))
    watch.set_jobs([job])
    feed(watch, job, slow=("b", 2))
    assert [(s["kind"], s["host"], s["rail"]) for s in watch.report("1")["stragglers"]] == [("slow_nic", "b", 2)]


def test_a_job_nobody_reads_is_not_observable() -> None:
    watch = JobWatch()
    watch.set_jobs([Job(id="1", nodes=("a",)), Job(id="2", nodes=("a", "b"))])
    notes = watch.report("1")["notes"]
    assert any("shares nodes with 2" in note for note in notes)
    assert any("not observable" in note for note in notes)
    with pytest.raises(KeyError):
        watch.report("3")


def test_hosts_without_a_job_cost_nothing() -> None:
    watch = JobWatch()
    watch.set_nics({"x": Nic("a", 0)})
    watch.observe("x", 0.0, 1.0)
    assert not watch._rings
    watch.set_jobs([Job(id="1", nodes=("a",))])
    watch.observe("x", 1.0, 1.0)
    assert len(watch._rings) == 1
    watch.set_jobs([])
    assert not watch._rings


def test_ring_keeps_the_newest_in_order_and_forgets_at_a_reset() -> None:
    ring = Ring(4)
    for t in range(7):
        ring.add(float(t), float(10 * t), 0.0)
    assert ring.ordered()[0].tolist() == [3, 4, 5, 6]
    ring.add(6.0, 99.0, 0.0)
    assert ring.count == 7
    ring.add(7.0, 5.0, 0.0)
    assert ring.ordered()[:2].tolist() == [[7.0], [5.0]]

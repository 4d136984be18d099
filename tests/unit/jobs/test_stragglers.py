"""Planted faults are found and told apart; healthy jobs raise nothing."""

from typing import Any

import numpy as np
import pytest

from fabricd.jobs.bursts import bursting, exposed_communication
from fabricd.jobs.stragglers import JobTraffic, find_stragglers

LINE = 50e9
STEP, INTERVAL, SAMPLES = 20.0, 1.0, 400


def traffic(seed: int, hosts: int = 6, rails: int = 8, **plant: Any) -> JobTraffic:
    """Bursts of 6 s at 80 % of line each step, with noise; ``plant`` bends one NIC, rail, leaf or host."""
    rng = np.random.default_rng(seed)
    fine = 20
    t = np.arange(SAMPLES * fine) / fine * INTERVAL
    tx = np.zeros((hosts, rails, SAMPLES))
    wait = np.zeros_like(tx)
    leaf = np.tile(np.arange(rails), (hosts, 1))
    starts = np.arange(0, SAMPLES * INTERVAL, STEP) + rng.normal(
        0, 0.02 * STEP, int(np.ceil(SAMPLES * INTERVAL / STEP))
    )
    for h in range(hosts):
        for r in range(rails):
            length, rate, late = 6.0, 0.8 * LINE, 0.0
            if plant.get("nic") == (h, r) or plant.get("rail") == r or (plant.get("path") == r and h < 3):
                length, rate = length * 1.8, rate / 1.8
                if plant.get("path") == r:
                    wait[h, r] = 0.4
            if plant.get("bytes") == (h, r):
                length *= 1.2
            if plant.get("host") == h:
                late = 4.0
            on = np.zeros_like(t)
            for start in starts:
                on += (t >= start + late) & (t < start + late + length)
            tx[h, r] = on.reshape(SAMPLES, fine).mean(axis=1) * rate
    tx *= 1 + 0.02 * rng.standard_normal(tx.shape)
    return JobTraffic([f"gpu{h}" for h in range(hosts)], tx, INTERVAL, LINE, wait, leaf)


def kinds(job: JobTraffic) -> list[tuple[str, str, int | None]]:
    return [(s.kind, s.host, s.rail) for s in find_stragglers(job, STEP)]


def test_a_slow_nic_is_named() -> None:
    assert kinds(traffic(1, nic=(2, 5))) == [("slow_nic", "gpu2", 5)]


def test_a_slow_rail_is_one_finding() -> None:
    assert kinds(traffic(2, rail=3)) == [("slow_rail", "", 3)]


def test_a_slow_path_is_shared_and_waits() -> None:
    found = kinds(traffic(3, path=4))
    assert {kind for kind, _, _ in found} == {"slow_path"}
    assert {(host, rail) for _, host, rail in found} == {("gpu0", 4), ("gpu1", 4), ("gpu2", 4)}


def test_a_late_host_is_not_a_slow_nic() -> None:
    assert kinds(traffic(4, host=1)) == [("slow_host", "gpu1", None)]


def test_other_bytes_are_wiring() -> None:
    assert kinds(traffic(5, bytes=(0, 2))) == [("wiring", "gpu0", 2)]


@pytest.mark.parametrize("seed", range(100))
def test_healthy_jobs_raise_nothing(seed: int) -> None:
    rng = np.random.default_rng(seed)
    job = traffic(1000 + seed, hosts=int(rng.integers(3, 9)), rails=int(rng.choice([1, 2, 4, 8])))
    job.tx[rng.random(job.tx.shape) < 0.02] = np.nan
    assert kinds(job) == []


def test_too_few_steps_say_nothing() -> None:
    job = traffic(6, nic=(1, 1))
    short = JobTraffic(job.hosts, job.tx[:, :, :80], INTERVAL, LINE)
    assert find_stragglers(short, STEP) == []


def test_burst_share_and_bounds() -> None:
    job = traffic(7)
    burst = bursting(job.tx, LINE).reshape(-1, SAMPLES)
    exposed = exposed_communication(burst)
    assert 0.2 <= exposed.lower <= 0.3 <= exposed.upper <= 0.36
    flat = np.full((3, 50), 0.05 * LINE)
    assert not bursting(flat, LINE).any()
    assert bursting(np.full((1, 50), 0.9 * LINE), LINE).all()

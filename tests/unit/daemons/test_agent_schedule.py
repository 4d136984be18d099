"""The agent's schedule and identity: pure, with clocks and files of the test's own."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fabricd.daemons.agent import Schedule
from fabricd.daemons.identity import digest64, node_id, run_id


class Clock:
    def __init__(self, now: float) -> None:
        self.now = now

    def __call__(self) -> float:
        return self.now


def run(schedule: Schedule, clock: Clock, late: float = 0.0) -> float:
    """Sleep to the next due time, wake ``late``; returns the time of the reading."""
    clock.now += schedule.delay() + late
    schedule.began()
    return clock.now


@given(st.floats(1.7e9, 1.9e9), st.sampled_from([0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 10.0]))
def test_due_times_are_multiples_of_the_interval(start: float, interval: float) -> None:
    clock = Clock(start)
    schedule = Schedule(interval, clock)
    times = [run(schedule, clock, late=interval / 50) for _ in range(5)]
    for at in times:
        assert (at - interval / 50) / interval == pytest.approx(round(at / interval), abs=1e-3)
    assert schedule.skipped == 0
    assert schedule.lateness == pytest.approx(interval / 50, abs=1e-4)


def test_two_nodes_read_together() -> None:
    one, two = Clock(1_800_000_000.3), Clock(1_800_000_000.9)
    first, second = Schedule(1.0, one), Schedule(1.0, two)
    assert run(first, one) == run(second, two)


def test_a_timer_that_wakes_early_does_not_read_twice() -> None:
    clock = Clock(1_800_000_000.5)
    schedule = Schedule(1.0, clock)
    clock.now += schedule.delay() - 0.002
    schedule.began()
    assert schedule.delay() == pytest.approx(1.0, abs=0.003)
    assert (schedule.skipped, schedule.lateness) == (0, 0.0)


def test_what_was_missed_is_skipped_and_counted() -> None:
    clock = Clock(1_800_000_000.5)
    schedule = Schedule(1.0, clock)
    run(schedule, clock)
    clock.now += 4.3  # a reading that took too long, or a stopped process
    assert schedule.delay() == pytest.approx(0.7, abs=1e-3)
    run(schedule, clock)
    assert schedule.skipped == 4


@pytest.mark.parametrize("jump", [-86400.0, -5.0, 7200.0, 1e8])
def test_a_clock_that_is_set(jump: float) -> None:
    clock = Clock(1_800_000_000.5)
    schedule = Schedule(1.0, clock)
    run(schedule, clock)
    clock.now += jump
    assert 0 <= schedule.delay() <= 1.0
    run(schedule, clock)
    assert schedule.skipped == 0 and schedule.lateness < 0.01


def test_node_id(tmp_path: Path) -> None:
    (tmp_path / "machine-id").write_text("0123456789abcdef0123456789abcdef\n")
    assert node_id("rack1-n3", etc=tmp_path, hostname="x") == "rack1-n3"
    assert node_id(etc=tmp_path, hostname="gpu-17.cluster") == "gpu-17.cluster"
    for nameless in ("localhost", "", "(none)", "a/b", "a+b"):
        assert node_id(etc=tmp_path, hostname=nameless) == "machine-0123456789ab"
    (tmp_path / "machine-id").write_text("uninitialized\n")
    first = node_id(etc=tmp_path, hostname="localhost")
    assert first.startswith("unnamed-") and first != node_id(etc=tmp_path, hostname="localhost")


def test_every_run_has_its_own_id() -> None:
    assert len({run_id() for _ in range(100)}) == 100
    assert digest64("a", 1) == digest64("a", 1) != digest64("a1")

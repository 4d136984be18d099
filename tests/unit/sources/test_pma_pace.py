"""Slower by itself when management datagrams are dropped, back step by step."""

from __future__ import annotations

from fabricd.ib.limits import Limits
from fabricd.sources.pma_pace import Pace


def test_slows_down_and_recovers() -> None:
    pace = Pace(Limits(per_destination=2, total=64), 1.0)
    assert not pace.after_sweep(0) and pace.interval == 1.0
    assert pace.after_sweep(100)
    assert (pace.limits.per_destination, pace.limits.total, pace.interval) == (1, 32, 2.0)
    for _ in range(10):
        pace.after_sweep(100)
    assert pace.interval == 8.0 and pace.limits.total == 8
    changes = sum(pace.after_sweep(0) for _ in range(200))
    assert changes == 3 and pace.interval == 1.0 and pace.limits.total == 64


def test_a_few_drops_are_not_ours() -> None:
    pace = Pace(Limits(), 1.0)
    assert not any(pace.after_sweep(2) for _ in range(100))


def test_drops_in_between_postpone_the_recovery() -> None:
    pace = Pace(Limits(), 1.0)
    pace.after_sweep(50)
    pace.after_sweep(50)
    for _ in range(29):
        assert not pace.after_sweep(0)
    pace.after_sweep(50)
    assert not pace.after_sweep(0)

"""Windows stay within what fabrics bear, and transaction ids are not used twice while outstanding."""

from __future__ import annotations

import pytest

from fabricd.ib.limits import GENERATIONS, INDEX_BITS, Limits, TidSpace
from tests.unit.ib.fake_fabric import FakeClock


@pytest.mark.parametrize(
    "wrong", [{"per_destination": 5}, {"per_destination": 0}, {"total": 129}, {"timeout_ms": 0}, {"retries": 6}]
)
def test_limits_are_checked(wrong: dict[str, int]) -> None:
    with pytest.raises(ValueError, match=next(iter(wrong))):
        Limits(**wrong)


def test_slower_halves_down_to_one() -> None:
    limits = Limits(per_destination=2, total=64)
    assert (limits.slower().per_destination, limits.slower().total) == (1, 32)
    for _ in range(10):
        limits = limits.slower()
    assert (limits.per_destination, limits.total) == (1, 1)


def test_a_generation_comes_back_only_when_it_is_over() -> None:
    clock = FakeClock()
    tids = TidSpace(clock)
    taken = [tids.take(5.0) for _ in range(GENERATIONS)]
    assert len(set(taken)) == GENERATIONS and all(base & ((1 << INDEX_BITS) - 1) == 0 for base in taken)
    with pytest.raises(RuntimeError):
        tids.take(5.0)
    clock.now += 4.0
    tids.used(taken[0], 5.0)  # still in use now: its answers may come until 9
    clock.now += 1.5
    assert tids.take(5.0) == taken[1]

"""Flapping links: counted once, damped, cleared by time spent up."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from fabricd.topology.assemble import label_everything
from fabricd.topology.flaps import UP, FlapTracker
from tests.fabrics import HCA_GUID, LEAF_GUID, rail_fabric

PORT = (LEAF_GUID, 1)


def test_a_fall_and_its_counter_are_one_flap() -> None:
    tracker = FlapTracker()
    tracker.observe(PORT, 0, UP, 5)
    assert tracker.observe(PORT, 1, "polling", 6) == 1
    assert tracker.observe(PORT, 2, UP, 6) == 0


def test_flaps_between_two_looks_are_counted_by_the_counter_alone() -> None:
    tracker = FlapTracker()
    tracker.observe(PORT, 0, UP, 5)
    assert tracker.observe(PORT, 1, UP, 9) == 4
    assert tracker.flapping() == [PORT]


def test_one_fall_is_not_flapping_and_three_soon_are() -> None:
    tracker = FlapTracker(half_life=60)
    tracker.observe(PORT, 0, UP)
    for number in range(3):
        assert tracker.flapping() == []
        tracker.observe(PORT, 2 * number + 1, "polling")
        tracker.observe(PORT, 2 * number + 2, UP)
    assert tracker.flapping() == [PORT]


def test_three_falls_in_a_day_are_not_flapping() -> None:
    tracker = FlapTracker()
    for hour in range(0, 24, 8):
        tracker.observe(PORT, 3600 * hour, UP)
        tracker.observe(PORT, 3600 * hour + 10, "polling")
    assert tracker.flapping() == []


def test_cleared_after_stable_time_up_and_not_while_down() -> None:
    tracker = FlapTracker(half_life=1000, stable=300)
    tracker.observe(PORT, 0, UP, 0)
    tracker.observe(PORT, 1, "polling", 9)
    tracker.observe(PORT, 400, "polling", 9)
    assert tracker.flapping() == [PORT]
    tracker.observe(PORT, 401, UP, 9)
    tracker.observe(PORT, 700, UP, 9)
    assert tracker.flapping() == [PORT]
    tracker.observe(PORT, 702, UP, 9)
    assert tracker.flapping() == []
    assert tracker.ports[PORT].count == 0


def test_damping_ends_when_the_penalty_is_low() -> None:
    tracker = FlapTracker(half_life=60, stable=100_000)
    tracker.observe(PORT, 0, UP, 0)
    tracker.observe(PORT, 1, UP, 3)
    assert tracker.flapping() == [PORT]
    tracker.observe(PORT, 60, UP, 3)
    assert tracker.flapping() == [PORT]
    tracker.observe(PORT, 130, UP, 3)
    assert tracker.flapping() == []


def test_a_cleared_a_saturated_and_a_missing_counter() -> None:
    tracker = FlapTracker()
    tracker.observe(PORT, 0, UP, 200)
    assert tracker.observe(PORT, 1, UP, 1) == 1
    assert tracker.observe(PORT, 2, UP, None) == 0
    assert tracker.observe(PORT, 3, UP, 255, saturated=True) == 254
    assert tracker.observe(PORT, 4, UP, 255, saturated=True) == 0
    assert tracker.observe(PORT, 5, None, None) == 0


def test_an_unknown_state_is_neither_up_nor_down() -> None:
    tracker = FlapTracker()
    tracker.observe(PORT, 0, UP)
    assert tracker.observe(PORT, 1, None) == 0
    assert tracker.observe(PORT, 2, UP) == 0


def test_a_flapping_link_is_one_fault_named_by_both_ends() -> None:
    topology = rail_fabric(units=1, hosts=2, rails=2, spines=1)
    label_everything(topology)
    tracker = FlapTracker()
    for ref in (PORT, (HCA_GUID, 1)):
        tracker.observe(ref, 0, UP, 0)
        tracker.observe(ref, 1, UP, 4)
    (fault,) = tracker.faults(topology)
    assert fault.kind == "flapping_link"
    assert fault.where == "LEAF-01-01 1 - gpu001 mlx5_0"
    assert "4 times down" in fault.detail
    tracker.forget(set())
    assert tracker.faults(topology) == []


@given(
    st.lists(
        st.tuples(st.floats(0, 100), st.sampled_from([UP, "polling", None]), st.none() | st.integers(0, 255)),
        max_size=50,
    )
)
def test_the_penalty_is_bounded_by_the_flaps_seen(steps: list[tuple[float, str | None, int | None]]) -> None:
    tracker = FlapTracker()
    now = total = 0.0
    for wait, state, counter in steps:
        now += wait
        total += tracker.observe(PORT, now, state, counter)
        assert 0 <= tracker.ports[PORT].penalty <= 1000 * total + 1e-6

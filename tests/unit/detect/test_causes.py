"""Small graphs with known answers, one a cause."""

from __future__ import annotations

import pytest

from tests.unit.detect.scenes import Scene, leaf_spine, ring, wobble


def incast(k: int) -> tuple[dict[str, float], dict[str, float]]:
    """h1.0, h1.1 and h2.0 send to h0.0; h1.2 sends to h0.1 and is stuck behind them in leaf1's uplink and spine0."""
    w = wobble(k)
    use = {
        "h1.0>leaf1": 0.33, "h1.1>leaf1": 0.33, "h1.2>leaf1": 0.2 * w, "h2.0>leaf2": 0.33,
        "leaf1>spine0": 0.66 + 0.2 * w, "leaf2>spine1": 0.33, "spine0>leaf0": 0.66 + 0.2 * w, "spine1>leaf0": 0.33,
        "leaf0>h0.0": 1.0, "leaf0>h0.1": 0.2 * w,
    }  # fmt: skip
    stall = {
        "spine0>leaf0": 0.13, "spine1>leaf0": 0.66, "leaf1>spine0": 0.12, "h1.0>leaf1": 0.6, "h1.1>leaf1": 0.6,
        "h1.2>leaf1": 0.3, "leaf2>spine1": 0.6, "h2.0>leaf2": 0.6,
    }  # fmt: skip
    return use, stall


def quiet(k: int) -> tuple[dict[str, float], dict[str, float]]:
    return {name: 0.3 * wobble(k, n) for n, name in enumerate(incast(0)[0])}, {}


def test_incast_at_the_last_switch() -> None:
    scene = Scene(leaf_spine())
    scene.run(6, quiet)
    scene.run(8, incast)
    assert scene.roots() == {"leaf0:1": "incast"}
    assert {"h1.2:1", "h1.0:1", "spine0:1", "spine1:1"} <= scene.affected()


def test_slow_receiver_is_the_host_not_its_switch() -> None:
    scene = Scene(leaf_spine())
    scene.run(6, quiet)
    use = {"h1.0>leaf1": 0.2, "leaf1>spine0": 0.2, "spine0>leaf0": 0.2, "leaf0>h0.0": 0.2}
    stall = {"leaf0>h0.0": 0.8, "spine0>leaf0": 0.7, "leaf1>spine0": 0.6, "h1.0>leaf1": 0.6}
    scene.run(8, lambda k: (use, stall))
    assert scene.roots() == {"h0.0:1": "slow_receiver"}


def test_storm_when_the_host_pauses_all_the_time() -> None:
    scene = Scene(leaf_spine())
    scene.run(6, quiet)
    stall = {"leaf0>h0.0": 1.0, "spine0>leaf0": 0.98, "leaf1>spine0": 0.97, "h1.0>leaf1": 0.96}
    scene.run(8, lambda k: ({"leaf1>spine0": 0.0}, stall))
    assert scene.roots() == {"h0.0:1": "pfc_storm"}


def uplink(
    k: int, one: float, other: float, stalls: tuple[str, ...], held: float = 0.5
) -> tuple[dict[str, float], dict[str, float]]:
    """h1.0 and h1.1 share an uplink; what arrives is spread over several receivers."""
    w = wobble(k)
    use = {
        "h1.0>leaf1": 0.5 * w * one, "h1.1>leaf1": (1 - 0.5 * w) * one, "leaf1>spine0": one, "leaf1>spine1": other,
        "spine0>leaf0": one / 2, "spine0>leaf2": one / 2, "leaf0>h0.0": one / 4, "leaf0>h0.1": one / 4, "leaf2>h2.0": one / 4,
        "leaf2>h2.1": one / 4, "h1.2>leaf1": other, "spine1>leaf0": other, "leaf0>h0.2": other,
    }  # fmt: skip
    return use, dict.fromkeys(stalls, held)


def test_collision_where_an_equal_port_idles() -> None:
    scene = Scene(leaf_spine())
    scene.run(6, lambda k: uplink(k, 0.3, 0.1, ()))
    scene.run(8, lambda k: uplink(k, 1.0, 0.1 * wobble(k), ("h1.0>leaf1", "h1.1>leaf1")))
    assert scene.roots() == {"leaf1:5": "ecmp_collision"}


def test_no_collision_is_claimed_under_adaptive_routing() -> None:
    topology = leaf_spine()
    scene = Scene(topology)
    scene.fabric.adaptive[:] = ~scene.fabric.is_host
    scene.run(6, lambda k: uplink(k, 0.3, 0.1, ()))
    scene.run(8, lambda k: uplink(k, 1.0, 0.1 * wobble(k), ("h1.0>leaf1", "h1.1>leaf1")))
    assert scene.roots() == {"leaf1:5": "oversubscription"}


def test_oversubscription_names_all_the_full_uplinks() -> None:
    scene = Scene(leaf_spine())
    scene.run(6, lambda k: uplink(k, 0.3, 0.3 * wobble(k), ()))
    scene.run(10, lambda k: uplink(k, 1.0, 1.0, ("h1.0>leaf1", "h1.1>leaf1", "h1.2>leaf1")))
    assert scene.roots() == {"leaf1:5": "oversubscription", "leaf1:6": "oversubscription"}


def test_reported_lower_speed_is_a_degraded_link() -> None:
    scene = Scene(leaf_spine())
    scene.run(6, lambda k: uplink(k, 0.2, 0.1, ()))
    for k in range(8):
        use, stall = uplink(k, 0.25, 0.1 * wobble(k), ("h1.0>leaf1", "h1.1>leaf1"), 0.7)
        scene.step(use, stall, speed={"leaf1>spine0": 0.25})
    assert scene.roots() == {"leaf1:5": "degraded_link"}


def test_hidden_lower_speed_is_found_by_its_plateau() -> None:
    scene = Scene(leaf_spine())
    scene.run(6, lambda k: uplink(k, 0.4 * wobble(k, 3), 0.1, ()))
    scene.run(14, lambda k: uplink(k, 0.5, 0.1 * wobble(k), ("h1.0>leaf1", "h1.1>leaf1"), 0.45))
    assert scene.roots() == {"leaf1:5": "degraded_link"}


def test_a_link_that_went_and_came_back_is_a_flap() -> None:
    scene = Scene(leaf_spine())
    scene.run(6, lambda k: uplink(k, 0.3, 0.1, ()))
    for k in range(8):
        use, stall = uplink(k, 1.0, 0.0, ("h1.0>leaf1", "h1.1>leaf1"))
        scene.step(use, stall, speed={"leaf1>spine1": 0.0 if k in (0, 2) else 1.0})
    assert scene.roots() == {"leaf1:5": "link_flap"}


def test_another_priority_crowds_one_out() -> None:
    scene = Scene(leaf_spine(), priorities=2)
    base = {("h1.0>leaf1", 0): 0.1, ("h1.1>leaf1", 1): 0.4, ("h2.0>leaf2", 1): 0.4}
    way = {("leaf1>spine0", 0): 0.1, ("leaf1>spine0", 1): 0.4, ("leaf2>spine1", 1): 0.4}
    way |= {("spine0>leaf0", 0): 0.1, ("spine0>leaf0", 1): 0.4, ("spine1>leaf0", 1): 0.4}
    for _ in range(6):
        scene.step({key: 0.5 * v for key, v in (base | way).items()})
    for _ in range(8):
        use = base | way | {("leaf0>h0.0", 0): 0.1, ("leaf0>h0.0", 1): 0.9}
        scene.step(use, {("spine0>leaf0", 0): 0.4, ("leaf1>spine0", 0): 0.3, ("h1.0>leaf1", 0): 0.3})
    assert scene.roots() == {"leaf0:1": "priority_contention"}


def test_a_cycle_is_a_deadlock() -> None:
    topology, routes = ring()
    scene = Scene(topology, routes)
    moving = {f"s{n}>s{(n + 1) % 4}": 0.6 for n in range(4)} | {f"h{n}>s{n}": 0.3 for n in range(4)}
    moving |= {f"s{n}>h{n}": 0.3 for n in range(4)}
    scene.run(6, lambda k: (moving, {}))
    stuck = {name: 1.0 for name in moving if not name.startswith("s") or ">s" in name}
    scene.run(20, lambda k: ({}, stuck))
    assert scene.roots() == {f"s{n}:2": "pfc_deadlock" for n in range(4)}


def test_pauses_on_a_priority_without_traffic() -> None:
    scene = Scene(leaf_spine(), priorities=2)
    for _ in range(8):
        scene.step({("h1.0>leaf1", 0): 0.5, ("leaf1>spine0", 0): 0.5}, paused={("h1.0>leaf1", 1): 0.4})
    assert scene.roots() == {"h1.0:1": "qos_mismatch"}


def test_ends_of_a_cable_that_count_traffic_as_different_priorities() -> None:
    scene = Scene(leaf_spine(), priorities=2)
    for _ in range(8):
        scene.step(
            {("h1.0>leaf1", 0): 0.5},
            paused={("h1.0>leaf1", 0): 0.3},
            received={("leaf1:1", 0): 0.0, ("leaf1:1", 1): 0.5},
        )
    assert set(scene.roots().values()) == {"qos_mismatch"}


def test_what_nothing_explains_is_unknown_and_names_no_root() -> None:
    scene = Scene(leaf_spine())
    scene.run(6, quiet)
    stall = {"h1.0>leaf1": 0.8, "h1.1>leaf1": 0.8, "h1.2>leaf1": 0.8}
    use = {"h1.0>leaf1": 0.1, "h1.1>leaf1": 0.1, "h1.2>leaf1": 0.1, "leaf1>spine0": 0.15, "leaf1>spine1": 0.15}
    scene.run(12, lambda k: ({name: v * wobble(k, n) for n, (name, v) in enumerate(use.items())}, stall))
    assert scene.roots() == {"-": "unknown"}


@pytest.mark.parametrize("blind", [("leaf0",), ("spine1",)])
def test_an_unseen_switch_does_not_make_a_wrong_name(blind: tuple[str, ...]) -> None:
    scene = Scene(leaf_spine(), blind=blind)
    scene.run(6, quiet)
    scene.run(8, incast)
    assert set(scene.roots()) <= {"leaf0:1", "-"}


UNSEEN = ("h1.0", "h1.1", "h1.2")  # adapters that count no waits


def test_a_plateau_at_a_known_step_shows_without_visible_waits() -> None:
    """A packet more or less an interval does not hide it."""
    scene = Scene(leaf_spine(), no_waits=UNSEEN)
    scene.run(6, lambda k: uplink(k, 0.5 * wobble(k, 3), 0.1, ()))
    scene.run(16, lambda k: uplink(k, 0.25 + 0.004 * (-1) ** k, 0.1 * wobble(k), ()))
    assert scene.roots() == {"leaf1:5": "degraded_link"}


@pytest.mark.parametrize("level", [0.07, 0.2, 0.35])
def test_a_steady_sender_is_not_a_slow_link(level: float) -> None:
    scene = Scene(leaf_spine(), no_waits=UNSEEN)
    scene.run(6, lambda k: uplink(k, 2 * level, 0.1, ()))
    scene.run(16, lambda k: uplink(k, level, 0.1 * wobble(k), ()))
    assert scene.roots() == {}

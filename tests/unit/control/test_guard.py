"""Every limit of the guard, one by one, and a property: no sequence of proposals gets past them."""

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fabricd.config.control import ControlConfig, GuardConfig, MaintenanceWindow
from fabricd.control.guard import refusals, window_bounds
from fabricd.control.world import World
from fabricd.errors import UsageError
from fabricd.model.action import IN_FORCE, Action, Touched
from fabricd.model.topology import CA, SWITCH, Link, Node, RailGroup, Topology
from tests.unit.control.device import proposal

SECOND = 1_000_000_000
NOW = 10_000 * SECOND
SPINES, LEAVES, HOSTS = (0x10, 0x11), (0x20, 0x21, 0x22), tuple(range(0x30, 0x3C))


def fabric() -> Topology:
    """Three leaves of four hosts, two spines, one link each."""
    topology = Topology()
    for guid in SPINES + LEAVES:
        topology.nodes[guid] = Node(guid, SWITCH, f"s{guid:x}")
    for i, guid in enumerate(HOSTS):
        topology.nodes[guid] = Node(guid, CA, f"h{i} mlx5_0", host=f"h{i}")
        topology.links.append(Link((guid, 1), (LEAVES[i // 4], 1 + i % 4)))
    for i, leaf in enumerate(LEAVES):
        for j, spine in enumerate(SPINES):
            topology.links.append(Link((leaf, 10 + j), (spine, 1 + i)))
    topology.rails = [RailGroup("su1", ["h0"], [[LEAVES[0]]], pod="pod1")]
    return topology


def world(**more: Any) -> World:
    return World(fabric(), visible_share=more.pop("visible_share", 1.0), sample_age=more.pop("sample_age", 1.0), **more)


def config(**guard: Any) -> ControlConfig:
    return ControlConfig(guard=GuardConfig(**{"links_share": 1.0, **guard}))


def past(name: str, key: str, state: str, ago_s: float, **more: Any) -> Action:
    """An action that entered ``state`` some seconds ago."""
    action = Action(proposal=proposal(name, key, **more))
    at = NOW - int(ago_s * SECOND)
    action.advance("admitted", at)
    action.advance("intended", at)
    path = {"intended": [], "confirmed": ["pushed", "confirmed"], "rolled_back": ["pushed", "rolled_back"]}[state]
    for step in path:
        action.advance(step, at)  # type: ignore[arg-type]
    return action


def why(
    prop: Any, actions: list[Action] | None = None, w: World | None = None, c: ControlConfig | None = None, **more: Any
) -> str:
    return "; ".join(refusals(prop, actions or [], w or world(), c or config(), more.get("latches", ()), NOW))


def test_a_quiet_fabric_admits() -> None:
    assert why(proposal("p", "a", touched=Touched(switches=(0x20,), links=((0x20, 10),)))) == ""


@pytest.mark.parametrize("latch", ["pause", "freeze", "revert-all"])
def test_latches(latch: str) -> None:
    assert why(proposal("p", "a"), latches=[latch]) == f"latched: {latch}"


def test_rate_per_minute_and_hour() -> None:
    assert "in the last minute" in why(proposal("p", "a"), [past("q", "z", "rolled_back", 30)])
    old = [past(f"q{i}", f"z{i}", "rolled_back", 100 + 300 * i) for i in range(6)]
    assert "6 new in the last hour" in why(proposal("p", "a"), old)
    assert why(proposal("p", "a"), old[:5]) == ""


def test_a_clock_set_back_opens_nothing() -> None:
    assert "in the last minute" in why(proposal("p", "a"), [past("q", "z", "rolled_back", -5000)])


def test_places_in_all_and_per_switch() -> None:
    active = [past(f"q{i}", f"z{i}", "confirmed", 4000, touched=Touched(switches=(i,))) for i in range(4)]
    assert "4 in force" in why(proposal("p", "a"), active)
    assert "in force on switch" in why(proposal("p", "a", touched=Touched(switches=(1,))), active[:2])
    assert "lever already moved" in why(proposal("p", "z0"), active[:1])


def test_share_of_links_and_uplinks_of_a_leaf() -> None:
    prop = proposal("p", "a", touched=Touched(links=((0x20, 10), (0x21, 10))))
    assert "2 links touched, at most 1 of 18" in why(prop, c=config(links_share=0.01))
    both = proposal("p", "a", touched=Touched(links=((0x20, 10), (0x20, 11))))
    assert "2 uplinks of leaf 0x0000000000000020" in why(both)
    active = [past("q", "z", "confirmed", 4000, touched=Touched(links=((0x10, 1),)))]  # the other end of 0x20/10
    assert "2 uplinks of leaf" in why(proposal("p", "a", touched=Touched(links=((0x20, 11),))), active)


def test_never_the_last_path_and_never_a_host_off() -> None:
    both = proposal("p", "a", touched=Touched(links=((0x20, 10), (0x20, 11))))
    assert "the last path of 0x0000000000000020" in why(both, c=config(uplinks_per_leaf=2))
    host = proposal("p", "a", touched=Touched(links=((HOSTS[5], 1),)))
    assert "would cut off h5" in why(host)
    assert "would cut off h7" in why(proposal("p", "a", touched=Touched(hosts=("h7",))))
    assert why(host, c=config(allow_host_off=True)) == ""


def test_a_link_nobody_knows() -> None:
    assert "not a known link" in why(proposal("p", "a", touched=Touched(links=((0x99, 1),))))


def test_visibility_and_freshness() -> None:
    assert "94% of the fabric visible" in why(proposal("p", "a"), w=world(visible_share=0.94))
    assert "intervals old" in why(proposal("p", "a"), w=world(sample_age=3.5))
    nothing = float("nan")
    assert "visible" in why(proposal("p", "a"), w=world(visible_share=nothing))
    assert "old" in why(proposal("p", "a"), w=world(sample_age=nothing))
    assert World(fabric()).visible_share == 0.0


def test_dwell_and_repeat_after_rollback() -> None:
    assert "less than 120 s ago" in why(proposal("p", "a"), [past("q", "a", "rolled_back", 90)])
    assert "rolled back less than 1800 s" in why(proposal("p", "a"), [past("q", "a", "rolled_back", 1000)])
    assert why(proposal("p", "a", new=5), [past("q", "a", "rolled_back", 1000)]) == ""
    assert why(proposal("p", "a"), [past("q", "a", "rolled_back", 1900)]) == ""


def test_maintenance_windows_and_drained_nodes() -> None:
    def window(**what: Any) -> ControlConfig:
        c = config()
        c.maintenance = [MaintenanceWindow(start="1970-01-01T00:00:00Z", end="1970-01-01T05:00:00+00:00", **what)]
        return c

    touch = proposal("p", "a", touched=Touched(switches=(0x20,), hosts=("h1",)))
    allowed = {"guard": GuardConfig(links_share=1.0, allow_host_off=True)}
    for what in ({"switches": ["0x0000000000000020"]}, {"pods": ["pod1"]}, {"pods": ["su1"]}, {"nodes": ["h1"]}, {}):
        c = window(**what)
        c.guard = allowed["guard"]
        assert "maintenance until" in why(touch, c=c), what
    assert "maintenance" not in why(touch, c=window(switches=["0x0000000000000021"]))
    assert "drained: h1" in why(touch, w=world(expected_down=frozenset({"h1"})))
    with pytest.raises(UsageError, match="needs a time zone"):
        window_bounds(MaintenanceWindow(start="2026-01-01T00:00:00", end="2026-01-01T00:00:00Z"))
    with pytest.raises(UsageError, match=r"control\.maintenance\.end"):
        window_bounds(MaintenanceWindow(start="2026-01-01T00:00:00Z", end="soon"))


def test_guids_seen_twice_are_kept_out() -> None:
    prop = proposal("p", "a", touched=Touched(switches=(0x20,)))
    assert "seen twice" in why(prop, w=world(contested=frozenset({0x20})))


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_no_sequence_of_proposals_exceeds_a_limit(data: st.DataObject) -> None:
    c, w = config(), world()
    uplinks = [(leaf, port) for leaf in LEAVES for port in (10, 11)]
    actions: list[Action] = []
    now = NOW
    for number in range(30):
        now += data.draw(st.integers(-100, 4000)) * SECOND
        for action in actions:
            if action.state in IN_FORCE and data.draw(st.booleans()):
                action.advance("rolled_back", now)
        links = data.draw(st.lists(st.sampled_from(uplinks), max_size=2, unique=True))
        touched = Touched(switches=tuple({leaf for leaf, _ in links}), links=tuple(links))
        prop = proposal(f"p{number}", data.draw(st.sampled_from("abcdef")), new=number, touched=touched)
        if not refusals(prop, actions, w, c, (), now):
            action = Action(proposal=prop)
            action.advance("admitted", now)
            action.advance("intended", now)
            action.advance("pushed", now)
            actions.append(action)
        active = [a for a in actions if a.state in IN_FORCE]
        assert len(active) <= c.guard.in_force
        gone = [link for a in active for link in a.proposal.touched.links]
        assert not w.cut_off(gone)
        for leaf in LEAVES:
            assert sum(1 for link in gone if w.leaf_of(link) == leaf) <= 1
        starts = sorted(a.events[1].at_ns for a in actions)
        for at in starts:
            assert sum(1 for s in starts if at - 3600 * SECOND < s <= at) <= c.guard.new_per_hour

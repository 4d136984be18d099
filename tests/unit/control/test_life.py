"""The life of an action: every step journalled first, killed at every step, and always taken back."""

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fabricd.control.adapters.base import AdapterError, Unreachable
from fabricd.control.journal import SqliteJournal
from fabricd.control.life import Life
from fabricd.model.action import IN_FORCE, Action, Lever
from tests.unit.control.device import Killed, MemoryAdapter, failing_on, lever, proposal, unreachable_on

SECOND = 1_000_000_000
LEASE = 300 * SECOND


class Clock:
    def __init__(self) -> None:
        self.now = 1000 * SECOND

    def __call__(self) -> int:
        self.now += 1
        return self.now


class World:
    def __init__(self, path: Path | str = ":memory:") -> None:
        self.clock = Clock()
        self.device = MemoryAdapter({"a": 1, "b": 2})
        self.journal = SqliteJournal(path)
        self.life = Life(self.journal, {"memory": self.device}, self.clock)

    def admitted(self, *keys: str, **more: Any) -> Action:
        action = Action(proposal=proposal("p1", *keys, **more))
        action.advance("admitted", self.clock())
        self.journal.save(action)
        return action

    def stored(self, action: Action) -> Action:
        found = self.journal.load(action.id)
        assert found is not None
        return found


def test_pushed_confirmed_verified_released() -> None:
    world = World()
    action = world.admitted("a", "b")
    assert world.life.push(action, LEASE)
    assert world.device.values == {"a": 9, "b": 9}
    world.life.verify(action, True, "stall fell from 40 % to 2 %")
    assert world.life.undo(action, "released", "no evidence left")
    assert world.device.values == {"a": 1, "b": 2}
    states = [event["state"] for event in world.journal.audit()]
    assert states == ["admitted", "intended", "pushed", "confirmed", "verified", "released"]


def test_it_is_on_disk_before_the_first_byte_goes_out(tmp_path: Path) -> None:
    world = World(tmp_path / "j.db")
    seen: list[str] = []

    def hook(call: str, which: Lever) -> None:
        if call == "push":
            other = SqliteJournal(tmp_path / "j.db")
            loaded = other.load("p1")
            assert loaded is not None
            seen.append(loaded.state)
            assert loaded.events[-1].data["sends"] == ["set a 9"]
            assert other.last_written(lever("a")) == 9

    world.device.hook = hook
    world.life.push(world.admitted("a"), LEASE)
    assert seen == ["intended"]


def test_not_helping_is_taken_back() -> None:
    world = World()
    action = world.admitted("a")
    world.life.push(action, LEASE)
    world.life.verify(action, False, "stall unchanged")
    assert (action.state, world.device.values["a"]) == ("rolled_back", 1)
    assert world.journal.last_written(lever("a")) is None


def test_an_answer_that_changed_nothing_is_caught() -> None:
    world = World()
    world.device.ignores_writes = True
    action = world.admitted("a")
    assert not world.life.push(action, LEASE)
    assert action.state == "rolled_back"
    assert "does not have it" in action.events[-1].detail


def test_somebody_elses_write_is_a_conflict_and_stays() -> None:
    world = World()
    action = world.admitted("a")
    world.life.push(action, LEASE)
    world.device.values["a"] = 77
    world.life.undo(action, "released")
    assert (action.state, world.device.values["a"]) == ("conflict", 77)


def test_a_write_between_read_and_push_is_a_conflict() -> None:
    world = World()
    action = world.admitted("a")

    def hook(call: str, which: Lever) -> None:
        if call == "push":
            world.device.values["a"] = 5

    world.device.hook = hook
    assert not world.life.push(action, LEASE)
    assert (action.state, world.device.values["a"]) == ("conflict", 5)


def test_the_second_of_two_changes_fails_and_the_first_is_taken_back() -> None:
    world = World()
    action = world.admitted("a", "b")

    def hook(call: str, which: Lever) -> None:
        if call == "push" and which.key == "b":
            raise AdapterError("refused", reached=False)

    world.device.hook = hook
    assert not world.life.push(action, LEASE)
    assert (action.state, world.device.values) == ("failed", {"a": 1, "b": 2})


def test_a_time_out_after_the_write_took_effect_is_undone() -> None:
    world = World()
    world.device.hook = failing_on("pushed", reached=True)
    action = world.admitted("a")
    assert not world.life.push(action, LEASE)
    world.device.hook = lambda call, which: None
    if action.state == "stuck":
        world.life.undo(action, "rolled_back")
    assert world.device.values["a"] == 1


def test_an_unreachable_device_makes_it_stuck_until_it_is_back() -> None:
    world = World()
    action = world.admitted("a")
    world.life.push(action, LEASE)
    world.device.hook = unreachable_on("read", "push", "read_back")
    world.clock.now += LEASE + SECOND
    assert [a.state for a in world.life.expire()] == ["stuck"]
    assert world.device.values["a"] == 9
    world.device.hook = lambda call, which: None
    assert [a.state for a in world.life.expire()] == ["rolled_back"]
    assert world.device.values["a"] == 1


def test_a_lease_shorter_than_the_adapters_limit_starts_nothing() -> None:
    world = World()
    action = world.admitted("a")
    assert not world.life.push(action, SECOND)
    assert (action.state, world.device.writes) == ("refused", [])


def test_renewal_moves_the_lease_except_of_limited_actions() -> None:
    world = World()
    action = world.admitted("a")
    world.life.push(action, LEASE)
    first = action.lease_until_ns
    world.clock.now += 100 * SECOND
    world.life.renew(action, LEASE)
    assert world.stored(action).lease_until_ns > first
    limited = World()
    other = limited.admitted("a", time_limited=True)
    limited.life.push(other, LEASE)
    until = other.lease_until_ns
    limited.life.renew(other, LEASE)
    assert other.lease_until_ns == until


def test_after_a_managers_restart_levers_are_read_again() -> None:
    world = World()
    action = world.admitted("a")
    world.life.push(action, LEASE)
    world.device.values["a"] = 1  # it forgot
    (changed,) = world.life.reconcile()
    assert changed.state == "lost"
    assert world.stored(action).state == "lost"


def test_a_removed_adapter_is_stuck_not_a_traceback() -> None:
    world = World()
    action = world.admitted("a")
    world.life.push(action, LEASE)
    life = Life(world.journal, {}, world.clock)
    world.clock.now += LEASE + SECOND
    assert [a.state for a in life.expire()] == ["stuck"]


@pytest.mark.parametrize("keys", [("a",), ("a", "b")])
@pytest.mark.parametrize("die_at", range(24))
def test_killed_at_every_step(tmp_path: Path, die_at: int, keys: tuple[str, ...]) -> None:
    """Wherever the process dies, a new one leaves no lever otherwise than before."""
    path = tmp_path / "j.db"
    world = World(path)
    action = world.admitted(*keys)
    calls = 0

    def count(*_: object) -> None:
        nonlocal calls
        if calls == die_at:
            raise Killed
        calls += 1

    world.device.hook = count
    save, wrote = world.journal.save, world.journal.wrote

    def dying_save(one: Action) -> None:
        count()
        save(one)
        count()

    def dying_wrote(*args: Any) -> None:
        count()
        wrote(*args)
        count()

    world.journal.save = dying_save  # type: ignore[method-assign]
    world.journal.wrote = dying_wrote  # type: ignore[method-assign]
    try:
        world.life.push(action, LEASE)
    except Killed:
        pass
    world.journal.close()

    again = World(path)
    again.device.values = world.device.values
    again.clock.now = world.clock.now
    again.life.reconcile()
    left = again.journal.actions(in_force=True)
    assert all(a.state == "confirmed" for a in left)
    again.clock.now += LEASE + SECOND
    again.life.expire()
    assert again.device.values == {"a": 1, "b": 2}
    assert again.journal.actions(in_force=True) == []
    for key in keys:
        assert again.journal.last_written(lever(key)) is None


@settings(max_examples=150, deadline=None)
@given(st.data())
def test_no_sequence_leaves_an_action_past_its_lease(data: st.DataObject) -> None:
    """Pushes, undoes, time, faults and other writers in any order: in the end only conflicts differ from the baseline."""
    world = World()
    others_wrote: set[str] = set()
    open_actions: list[Action] = []
    for number in range(data.draw(st.integers(1, 12))):
        step = data.draw(
            st.sampled_from(["push", "undo", "verify", "time", "fault", "heal", "other", "reconcile", "expire"])
        )
        held = {c.lever.key for a in world.journal.actions(in_force=True) for c in a.proposal.changes}
        if step == "push":
            free = sorted({"a", "b"} - held)
            if free:
                keys = data.draw(st.lists(st.sampled_from(free), min_size=1, max_size=2, unique=True))
                action = Action(proposal=proposal(f"p{number}", *keys, new=100 + number))
                action.advance("admitted", world.clock())
                world.journal.save(action)
                world.life.push(action, LEASE)
                open_actions.append(action)
        elif step in ("undo", "verify") and (live := [a for a in open_actions if a.state == "confirmed"]):
            if step == "undo":
                world.life.undo(live[0], "released")
            else:
                world.life.verify(live[0], data.draw(st.booleans()), "")
        elif step == "time":
            world.clock.now += data.draw(st.integers(1, 2 * LEASE))
        elif step == "fault":
            call = data.draw(st.sampled_from(["read", "push", "pushed", "read_back"]))
            world.device.hook = data.draw(
                st.sampled_from([unreachable_on(call), failing_on(call, reached=True)])
                if call in ("pushed", "read_back", "read")
                else st.just(unreachable_on(call))
            )
        elif step == "heal":
            world.device.hook = lambda call, which: None
        elif step == "other":
            key = data.draw(st.sampled_from(["a", "b"]))
            world.device.values[key] = -1 - number
            others_wrote.add(key)
        elif step == "reconcile":
            world.life.reconcile()
            open_actions = [found for a in open_actions if (found := world.journal.load(a.id))]
        elif step == "expire":
            world.life.expire()
            open_actions = [found for a in open_actions if (found := world.journal.load(a.id))]
    world.device.hook = lambda call, which: None
    world.clock.now += 10 * LEASE
    world.life.expire()
    assert [a for a in world.journal.actions() if a.state in IN_FORCE] == []
    for key, value in (("a", 1), ("b", 2)):
        assert key in others_wrote or world.device.values[key] == value


def test_unreachable_while_reading_refuses() -> None:
    world = World()
    world.device.hook = unreachable_on("read")
    action = world.admitted("a")
    assert not world.life.push(action, LEASE)
    assert action.state == "refused"
    assert isinstance(Unreachable("x"), AdapterError)

"""The loop over a device in memory: modes, latches, leases, restarts, and a property over any history of all of them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fabricd.config.control import ControlConfig, GuardConfig
from fabricd.control.adapters.base import AdapterError, Capability, Unreachable
from fabricd.control.journal import SqliteJournal
from fabricd.control.life import Life
from fabricd.control.loop import Inputs, Loop
from fabricd.control.policy import load_policy
from fabricd.control.predict import Prediction
from fabricd.control.state import State
from fabricd.control.traffic import Pair
from fabricd.control.world import World
from fabricd.model.action import IN_FORCE, Lever
from fabricd.model.verdict import Verdict
from tests.unit.control.device import Killed, MemoryAdapter
from tests.unit.control.fabrics import RATE, Net

SECOND = 1_000_000_000
START = 1_000_000 * SECOND
LEASE_S = 300


class Manager(MemoryAdapter):
    """UFM in memory, with an epoch that a restart changes."""

    name = "ufm"

    def __init__(self) -> None:
        super().__init__({})
        self.restarts = 0

    def probe(self) -> list[Capability]:
        return [Capability(name="sl_rate", device="ufm", writable=True)]

    def epoch(self) -> str:
        return str(self.restarts)

    def held(self) -> dict[str, Any]:
        return {key: value for key, value in self.values.items() if value is not None}


def gain(value: float | None, worse: float = 0.0) -> Any:
    return lambda situation, draft: Prediction(value, 0.6, 0.1, worse, "" if value is not None else "test", 0.0)


class Plant:
    """Incasts to the first hosts of each leaf; the senders wait until something is written, if ``curable``."""

    def __init__(self, path: Path | str = ":memory:", mode: Any = "enforce", **guard: Any) -> None:
        self.net = Net(leaves=3)
        self.manager = Manager()
        self.now = START
        self.path = path
        self.config = ControlConfig(mode=mode, lease_s=LEASE_S, guard=GuardConfig(**guard))
        self.curable = True
        self.open: dict[str, Verdict] = {}
        self.pairs: list[Pair] = []
        self.predictor = gain(0.8)
        self.restart()

    def restart(self) -> None:
        """A new process over the same journal and devices."""
        self.journal = SqliteJournal(self.path)
        self.loop = Loop(self.config, load_policy(), self.journal, {"ufm": self.manager}, self.clock, self.predictor)
        self.loop.start()

    def clock(self) -> int:
        return self.now

    def incast(self, leaf: int = 0) -> str:
        """Three hosts of the next leaf send to the leaf's first host."""
        receiver, first = self.net.hosts[4 * leaf], 4 * ((leaf + 1) % 3)
        senders = self.net.hosts[first : first + 3]
        self.pairs += [self.net.send(src, receiver, RATE / 3, stall=0.6) for src in senders]
        name = f"v{leaf}-{self.now}"
        verdict = self.net.verdict("incast", self.net.peers[receiver], senders, id=name)
        verdict.start = self.now
        self.open[name] = verdict
        return name

    def state(self) -> State:
        state = self.net.state(self.now)
        if self.curable and self.manager.held():
            state.stall[:] = 0.0
        return state

    def step(self, count: int = 1) -> None:
        for _ in range(count):
            self.now += SECOND
            inputs = Inputs(World(self.net.topology), self.net.routes, self.state(), self.open, self.pairs)
            self.loop.step(inputs)

    def states(self) -> list[str]:
        return [action.state for action in self.journal.actions()]


def test_helped_is_kept_renewed_while_the_verdict_lasts_then_tried_without() -> None:
    plant = Plant()
    name = plant.incast()
    plant.step(6)
    assert plant.states() == ["verified"]
    plant.step(2 * LEASE_S)
    assert plant.states() == ["verified"]
    del plant.open[name]
    plant.step(LEASE_S + 5)
    assert plant.states() == ["released"]
    assert plant.manager.held() == {}


def test_what_comes_back_after_a_trial_stays_twice_as_long() -> None:
    plant = Plant()
    for expected in (1, 2, 4):
        name = plant.incast()
        plant.step(125)
        action = plant.journal.actions()[-1]
        assert action.state == "verified"
        del plant.open[name]
        admitted = action.events[0]
        assert admitted.data["lease_s"] == LEASE_S * expected
        plant.step(LEASE_S * expected + 5)
        assert plant.states()[-1] == "released"


def test_a_wrong_verdict_is_rolled_back_within_the_deadline_and_not_repeated() -> None:
    plant = Plant()
    plant.curable = False
    plant.incast()
    plant.step(14)
    assert plant.states() == ["rolled_back"]
    assert plant.manager.held() == {}
    plant.step(600)
    assert plant.states() == ["rolled_back"]
    (advice,) = plant.loop.advice.values()
    assert advice["not_possible"]["rate_limit_senders"] == "tried already for this verdict"
    (entry,) = plant.journal.ledger()
    assert entry["result"] == "rolled_back"


@pytest.mark.parametrize(
    ("predictor", "words"),
    [
        (gain(None), "cannot be predicted: test"),
        (gain(0.1), "predicted gain 10%, at least 20%"),
        (gain(0.9, worse=0.4), "let others wait 40% more"),
    ],
)
def test_what_is_not_promised_is_not_pushed(predictor: Any, words: str) -> None:
    plant = Plant()
    plant.loop.predictor = predictor
    name = plant.incast()
    plant.step(20)
    assert plant.states() == []
    assert words in plant.loop.advice[name]["not_possible"]["rate_limit_senders"]
    assert "stagger" in plant.loop.advice[name]["do"]


def test_observe_writes_nothing_and_notes_what_then_happened() -> None:
    plant = Plant(mode="observe")
    plant.incast()
    plant.step(15)
    assert plant.states() == []
    assert plant.manager.writes == []
    (entry,) = plant.journal.ledger()
    assert entry["stall_before"] == pytest.approx(0.6)
    assert entry["stall_after"] == pytest.approx(0.6)
    assert entry["intervals"] == 10
    assert len(entry["would_send"]) == 3


def test_advise_waits_and_obeys() -> None:
    plant = Plant(mode="advise")
    plant.incast()
    plant.step(5)
    assert plant.states() == ["admitted"]
    (action,) = plant.journal.actions()
    plant.journal.ask("reject", action.id, "alice", plant.now)
    plant.step()
    assert plant.states() == ["refused"]
    plant.open.clear()
    plant.step()
    name = plant.incast(1)
    plant.step(2)
    waiting = plant.journal.actions()[-1]
    plant.journal.ask("approve", waiting.id, "alice", plant.now)
    plant.step(5)
    assert plant.states()[-1] == "verified"
    plant.journal.ask("rollback", waiting.id, "alice", plant.now)
    plant.step()
    assert plant.states()[-1] == "rolled_back"
    assert plant.manager.held() == {}
    del plant.open[name]


def test_nobody_approves_what_is_over() -> None:
    plant = Plant(mode="advise")
    plant.incast()
    plant.step(2)
    plant.open.clear()
    plant.step()
    assert plant.states() == ["refused"]


def test_pause_lets_undo_run_freeze_does_not() -> None:
    plant = Plant()
    plant.incast()
    plant.step(6)
    plant.journal.latch("freeze", "alice", plant.now)
    plant.open.clear()
    plant.step(LEASE_S + 10)
    assert plant.states() == ["verified"]
    plant.journal.unlatch("freeze")
    plant.journal.latch("pause", "alice", plant.now)
    plant.step()
    assert plant.states() == ["released"]
    plant.incast(1)
    plant.step(100)
    assert plant.states() == ["released"]


def test_revert_all_undoes_then_freezes() -> None:
    plant = Plant()
    plant.incast()
    plant.step(6)
    plant.manager.hook = lambda call, lever: (_ for _ in ()).throw(Unreachable("no answer"))
    plant.journal.latch("revert-all", "alice", plant.now)
    plant.step()
    assert "freeze" not in plant.journal.latches()
    assert plant.states() == ["stuck"]
    plant.manager.hook = lambda call, lever: None
    plant.step()
    assert plant.manager.held() == {}
    assert "freeze" in plant.journal.latches()


def test_a_manager_that_restarted_and_forgot_makes_it_lost() -> None:
    plant = Plant()
    plant.incast()
    plant.step(6)
    plant.manager.values.clear()
    plant.step()
    assert plant.states() == ["verified"]
    plant.manager.restarts += 1
    plant.open.clear()
    plant.step()
    assert plant.states() == ["lost"]


def test_without_figures_nothing_new_is_done() -> None:
    plant = Plant()
    plant.incast()
    plant.now += SECOND
    plant.loop.step(Inputs(World(plant.net.topology), plant.net.routes, None, plant.open, plant.pairs))
    assert plant.states() == []


def test_verification_goes_on_after_a_restart(tmp_path: Path) -> None:
    plant = Plant(tmp_path / "j.db")
    plant.incast()
    plant.step(2)
    assert plant.states() == ["confirmed"]
    plant.restart()
    plant.step(5)
    assert plant.states() == ["verified"]


class Faulty:
    """Kills or fails the n-th call of the device from now on."""

    def __init__(self, at: int, kind: str) -> None:
        self.left, self.kind = at, kind

    def __call__(self, call: str, lever: Lever) -> None:
        self.left -= 1
        if self.left == 0:
            if self.kind == "kill":
                raise Killed
            if self.kind == "silent":
                raise Unreachable("no answer")
            raise AdapterError("refused", reached=call == "pushed")


EVENTS = st.lists(
    st.one_of(
        st.tuples(st.just("step"), st.integers(1, 40)),
        st.tuples(st.just("jump"), st.integers(-400, 4000)),
        st.tuples(st.just("open"), st.integers(0, 2)),
        st.tuples(st.just("close"), st.just(0)),
        st.tuples(st.just("kill"), st.integers(1, 12)),
        st.tuples(st.just("silent"), st.integers(1, 12)),
        st.tuples(st.just("refuse"), st.integers(1, 12)),
        st.tuples(st.just("incurable"), st.integers(0, 1)),
        st.tuples(st.just("others write"), st.just(0)),
        st.tuples(st.just("restart"), st.just(0)),
        st.tuples(st.just("manager restarts"), st.integers(0, 1)),
        st.tuples(st.just("pause"), st.integers(0, 1)),
    ),
    max_size=25,
)


@settings(max_examples=40, deadline=None)
@given(EVENTS)
def test_no_history_exceeds_a_limit_or_leaves_a_lever_past_its_lease(events: list[tuple[str, int]]) -> None:
    plant = Plant()
    foreign: set[str] = set()

    def guarded(count: int) -> None:
        try:
            plant.step(count)
        except Killed:
            plant.manager.hook = lambda call, lever: None
            journal = plant.journal  # what is on its disk is all that is left
            plant.loop = Loop(
                plant.config, load_policy(), journal, {"ufm": plant.manager}, plant.clock, plant.predictor
            )
            plant.loop.start()

    for word, value in events:
        if word == "step":
            guarded(value)
        elif word == "jump":
            plant.now += value * SECOND
        elif word == "open":
            plant.incast(value)
        elif word == "close":
            plant.open.clear()
        elif word in ("kill", "silent", "refuse"):
            plant.manager.hook = Faulty(value, word)
        elif word == "incurable":
            plant.curable = not value
        elif word == "others write" and plant.manager.held():
            key = sorted(plant.manager.held())[0]
            plant.manager.values[key] = {"0": 1}
            foreign.add(key)
        elif word == "restart":
            plant.manager.hook = lambda call, lever: None
            plant.loop.start()
        elif word == "manager restarts":
            plant.manager.restarts += 1
            if value:
                plant.manager.values = dict.fromkeys(plant.manager.values)
        elif word == "pause":
            plant.journal.latch("pause", "t", plant.now) if value else plant.journal.unlatch("pause")
        active = [action for action in plant.journal.actions() if action.state in IN_FORCE]
        assert len(active) <= plant.config.guard.in_force
        starts = [e.at_ns for a in plant.journal.actions() for e in a.events if e.state == "intended"]
        assert all(sum(1 for s in starts if at - 60 * SECOND < s <= at) <= 1 for at in starts)
    # A live controller, device reachable, trouble over: within a lease and a step nothing of ours is left.
    plant.manager.hook = lambda call, lever: None
    plant.open.clear()
    plant.now = max([plant.now, *(a.lease_until_ns for a in plant.journal.actions(in_force=True))]) + SECOND
    guarded(2)
    assert [a.state for a in plant.journal.actions() if a.state in IN_FORCE] == []
    assert set(plant.manager.held()) <= foreign


@settings(max_examples=25, deadline=None)
@given(st.integers(1, 14), st.sampled_from(["kill", "silent", "refuse"]), st.integers(0, 12))
def test_the_timer_alone_undoes_what_a_dead_controller_left(at: int, kind: str, steps: int) -> None:
    plant = Plant()
    plant.incast()
    plant.manager.hook = Faulty(at, kind)
    try:
        plant.step(1 + steps)
    except Killed:
        pass
    plant.manager.hook = lambda call, lever: None
    plant.now += 2 * LEASE_S * SECOND
    Life(plant.journal, {"ufm": plant.manager}, plant.clock).expire()
    assert plant.manager.held() == {}
    assert [a.state for a in plant.journal.actions() if a.state in IN_FORCE] == []

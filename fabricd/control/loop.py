"""The loop's one step: requests, latches, leases, verification, renewal, new proposals. Everything that lasts is in the journal.

Blocking (devices and predictions take their time): the daemon runs it in a worker thread, one step at a time.
"""

from __future__ import annotations

import logging
import time
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import msgspec
import numpy as np

from fabricd.config.control import ControlConfig
from fabricd.control.adapters.base import Adapter
from fabricd.control.advice import advice, advice_document
from fabricd.control.guard import refusals
from fabricd.control.journal import Journal
from fabricd.control.ledger import Ledger
from fabricd.control.life import Clock, Life
from fabricd.control.managers import Managers
from fabricd.control.policy import PolicyFile
from fabricd.control.predict import predict
from fabricd.control.propose import Predictor, Proposed, propose
from fabricd.control.records import back_off, baseline_of, lease_of, verdict_of
from fabricd.control.remedies.base import NotPossible, Situation, port_ref
from fabricd.control.remedies.routing import BAD_LINK, repaired
from fabricd.control.state import State, average
from fabricd.control.traffic import Pair, Traffic, estimate
from fabricd.control.verify import Baseline, Watch, hidden_by, take_baseline
from fabricd.control.world import World
from fabricd.model.action import IN_FORCE, Action, Proposal
from fabricd.model.action import State as LifeState
from fabricd.model.verdict import Verdict
from fabricd.topology.routes import RouteTable

log = logging.getLogger(__name__)

NS = 1_000_000_000
LOCK_WAIT_S = 30.0
RETRY_PROPOSAL_INTERVALS = 2  # a verdict without a remedy is looked at again after this many
REPAIRED_INTERVALS = 30  # a bad link must be good for this long before its action is released
KEPT_STATES = 40
SETTLED_INTERVALS = 2  # of a verdict's time before anything is proposed
BEFORE_STATES = 8  # intervals before a verdict's start that show how things usually are
# Causes in which a link or host changed and not what is sent: what the senders want is what they sent before.
UNCHANGED_LOAD = frozenset({*BAD_LINK, "slow_receiver", "pfc_storm"})


@dataclass(slots=True)
class Inputs:
    """What a step looks at. ``state`` None: the aggregator does not answer; then nothing new is done and nothing is judged."""

    world: World
    routes: RouteTable | None
    state: State | None
    verdicts: Mapping[str, Verdict]  # open ones
    pairs: Sequence[Pair] = ()
    ethernet: bool = False


@dataclass(slots=True)
class _Pending:
    """A proposal the guard does not admit yet, or one that is only observed."""

    made: Proposed
    watch: Watch | None = None
    reasons: list[str] = field(default_factory=list)


class Loop:
    """One fabric's control loop over a journal and adapters."""

    def __init__(
        self,
        config: ControlConfig,
        policy: PolicyFile,
        journal: Journal,
        adapters: Mapping[str, Adapter],
        clock: Clock = time.time_ns,
        predictor: Predictor = predict,
    ) -> None:
        self.config, self.policy, self.journal = config, policy, journal
        self.clock, self.predictor = clock, predictor
        self.life = Life(journal, adapters, clock)
        self.ledger = Ledger(config.mode, journal, adapters, clock)
        self.managers = Managers(adapters)
        self.advice: dict[str, dict[str, Any]] = {}  # verdict id -> what a person should do
        self.timings: list[float] = []  # own seconds from looking at a verdict to the read-back, per action
        self._states: deque[State] = deque(maxlen=KEPT_STATES)
        self._watches: dict[str, Watch] = {}
        self._pending: dict[str, _Pending] = {}  # by verdict id
        self._look_again: dict[str, int] = {}
        self._good_since: dict[str, int] = {}
        self._held: dict[str, Verdict] = {}

    # ---------------------------------------------------------------- start

    def start(self) -> None:
        """After any end of the last run: what was under way is taken back, what stood is read again (unless frozen)."""
        with self.journal.exclusive(LOCK_WAIT_S):
            if "freeze" not in self.journal.latches():
                for action in self.life.reconcile():
                    log.warning("action %s: %s after a restart", action.id, action.state)
        self.managers.refresh(self.clock())

    # ---------------------------------------------------------------- one step

    def step(self, inputs: Inputs) -> None:
        """Raises FabricdError when the journal cannot be written: then nothing is pushed either."""
        with self.journal.exclusive(LOCK_WAIT_S):
            latches = self.journal.latches()
            inputs = self._with_held(inputs)
            if inputs.state is not None and (not self._states or inputs.state.t_ns > self._states[-1].t_ns):
                self._states.append(inputs.state)
            if "freeze" in latches:
                return
            if "revert-all" in latches:
                self._revert_all()
                return
            self._restarts()
            self.managers.refresh(self.clock())
            self.life.expire()
            for request in self.journal.take_requests():
                self._request(request.verb, request.action, request.who, inputs)
            for action in self.journal.actions(in_force=True):
                self._look_after(action, inputs)
            self._forget_ended(inputs)
            for verdict in inputs.verdicts.values():
                self._consider(verdict, inputs)

    def _with_held(self, inputs: Inputs) -> Inputs:
        """Verdicts whose evidence an action of ours hides (pause switched off) are not over because nothing is seen any more."""
        hiding = {
            action.proposal.verdict_id for action in self.journal.actions(in_force=True) if hidden_by(action.proposal)
        }
        self._held = {name: one for name, one in {**self._held, **inputs.verdicts}.items() if name in hiding}
        return replace(inputs, verdicts={**self._held, **inputs.verdicts})

    def _revert_all(self) -> None:
        """Undo everything, then freeze; what cannot be reached is tried again at the next step."""
        left = False
        for action in self.journal.actions(in_force=True):
            state: LifeState = "released" if action.state in ("confirmed", "verified") else "rolled_back"
            self.life.undo(action, state, "revert-all")
            left |= action.state in IN_FORCE
        if not left:
            self.journal.latch("freeze", "revert-all", self.clock())

    def _restarts(self) -> None:
        """A manager that restarted or failed over may have forgotten our levers: read them all again before anything else."""
        changed = self.managers.restarted()
        if changed:
            log.warning("restarted or failed over: %s; reading every lever in force again", ", ".join(changed))
            self.life.reconcile()
            self.managers.probe()

    def _request(self, verb: str, action_id: str, who: str, inputs: Inputs) -> None:
        action = self.journal.load(action_id)
        if action is None:
            log.warning("%s %s by %s: no such action", verb, action_id, who)
        elif verb == "reject" and action.state == "admitted":
            self._end(action, f"rejected by {who}")
        elif verb == "rollback" and action.state in IN_FORCE:
            self.life.undo(action, "rolled_back", f"rolled back by {who}")
        elif verb == "approve" and action.state == "admitted":
            reasons = self._refusals(action.proposal, inputs)
            if reasons:
                self._end(action, f"approved by {who}, but: {'; '.join(reasons)}")
            else:
                self._push(action, f"approved by {who}", time.perf_counter())
        else:
            log.warning("%s %s by %s: it is %s", verb, action_id, who, action.state)

    def _end(self, action: Action, why: str) -> None:
        action.advance("refused", self.clock(), why)
        self.journal.save(action)

    # ---------------------------------------------------------------- actions in force

    def _look_after(self, action: Action, inputs: Inputs) -> None:
        if inputs.state is not None and action.state == "confirmed":
            self._verify(action, inputs.state, inputs.verdicts)
        if action.state == "verified":
            self._renew(action, inputs)

    def _watch(self, action: Action) -> Watch:
        watch = self._watches.get(action.id)
        if watch is None:
            at = next((event.at_ns for event in action.events if event.state == "confirmed"), self.clock())
            watch = self._watches[action.id] = Watch(baseline_of(action), at)
        return watch

    def _verify(self, action: Action, state: State, verdicts: Mapping[str, Verdict]) -> None:
        watch = self._watch(action)
        watch.see(state)
        # Waits spread for a while: whom an older trouble is known to hurt by now, our action did not hurt.
        older = (verdict for verdict in verdicts.values() if verdict.start < watch.since_ns)
        known = {port_ref(victim) for one in older for victim in one.victims}
        outcome, detail = watch.judge(self.config.verify_within_intervals, known)
        late = self.clock() - watch.since_ns > 2 * self.config.verify_within_intervals * state.interval_ns
        if outcome == "wait" and not late:
            return
        self.life.verify(action, outcome == "helped", detail or "no figures before the deadline")
        self.ledger.note(action.proposal, "acted", watch, {"result": action.state, "detail": detail})

    def _renew(self, action: Action, inputs: Inputs) -> None:
        """While the evidence lasts; else the lease runs out, which is the trial whether it is still needed."""
        lease = lease_of(action, self.config.lease_s)
        if action.lease_until_ns - self.clock() > lease // 2 or action.proposal.time_limited:
            return
        if action.proposal.cause in BAD_LINK:
            good = self._repaired(action, inputs)
            if good is None:
                self.life.renew(action, lease)
            elif good:
                self.life.undo(action, "released", "the link is good again: full speed at both ends and no errors")
            return
        if action.proposal.verdict_id in inputs.verdicts:
            self.life.renew(action, lease)

    def _repaired(self, action: Action, inputs: Inputs) -> bool | None:
        """True: release. False: good, but not for long enough. None: still bad, or not known to be good."""
        try:
            situation = self._situation(verdict_of(action), inputs)
            good = situation is not None and repaired(situation)
        except NotPossible:
            good = False
        now = self.clock()
        if not good or inputs.state is None:
            self._good_since.pop(action.id, None)
            return None
        since = self._good_since.setdefault(action.id, now)
        return now - since >= REPAIRED_INTERVALS * inputs.state.interval_ns

    # ---------------------------------------------------------------- new proposals

    def _situation(self, verdict: Verdict, inputs: Inputs) -> Situation | None:
        if inputs.state is None or inputs.routes is None:
            return None
        earlier = [state for state in self._states if state.t_ns <= verdict.start][-BEFORE_STATES:]
        situation = Situation(
            verdict,
            inputs.world,
            inputs.state,
            inputs.routes,
            Traffic([], np.zeros(0), np.zeros(0), [], guessed=True),
            self.managers.levers,
            self.managers.read,
            inputs.ethernet,
            average(earlier) if earlier else None,
        )
        situation.traffic = estimate(
            inputs.world.topology,
            inputs.routes,
            inputs.state,
            inputs.pairs,
            situation.before,
            situation.root,
            grew=verdict.cause not in UNCHANGED_LOAD,
            stuck=verdict.cause == "pfc_deadlock",
        )
        return situation

    def _consider(self, verdict: Verdict, inputs: Inputs) -> None:
        actions = self.journal.actions(newest=500)
        mine = [action for action in actions if action.proposal.verdict_id == verdict.id]
        if any(action.state in IN_FORCE or action.state == "admitted" for action in mine):
            return
        if len(self._since(verdict)) < SETTLED_INTERVALS:
            return  # who waits, and how much, is still changing: nothing could be judged by it
        began = time.perf_counter()
        pending = self._pending.get(verdict.id)
        if pending is None:
            now = self.clock()
            if now < self._look_again.get(verdict.id, 0):
                return
            pending = self._find(verdict, inputs, mine)
            if pending is None:
                return
        reasons = self._refusals(pending.made.proposal, inputs)
        pending.reasons = reasons
        if self.config.mode == "observe":
            self._observe(verdict, pending, inputs.state)
        elif reasons:
            self.ledger.note(pending.made.proposal, "waiting", None, {"refused": reasons})
        else:
            self._admit(verdict, pending.made, began)

    def _find(self, verdict: Verdict, inputs: Inputs, mine: Sequence[Action]) -> _Pending | None:
        try:
            situation = self._situation(verdict, inputs)
        except NotPossible as why:
            self._advise(verdict, {"": str(why)})
            return None
        if situation is None:
            return None
        tried = frozenset(action.proposal.remedy for action in mine if action.state != "released")
        try:
            outcome = propose(situation, self.policy, self.config, self.clock(), tried, self.predictor)
        except NotPossible as why:
            self._advise(verdict, {"": str(why)})
            return None
        if outcome.found is None:
            interval = inputs.state.interval_ns if inputs.state is not None else NS
            self._look_again[verdict.id] = self.clock() + RETRY_PROPOSAL_INTERVALS * interval
            self._advise(verdict, outcome.why_not)
            return None
        self.advice.pop(verdict.id, None)
        if verdict.cause in UNCHANGED_LOAD:  # the action only bridges the time until a person mended it
            self._advise(verdict, outcome.why_not, meanwhile=outcome.found.proposal.remedy)
        pending = self._pending[verdict.id] = _Pending(outcome.found)
        return pending

    def _advise(self, verdict: Verdict, why_not: dict[str, str], meanwhile: str = "") -> None:
        if verdict.id not in self.advice:
            done = f"{meanwhile} is proposed meanwhile" if meanwhile else "nothing is pushed"
            log.warning("verdict %s (%s): %s. %s", verdict.id, verdict.cause, done, advice(verdict))
        self.advice[verdict.id] = advice_document(verdict, why_not, meanwhile)

    def _refusals(self, proposal: Proposal, inputs: Inputs) -> list[str]:
        now = self.clock()
        state = inputs.state
        inputs.world.sample_age = float("inf") if state is None else state.newest_age(now)
        wanted = list(inputs.world.peers())
        inputs.world.visible_share = float("nan") if state is None else state.visible_share(wanted)
        latches = self.journal.latches()
        return refusals(proposal, self.journal.actions(newest=500), inputs.world, self.config, latches, now)

    def _since(self, verdict: Verdict) -> list[State]:
        """The states that lie in the verdict's time."""
        return [state for state in self._states if state.t_ns - state.interval_ns >= verdict.start]

    def _baseline(self, verdict: Verdict, made: Proposed) -> Baseline:
        victims = [port_ref(victim) for victim in verdict.victims]
        return take_baseline(
            self._since(verdict), victims, verdict.priority, made.excused, made.proposal.gain, made.promised_share
        )

    def _admit(self, verdict: Verdict, made: Proposed, began: float) -> None:
        self._pending.pop(verdict.id, None)
        action = Action(proposal=made.proposal)
        action.advance(
            "admitted",
            self.clock(),
            made.proposal.why,
            baseline=msgspec.to_builtins(self._baseline(verdict, made)),
            prediction={
                "gain": made.prediction.gain,
                "before": made.prediction.before,
                "after": made.prediction.after,
                "worse": made.prediction.worse,
                "seconds": made.prediction.seconds,
            },
            lease_s=made.lease_s * back_off(made.proposal, self.journal.actions(newest=500), self.clock()),
            root=[list(ref) for ref in verdict.roots],
            evidence=verdict.evidence,
        )
        self.journal.save(action)
        if self.config.mode == "enforce":
            self._push(action, "", began)

    def _push(self, action: Action, note: str, began: float) -> None:
        if self.life.push(action, lease_of(action, self.config.lease_s)):
            pushed = next(event for event in action.events if event.state == "pushed")
            device = sum(answer["device_s"] for answer in pushed.data["answers"])
            self.timings.append(time.perf_counter() - began - device)
        self.ledger.note(action.proposal, "acted", None, {"result": action.state, **({"note": note} if note else {})})

    def _observe(self, verdict: Verdict, pending: _Pending, state: State | None) -> None:
        """What would have been done, and what then happened without it."""
        watch, most = pending.watch, self.config.verify_within_intervals
        if watch is None:
            watch = pending.watch = Watch(self._baseline(verdict, pending.made), self.clock())
            self.ledger.would(pending.made.proposal, watch, pending.reasons)
        if state is not None and watch.seen + watch.blind < most:
            watch.see(state)
            if watch.seen + watch.blind >= most:
                self.ledger.would(pending.made.proposal, watch, pending.reasons)

    def _forget_ended(self, inputs: Inputs) -> None:
        """Verdicts that ended: their proposals are no more; approvals nobody gave are refused."""
        for verdict_id in [v for v in self._pending if v not in inputs.verdicts]:
            pending = self._pending.pop(verdict_id)
            if self.config.mode == "observe" and pending.watch is not None:
                self.ledger.would(pending.made.proposal, pending.watch, pending.reasons, ended=True)
        for book in (self.advice, self._look_again):
            for verdict_id in [v for v in book if v not in inputs.verdicts]:
                del book[verdict_id]
        for action in self.journal.actions(newest=500):
            if action.state == "admitted" and action.proposal.verdict_id not in inputs.verdicts:
                self._end(action, "the verdict ended before anybody approved")
        alive = {action.id for action in self.journal.actions(in_force=True)}
        for action_id in [a for a in self._watches if a not in alive]:
            del self._watches[action_id]
            self._good_since.pop(action_id, None)

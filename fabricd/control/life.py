"""How an action lives: each step is in the journal before the next begins, so that a crash anywhere leaves something to undo.

Nothing here decides *whether*; the guard has admitted the action, or a person approved it. Every write and every undo is
compare-and-set: read, compare with what was last written or seen, else ``conflict`` and no write.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping
from typing import Any

import msgspec

from fabricd.control.adapters.base import Adapter, AdapterError, Conflict, Unreachable
from fabricd.control.journal import Journal
from fabricd.model.action import Action, Change, State

log = logging.getLogger(__name__)

Clock = Callable[[], int]
# A push starts only with this much more lease left than the adapter's time limit.
LEASE_MARGIN_NS = 1_000_000_000


class Life:
    """Carries actions through their states. Blocking: the controller calls it from one worker thread."""

    def __init__(self, journal: Journal, adapters: Mapping[str, Adapter], clock: Clock = time.time_ns) -> None:
        self.journal, self.adapters, self.clock = journal, adapters, clock

    def _step(self, action: Action, state: State, detail: str = "", **data: Any) -> None:
        action.advance(state, self.clock(), detail, **data)
        self.journal.save(action)
        level = logging.WARNING if state in ("conflict", "stuck", "failed", "lost") else logging.INFO
        log.log(level, "action %s: %s%s", action.id, state, f": {detail}" if detail else "")

    def push(self, action: Action, lease_ns: int) -> bool:
        """From admitted to confirmed; False when it ended otherwise (the state says how). Nothing half-done stays in force."""
        now = self.clock()
        changes: list[Change] = []
        shown: list[str] = []
        try:
            for change in action.proposal.changes:
                adapter = self._adapter(change)
                if lease_ns <= int(adapter.time_limit_s * 1e9) + LEASE_MARGIN_NS:
                    raise AdapterError(f"lease of {lease_ns / 1e9:g} s is shorter than {adapter.name}'s time limit")
                old = adapter.read(change.lever)
                self._compare(change, old)
                read = msgspec.structs.replace(change, old=old)
                shown += adapter.plan(read).shown
                changes.append(read)
        except AdapterError as error:
            self._step(action, "refused", str(error))
            return False
        action.proposal = msgspec.structs.replace(action.proposal, changes=tuple(changes))
        action.lease_until_ns = now + lease_ns
        self._step(action, "intended", "", sends=shown)
        return self._send(action)

    def _compare(self, change: Change, now: Any) -> None:
        """What we wrote earlier and gave back is forgotten; what we still hold must be as we left it."""
        last = self.journal.last_written(change.lever)
        if last is not None and last != now:
            raise Conflict(f"{change.lever.name} {change.lever.key} holds {now!r}, we wrote {last!r}")
        if change.old is not None and change.old != now:
            raise Conflict(f"{change.lever.name} {change.lever.key} holds {now!r}, policy saw {change.old!r}")

    def _send(self, action: Action) -> bool:
        answers: list[dict[str, Any]] = []
        for change in action.proposal.changes:
            adapter = self._adapter(change)
            try:
                began = time.monotonic()
                # Before the bytes: if we die while they are out, the undo must expect the new value, not call it a conflict.
                self.journal.wrote(change.lever, change.new, action.id, self.clock())
                ack = adapter.push(change)
                spent = time.monotonic() - began
                answers.append(
                    {"answer": ack.answer, "device_s": ack.device_seconds, "own_s": spent - ack.device_seconds}
                )
            except Conflict as error:
                self._give_back(action, change)
                self._end_partial(action, "conflict", str(error))
                return False
            except AdapterError as error:
                if not error.reached and not isinstance(error, Unreachable):
                    self._give_back(action, change)
                self._end_partial(action, "failed", str(error))
                return False
        self._step(action, "pushed", "", answers=answers)
        wrong = self._differences(action, new=True)
        if wrong:
            self.undo(action, "rolled_back", f"the device does not have it: {wrong}")
            return False
        self._step(action, "confirmed")
        return True

    def _give_back(self, action: Action, change: Change) -> None:
        """This change never reached the device: what was on record before it holds again."""
        self.journal.forget_written(change.lever)

    def _end_partial(self, action: Action, state: State, detail: str) -> None:
        """A push that broke off: take back what went out. ``failed`` or ``conflict`` only when nothing of it is left."""
        stuck, conflicts = self._take_back(action)
        if stuck:
            self._step(action, "stuck", f"{detail}; cannot be taken back: {stuck}")
        elif conflicts:
            self._step(action, "conflict", f"{detail}; {conflicts}")
        else:
            self._step(action, state, detail)

    def _differences(self, action: Action, *, new: bool) -> str:
        """What the device plane shows otherwise than wanted; empty when all is as it should be."""
        wrong = []
        for change in action.proposal.changes:
            wanted = change.new if new else change.old
            try:
                seen = self._adapter(change).read_back(change.lever)
            except AdapterError as error:
                wrong.append(f"{change.lever.name} {change.lever.key}: {error}")
                continue
            if seen != wanted:
                wrong.append(f"{change.lever.name} {change.lever.key} is {seen!r}, not {wanted!r}")
        return "; ".join(wrong)

    def undo(self, action: Action, state: State, detail: str = "") -> bool:
        """Bring every lever back; ``state`` is rolled_back or released. True when it is back; else conflict or stuck."""
        stuck, conflicts = self._take_back(action)
        if stuck:
            if action.state != "stuck":
                self._step(action, "stuck", f"{detail}; {stuck}" if detail else stuck)
            return False
        if conflicts:
            self._step(action, "conflict", f"{detail}; {conflicts}" if detail else conflicts)
            return False
        self._step(action, state, detail)
        return True

    def _take_back(self, action: Action) -> tuple[str, str]:
        """(why stuck, conflicts), both empty when every lever is as it was before."""
        stuck, conflicts = [], []
        for change in reversed(action.proposal.changes):
            lever = change.lever
            try:
                adapter = self._adapter(change)
                now = adapter.read(lever)
                if now != change.old:
                    if now != change.new:
                        conflicts.append(f"{lever.name} {lever.key} holds {now!r}, we wrote {change.new!r}")
                        self.journal.forget_written(lever)
                        continue
                    adapter.push(Change(lever=lever, old=now, new=change.old))
                seen = adapter.read_back(lever)
                if seen != change.old:
                    stuck.append(f"{lever.name} {lever.key} is {seen!r} after the undo, not {change.old!r}")
                    continue
                self.journal.forget_written(lever)
            except Conflict as error:
                conflicts.append(str(error))
                self.journal.forget_written(lever)
            except AdapterError as error:
                stuck.append(f"{lever.name} {lever.key}: {error}")
        return "; ".join(stuck), "; ".join(conflicts)

    def verify(self, action: Action, helped: bool, detail: str) -> None:
        """Keep it, or take it back."""
        if helped:
            self._step(action, "verified", detail)
        else:
            self.undo(action, "rolled_back", detail)

    def renew(self, action: Action, lease_ns: int) -> None:
        """The evidence lasts: the lease runs on from now. Time-limited actions are never renewed."""
        if not action.proposal.time_limited:
            action.lease_until_ns = self.clock() + lease_ns
            self.journal.save(action)

    def expire(self) -> list[Action]:
        """Undo what is past its lease; needs only the journal and the devices. Returns what was due."""
        now = self.clock()
        due = [action for action in self.journal.actions(in_force=True) if action.lease_until_ns <= now]
        for action in due:
            self.undo(action, "released" if action.state in ("confirmed", "verified") else "rolled_back", "lease ended")
        return due

    def reconcile(self) -> list[Action]:
        """After a crash or a manager's restart: what was under way is taken back, what stood is read again.

        Returns the actions whose state changed. An action cut off between ``intended`` and ``confirmed`` is undone, whatever
        part of it went out: nobody verified it.
        """
        changed = []
        for action in self.journal.actions(in_force=True):
            before = action.state
            if action.state in ("intended", "pushed", "stuck"):
                self.undo(action, "rolled_back", "found unfinished after a restart")
            else:
                self._recheck(action)
            if action.state != before:
                changed.append(action)
        return changed

    def _recheck(self, action: Action) -> None:
        gone: list[str] = []
        other: list[str] = []
        for change in action.proposal.changes:
            try:
                now = self._adapter(change).read_back(change.lever)
            except AdapterError:
                return  # not known: the lease and the next look decide
            if now == change.new:
                continue
            (gone if now == change.old else other).append(f"{change.lever.name} {change.lever.key} is {now!r}")
        if other:
            # Somebody else's lever stays as it is; those still ours go back, or they would be nobody's.
            self.undo(action, "rolled_back", "; ".join(other))
        elif gone:
            if len(gone) < len(action.proposal.changes):
                self.undo(action, "rolled_back", f"only partly in force: {'; '.join(gone)}")
            else:
                self._forget(action)
                self._step(action, "lost", "; ".join(gone))

    def _forget(self, action: Action) -> None:
        for change in action.proposal.changes:
            self.journal.forget_written(change.lever)

    def _adapter(self, change: Change) -> Adapter:
        adapter = self.adapters.get(change.lever.adapter)
        if adapter is None:
            raise Unreachable(f"adapter {change.lever.adapter} is not configured")
        return adapter

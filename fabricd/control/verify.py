"""Did it help? The victims' stall must fall by the promised share within the deadline, and nobody else may be worse off.

No evidence is not "cleared": intervals in which no victim can be seen count for nothing.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence, Set
from dataclasses import dataclass, field
from typing import Literal

import msgspec
import numpy as np

from fabricd.control.state import State, worst
from fabricd.model.action import Proposal
from fabricd.model.ident import format_guid
from fabricd.model.topology import PortRef

AVERAGE = 3  # intervals a figure is averaged over
WORSE = 0.15  # share of the time an innocent port may wait more than before, averaged
STALL_FLOOR = 0.02  # a stall that is noise
Outcome = Literal["wait", "helped", "failed"]


class Baseline(msgspec.Struct, kw_only=True):
    """How things were before the push: kept with the action, so that a restarted controller can go on judging.

    ``others``: ports that waited then, as ``0xguid/port``; the rest waited less than the floor.
    """

    victims: list[tuple[int, int]]
    priority: int | None
    stall: float
    others: dict[str, float]
    excused: list[tuple[int, int]] = []  # root, contributors and ports whose evidence our own change hides
    gain: float = 0.0
    promised_share: float = 0.5

    @property
    def target(self) -> float:
        """The stall the victims must come down to."""
        return max(STALL_FLOOR, self.stall * (1.0 - self.gain * self.promised_share))


def take_baseline(
    states: Sequence[State],
    victims: Iterable[PortRef],
    priority: int | None,
    excused: Iterable[PortRef],
    gain: float,
    promised_share: float,
) -> Baseline:
    """From the newest intervals before the push."""
    recent = list(states)[-AVERAGE:]
    found = list(victims)
    seen = [float(np.nanmean(part)) for state in recent if not np.isnan(part := state.stall_of(found, priority)).all()]
    others: dict[str, float] = {}
    for state in recent:
        for ref, stall in zip(state.ports, worst(state.stall).tolist(), strict=True):
            if stall > STALL_FLOOR:
                key = _key(ref)
                others[key] = others.get(key, 0.0) + stall / len(recent)
    return Baseline(
        victims=found,
        priority=priority,
        stall=float(np.mean(seen)) if seen else 0.0,
        others=others,
        excused=sorted(set(excused)),
        gain=gain,
        promised_share=promised_share,
    )


def _key(ref: PortRef) -> str:
    return f"{format_guid(ref[0])}/{ref[1]}"


def hidden_by(proposal: Proposal) -> bool:
    """Whether the change itself takes away evidence: a port whose PFC we switched off shows no pause any more."""
    return any(change.lever.name == "pfc" for change in proposal.changes)


@dataclass(slots=True)
class Watch:
    """One action under observation. ``see`` each interval after the push; times in ns."""

    baseline: Baseline
    since_ns: int
    victims: deque[float] = field(default_factory=lambda: deque(maxlen=AVERAGE))
    others: deque[dict[PortRef, float]] = field(default_factory=lambda: deque(maxlen=AVERAGE))
    seen: int = 0
    blind: int = 0
    last_ns: int = 0

    def see(self, state: State) -> None:
        """Take an interval that ended after the push; the one the push falls into is left out."""
        if state.t_ns - state.interval_ns < self.since_ns or state.t_ns <= self.last_ns:
            return
        self.last_ns = state.t_ns
        stall = state.stall_of(self.baseline.victims, self.baseline.priority)
        if not len(stall) or np.isnan(stall).all():
            self.blind += 1
        else:
            self.seen += 1
            self.victims.append(float(np.nanmean(stall)))
        out = {*self.baseline.victims, *self.baseline.excused}
        waits = worst(state.stall)
        self.others.append(
            {
                state.ports[i]: float(waits[i])
                for i in np.flatnonzero(np.nan_to_num(waits) > WORSE).tolist()
                if state.ports[i] not in out
            }
        )

    @property
    def stall(self) -> float | None:
        """The victims' present stall; None when none of them can be seen."""
        return float(np.mean(self.victims)) if self.victims else None

    def worse(self, known: Set[PortRef] = frozenset()) -> tuple[PortRef, float] | None:
        """The innocent port that waits most more than before, if it is too much; ``known`` are hurt by what was there already."""
        if len(self.others) < AVERAGE:
            return None
        found: tuple[PortRef, float] | None = None
        for ref in set.intersection(*(set(one) for one in self.others)) - known:
            more = float(np.mean([one[ref] for one in self.others])) - self.baseline.others.get(_key(ref), 0.0)
            if more > WORSE and (found is None or more > found[1]):
                found = (ref, more)
        return found

    def judge(self, deadline_intervals: int, known: Set[PortRef] = frozenset()) -> tuple[Outcome, str]:
        """The verdict on the action so far, in words. ``known``: victims of troubles that began before the push."""
        before, now = self.baseline.stall, self.stall
        worse = self.worse(known)
        if worse is not None:
            return "failed", f"{_key(worse[0])} waits {worse[1]:.0%} more than before"
        # Where nobody waited there was nothing to help: whatever was changed then stays only by mistake.
        helpable = before > STALL_FLOOR
        if helpable and now is not None and len(self.victims) == AVERAGE and now <= self.baseline.target:
            return "helped", f"the victims' stall fell from {before:.1%} to {now:.1%}"
        if self.seen + self.blind < deadline_intervals:
            return "wait", ""
        if not helpable:
            return "failed", f"the victims did not wait before ({before:.1%}): nothing to help"
        if now is None:
            return "failed", "no victim could be seen: no evidence that it helped"
        return (
            "failed",
            f"the victims' stall went from {before:.1%} to {now:.1%}, promised was {self.baseline.target:.1%}",
        )

"""What an action's journal record says beyond its state: the baseline it is judged by, its lease, the verdict it was made for."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import msgspec

from fabricd.control.verify import Baseline
from fabricd.model.action import Action, Proposal
from fabricd.model.verdict import Cause, Verdict

NS = 1_000_000_000
BACK_OFF_WITHIN_NS = 24 * 3600 * NS
MOST_BACK_OFF = 16


def admission(action: Action) -> dict[str, Any]:
    """What was kept when the guard admitted it."""
    return next((event.data for event in action.events if event.state == "admitted"), {})


def baseline_of(action: Action) -> Baseline:
    """How things were before the push; an empty one when the record does not say."""
    data = admission(action).get("baseline")
    if data is None:
        return Baseline(victims=[], priority=None, stall=0.0, others={})
    return msgspec.convert(data, Baseline)


def lease_of(action: Action, default_s: float) -> int:
    """Nanoseconds from now on that a lease lasts."""
    return int(float(admission(action).get("lease_s", default_s)) * NS)


def verdict_of(action: Action) -> Verdict:
    """The verdict an action was made for, as far as the journal keeps it."""
    roots = [(root[0], root[1]) for root in admission(action).get("root", [])]
    at = action.proposal.created_ns
    return Verdict(
        id=action.proposal.verdict_id,
        start=at,
        detected_at=at,
        roots=roots,
        cause=msgspec.convert(action.proposal.cause, type=Cause),
        confidence=1.0,
    )


def back_off(proposal: Proposal, actions: Iterable[Action], now_ns: int) -> int:
    """How many times its usual lease a remedy gets: twice as long after each trial in a day that showed it is still needed."""
    levers = {change.lever for change in proposal.changes}
    trials = sum(
        1
        for action in actions
        if action.state == "released"
        and action.events[-1].at_ns >= now_ns - BACK_OFF_WITHIN_NS
        and levers & {change.lever for change in action.proposal.changes}
    )
    return min(MOST_BACK_OFF, int(2**trials))

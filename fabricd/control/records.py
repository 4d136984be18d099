"""What an action's journal record says beyond its state: the baseline it is judged by, its lease, the verdict it was made for."""

from __future__ import annotations

from typing import Any

import msgspec

from fabricd.control.verify import Baseline
from fabricd.model.action import Action
from fabricd.model.verdict import Cause, Verdict

NS = 1_000_000_000


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

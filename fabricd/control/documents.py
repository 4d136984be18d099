"""Actions, advice and latches as JSON documents: what the command line prints and what goes to the broker for page and metrics."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from fabricd.control.verify import hidden_by
from fabricd.model.action import IN_FORCE, Action

ALERTS = frozenset({"conflict", "stuck", "lost", "failed"})


def action_document(action: Action) -> dict[str, Any]:
    """An action with its life; ``alert`` is there when a person has to look."""
    body: dict[str, Any] = msgspec.to_builtins(action)
    proposal = body.pop("proposal")
    out: dict[str, Any] = {
        "kind": "action",
        "id": action.id,
        "state": action.state,
        "in_force": action.state in IN_FORCE,
        "verdict": proposal.pop("verdict_id"),
        **{key: value for key, value in proposal.items() if key != "id"},
        "lease_until_ns": action.lease_until_ns or None,
        "events": body["events"],
    }
    if out["in_force"] and hidden_by(action.proposal):
        out["holds_verdict"] = (
            action.proposal.verdict_id
        )  # our own change hides the evidence: it is not cleared by silence
    if action.state in ALERTS:
        out["alert"] = action.events[-1].detail or action.state
    return out


def brief(action: Action) -> dict[str, Any]:
    """One line of a list."""
    last = action.events[-1] if action.events else None
    return {
        "id": action.id,
        "state": action.state,
        "cause": action.proposal.cause,
        "remedy": action.proposal.remedy,
        "verdict": action.proposal.verdict_id,
        "changes": len(action.proposal.changes),
        "gain": action.proposal.gain,
        "created_ns": action.proposal.created_ns,
        "changed_ns": last.at_ns if last else None,
        "detail": last.detail if last else "",
        "lease_until_ns": action.lease_until_ns or None,
    }


def control_document(mode: str, latches: Mapping[str, str], problems: list[str]) -> dict[str, Any]:
    """How the controller itself stands."""
    return {"kind": "controller", "mode": mode, "latches": dict(latches), "problems": problems}

"""A verdict: where the wait ends, why, and who is hurt. Pure data."""

from __future__ import annotations

from typing import Any, Literal

import msgspec

Cause = Literal[
    "incast",
    "priority_contention",
    "slow_receiver",
    "pfc_storm",
    "ecmp_collision",
    "oversubscription",
    "degraded_link",
    "link_flap",
    "qos_mismatch",
    "pfc_deadlock",
    "unknown",
]
NodeId = str | int  # a GUID as 0x… text in production; a trace's own node id in a replay


class Verdict(msgspec.Struct, kw_only=True, omit_defaults=False):
    """Times are wall-clock ns. ``victims`` are the affected ports; ``victim_pairs`` only where who talks to whom is known."""

    id: str
    start: int
    detected_at: int
    end: int | None = None  # None while open
    roots: list[tuple[NodeId, int]] = []
    root_labels: list[dict[str, str]] = []  # per root: faceplate, cable, near and far end, rack, where known
    cause: Cause = "unknown"
    priority: int | None = None
    victims: list[tuple[NodeId, int]] = []
    victim_pairs: list[tuple[NodeId, NodeId, int | None]] = []
    contributors: list[Any] = []
    jobs_hurt: list[str] = []
    jobs_contributing: list[str] = []
    confidence: float = 0.0
    evidence: dict[str, Any] = {}
    blind: list[str] = []  # what could not be seen
    fabric: str = "default"

"""A verdict as an alert: labels that identify it, annotations a person needs. One congestion tree is one alert."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import msgspec

from fabricd.model.ident import format_guid
from fabricd.model.verdict import NodeId, Verdict

_DO = {
    "incast": "look at who sends to the root's host; congestion control or a rate limit on the sender helps",
    "priority_contention": "give the victims' priority its own share (ETS or VL arbitration)",
    "slow_receiver": "look at the receiving host: PCIe, NUMA, a stuck process; drain it",
    "pfc_storm": "the host pauses without end: reset its port or NIC; a PFC watchdog may already have",
    "ecmp_collision": "adaptive routing for this traffic, or move some of its destinations",
    "oversubscription": "more uplinks are needed for this traffic, or a placement that keeps it below the leaf",
    "degraded_link": "check cable and transceiver; route around the link meanwhile",
    "link_flap": "replace cable or transceiver; route around the link meanwhile",
    "qos_mismatch": "compare PFC, trust mode and DSCP maps along the path",
    "pfc_deadlock": "switches wait for each other in a circle: look at the routes, pause one priority",
    "unknown": "see what was blind, and the runner-up, in the explanation",
}


class Alert(msgspec.Struct, kw_only=True):
    """``ends_at`` empty while firing. ``fingerprint`` is the verdict's id: every message of a verdict carries the same."""

    fingerprint: str
    labels: dict[str, str]
    annotations: dict[str, str]
    starts_at: str
    ends_at: str = ""

    @property
    def status(self) -> str:
        return "resolved" if self.ends_at else "firing"


def alert_of(verdict: Verdict, page_url: str = "") -> Alert:
    """What is said of a verdict; resolved once it has an end."""
    root = _ports(verdict.roots)
    labelled = [" ".join(f"{key} {text}" for key, text in labels.items()) for labels in verdict.root_labels]
    labels = {
        "alertname": "FabricdHeadOfLineBlocking",
        "fabric": verdict.fabric,
        "cause": verdict.cause,
        "root": root,
        "verdict": verdict.id,
        "severity": "critical" if verdict.cause in ("pfc_storm", "pfc_deadlock") else "warning",
    }
    if verdict.priority is not None:
        labels["priority"] = str(verdict.priority)
    hurt = ", ".join(verdict.jobs_hurt) or "not known"
    annotations = {
        "summary": f"{verdict.cause.replace('_', ' ')} at {root}: {len(verdict.victims)} ports held back",
        "root": "; ".join(filter(None, [root, *labelled])),
        "victims": _ports(verdict.victims[:20])
        + (f" and {len(verdict.victims) - 20} more" if len(verdict.victims) > 20 else ""),
        "jobs": hurt,
        "contributing_jobs": ", ".join(verdict.jobs_contributing) or "not known",
        "confidence": f"{verdict.confidence:.2f}",
        "blind": ", ".join(verdict.blind) or "nothing",
        "do": _DO[verdict.cause],
        "explain": f"fabricd explain {verdict.id}",
    }
    if page_url:
        annotations["page"] = f"{page_url.rstrip('/')}/?verdict={verdict.id}"
    return Alert(
        fingerprint=verdict.id,
        labels=labels,
        annotations=annotations,
        starts_at=_time(verdict.start),
        ends_at=_time(verdict.end) if verdict.end is not None else "",
    )


def _ports(ports: list[tuple[NodeId, int]]) -> str:
    return ", ".join(f"{format_guid(node) if isinstance(node, int) else node}/{port}" for node, port in ports) or "none"


def _time(ns: int) -> str:
    return datetime.fromtimestamp(ns / 1e9, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def alertmanager_body(alert: Alert) -> list[dict[str, Any]]:
    """For ``POST /api/v2/alerts``."""
    body: dict[str, Any] = {"labels": alert.labels, "annotations": alert.annotations, "startsAt": alert.starts_at}
    if alert.ends_at:
        body["endsAt"] = alert.ends_at
    if "page" in alert.annotations:
        body["generatorURL"] = alert.annotations["page"]
    return [body]


def slack_body(alert: Alert) -> dict[str, Any]:
    """An incoming-webhook message."""
    mark = ":white_check_mark: resolved" if alert.ends_at else ":rotating_light: firing"
    lines = [f"*{mark}: {alert.annotations['summary']}* (fabric {alert.labels['fabric']})"]
    if not alert.ends_at:
        lines += [
            f"root: {alert.annotations['root']}",
            f"jobs hurt: {alert.annotations['jobs']}",
            f"to do: {alert.annotations['do']}",
        ]
        lines.append(f"`{alert.annotations['explain']}`")
    if "page" in alert.annotations:
        lines.append(f"<{alert.annotations['page']}|open>")
    return {"text": "\n".join(lines)}


def json_body(alert: Alert, template: Any = None) -> Any:
    """The alert itself, or a JSON template in which ``{name}`` in any text stands for a label, annotation or field."""
    fields = {
        "status": alert.status,
        "fingerprint": alert.fingerprint,
        "starts_at": alert.starts_at,
        "ends_at": alert.ends_at,
    }
    if template is None:
        return {**fields, "labels": alert.labels, "annotations": alert.annotations}
    return _fill(template, {**alert.annotations, **alert.labels, **fields})


def _fill(part: Any, words: dict[str, str]) -> Any:
    if isinstance(part, str):
        for name, text in words.items():
            part = part.replace("{" + name + "}", text)
        return part
    if isinstance(part, list):
        return [_fill(item, words) for item in part]
    if isinstance(part, dict):
        return {key: _fill(item, words) for key, item in part.items()}
    return part

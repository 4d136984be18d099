"""Verdicts as text: one line for lists, a tree with numbers for ``explain``."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from fabricd.model.verdict import Verdict


def clock(t_ns: int | None) -> str:
    """Wall clock time, or seconds where the clock starts near zero (a trace)."""
    if t_ns is None:
        return "now"
    if t_ns < 86_400_000_000_000 * 365:
        return f"{t_ns / 1e9:.3f} s"
    return datetime.fromtimestamp(t_ns / 1e9, UTC).strftime("%Y-%m-%d %H:%M:%S")


def root_names(verdict: Verdict) -> str:
    names = [labels.get("port", f"{node}:{port}") for labels, (node, port) in _rooted(verdict)]
    return ", ".join(names[:4]) + (f" and {len(names) - 4} more" if len(names) > 4 else "") or "not visible"


def one_line(verdict: Verdict, *, still_open: bool | None = None) -> str:
    """``id start..end cause at root (priority, confidence): who is hurt``."""
    is_open = verdict.end is None if still_open is None else still_open
    priority = "" if verdict.priority is None else f", priority {verdict.priority}"
    hurt = f"{len(verdict.victims)} affected ports"
    if verdict.victim_pairs:
        hurt += f", {len(verdict.victim_pairs)} victim pairs"
    if verdict.jobs_hurt:
        hurt += f", jobs {', '.join(verdict.jobs_hurt)}"
    end = "open" if is_open else clock(verdict.end)
    return (
        f"{verdict.id}  {clock(verdict.start)} .. {end}  {verdict.cause} at {root_names(verdict)}"
        f" ({verdict.confidence:.0%}{priority}): {hurt}"
    )


def explain(verdict: Verdict) -> str:
    """The tree of waits with its numbers, why the runner-up is not the root, and what was not seen."""
    evidence = verdict.evidence
    lines = [one_line(verdict), f"  cause: {verdict.cause}: {evidence.get('why', 'no reason recorded')}"]
    lines.append(
        f"  rests on {evidence.get('intervals', 0)} intervals, {evidence.get('blocked_ports', 0)} blocked ports on average,"
        f" detected {clock(verdict.detected_at)}"
    )
    for labels, _ in _rooted(verdict):
        more = [f"{key} {value}" for key, value in labels.items() if key != "port"]
        lines.append(f"  root: {labels.get('port', '?')} ({', '.join(more)})")
    peak = evidence.get("peak")
    if peak:
        lines += ["", f"  waits at the peak ({clock(peak['at'])}):", *_tree(peak)]
        runner_up = peak.get("runner_up")
        if runner_up:
            lines += [
                "",
                f"  not the root: {runner_up['port']} used {runner_up['use']:.0%}, waits {runner_up['stall']:.0%},"
                f" blamed for {runner_up['blamed']:.0%} of the same waits: {runner_up['why_not']}",
            ]
    if verdict.victims:
        lines += ["", f"  affected ports: {_some([f'{node}:{port}' for node, port in verdict.victims])}"]
    if verdict.victim_pairs:
        lines.append(f"  victims: {_some([f'{a} -> {b}' for a, b, _ in verdict.victim_pairs])}")
    if verdict.contributors:
        lines.append(f"  contributors: {_some([f'{pair[0]} -> {pair[1]}' for pair in verdict.contributors])}")
    for word in verdict.blind:
        lines.append(f"  not seen: {word}")
    return "\n".join(lines)


def _rooted(verdict: Verdict) -> list[tuple[dict[str, str], tuple[Any, int]]]:
    labels = [*verdict.root_labels, *([{}] * (len(verdict.roots) - len(verdict.root_labels)))]
    return list(zip(labels, verdict.roots, strict=True))


def _tree(peak: dict[str, Any]) -> list[str]:
    children: dict[str | None, list[dict[str, Any]]] = {}
    for edge in peak["edges"]:
        children.setdefault(edge["for"], []).append(edge)
    lines: list[str] = []
    drawn: set[str] = set()

    def draw(port: str, depth: int) -> None:
        for edge in children.get(port, ()):
            again = edge["waits"] in drawn
            drawn.add(edge["waits"])
            lines.append(
                f"    {'   ' * depth}└─ {edge['waits']} waits {edge['stall']:.0%}, {edge['share']:.0%} of it for {port}"
                + (" (see above)" if again else "")
            )
            if not again:
                draw(edge["waits"], depth + 1)

    for numbers in peak["root"]:
        guess = ", estimated" if numbers["estimated"] else ", inferred" if numbers["unknown"] else ""
        lines.append(f"    {numbers['port']}: used {numbers['use']:.0%}, waits {numbers['stall']:.0%}{guess}")
        drawn.add(numbers["port"])
        draw(numbers["port"], 0)
    return lines


def _some(names: list[str], most: int = 12) -> str:
    return ", ".join(names[:most]) + (f" and {len(names) - most} more" if len(names) > most else "")

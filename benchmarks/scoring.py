"""How good verdicts are against the labels of a trace: roots, causes, affected ports, delay, false alarms.

The rules are those the traces were published with: detections of one root are merged over gaps of five windows; a labelled (episode,
root) is found when they cover a fifth of it; a merged interval is right when 30 % of it lies in an episode of that root (five windows
of slack), neutral when it fits harmless contention instead, else wrong. The other end of the same cable counts as the root.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

Port = tuple[int, int]
Span = tuple[float, float]
SLACK = 5  # windows


@dataclass(slots=True)
class Score:
    """Counts that add up over traces."""

    right: int = 0
    wrong: int = 0
    neutral: int = 0
    found: int = 0
    missed: int = 0
    causes: int = 0
    affected: int = 0  # ports named
    affected_in_tree: int = 0
    affected_true: int = 0  # labelled victims' ports
    affected_hit: int = 0
    alarms: int = 0  # merged root intervals on traces where nothing is wrong
    delays: list[float] = field(default_factory=list)  # in windows of the view
    wrong_causes: list[str] = field(default_factory=list)

    def add(self, other: Score) -> None:
        for name in self.__slots__:
            setattr(self, name, getattr(self, name) + getattr(other, name))

    @property
    def precision(self) -> float | None:
        return _ratio(self.right, self.right + self.wrong)

    @property
    def recall(self) -> float | None:
        return _ratio(self.found, self.found + self.missed)

    @property
    def f1(self) -> float | None:
        p, r = self.precision, self.recall
        if r is None:
            return None
        return 2 * p * r / (p + r) if p and r else 0.0

    def to_json(self) -> dict[str, Any]:
        delays = sorted(self.delays)
        return {
            "root_f1": _round(self.f1),
            "root_precision": _round(self.precision),
            "root_recall": _round(self.recall),
            "episodes": self.found + self.missed,
            "right": self.right,
            "wrong": self.wrong,
            "neutral": self.neutral,
            "cause_accuracy": _round(_ratio(self.causes, self.found)),
            "affected_precision": _round(_ratio(self.affected_in_tree, self.affected)),
            "affected_recall": _round(_ratio(self.affected_hit, self.affected_true)),
            "false_alarms": self.alarms,
            "delay_windows_median": delays[len(delays) // 2] if delays else None,
            "wrong_causes": self.wrong_causes,
        }


def score(
    verdicts: Sequence[dict[str, Any]], label: dict[str, Any], topology: dict[str, Any], window_ns: float
) -> Score:
    """Verdicts as `fabricd replay --json` prints them. ``window_ns``: length of the view's windows, for the delay."""
    out = Score()
    peer: dict[Port, Port] = {}
    for link in topology["links"]:
        a, b = (link["a"], link["a_port"]), (link["b"], link["b_port"])
        peer[a], peer[b] = b, a
    slack = SLACK * label["dt_ns"]

    def same(one: Port, other: Port) -> bool:
        return one == other or peer.get(one) == other

    for root, span in _merged(verdicts, slack):
        kind = _judge(root, span, label, slack, same)
        setattr(out, kind, getattr(out, kind) + 1)
        out.alarms += label["negative"]
    for episode in label["episodes"]:
        if not episode["secondary"]:
            _episode(out, episode, verdicts, slack, same, window_ns)
    return out


def _merged(verdicts: Iterable[dict[str, Any]], slack: float) -> list[tuple[Port, Span]]:
    spans: dict[Port, list[Span]] = {}
    for verdict in verdicts:
        for node, port in verdict["roots"]:
            spans.setdefault((node, port), []).append((verdict["start"], max(verdict["end"], verdict["start"] + 1)))
    out: list[tuple[Port, Span]] = []
    for root, all_spans in spans.items():
        begin, end = sorted(all_spans)[0]
        for start, stop in sorted(all_spans)[1:]:
            if start > end + slack:
                out.append((root, (begin, end)))
                begin, end = start, stop
            end = max(end, stop)
        out.append((root, (begin, end)))
    return out


def _judge(root: Port, span: Span, label: dict[str, Any], slack: float, same: Any) -> str:
    start, end = span

    def fits(entry: dict[str, Any], roots: list[Any]) -> bool:
        overlap = min(end, entry["end_ns"] + slack) - max(start, entry["start_ns"] - slack)
        return any(same(root, tuple(r)) for r in roots) and overlap >= 0.3 * (end - start)

    if any(fits(e, e["roots"]) for e in label["episodes"]):
        return "right"
    harmless = [(e, e["roots"]) for e in label["contention"]]
    harmless += [(e, [e["root"]]) for e in label["soft_congestion"]]
    harmless += [(e, e["roots"]) for e in label["transients"] if e["blocked_port_ms"] >= 0.5]
    if not label["negative"] and any(fits(e, roots) for e, roots in harmless):
        return "neutral"
    return "wrong"


def _episode(
    out: Score, episode: dict[str, Any], verdicts: Sequence[dict[str, Any]], slack: float, same: Any, window_ns: float
) -> None:
    begin, end = episode["start_ns"], episode["end_ns"]
    roots = [tuple(root) for root in episode["roots"]]
    mine = [
        v
        for v in verdicts
        if any(same(tuple(r), q) for r in v["roots"] for q in roots)
        and min(v["end"], end + slack) > max(v["start"], begin - slack)
    ]
    victims = {tuple(port) for port in episode["victims"]}
    tree = {tuple(port) for port in episode["tree_ports"]} | victims
    out.affected_true += len(victims)
    if _covered([(v["start"], v["end"]) for v in mine], begin, end) < 0.2 * (end - begin):
        out.missed += 1
        return
    out.found += 1
    out.delays.append(max(0.0, min(v["detected_at"] for v in mine if v["end"] > begin - slack) - begin) / window_ns)
    weight: dict[str, float] = {}
    for v in mine:
        weight[v["cause"]] = weight.get(v["cause"], 0.0) + max(0.0, min(v["end"], end) - max(v["start"], begin))
    best = max(weight, key=lambda cause: weight[cause])
    if best == episode["cause"] or best in episode.get("also_accept", ()):
        out.causes += 1
    else:
        out.wrong_causes.append(f"{episode['cause']}: {best}")
    named = {tuple(port) for v in mine for port in v["victims"]}
    out.affected += len(named)
    out.affected_in_tree += len(named & tree)
    out.affected_hit += len(named & victims)


def _covered(spans: list[Span], begin: float, end: float) -> float:
    total, last = 0.0, begin
    for start, stop in sorted(spans):
        start, stop = max(start, last), min(stop, end)
        if stop > start:
            total += stop - start
            last = stop
    return total


def pairs_score(
    verdicts: Iterable[dict[str, Any]], label: dict[str, Any], flows: list[dict[str, Any]]
) -> tuple[int, int, int]:
    """(right, wrong, missed) victim pairs over a trace, of verdicts that name a labelled root in its time."""
    ends = {flow["id"]: (flow["src"], flow["dst"]) for flow in flows}
    truth: set[tuple[int, int]] = set()
    said: set[tuple[int, int]] = set()
    for episode in label["episodes"]:
        truth |= {ends[flow["flow"]] for flow in episode["victim_flows"] if flow["confirmed"]}
    for verdict in verdicts:
        if any(
            set(map(tuple, episode["roots"])) & set(map(tuple, verdict["roots"]))
            and verdict["start"] < episode["end_ns"]
            and verdict["end"] > episode["start_ns"]
            for episode in label["episodes"]
        ):
            said |= {(a, b) for a, b, _ in verdict["victim_pairs"]}
    return len(said & truth), len(said - truth), len(truth - said)


def _ratio(part: int, whole: int) -> float | None:
    return part / whole if whole else None


def _round(value: float | None) -> float | None:
    return None if value is None else round(value, 3)

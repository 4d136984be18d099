"""From active roots per window to episodes: merge, measure, find who was hurt. Everything from exact state.

An episode is scored when somebody innocent was hurt: a flow that does not cross the root, was stuck behind it for half a
window and a tenth of its active time, and whose messages were at least 1.2 times slower inside the episode than outside.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from fabricd.flow.graph import BoolArray, FloatArray, IntArray
from fabricd.flow.messages import Message
from fabricd.flow.recorder import Window
from fabricd.flow.roots import Attribution

MERGE_GAP = 3
MIN_WINDOWS = 3
SCORED_WINDOWS = 8
SCORED_SHARE = 0.3
SCORED_BLOCKED = 0.4
STUCK_WINDOWS = 0.5
STUCK_SHARE = 0.1
SLOWER = 1.2
CROSSES = 0.01  # share of its bytes that makes a flow one that crosses a port
CONTRIBUTES = 0.02


@dataclass(slots=True)
class Victim:
    """A flow hurt by a root it does not cross. ``at``: waiting row -> windows stuck there."""

    flow: int
    stuck_windows: float
    stuck_share: float
    at: dict[int, float]
    slowdown_in: float | None
    slowdown_out: float | None
    confirmed: bool


@dataclass(slots=True)
class Episode:
    """One root (or cycle) over a span of windows [first, last]. Rows are port * V + lane."""

    rows: tuple[int, ...]
    first: int
    last: int
    active: int
    blocked_windows: float
    deadlock: bool = False
    tree: dict[int, float] = field(default_factory=dict)  # waiting row -> windows blamed on this root
    contributors: list[int] = field(default_factory=list)
    victims: list[Victim] = field(default_factory=list)
    flow_bytes: dict[int, float] = field(default_factory=dict)  # what crossed the root, by flow
    cause: str = "unknown"
    also_accept: list[str] = field(default_factory=list)

    @property
    def span(self) -> int:
        return self.last - self.first + 1

    @property
    def scored(self) -> bool:
        if self.deadlock:
            return True
        return (
            any(victim.confirmed for victim in self.victims)
            and self.active >= SCORED_WINDOWS
            and self.active >= SCORED_SHARE * self.span
            and self.blocked_windows / self.span >= SCORED_BLOCKED
        )


def find_episodes(windows: list[Window], marks: list[Attribution], lanes: int) -> list[Episode]:
    """Candidates (at least three windows) and transients (fewer) in order of start."""
    spans: list[Episode] = []
    cyclic = [n for n, mark in enumerate(marks) if len(mark.cycle)]
    for first, last, hits in _merge(cyclic):
        rows = sorted({int(row) for n in hits for row in marks[n].cycle})
        blocked = sum(float(marks[n].circling.sum()) / (windows[n].length_s * 1e9) for n in hits)
        spans.append(Episode(tuple(rows), first, last, len(hits), blocked, deadlock=len(hits) >= MIN_WINDOWS))
    by_row: dict[int, list[int]] = {}
    for n, mark in enumerate(marks):
        for row in mark.active.tolist():
            by_row.setdefault(row, []).append(n)
    for row, hits_of_row in by_row.items():
        for first, last, hits in _merge(hits_of_row):
            spans.append(Episode((row,), first, last, len(hits), 0.0))
    for episode in spans:
        _measure(episode, windows, marks, lanes)
    return sorted(spans, key=lambda e: (e.first, e.rows))


def _merge(hits: list[int]) -> list[tuple[int, int, list[int]]]:
    out: list[tuple[int, int, list[int]]] = []
    for n in hits:
        if out and n - out[-1][1] <= MERGE_GAP + 1:
            out[-1] = (out[-1][0], n, [*out[-1][2], n])
        else:
            out.append((n, n, [n]))
    return out


def _measure(episode: Episode, windows: list[Window], marks: list[Attribution], lanes: int) -> None:
    """Blocked time, blocked ports and what crossed the root, over the episode's span."""
    ports = {row // lanes for row in episode.rows}
    for n in range(episode.first, episode.last + 1):
        mark, window = marks[n], windows[n]
        length_ns = window.length_s * 1e9
        caused = _caused(mark, episode)
        for row, ns in zip(mark.origins.tolist(), caused.tolist(), strict=True):
            if ns > 0:
                episode.tree[row] = episode.tree.get(row, 0.0) + ns / length_ns
        if not episode.deadlock:
            episode.blocked_windows += float(caused.sum()) / length_ns
        mine = np.isin(window.crossed.a, list(ports))
        for flow, size in zip(window.crossed.b[mine].tolist(), window.crossed.value[mine].tolist(), strict=True):
            episode.flow_bytes[flow] = episode.flow_bytes.get(flow, 0.0) + size
    total = sum(episode.flow_bytes.values())
    episode.contributors = sorted(flow for flow, size in episode.flow_bytes.items() if size >= CONTRIBUTES * total)


def _caused(mark: Attribution, episode: Episode) -> FloatArray:
    """[O] ns of each origin's waiting that this episode's root caused in one window."""
    if episode.deadlock:
        return mark.circling
    here = np.isin(mark.rests, episode.rows)
    out: FloatArray = mark.held[:, here].sum(axis=1)
    return out


class SlowdownIndex:
    """Message slowdowns by flow: finish time against an ideal of base delay plus size over the slowest link."""

    def __init__(self, messages: list[Message], ideal_s: FloatArray, end_s: float) -> None:
        self._by_flow: dict[int, list[tuple[float, float, float]]] = {}
        for message, ideal in zip(messages, ideal_s.tolist(), strict=True):
            start = message.request_s if message.start_s is None else message.start_s
            done = message.done_s
            ratio = ((end_s if done is None else done) - start) / max(ideal, 1e-12)
            if done is None and ratio < SLOWER:
                continue  # still young when the run ended: says nothing
            self._by_flow.setdefault(message.flow, []).append((start, end_s if done is None else done, ratio))

    def compare(self, flow: int, begin: float, end: float) -> tuple[float | None, float | None]:
        """Mean slowdown of messages that overlap [begin, end] and of the others; None where there are none."""
        inside: list[float] = []
        outside: list[float] = []
        for start, done, ratio in self._by_flow.get(flow, []):
            (inside if start < end and done > begin else outside).append(ratio)
        return (float(np.mean(inside)) if inside else None, float(np.mean(outside)) if outside else None)


def find_victims(
    episode: Episode, windows: list[Window], marks: list[Attribution], slowdowns: SlowdownIndex, crossing: BoolArray
) -> None:
    """Fill ``episode.victims``. ``crossing`` [F]: flows that cross the root at any time of the run."""
    stuck: dict[int, dict[int, float]] = {}
    active: dict[int, float] = {}
    for n in range(episode.first, episode.last + 1):
        window, mark = windows[n], marks[n]
        length_ns = window.length_s * 1e9
        for flow, ns in zip(window.active_ns.b.tolist(), window.active_ns.value.tolist(), strict=True):
            active[flow] = active.get(flow, 0.0) + ns / length_ns
        total = mark.held.sum(axis=1) + mark.circling
        caused = _caused(mark, episode)
        share = {
            int(row): float(c / t) for row, c, t in zip(mark.origins, caused, total, strict=True) if c > 0 and t > 0
        }
        for row, flow, ns in zip(
            window.stuck.a.tolist(), window.stuck.b.tolist(), window.stuck.value.tolist(), strict=True
        ):
            part = share.get(row)
            if part and not crossing[flow]:
                places = stuck.setdefault(flow, {})
                places[row] = places.get(row, 0.0) + part * ns / length_ns
    begin = windows[episode.first].end_s - windows[episode.first].length_s
    end = windows[episode.last].end_s
    for flow, at in stuck.items():
        time = sum(at.values())
        portion = time / max(active.get(flow, 0.0), 1e-9)
        if time < STUCK_WINDOWS or portion < STUCK_SHARE:
            continue
        inside, outside = slowdowns.compare(flow, begin, end)
        confirmed = inside is not None and inside >= SLOWER * (outside if outside is not None else 1.0)
        episode.victims.append(Victim(flow, time, min(portion, 1.0), at, inside, outside, confirmed))
    episode.victims.sort(key=lambda victim: -victim.stuck_windows)


def crossing_flows(windows: list[Window], episode: Episode, flows: int, lanes: int, sent: IntArray) -> BoolArray:
    """[F] flows with at least one percent of their bytes through a port of the root, over the whole run."""
    ports = list({row // lanes for row in episode.rows})
    through = np.zeros(flows)
    for window in windows:
        mine = np.isin(window.crossed.a, ports)
        np.add.at(through, window.crossed.b[mine], window.crossed.value[mine])
    out: BoolArray = through >= np.maximum(CROSSES * sent, 1.0)
    return out

"""From candidate roots in single intervals to episodes: evidence gathers, gaps are bridged, one episode per root and priority."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal, NamedTuple

import numpy as np
import numpy.typing as npt

from fabricd.detect.params import Params

Floats = npt.NDArray[np.float64]
Kind = Literal["egress", "host", "cycle", "qos", "blind"]


class Key(NamedTuple):
    """What makes two intervals one episode: priority index, egress port (or -1 for a cycle, a switch's number for ``blind``), kind."""

    prio: int
    port: int
    kind: Kind


@dataclass(slots=True)
class Candidate:
    """A place where blame ends in one interval.

    ``mass``: blocked ports (stall shares summed) that end here; ``held``: the stalled ports it holds, ``share`` of their stall it
    explains, ``sure`` whether no equal sibling may hold the port as well; ``clarity``: how alone it is in holding them.
    """

    port: int
    kind: Kind
    mass: float
    held: npt.NDArray[np.intp]
    share: Floats
    sure: npt.NDArray[np.bool_]
    clarity: float = 1.0
    cycle: tuple[int, ...] = ()


class Tally:
    """Sums by port, kept as arrays until somebody asks."""

    __slots__ = ("_ports", "_weights")

    def __init__(self) -> None:
        self._ports: list[npt.NDArray[np.intp]] = []
        self._weights: list[Floats] = []

    def add(self, ports: npt.NDArray[np.intp], weights: Floats) -> None:
        self._ports.append(ports)
        self._weights.append(weights)
        if len(self._ports) > 64:
            self._compact()

    def _compact(self) -> None:
        if len(self._ports) > 1:
            distinct, where = np.unique(np.concatenate(self._ports), return_inverse=True)
            summed: Floats = np.bincount(where, np.concatenate(self._weights)).astype(np.float64)
            self._weights = [summed]
            self._ports = [distinct.astype(np.intp)]

    def totals(self) -> dict[int, float]:
        self._compact()
        if not self._ports:
            return {}
        return dict(zip(self._ports[0].tolist(), self._weights[0].tolist(), strict=True))


@dataclass(slots=True)
class Episode:
    """Sums over the active intervals of one root. ``held``: stall explained by port, in intervals."""

    key: Key
    start: int
    last: int
    end: int  # newest interval in which it still held a fair part of its usual mass
    active: int = 0
    mass: float = 0.0
    evidence: float = 0.0
    clarity: float = 0.0
    detected_at: int | None = None
    doubt: int = 0  # intervals in a row in which another cause than the one told fitted better
    held: Tally = field(default_factory=Tally)
    shared: Tally = field(default_factory=Tally)  # the same for ports its equals may hold instead
    cycle: dict[int, int] = field(default_factory=dict)
    sums: dict[str, float] = field(default_factory=dict)
    counts: dict[str, int] = field(default_factory=dict)
    peak: float = 0.0  # mass of the interval the explanation was taken from
    explanation: dict[str, object] = field(default_factory=dict)
    unseen: dict[str, int] = field(default_factory=dict)  # what could not be seen -> in how many intervals

    def mean(self, name: str) -> float:
        return self.sums.get(name, 0.0) / max(self.counts.get(name, 0), 1)


class Episodes:
    """Open episodes by key."""

    def __init__(self, params: Params) -> None:
        self.params = params
        self.open: dict[Key, Episode] = {}

    def see(
        self, t_ns: int, interval: float, prio: int, candidate: Candidate, stall: Floats, facts: dict[str, float]
    ) -> Episode:
        """An active interval of a root. ``stall`` (P+1,) of that priority; ``facts`` are averaged over the episode."""
        key = Key(prio, candidate.port, candidate.kind)
        episode = self.open.get(key)
        if episode is None:
            episode = self.open[key] = Episode(key, int(t_ns - interval), t_ns, t_ns)
        params = self.params
        episode.active += 1
        episode.last = t_ns
        episode.mass += candidate.mass
        episode.clarity += candidate.clarity
        if candidate.mass >= params.tail * episode.mass / episode.active:
            episode.end = t_ns
        clear = min(1.0, candidate.clarity / params.clear) ** 2
        episode.evidence += clear * min(candidate.mass / params.mean_mass, params.raise_after)
        weight = candidate.share * stall[candidate.held]
        episode.held.add(candidate.held[candidate.sure], weight[candidate.sure])
        if not candidate.sure.all():
            episode.shared.add(candidate.held[~candidate.sure], weight[~candidate.sure])
        for port in candidate.cycle:
            episode.cycle[port] = episode.cycle.get(port, 0) + 1
        for name, value in facts.items():
            episode.sums[name] = episode.sums.get(name, 0.0) + value
            episode.counts[name] = episode.counts.get(name, 0) + 1
        return episode

    def settle(self, t_ns: int, interval: float, dark: npt.NDArray[np.bool_]) -> tuple[list[Episode], list[Episode]]:
        """(raised now, ended now). An ended episode that was never raised is dropped silently.

        ``dark`` (P+1,): ports of which nothing is known now. No evidence is not "cleared": while most ports an episode was seen
        at are dark, it is held.
        """
        raised, ended = [], []
        for key, episode in list(self.open.items()):
            sure = episode.evidence >= self.params.raise_after
            heavy = episode.mass >= self.params.mean_mass * episode.active
            if episode.detected_at is None and sure and heavy and episode.last == t_ns:
                episode.detected_at = t_ns
                raised.append(episode)
            if episode.detected_at is not None and episode.last < t_ns:
                ports = list(episode.held.totals())
                if ports and float(dark[ports].mean()) > 0.5:
                    episode.last += int(interval)
                    episode.unseen["held"] = episode.unseen.get("held", 0) + 1
            if t_ns - episode.last > self.params.gap * interval:
                del self.open[key]
                if episode.detected_at is not None:
                    ended.append(episode)
        return raised, ended

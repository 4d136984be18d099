"""The detector: windows in, verdicts out. Pure: no clock, no I/O, no globals."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from fabricd.detect.blame import Candidate, Graph, evidence, graph
from fabricd.detect.capacity import Capacity
from fabricd.detect.episodes import Episode, Episodes
from fabricd.detect.fabric import Fabric
from fabricd.detect.features import FeatureMaker, Features
from fabricd.detect.inferred import infer_waits
from fabricd.detect.params import Params
from fabricd.detect.shares import Shares
from fabricd.detect.window import Window

Floats = npt.NDArray[np.float64]


@dataclass(slots=True)
class Finding:
    """An episode that was raised, in port indices."""

    episode: Episode
    cause: str
    roots: list[int]
    affected: list[int]
    end: int | None


class Detector:
    """``priorities``: labels of the Q columns (None = whole port); ``control``: index of the priority of control packets."""

    def __init__(
        self, fabric: Fabric, priorities: list[int | None], control: int | None = None, params: Params | None = None
    ) -> None:
        self.fabric = fabric
        self.priorities = priorities
        self.control = control
        self.params = params or Params()
        self._features = FeatureMaker(fabric, control)
        self._capacity = Capacity(fabric, self.params)
        self._shares = [Shares(fabric, self.params) for _ in priorities]
        self._episodes = Episodes(self.params)
        self._siblings: dict[int, npt.NDArray[np.intp]] = {}
        self.findings: list[Finding] = []

    def step(self, window: Window) -> None:
        features = self._features.make(window, self._capacity.slower)
        for prio in range(len(self.priorities)):
            if prio == self.control:
                continue
            shares = self._shares[prio]
            backlog, queue = evidence(features, prio, self.params)
            own = queue / np.maximum(backlog, 1e-9) ** self.params.sharpness
            shares.push(features.tx[:, prio], features.stall[:, prio], backlog * own, features.unknown[:, prio])
            features.stall[:, prio] += infer_waits(self.fabric, features, prio, shares, self.params)
            found = graph(self.fabric, features, prio, shares, self.params)
            if found is None:
                continue
            for candidate in found.candidates:
                facts = self._facts(candidate, features, found, prio, window)
                self._episodes.see(window.t_ns, window.interval_ns, prio, candidate, found.stall, facts)
        data = [s for prio, s in enumerate(self._shares) if prio != self.control]
        self._capacity.update(window, features.tx[:-1].sum(axis=1), data)
        _raised, ended = self._episodes.settle(window.t_ns, window.interval_ns)
        for episode in ended:
            self.findings.append(self._finding(episode, episode.end))

    def finish(self) -> None:
        for episode in list(self._episodes.open.values()):
            if episode.detected_at is not None:
                self.findings.append(self._finding(episode, episode.end))

    def _facts(
        self, candidate: Candidate, features: Features, found: Graph, prio: int, window: Window
    ) -> dict[str, float]:
        if candidate.cycle:
            return {}
        fabric, port = self.fabric, candidate.port
        siblings = self._siblings.get(port)
        if siblings is None:
            siblings = self._siblings[port] = fabric.siblings(port)
        capacity = max(float(features.capacity[port]), 1.0)
        sources = found.shares[:, [port]].toarray().ravel() * features.tx[:, prio]
        total = sources.sum()
        nominal = float(fabric.rate[port])
        facts = {
            "use": float(features.use[port]),
            "own": float(features.tx[port, prio]) / capacity,
            "siblings": float(features.use[siblings].mean()) if siblings.size else 0.0,
            "degraded": float(capacity < 0.95 * nominal) if nominal == nominal else 0.0,
            "stall": float(features.stall[port, prio]),
            "sources": float(total * total / (sources**2).sum()) if total > 0 else 0.0,
        }
        if not fabric.to_host[port]:
            facts["top"] = self._top(port, prio)
        return facts

    def _top(self, port: int, prio: int) -> float:
        """Largest share of an egress's bytes that ends at one host, following the shares to the edge."""
        fabric = self.fabric
        ends: dict[int, float] = {}
        at = {port: 1.0}
        for _ in range(6):
            after: dict[int, float] = {}
            for p, x in at.items():
                if fabric.to_host[p]:
                    ends[p] = ends.get(p, 0.0) + x
                    continue
                for o, share in self._row(p, prio):
                    if share * x > 1e-3:
                        after[o] = after.get(o, 0.0) + share * x
            at = after
            if not at:
                break
        total = sum(ends.values())
        return max(ends.values()) / total if total > 0 else 1.0

    def _row(self, port: int, prio: int) -> list[tuple[int, float]]:
        number, at, slot = self.fabric.place(int(self.fabric.peer[port]))
        if number < 0:
            return []
        block = self.fabric.blocks[number]
        share, _ = self._shares[prio].of(number, block, np.array([at]))
        row = share[0, slot]
        return [(int(block.out[at, o]), float(row[o])) for o in np.flatnonzero(row > 1e-3)]

    def _finding(self, episode: Episode, end: int | None) -> Finding:
        _prio, port, at_host = episode.key
        fabric = self.fabric
        roots = [port]
        if port < 0:
            most = max(episode.cycle.values())
            roots = [p for p, n in episode.cycle.items() if n >= 0.5 * most]
            cause = "pfc_deadlock"
        elif at_host:
            roots = [int(fabric.peer[port])]
            cause = "pfc_storm" if episode.mean("stall") >= 0.95 else "slow_receiver"
        elif fabric.to_host[port]:
            crowd = episode.mean("own") < 0.5 * episode.mean("use") and episode.mean("sources") < 1.5
            cause = "priority_contention" if crowd else "incast"
        elif episode.mean("degraded") > 0.5:
            cause = "degraded_link"
        elif episode.mean("top") >= 0.7:
            cause = "incast"
        elif self._siblings[port].size and episode.mean("siblings") < 0.75 * episode.mean("use"):
            cause = "ecmp_collision"
        else:
            cause = "oversubscription"
        floor = self.params.affected_share * episode.active
        affected = [
            p for p, x in episode.held.items() if x >= max(floor, self.params.affected_least) and p not in roots
        ]
        return Finding(episode, cause, roots, affected, end)

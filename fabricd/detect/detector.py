"""The detector: windows in, findings out. Pure: no clock, no I/O, no globals."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from fabricd.detect.blame import Graph, evidence, graph, unexplained
from fabricd.detect.capacity import Capacity
from fabricd.detect.causes import ONE_RECEIVER, name_cause
from fabricd.detect.episodes import Candidate, Episode, Episodes, Key
from fabricd.detect.explain import explanation
from fabricd.detect.fabric import Fabric
from fabricd.detect.features import FeatureMaker, Features
from fabricd.detect.inferred import infer_waits
from fabricd.detect.params import Params
from fabricd.detect.qos import mismatches
from fabricd.detect.shares import Shares
from fabricd.detect.window import Window
from fabricd.model.verdict import Cause

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.intp]


@dataclass(slots=True)
class Finding:
    """An episode that was raised, in port indices. ``end`` None while it is open.

    When a cause turns out to be another one, the finding ends (``superseded``) and one with the same start and roots is raised.
    """

    episode: Episode
    detected_at: int
    cause: Cause
    why: str
    roots: list[int]
    affected: list[int]
    end: int | None = None
    superseded: bool = False


@dataclass(slots=True)
class Step:
    """What one interval brought."""

    raised: list[Finding]
    ended: list[Finding]


class Detector:
    """``priorities``: labels of the Q columns (None = whole port); ``control``: index of the priority of control packets."""

    def __init__(
        self,
        fabric: Fabric,
        priorities: Sequence[int | None],
        control: int | None = None,
        params: Params | None = None,
    ) -> None:
        self.fabric = fabric
        self.priorities = list(priorities)
        self.control = control
        self.params = params or Params()
        self._features = FeatureMaker(fabric, control)
        self._capacity = Capacity(fabric, self.params)
        self._shares = [Shares(fabric, self.params) for _ in priorities]
        self._episodes = Episodes(self.params)
        self._siblings: dict[int, Ints] = {}
        self._inferred = np.zeros((fabric.size + 1, len(self.priorities)), np.bool_)  # waits nobody measures
        self._told: dict[Key, Finding] = {}

    def step(self, window: Window) -> Step:
        """Take the next interval. Causes of raised findings are those known now; :meth:`open` tells them anew later."""
        features = self._features.make(window, self._capacity.slower)
        self._inferred = features.unknown
        data = [prio for prio in range(len(self.priorities)) if prio != self.control]
        for prio in data:
            shares = self._shares[prio]
            backlog, queue = evidence(features, prio, self.params)
            own = queue / np.maximum(backlog, 1e-9) ** self.params.sharpness
            shares.push(features.tx[:, prio], features.stall[:, prio], backlog * own, features.unknown[:, prio])
            inferred = infer_waits(self.fabric, features, prio, shares, self.params)
            features.stall[:, prio] += inferred
            found = graph(self.fabric, features, prio, shares, self.params)
            if found is not None:
                heaviest = sorted(found.candidates, key=lambda candidate: -candidate.mass)
                for rank, candidate in enumerate(heaviest):
                    self._take(candidate, features, found, prio, window, full=rank < self.params.most_facts)
                for candidate in unexplained(self.fabric, found, self.params):
                    self._see(candidate, features, prio, window, {})
        for prio, candidate in mismatches(self.fabric, window, self.control, self.params):
            self._see(candidate, features, prio, window, {})
        self._capacity.update(window, features.tx[:-1].sum(axis=1), [self._shares[prio] for prio in data])
        raised, ended = self._episodes.settle(window.t_ns, window.interval_ns, features.dark)
        out = Step([], [])
        for episode in ended:
            out.ended.append(self._last(self._told.pop(episode.key), episode.end))
        for finding in list(self._told.values()):
            self._reconsider(finding, window.t_ns, out)
        for episode in raised:
            self._tell(episode, window.t_ns, out)
        return out

    def open(self) -> list[Finding]:
        """Findings that have not ended, with what is known about them after the last interval."""
        return [self._last(finding, None) for finding in self._told.values()]

    def _tell(self, episode: Episode, t_ns: int, out: Step) -> None:
        cause, why = self._cause(episode)
        finding = Finding(episode, t_ns, cause, why, self._roots(episode), [])
        self._told[episode.key] = self._last(finding, None)
        out.raised.append(self._told[episode.key])

    def _reconsider(self, finding: Finding, t_ns: int, out: Step) -> None:
        """Another cause must fit for longer than the gap an episode survives before the verdict is told anew."""
        episode = finding.episode
        if self._cause(episode)[0] == finding.cause:
            episode.doubt = 0
            return
        episode.doubt += episode.last == t_ns
        if episode.doubt >= self.params.gap:
            episode.doubt = 0
            old = self._last(finding, t_ns)
            old.superseded = True
            out.ended.append(old)
            self._tell(episode, t_ns, out)

    def _last(self, finding: Finding, end: int | None) -> Finding:
        """The finding with the ports known by now."""
        episode = finding.episode
        why = self._cause(episode)[1] if self._cause(episode)[0] == finding.cause else finding.why
        least = max(self.params.affected_share * episode.active, self.params.affected_least)
        guessed = max(self.params.inferred_share * episode.active, least)
        affected = [
            port
            for port, held in episode.held.totals().items()
            if held >= (guessed if self._inferred[port, episode.key.prio] else least) and port not in finding.roots
        ]
        return Finding(episode, finding.detected_at, finding.cause, why, finding.roots, affected, end)

    def _take(
        self, candidate: Candidate, features: Features, found: Graph, prio: int, window: Window, *, full: bool
    ) -> None:
        facts = self._facts(candidate, features, found, prio, full=full)
        episode = self._see(candidate, features, prio, window, facts)
        if full and candidate.mass > 1.2 * episode.peak:
            episode.peak = candidate.mass
            episode.explanation = explanation(self.fabric, found, features, candidate, prio, window.t_ns)

    def _see(
        self, candidate: Candidate, features: Features, prio: int, window: Window, facts: dict[str, float]
    ) -> Episode:
        stall = features.stall[:, prio]
        guessed = float(features.estimated[candidate.held, prio].mean()) if len(candidate.held) else 0.0
        trust = 1.0 - guessed * (1.0 - self.params.estimate_trust)
        candidate.mass *= trust
        candidate.clarity *= trust
        episode = self._episodes.see(window.t_ns, window.interval_ns, prio, candidate, stall, facts)
        for name, seen in (("estimated", features.estimated), ("inferred", features.unknown)):
            if seen[candidate.held, prio].any():
                episode.unseen[name] = episode.unseen.get(name, 0) + 1
        if features.blind.any():
            episode.unseen["blind"] = episode.unseen.get("blind", 0) + 1
        if window.resets:
            episode.unseen["resets"] = episode.unseen.get("resets", 0) + window.resets
        return episode

    def siblings(self, port: int) -> Ints:
        """Equal-cost ports of an egress, remembered."""
        known = self._siblings.get(port)
        if known is None:
            known = self._siblings[port] = self.fabric.siblings(port)
        return known

    def _shares_load(self, port: int) -> Ints:
        """Ports whose loss can move traffic to an egress: both ends of its cable and, between switches, its equals and the
        other links of its switch (where tables name one port a destination, nothing counts as equal but load moves all the same)."""
        fabric = self.fabric
        ends = np.array([port, int(fabric.peer[port])], np.intp)
        if fabric.to_host[port]:
            return ends
        return np.concatenate(
            [ends, self.siblings(port), np.flatnonzero((fabric.node == fabric.node[port]) & ~fabric.to_host)]
        )

    def _facts(
        self, candidate: Candidate, features: Features, found: Graph, prio: int, *, full: bool
    ) -> dict[str, float]:
        if candidate.cycle:
            return {}
        fabric, port = self.fabric, candidate.port
        siblings = self.siblings(port)
        capacity = max(float(features.capacity[port]), 1.0)
        nominal = float(fabric.rate[port])
        facts = {
            "use": float(features.use[port]),
            "own": float(features.tx[port, prio]) / capacity,
            "siblings": float(features.use[siblings].mean()) if siblings.size else 0.0,
            "degraded": float(capacity < 0.95 * nominal) if nominal == nominal else 0.0,
            "inferred": float(np.isfinite(self._capacity.slower[port])),
            "capacity": capacity / nominal if nominal == nominal else 1.0,
            "stall": float(features.stall[port, prio]),
            "flaps": float(self._capacity.flaps[self._shares_load(port)].max(initial=0.0)),
        }
        if not full:
            return facts
        facts["sources"] = self._sources(port, features, prio)
        if not fabric.to_host[port]:
            facts["top"] = self._top(port, prio)
        return facts

    def _sources(self, port: int, features: Features, prio: int) -> float:
        """Effective number of ingresses that feed an egress (inverse Simpson index of their volumes)."""
        number, row, slot = self.fabric.place(port)
        if number < 0:
            return 0.0
        block = self.fabric.blocks[number]
        share, _ = self._shares[prio].of(number, block, np.array([row]))
        volume = share[0, :, slot] * features.tx[block.into[row], prio]
        total = float(volume.sum())
        return total * total / float((volume**2).sum()) if total > 0 else 0.0

    def _top(self, port: int, prio: int) -> float:
        """Largest share of an egress's bytes that ends at one host, following the shares to the edge (an upper bound when small)."""
        fabric = self.fabric
        ends: dict[int, float] = {}
        at = {port: 1.0}
        for _ in range(6):
            after: dict[int, float] = {}
            for p, x in at.items():
                if fabric.to_host[p]:
                    ends[p] = ends.get(p, 0.0) + x
                    continue
                for o, share in self._shares[prio].row(int(fabric.peer[p])):
                    if share * x > 1e-3:
                        after[o] = after.get(o, 0.0) + share * x
            at = after
            if not at:
                break
            bound = max([*at.values(), *ends.values()])
            if bound < ONE_RECEIVER:
                return bound  # no single host can have more: enough to know that it is no incast met early
        total = sum(ends.values())
        return max(ends.values()) / total if total > 0 else 1.0

    def _roots(self, episode: Episode) -> list[int]:
        if episode.key.kind == "cycle":
            most = max(episode.cycle.values())
            return [p for p, n in episode.cycle.items() if n >= 0.5 * most]
        if episode.key.kind == "blind":
            return []  # a place that is not seen is never named as the root
        port = episode.key.port
        return [int(self.fabric.peer[port]) if episode.key.kind == "host" else port]

    def _cause(self, episode: Episode) -> tuple[Cause, str]:
        port, kind = episode.key.port, episode.key.kind
        return name_cause(
            episode,
            at_host=kind == "host",
            to_host=kind != "cycle" and bool(self.fabric.to_host[port]),
            has_siblings=kind == "egress" and bool(self.siblings(port).size),
            spreads=kind != "cycle" and bool(self.fabric.adaptive[port]),
        )

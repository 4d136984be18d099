"""A finding in port indices becomes a verdict in the words of the fabric: names, cables, evidence, confidence, what was not seen."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from typing import Any

from fabricd.detect.detector import Finding
from fabricd.detect.fabric import Fabric
from fabricd.detect.pairs import Pair, PairFinder
from fabricd.detect.params import Params
from fabricd.model.ident import format_guid
from fabricd.model.verdict import NodeId, Verdict

_UNSEEN = {
    "estimated": "pause durations: stalls of some ports are bounded estimates from pause frames",
    "inferred": "waits of some ports are not observable; they were inferred from the full queues they feed",
    "blind": "some switches send no counters: {switches}",
    "held": "anything at all for {count} intervals: the verdict was held meanwhile, not cleared",
    "resets": "counters were cleared by someone else {count} times",
}


class VerdictMaker:
    """Turns findings of one fabric into verdicts. ``node_id``: how a node is named (a GUID as text, or a trace's own id)."""

    def __init__(
        self,
        fabric: Fabric,
        priorities: Sequence[int | None],
        params: Params,
        pairs: Sequence[Pair] = (),
        node_id: Callable[[int], NodeId] = format_guid,
        assumed_routes: bool = False,
    ) -> None:
        self.fabric = fabric
        self.priorities = list(priorities)
        self.params = params
        self.finder = PairFinder(fabric, pairs) if pairs else None
        self.node_id = node_id
        self.assumed_routes = assumed_routes
        self.silent: list[str] = []  # names of switches without counters, kept by the caller

    def ref(self, port: int) -> tuple[NodeId, int]:
        guid, number = self.fabric.ports[port]
        return self.node_id(guid), number

    def make(self, finding: Finding) -> Verdict:
        episode = finding.episode
        priority = self.priorities[episode.key.prio]
        victims, contributors = self._pairs(finding, priority)
        return Verdict(
            id=self.identity(finding),
            start=episode.start,
            detected_at=finding.detected_at,
            end=finding.end,
            roots=[self.ref(port) for port in finding.roots],
            root_labels=[self._labels(port) for port in finding.roots],
            cause=finding.cause,
            priority=priority,
            victims=[self.ref(port) for port in finding.affected],
            victim_pairs=[(self.node_id(a), self.node_id(b), prio) for a, b, prio in victims],
            contributors=[[self.node_id(a), self.node_id(b), prio] for a, b, prio in contributors],
            confidence=round(self._confidence(finding), 2),
            evidence=self._evidence(finding),
            blind=self._blind(finding),
            fabric=self.fabric.topology.fabric,
        )

    def identity(self, finding: Finding) -> str:
        """Same roots, priority and start = same verdict, wherever it is computed."""
        key = finding.episode.key
        where = ",".join(f"{node}:{port}" for node, port in (self.fabric.ports[p] for p in sorted(finding.roots)))
        if key.kind == "blind":
            where = str(self.fabric.ports[key.port][0])
        text = f"{where}|{self.priorities[key.prio]}|{key.kind}|{finding.episode.start}"
        return hashlib.blake2b(text.encode(), digest_size=5).hexdigest()

    def _pairs(self, finding: Finding, priority: int | None) -> tuple[list[Pair], list[Pair]]:
        if self.finder is None:
            return [], []
        episode = finding.episode
        sure, shared = episode.held.totals(), episode.shared.totals()
        held = {p: (sure.get(p, 0.0) + shared.get(p, 0.0)) / episode.active for p in {*sure, *shared}}
        return self.finder.split(finding.roots, held, episode.active, priority, self.params)

    def _confidence(self, finding: Finding) -> float:
        """0..1: how alone the root is in explaining the waits, less where evidence is estimated, inferred or short."""
        episode = finding.episode
        sure = min(1.0, episode.clarity / max(episode.active, 1) / self.params.clear)
        enough = min(1.0, episode.evidence / (2.0 * self.params.raise_after))
        weak = sum(episode.unseen.get(name, 0) for name in ("estimated", "inferred")) / (2.0 * max(episode.active, 1))
        doubt = 0.3 if finding.cause == "unknown" else 1.0
        return (0.4 + 0.4 * sure + 0.2 * enough) * (1.0 - 0.3 * min(1.0, weak)) * doubt

    def _labels(self, port: int) -> dict[str, str]:
        fabric = self.fabric
        guid, _ = fabric.ports[port]
        node = fabric.topology.nodes[guid]
        out = {
            "port": fabric.label(port),
            "far_end": fabric.label(int(fabric.peer[port])),
            "guid": str(self.node_id(guid)),
        }
        out.update({k: v for k, v in node.labels.items() if k in ("rack", "role")})
        link = fabric.links.get(fabric.ports[port])
        if link is not None:
            out.update(link.labels)
        return out

    def _evidence(self, finding: Finding) -> dict[str, Any]:
        episode = finding.episode
        out: dict[str, Any] = {
            "why": finding.why,
            "intervals": episode.active,
            "blocked_ports": round(episode.mass / episode.active, 2),
            "clarity": round(episode.clarity / episode.active, 2),
            "means": {name: round(episode.mean(name), 3) for name in sorted(episode.sums)},
            "affected_or_equals": len(episode.shared.totals()),
        }
        if episode.explanation:
            out["peak"] = self._spoken(episode.explanation)
        if finding.superseded:
            out["superseded"] = True
        return out

    def _spoken(self, told: dict[str, Any]) -> dict[str, Any]:
        """Port indices become names."""

        def name(port: int | None) -> str | None:
            return None if port is None else self.fabric.label(port)

        runner_up = told.get("runner_up")
        return {
            "at": told["at"],
            "root": [dict(numbers, port=name(numbers["port"])) for numbers in told["root"]],
            "edges": [dict(edge, waits=name(edge["waits"]), **{"for": name(edge["for"])}) for edge in told["edges"]],
            "runner_up": dict(runner_up, port=name(runner_up["port"])) if runner_up else None,
        }

    def _blind(self, finding: Finding) -> list[str]:
        unseen = finding.episode.unseen
        switches = ", ".join(self.silent[:8]) + (f" and {len(self.silent) - 8} more" if len(self.silent) > 8 else "")
        out = [
            text.format(switches=switches or "unknown ones", count=unseen[name])
            for name, text in _UNSEEN.items()
            if unseen.get(name)
        ]
        if finding.episode.key.kind == "blind":
            guid = self.fabric.ports[finding.episode.key.port][0]
            out.append(
                f"where the wait ends: it enters {self.fabric.topology.nodes[guid].name} and nothing seen there explains it"
            )
        if self.assumed_routes:
            out.append("routes: every shortest path was assumed, no forwarding table was readable")
        if shared := len(finding.episode.shared.totals()):
            out.append(f"{shared} ports wait for this root or for an equal of it: which, cannot be told")
        if self.finder is None:
            out.append("who talks to whom: ports are affected, which of their traffic is a victim is not known")
        return out

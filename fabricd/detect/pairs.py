"""Victims as traffic: which pairs of hosts are stuck behind a root they do not cross.

Known: who talks to whom and the routes (sets of egress ports, so a pair has a probability on each port). A pair is a *contributor*
when it probably crosses the root, a *victim* when it does not but waits in ports the root holds.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from fabricd.detect.fabric import Fabric
from fabricd.detect.params import Params

Pair = tuple[int, int, int | None]  # source GUID, destination GUID, priority (None: any)


@dataclass(slots=True)
class PairFinder:
    """Walks the routes of known pairs once and keeps them."""

    fabric: Fabric
    pairs: Sequence[Pair]
    _paths: dict[tuple[int, int], dict[int, float]] = field(default_factory=dict)
    _ends: dict[int, list[int]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        frame = self.fabric.routes.frame
        for number, guid in enumerate(frame.destinations.tolist()):
            self._ends.setdefault(int(guid), []).append(number)

    def path(self, source: int, destination: int) -> dict[int, float]:
        """Egress port index -> probability that the pair's traffic crosses it. Empty when a host is unknown."""
        known = self._paths.get((source, destination))
        if known is not None:
            return known
        out: dict[int, float] = {}
        fabric, frame = self.fabric, self.fabric.routes.frame
        starts, ends = self._ends.get(source, []), self._ends.get(destination, [])
        for start in starts:
            mine = fabric.index.get((source, int(frame.destination_ports[start])))
            if mine is not None:
                out[mine] = out.get(mine, 0.0) + 1.0 / len(starts)
            for end in ends:
                for row, port, share in fabric.routes.walk(start, end):
                    index = int(fabric.at[row, port])
                    if index < fabric.size:
                        out[index] = out.get(index, 0.0) + share / len(starts) / len(ends)
        self._paths[source, destination] = out
        return out

    def split(
        self, roots: Iterable[int], held: Mapping[int, float], active: int, priority: int | None, params: Params
    ) -> tuple[list[Pair], list[Pair]]:
        """(victims, contributors) among the pairs.

        ``held``: port -> share of the ``active`` intervals of the episode it was held by these roots. The shorter the episode,
        the clearer the wait must be: a pair may have been silent meanwhile. A root at a host (the adapter's own port) is
        crossed by whatever ends there.
        """
        fabric = self.fabric
        crossed = {int(fabric.peer[root]) if fabric.is_host[root] else root for root in roots}
        enough = min(params.pair_wait + params.raise_after / max(active, 1), params.pair_most)
        victims, contributors = [], []
        for pair in self.pairs:
            source, destination, prio = pair
            if priority is not None and prio is not None and prio != priority:
                continue
            path = self.path(source, destination)
            crossing = max((path.get(root, 0.0) for root in crossed), default=0.0)
            if crossing >= 0.5:
                contributors.append(pair)
                continue
            at_start = sum(share * held.get(port, 0.0) for port, share in path.items() if fabric.is_host[port])
            on_the_way = sum(share * held.get(port, 0.0) for port, share in path.items() if not fabric.is_host[port])
            if max(at_start, on_the_way) >= enough:
                victims.append(pair)
        return victims, contributors

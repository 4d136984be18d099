"""Uplink heat of rail groups: the load of their leaves' uplinks, averaged over a step cycle or more, never an instant.

Training traffic comes in bursts of seconds; a single reading says where in the burst it was taken and no more.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field

from fabricd.model.topology import SWITCH, PortRef, Topology

MIN_SPAN_S = 60.0  # a mean over less may have caught one burst or one pause


def uplinks_by_leaf(topology: Topology) -> dict[str, dict[int, list[tuple[PortRef, float]]]]:
    """Rail group -> leaf -> its uplink ports with their rate in bytes per second (ports of unknown rate are left out)."""
    leaf_of = {leaf: g.name for g in topology.rails if g.kind == "compute" for rail in g.leaves for leaf in rail}
    out: dict[str, dict[int, list[tuple[PortRef, float]]]] = {}
    for link in topology.links:
        for near, far in ((link.a, link.b), (link.b, link.a)):
            peer = topology.nodes.get(far[0])
            if near[0] in leaf_of and peer is not None and peer.type == SWITCH and link.rate_gbps > 0:
                ports = out.setdefault(leaf_of[near[0]], {}).setdefault(near[0], [])
                ports.append((near, link.rate_gbps * 1e9 / 8))
    return out


@dataclass(slots=True)
class UplinkHeat:
    """Feed it byte counters with :meth:`add`; :meth:`groups` gives heat (0..1) of every group it can vouch for.

    The mean over the window comes from the counters at its two ends, so that no burst between readings is missed. A group's
    heat is that of its hottest leaf (a ring is as slow as its slowest hop), a leaf's the mean over its uplinks.
    """

    topology: Topology
    window_s: float = 120.0
    _history: deque[tuple[float, dict[PortRef, int]]] = field(default_factory=deque)

    def add(self, now: float, sent_bytes: Mapping[PortRef, int | None]) -> None:
        """Bytes sent by uplink ports since their counters began, read at ``now`` (seconds). None or absent: not observed."""
        self._history.append((now, {ref: value for ref, value in sent_bytes.items() if value is not None}))
        while len(self._history) > 2 and self._history[1][0] <= now - self.window_s:
            self._history.popleft()

    def groups(self) -> dict[str, float]:
        """Group -> mean load; groups with a leaf none of whose uplinks was observed over MIN_SPAN_S or more are left out."""
        if len(self._history) < 2:
            return {}
        (began, before), (ended, after) = self._history[0], self._history[-1]
        span = ended - began
        if span < MIN_SPAN_S:
            return {}
        out: dict[str, float] = {}
        for group, leaves in uplinks_by_leaf(self.topology).items():
            loads: list[float] = []
            for ports in leaves.values():
                # A counter that went down was reset by someone: nothing is known of that port.
                known = [
                    (after[ref] - before[ref]) / span / limit
                    for ref, limit in ports
                    if ref in before and ref in after and after[ref] >= before[ref]
                ]
                if known:
                    loads.append(min(1.0, sum(known) / len(known)))
            if loads and len(loads) == len(leaves):
                out[group] = max(loads)
        return out

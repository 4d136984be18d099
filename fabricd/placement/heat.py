"""Uplink heat of rail groups: the load of their leaves' uplinks, averaged over a step cycle or more, never an instant.

Training traffic comes in bursts of seconds; a single reading says where in the burst it was taken and no more.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field

from fabricd.model.topology import SWITCH, PortRef, Topology

COVERAGE = 0.5  # of the window that readings must span before an average counts


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
    """Feed it rates with :meth:`add`; :meth:`groups` gives heat (0..1) of every group it can vouch for.

    A group's heat is that of its hottest leaf (a ring is as slow as its slowest hop), a leaf's the mean over its uplinks.
    """

    topology: Topology
    window_s: float = 120.0
    _loads: dict[str, deque[tuple[float, float]]] = field(default_factory=dict)
    _uplinks: dict[str, dict[int, list[tuple[PortRef, float]]]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._uplinks = uplinks_by_leaf(self.topology)

    def add(self, now: float, sent_rate: Mapping[PortRef, float | None]) -> None:
        """Rates in bytes per second sent by uplink ports at ``now`` (seconds). A missing or None rate is not 0: the port
        does not count, and a leaf with no known uplink says nothing."""
        for group, leaves in self._uplinks.items():
            loads: list[float] = []
            for ports in leaves.values():
                known = [rate / limit for ref, limit in ports if (rate := sent_rate.get(ref)) is not None]
                if known:
                    loads.append(min(1.0, max(0.0, sum(known) / len(known))))
            if loads:
                history = self._loads.setdefault(group, deque())
                history.append((now, max(loads)))
                while history and history[0][0] < now - self.window_s:
                    history.popleft()

    def groups(self, now: float) -> dict[str, float]:
        """Group -> mean load of the window; groups whose readings do not span enough of it are left out."""
        out: dict[str, float] = {}
        for group, history in self._loads.items():
            recent = [(at, load) for at, load in history if at >= now - self.window_s]
            if len(recent) > 1 and recent[-1][0] - recent[0][0] >= COVERAGE * self.window_s:
                out[group] = sum(load for _, load in recent) / len(recent)
        return out

"""Small fabrics with figures, for policy, plans and the loop."""

from __future__ import annotations

from typing import Any

import numpy as np

from fabricd.control.remedies.base import Levers, Situation
from fabricd.control.state import State
from fabricd.control.traffic import Pair, Traffic, estimate
from fabricd.control.world import World
from fabricd.flow.topologies import leaf_spine
from fabricd.model.ident import format_guid
from fabricd.model.topology import PortRef, Topology
from fabricd.model.verdict import Verdict
from fabricd.topology.minhop import assumed_routes
from fabricd.topology.routes import LFT, RouteTable

RATE = 50e9  # bytes/s of every link (400 Gb/s)
INTERVAL = 1_000_000_000


class Net:
    """Leaf-spine with LIDs; ``set`` puts traffic and stall on ports, ``state`` freezes them."""

    def __init__(self, leaves: int = 2, hosts: int = 4, spines: int = 2, priorities: tuple[Any, ...] = (None,)) -> None:
        self.topology: Topology = leaf_spine(leaves, hosts, spines)
        self.peers = self.topology.neighbours()
        nodes = self.topology.nodes
        self.hosts: list[PortRef] = sorted(ref for ref in self.peers if nodes[ref[0]].type == "ca")
        for lid, ref in enumerate(self.hosts, start=100):
            nodes[ref[0]].lids = {ref[1]: lid}
        self.ports = sorted(self.peers)
        self.index = {ref: i for i, ref in enumerate(self.ports)}
        self.priorities = list(priorities)
        shape = (len(self.ports), len(self.priorities))
        self.tx, self.stall = np.zeros(shape), np.zeros(shape)
        self.routes = self.single()

    def single(self) -> RouteTable:
        """One egress per destination, spread over the spines by the destination's number."""
        assumed = assumed_routes(self.topology)
        tables: dict[int, dict[PortRef, list[int]]] = {}
        for guid in map(int, assumed.switches):
            for number, ref in enumerate(self.hosts):
                ports = assumed.egress(guid, *ref)
                tables.setdefault(guid, {})[ref] = [ports[number % len(ports)]] if ports else []
        return RouteTable.build(self.topology, tables, LFT)

    def name(self, ref: PortRef) -> tuple[str, int]:
        return format_guid(ref[0]), ref[1]

    def state(self, t_ns: int = INTERVAL) -> State:
        size = len(self.ports)
        rate, zero = np.full(size, RATE * 8), np.zeros(size)
        return State(t_ns, INTERVAL, self.ports, self.priorities, self.tx.copy(), self.stall.copy(), rate, zero, zero)

    def send(self, src: PortRef, dst: PortRef, rate: float, stall: float = 0.0, column: int = 0) -> Pair:
        """Put a flow on every port of its way."""
        index = self.routes.frame.destination_index
        self.tx[self.index[src], column] += rate
        self.stall[self.index[src], column] = stall
        for row, port, share in self.routes.walk(index[src], index[dst]):
            self.tx[self.index[int(self.routes.frame.switches[row]), port], column] += rate * share
        return Pair(src, dst, self.priorities[column])

    def traffic(self, pairs: list[Pair]) -> Traffic:
        return estimate(self.topology, self.routes, self.state(), pairs)

    def verdict(self, cause: Any, root: PortRef, victims: list[PortRef], **more: Any) -> Verdict:
        return Verdict(
            id=more.pop("id", "v1"),
            start=0,
            detected_at=1,
            roots=[self.name(root)],
            cause=cause,
            victims=[self.name(ref) for ref in victims],
            confidence=more.pop("confidence", 0.9),
            **more,
        )

    def situation(self, verdict: Verdict, pairs: list[Pair], levers: Levers, read: Any, **more: Any) -> Situation:
        world = World(self.topology, visible_share=1.0, sample_age=0.0)
        return Situation(verdict, world, self.state(), self.routes, self.traffic(pairs), levers, read, **more)


def writable(*names: tuple[str, str]) -> Levers:
    return Levers(writable={name: frozenset({"*"}) for name in names})

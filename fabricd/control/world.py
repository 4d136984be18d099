"""What the guard and policy need to know of the fabric right now. Data, gathered by the controller; no I/O here."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from fabricd.model.topology import CA, SWITCH, PortRef, Topology


@dataclass(slots=True)
class World:
    """``visible_share`` of ports with fresh samples; ``sample_age`` of the newest sample in polling intervals.

    ``expected_down`` are nodes drained or cordoned; ``contested`` GUIDs seen twice: neither is ever acted upon.
    """

    topology: Topology
    visible_share: float = 0.0
    sample_age: float = float("inf")
    expected_down: frozenset[str] = frozenset()
    contested: frozenset[int] = frozenset()
    _peers: dict[PortRef, PortRef] = field(default_factory=dict)

    def peers(self) -> dict[PortRef, PortRef]:
        """Both directions of every link (kept: the topology of a World does not change)."""
        if not self._peers:
            self._peers = self.topology.neighbours()
        return self._peers

    def canonical(self, port: PortRef) -> PortRef:
        """A link by the smaller of its ends, so that both ends count as one link."""
        other = self.peers().get(port)
        return min(port, other) if other is not None else port

    def leaf_of(self, port: PortRef) -> int | None:
        """The leaf of an uplink: the end of a switch-to-switch link that has hosts below it; None for other links."""
        other = self.peers().get(port)
        if other is None:
            return None
        ends = [guid for guid in (port[0], other[0]) if self._is_switch(guid)]
        if len(ends) != 2:
            return None
        leaves = [guid for guid in ends if guid in self._leaves()]
        return leaves[0] if leaves else None

    def _is_switch(self, guid: int) -> bool:
        node = self.topology.nodes.get(guid)
        return node is not None and node.type == SWITCH

    def _leaves(self) -> set[int]:
        nodes = self.topology.nodes
        return {
            a[0] for a, b in self.peers().items() if b[0] in nodes and nodes[b[0]].type == CA and self._is_switch(a[0])
        }

    def cut_off(self, removed: Iterable[PortRef]) -> set[int]:
        """Nodes that lose their last path to the largest part of the fabric when these links are gone."""
        gone = {self.canonical(port) for port in removed}
        before = self._largest(set())
        after = self._largest(gone)
        return before - after

    def _largest(self, gone: set[PortRef]) -> set[int]:
        neighbours: dict[int, list[int]] = {}
        for a, b in self.peers().items():
            if min(a, b) not in gone:
                neighbours.setdefault(a[0], []).append(b[0])
        best: set[int] = set()
        seen: set[int] = set()
        for start in neighbours:
            if start in seen:
                continue
            part, stack = {start}, [start]
            while stack:
                for peer in neighbours.get(stack.pop(), ()):
                    if peer not in part:
                        part.add(peer)
                        # Traffic is not forwarded through hosts.
                        if self._is_switch(peer):
                            stack.append(peer)
            seen |= {guid for guid in part if self._is_switch(guid)} | {start}
            if len(part) > len(best):
                best = part
        return best

    def hosts_of(self, guids: Iterable[int]) -> set[str]:
        """Host names of adapters among the GUIDs (the adapter's own name where its host is not known)."""
        nodes = self.topology.nodes
        return {nodes[g].host or nodes[g].name for g in guids if g in nodes and nodes[g].type == CA}

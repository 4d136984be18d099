"""Planes: parts of the fabric that only meet in adapters with a port in each, as dual-plane and multi-plane NICs have."""

from __future__ import annotations

from collections import defaultdict

from fabricd.model.topology import CA, SWITCH, Topology
from fabricd.topology.names import short_name
from fabricd.topology.rails import natural_key


def assign_planes(topology: Topology) -> int:
    """Number the planes from 1 in the order of their switches' names, and set ``plane`` of the switches and of adapters with a foot
    in one only; returns how many there are. A fabric of one plane, and fabrics that no single adapter joins, keep plane 0."""
    parent: dict[int, int] = {guid: guid for guid, node in topology.nodes.items() if node.type == SWITCH}

    def root(guid: int) -> int:
        while parent[guid] != guid:
            parent[guid] = parent[parent[guid]]
            guid = parent[guid]
        return guid

    feet: dict[int, set[int]] = defaultdict(set)
    for link in topology.links:
        if link.a[0] in parent and link.b[0] in parent:
            parent[root(link.a[0])] = root(link.b[0])
    for link in topology.links:
        for near, far in ((link.a[0], link.b[0]), (link.b[0], link.a[0])):
            if topology.nodes[near].type == CA and far in parent:
                feet[near].add(root(far))
    joined = {part for parts in feet.values() if len(parts) > 1 for part in parts}
    if not joined:
        return 0
    names: dict[int, tuple[tuple[int, int, str], ...]] = {}
    for guid in parent:
        key = natural_key(short_name(topology.nodes[guid]))
        names[root(guid)] = min(names.get(root(guid), key), key)
    number = {part: i for i, part in enumerate(sorted(joined, key=lambda part: (names[part], part)), 1)}
    for guid in parent:
        topology.nodes[guid].plane = number.get(root(guid), 0)
    for guid, parts in feet.items():
        topology.nodes[guid].plane = number.get(next(iter(parts)), 0) if len(parts) == 1 else 0
    return len(number)

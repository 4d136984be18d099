"""Routes as sets of egress ports: minimal-hop computation, forwarding tables, the hash that picks a member.

Tables hold *local* port positions of a node (see ``Graph.node_ports``); -1 means none.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.sparse import csr_array
from scipy.sparse.csgraph import shortest_path

from fabricd.flow.graph import BoolArray, Graph, IntArray

_SALT = np.uint64(0x9E3779B97F4A7C15)


@dataclass(slots=True)
class Routes:
    """``sets`` [N, H, K] equal-cost egress positions, ``count`` [N, H] how many, ``lft`` [N, H] the one a table picks."""

    sets: IntArray
    count: IntArray
    lft: IntArray

    def set_members(self, node: int, endpoint: int, members: list[int]) -> None:
        """Replace one route set; the table entry is kept when it is still a member, else the first member."""
        if len(members) > self.sets.shape[2]:
            grown = np.full((*self.sets.shape[:2], len(members)), -1, dtype=np.int64)
            grown[:, :, : self.sets.shape[2]] = self.sets
            self.sets = grown
        self.sets[node, endpoint] = -1
        self.sets[node, endpoint, : len(members)] = members
        self.count[node, endpoint] = len(members)
        if int(self.lft[node, endpoint]) not in members:
            self.lft[node, endpoint] = members[0] if members else -1

    def set_entry(self, node: int, endpoint: int, local_port: int) -> None:
        """Write one forwarding-table entry (-1 clears it)."""
        self.lft[node, endpoint] = local_port


def minimal_routes(graph: Graph, usable: BoolArray | None = None) -> Routes:
    """All minimal-hop egress sets over the ``usable`` ports (a cable counts when both its ends are usable).

    A node that cannot reach an endpoint has an empty set. The table entry is picked by the endpoint's rank on its leaf, one
    tier further on by the leaf's number, which spreads destinations as subnet managers do in trees. Adapters do not forward.
    """
    n, h = len(graph.guids), len(graph.endpoints)
    good = np.ones(len(graph.ports), dtype=bool) if usable is None else usable & usable[graph.peer]
    a, b = graph.node_of, graph.node_of[graph.peer]
    inner = good & graph.is_switch[a] & graph.is_switch[b]
    matrix = csr_array((np.ones(int(inner.sum())), (a[inner], b[inner])), shape=(n, n))
    dst_port = graph.peer[graph.endpoints]
    dst_switch = graph.node_of[dst_port]
    leaves, leaf_of = np.unique(dst_switch, return_inverse=True)
    dist = shortest_path(matrix, method="D", unweighted=True, indices=leaves)  # [L, N]
    closer = inner[None, :] & (dist[:, b] == dist[:, a] - 1)  # [L, P]
    width = graph.width
    mask = np.zeros((len(leaves), n, width), dtype=bool)
    mask[:, a, graph.local] = closer
    sizes = mask.sum(axis=2)  # [L, N]
    k = max(1, int(sizes.max(initial=1)))
    order = np.argsort(~mask, axis=2, kind="stable")[:, :, :k]
    members = np.where(np.arange(k)[None, None, :] < sizes[:, :, None], order, -1)
    sets = members[leaf_of].transpose(1, 0, 2).copy()  # [N, H, K]
    count = sizes[leaf_of].T.astype(np.int64).copy()
    arrive = good[dst_port]
    ends = np.arange(h)
    sets[dst_switch, ends] = -1
    sets[dst_switch, ends, 0] = np.where(arrive, graph.local[dst_port], -1)
    count[dst_switch, ends] = arrive.astype(np.int64)
    rank = graph.local[dst_port]
    tier = np.where(np.isfinite(dist), dist, 0.0)[leaf_of].T  # [N, H]
    digit = np.where(tier % 2 == 1, leaf_of[None, :], rank[None, :])
    pick = digit % np.maximum(count, 1)
    lft = np.take_along_axis(sets, pick[:, :, None], axis=2)[:, :, 0]
    return Routes(sets.astype(np.int64), count, lft.astype(np.int64))


def spread(flow_hash: IntArray, node: IntArray, count: IntArray) -> IntArray:
    """Member index an ECMP hash gives each (flow, node): independent per node, repeatable."""
    salt = (node.astype(np.uint64) + np.uint64(1)) * _SALT
    mixed = (flow_hash.astype(np.uint64) ^ salt) * np.uint64(0xBF58476D1CE4E5B9)
    mixed ^= mixed >> np.uint64(31)
    return ((mixed >> np.uint64(16)) % np.maximum(count, 1).astype(np.uint64)).astype(np.int64)

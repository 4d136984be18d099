"""Switch hops and crossings of a rank order. A hop count is switches crossed: 0 inside an NVLink domain or a node, 1 in a
rail group, 3 in a pod, 5 across pods."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fabricd.placement.fabric import Fabric
from fabricd.placement.order import ring_cuts
from fabricd.placement.problem import Ints

SAME_GROUP, SAME_POD, ACROSS_PODS = 1, 3, 5


@dataclass(frozen=True, slots=True)
class Metrics:
    """Of one rank order; means are over node pairs of tensor-parallel groups, and over neighbours of the cyclic order."""

    tp_pairs_across_groups: int
    tp_groups_across_groups: int
    tp_groups_across_domains: int
    cross_pod_pairs: int
    groups_used: int
    pods_used: int
    ring_group_crossings: int
    dp_ring_crossings: int
    ep_groups_across_groups: int
    cp_groups_across_groups: int
    mean_switch_hops_tp: float
    mean_switch_hops_ring: float


def hops(fabric: Fabric, a: Ints, b: Ints) -> NDArray[np.int64]:
    """Switches between hosts ``a`` and ``b`` (indices, elementwise)."""
    group_pod = fabric.group_pod
    group_a, group_b = fabric.group[a], fabric.group[b]
    out = np.where(
        group_a == group_b, SAME_GROUP, np.where(group_pod[group_a] == group_pod[group_b], SAME_POD, ACROSS_PODS)
    )
    same_domain = (fabric.domain[a] >= 0) & (fabric.domain[a] == fabric.domain[b])
    return np.where(same_domain | (a == b), 0, out).astype(np.int64)


def measure(fabric: Fabric, order: Ints, unit: int, pp: int = 1, ep_nodes: int = 1, cp_nodes: int = 1) -> Metrics:
    """Measure a rank order of hosts. ``unit`` nodes are a tensor-parallel group, ``ep_nodes`` an expert-parallel one."""
    groups = fabric.group[order]
    pair_hops: list[NDArray[np.int64]] = []
    across = cross_pod = 0
    matrix = order.reshape(-1, unit)
    for i in range(unit):
        for j in range(i + 1, unit):
            pair_hops.append(hops(fabric, matrix[:, i], matrix[:, j]))
            across += int((fabric.group[matrix[:, i]] != fabric.group[matrix[:, j]]).sum())
            cross_pod += int((pair_hops[-1] == ACROSS_PODS).sum())
    unit_groups = fabric.group[matrix]
    unit_domains = fabric.domain[matrix]
    ring = hops(fabric, order, np.roll(order, -1))
    block = len(order) // pp if len(order) % pp == 0 else len(order)
    return Metrics(
        tp_pairs_across_groups=across,
        tp_groups_across_groups=int((unit_groups != unit_groups[:, :1]).any(axis=1).sum()),
        tp_groups_across_domains=int(
            ((unit_domains != unit_domains[:, :1]) & (unit_domains >= 0)).any(axis=1).sum() if unit > 1 else 0
        ),
        cross_pod_pairs=cross_pod,
        groups_used=len(np.unique(groups)),
        pods_used=len(np.unique(fabric.group_pod[groups])),
        ring_group_crossings=int((groups != np.roll(groups, -1)).sum()),
        dp_ring_crossings=ring_cuts(groups, block),
        ep_groups_across_groups=_across(groups, ep_nodes),
        cp_groups_across_groups=_across(groups, cp_nodes),
        mean_switch_hops_tp=float(np.concatenate(pair_hops).mean()) if pair_hops else 0.0,
        mean_switch_hops_ring=float(ring.mean()) if len(order) > 1 else 0.0,
    )


def _across(groups: Ints, size: int) -> int:
    """Blocks of ``size`` consecutive nodes that touch more than one group."""
    if size <= 1 or len(groups) % size:
        return 0
    blocks = groups.reshape(-1, size)
    return int((blocks != blocks[:, :1]).any(axis=1).sum())

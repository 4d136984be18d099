"""The placement policies that ``fabricd place simulate`` and the benchmark compare."""

from __future__ import annotations

from collections.abc import Callable

import msgspec
import numpy as np
from numpy.typing import NDArray

from fabricd.placement.fabric import Fabric
from fabricd.placement.problem import Ints
from fabricd.placement.request import Constraints, Request
from fabricd.placement.solve import Solution, solve

# Hosts in rank order, or None when the policy cannot place the job now.
Policy = Callable[[Fabric, Request, NDArray[np.bool_], np.random.Generator], Ints | None]


def random_nodes(fabric: Fabric, request: Request, usable: NDArray[np.bool_], rng: np.random.Generator) -> Ints | None:
    """Any free nodes in any order: a scheduler that knows no topology on a cluster that has run for a while."""
    free = np.flatnonzero(usable)
    return None if len(free) < request.nodes else rng.permutation(free)[: request.nodes]


def reordered(fabric: Fabric, request: Request, usable: NDArray[np.bool_], rng: np.random.Generator) -> Ints | None:
    """The same random nodes, ranks sorted by pod and rail group: what a job can do for itself without the scheduler."""
    chosen = random_nodes(fabric, request, usable, rng)
    return None if chosen is None else _by_leaf(fabric, chosen)


def scheduler_tree(
    fabric: Fabric, request: Request, usable: NDArray[np.bool_], rng: np.random.Generator
) -> Ints | None:
    """Slurm's topology/tree with a correct topology.conf: lowest switch that holds the job, then best fit over its leaves.

    It counts nodes only: a leaf gives all it has, whether or not that is a multiple of the tensor-parallel group.
    """
    free = np.bincount(fabric.group[usable], minlength=len(fabric.groups))
    pods = np.bincount(fabric.group_pod, weights=free, minlength=len(fabric.pods)).astype(np.int64)
    need = request.nodes
    if (free >= need).any():
        allowed = np.array([int(np.where(free >= need, free, free.max() + 1).argmin())])
    elif (pods >= need).any():
        pod = int(np.where(pods >= need, pods, pods.max() + 1).argmin())
        allowed = np.flatnonzero(fabric.group_pod == pod)
    elif int(free.sum()) >= need:
        allowed = np.arange(len(free))
    else:
        return None
    taken: list[Ints] = []
    left = need
    remaining = {int(g): int(free[g]) for g in allowed if free[g]}
    while left:
        # Best fit: the smallest leaf that holds the rest, else the fullest.
        able = [g for g, count in remaining.items() if count >= left]
        leaf = min(able, key=lambda g: remaining[g]) if able else max(remaining, key=lambda g: remaining[g])
        hosts = np.flatnonzero(usable & (fabric.group == leaf))[: min(left, remaining.pop(leaf))]
        taken.append(hosts)
        left -= len(hosts)
    # Slurm numbers tasks by node name, whatever leaf they are on (SwitchAsNodeRank sorts the names by leaf).
    return _by_leaf(fabric, np.concatenate(taken))


def fabricd_policy(
    fabric: Fabric, request: Request, usable: NDArray[np.bool_], rng: np.random.Generator
) -> Ints | None:
    """fabricd: no tensor-parallel group leaves its rail group, or the job waits."""
    found = solve(fabric, request, usable)
    return found.order if isinstance(found, Solution) else None


def fabricd_soft(fabric: Fabric, request: Request, usable: NDArray[np.bool_], rng: np.random.Generator) -> Ints | None:
    """fabricd without waiting: as few tensor-parallel groups as possible cross."""
    soft = msgspec.structs.replace(request, constraints=Constraints(tp_in_rail_group="soft"))
    return fabricd_policy(fabric, soft, usable, rng)


def _by_leaf(fabric: Fabric, hosts: Ints) -> Ints:
    return hosts[np.lexsort((hosts, fabric.group[hosts], fabric.group_pod[fabric.group[hosts]]))]


POLICIES: dict[str, Policy] = {
    "random": random_nodes,
    "reorder": reordered,
    "scheduler": scheduler_tree,
    "fabricd": fabricd_policy,
    "fabricd-soft": fabricd_soft,
}

"""The solver's problem: how many units go into each rail group. Nodes of a group are alike, so they are counted, not named.

A *unit* is what must stay together: one tensor-parallel group of ``unit`` nodes (1 when it fits in a node). Groups are in
a canonical order that depends on their numbers only, never on names, so that renaming changes nothing.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

Ints = NDArray[np.int64]
HEAT_SCALE = 1000  # heat is held in thousandths
SHARE_SCALE = 1_000_000  # shares of traffic in millionths


class Cost(NamedTuple):
    """Compared from left to right; smaller is better.

    ``heat`` is the sum over used groups of uplink heat (thousandths) × share of the job's traffic that leaves the group
    (millionths). ``ring`` counts group changes of the cyclic rank order. ``leftover`` are free nodes of the used groups
    that can never form a unit; ``residual`` all free nodes left in them (best fit).
    """

    tp_crossings: int
    nvlink_breaks: int
    pods: int
    groups: int
    heat: int
    ring: int
    leftover: int
    residual: int


@dataclass(frozen=True, slots=True)
class Problem:
    """One connected fabric. Arrays are indexed by canonical group; ``origin`` maps back to the fabric's group index.

    ``capacity`` is in units and already respects what must not be crossed; ``inside`` is the part of it that stays inside
    NVLink domains (equal to ``capacity`` where there are none). ``floor`` units must be used of every group: not zero only
    when every unit inside a domain is needed.
    """

    unit: int
    units: int
    free: Ints
    capacity: Ints
    inside: Ints
    floor: Ints
    pod: Ints
    heat: Ints
    origin: Ints
    all_to_all: bool = False
    max_pods: int | None = None
    max_groups: int | None = None

    @property
    def groups(self) -> int:
        return len(self.free)

    def cost(self, x: Ints, tp_crossings: int = 0) -> Cost:
        """The cost of placing ``x[g]`` units in group g (without crossing units, which the caller counts)."""
        used = x > 0
        count = int(used.sum())
        free = self.free[used]
        return Cost(
            tp_crossings,
            int(np.maximum(0, x - self.inside).sum()),
            len(np.unique(self.pod[used])),
            count,
            int((self.heat[used] * self.leaving(x[used])).sum()),
            count if count > 1 else 0,
            int((free % self.unit).sum()),
            int(free.sum() - x.sum() * self.unit),
        )

    def leaving(self, x: Ints) -> Ints:
        """Share of the job's traffic that leaves a group with ``x`` of the units, in millionths.

        A ring leaves a group once however many units it holds: 1/units. An all-to-all (experts spread over nodes) leaves
        in proportion x(U-x)/(U(U-1)).
        """
        total = self.units
        if total < 2:
            return np.zeros_like(x)
        if self.all_to_all:
            share: Ints = x * (total - x) * SHARE_SCALE // (total * (total - 1))
            return share
        return np.where((x > 0) & (x < total), SHARE_SCALE // total, 0)


def canonical_order(free: Ints, capacity: Ints, inside: Ints, heat: Ints, pod: Ints) -> Ints:
    """A permutation of the groups that depends on their numbers only; ties are between groups that are truly alike.

    Pods are ordered by the sorted list of their groups' numbers, groups in a pod by their own. Two pods or groups that tie
    can be exchanged without changing any cost.
    """
    features = list(zip((-capacity).tolist(), free.tolist(), inside.tolist(), heat.tolist(), strict=True))
    members: dict[int, list[int]] = {}
    for g, p in enumerate(pod.tolist()):
        members.setdefault(p, []).append(g)
    ordered = [sorted(gs, key=lambda g: features[g]) for gs in members.values()]
    ordered.sort(key=lambda gs: (-int(capacity[gs].sum()), [features[g] for g in gs]))
    return np.array([g for gs in ordered for g in gs], dtype=np.int64)


class Bounds(NamedTuple):
    """No placement without crossings uses fewer pods or groups than these."""

    pods: int
    groups: int


def lower_bounds(problem: Problem) -> Bounds:
    """Largest first: how many pods, how many groups hold all units if nothing else mattered."""
    if problem.units == 0 or problem.capacity.sum() < problem.units:
        return Bounds(0, 0)
    pods = np.bincount(problem.pod, weights=problem.capacity, minlength=int(problem.pod.max()) + 1)
    return Bounds(_cover(np.sort(pods)[::-1], problem.units), _cover(np.sort(problem.capacity)[::-1], problem.units))


def _cover(sizes: NDArray[np.float64] | Ints, need: int) -> int:
    return int(np.searchsorted(np.cumsum(sizes), need - 0.5)) + 1

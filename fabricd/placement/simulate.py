"""A stream of jobs over a fabric under several policies: hops, crossings, fragmentation, waiting. Seeded, first come first served."""

from __future__ import annotations

import heapq
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fabricd.placement.fabric import Fabric
from fabricd.placement.plan import plan_metrics
from fabricd.placement.policies import POLICIES, Policy
from fabricd.placement.request import Job, Request


@dataclass(frozen=True, slots=True)
class Arrival:
    """One job of the stream; times in hours."""

    at: float
    hours: float
    request: Request


@dataclass(frozen=True, slots=True)
class Mix:
    """What the stream is made of. ``load`` is the share of the cluster the stream asks for on average."""

    jobs: int = 300
    load: float = 0.8
    mean_hours: float = 8.0
    tp_nodes: tuple[int, ...] = (1, 2, 2, 4)
    gpus_per_node: int = 8
    largest_share: float = 0.25


def make_stream(nodes: int, mix: Mix, seed: int) -> list[Arrival]:
    """Jobs with sizes spread evenly over powers of two, exponential durations, and arrivals that give the load asked for."""
    rng = np.random.default_rng(seed)
    largest = max(2, int(nodes * mix.largest_share))
    shapes: list[tuple[int, int, float]] = []
    for _ in range(mix.jobs):
        unit = int(rng.choice(mix.tp_nodes))
        size = unit * max(1, round(2 ** rng.uniform(0, np.log2(max(2, largest / unit)))))
        shapes.append((size, unit, float(rng.exponential(mix.mean_hours))))
    work = sum(size * hours for size, _, hours in shapes)
    span = work / (nodes * mix.load)
    times = np.sort(rng.uniform(0, span, mix.jobs))
    return [
        Arrival(
            float(at),
            hours,
            Request(
                job=Job(
                    name=f"job{i}",
                    nodes=size,
                    gpus_per_node=mix.gpus_per_node,
                    tp=unit * mix.gpus_per_node,
                    dp=size // unit,
                )
            ),
        )
        for i, (at, (size, unit, hours)) in enumerate(zip(times, shapes, strict=True))
    ]


@dataclass(slots=True)
class Tally:
    """Sums over the placed jobs of one policy."""

    placed: int = 0
    tp_hops: list[float] = field(default_factory=list)
    ring_hops: list[float] = field(default_factory=list)
    crossing: int = 0
    tp_groups: int = 0
    ring_crossings: int = 0
    groups_used: list[int] = field(default_factory=list)
    waits: list[float] = field(default_factory=list)
    fragmented: list[float] = field(default_factory=list)
    occupancy: list[float] = field(default_factory=list)

    def to_json(self) -> dict[str, Any]:
        """Means over jobs; waits in hours; fragmentation: share of free nodes that can form no two-node unit in a rail group."""
        return {
            "placed": self.placed,
            "mean_switch_hops_tp": _mean(self.tp_hops),
            "mean_switch_hops_ring": _mean(self.ring_hops),
            "tp_groups_across_groups": self.crossing,
            "tp_groups": self.tp_groups,
            "ring_group_crossings": self.ring_crossings,
            "mean_groups_used": _mean(self.groups_used),
            "mean_wait_h": _mean(self.waits),
            "p95_wait_h": round(float(np.percentile(self.waits, 95)), 3) if self.waits else None,
            "fragmentation": _mean(self.fragmented),
            "mean_occupancy": _mean(self.occupancy),
        }


def _mean(values: Sequence[float]) -> float | None:
    return round(float(np.mean(values)), 3) if values else None


def simulate(fabric: Fabric, stream: Sequence[Arrival], policies: Sequence[str], seed: int = 0) -> dict[str, Any]:
    """Run the same stream under each policy. A job that a policy cannot place waits, and all behind it wait too."""
    return {name: run(fabric, stream, POLICIES[name], seed).to_json() for name in policies}


def run(fabric: Fabric, stream: Sequence[Arrival], policy: Policy, seed: int) -> Tally:
    """One policy over the stream. Jobs that never fit (more nodes than an empty fabric places) are skipped."""
    rng = np.random.default_rng(seed)
    usable: NDArray[np.bool_] = np.ones(len(fabric.hosts), dtype=bool)
    running: list[tuple[float, int, NDArray[np.int64]]] = []
    tally = Tally()
    now = 0.0
    for number, arrival in enumerate(stream):
        now = max(now, arrival.at)
        while running and running[0][0] <= now:
            usable[heapq.heappop(running)[2]] = True
        order = policy(fabric, arrival.request, usable, rng)
        while order is None and running:
            ended, _, hosts = heapq.heappop(running)
            usable[hosts] = True
            now = max(now, ended)
            order = policy(fabric, arrival.request, usable, rng)
        if order is None:
            continue
        usable[order] = False
        heapq.heappush(running, (now + arrival.hours, number, order))
        _count(tally, fabric, arrival, order, usable, now)
    return tally


def _count(
    tally: Tally, fabric: Fabric, arrival: Arrival, order: NDArray[np.int64], usable: NDArray[np.bool_], now: float
) -> None:
    request = arrival.request
    metrics = plan_metrics(fabric, request, order)
    tally.placed += 1
    tally.waits.append(now - arrival.at)
    if request.unit > 1:
        tally.tp_hops.append(metrics.mean_switch_hops_tp)
        tally.tp_groups += request.units
        tally.crossing += metrics.tp_groups_across_groups
    if request.nodes > 1:
        tally.ring_hops.append(metrics.mean_switch_hops_ring)
    tally.ring_crossings += metrics.ring_group_crossings
    tally.groups_used.append(metrics.groups_used)
    free = np.bincount(fabric.group[usable], minlength=len(fabric.groups))
    if free.sum():
        tally.fragmented.append(float((free % 2).sum() / free.sum()))
    tally.occupancy.append(1 - float(usable.mean()))

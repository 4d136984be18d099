"""From free hosts to named hosts in rank order: build the problem of each connected fabric, solve it, take the best."""

from __future__ import annotations

import time
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from fabricd.placement import cpsat
from fabricd.placement.fabric import Fabric
from fabricd.placement.greedy import greedy
from fabricd.placement.order import arrange
from fabricd.placement.pick import pick_crossing, pick_units
from fabricd.placement.problem import HEAT_SCALE, Bounds, Cost, Ints, Problem, canonical_order, lower_bounds
from fabricd.placement.request import Request
from fabricd.placement.search import improve


@dataclass(slots=True)
class Solution:
    """Hosts as indices into the fabric, in rank order; ``unit`` consecutive ones are one tensor-parallel group."""

    order: Ints
    unit: int
    cost: Cost
    greedy_cost: Cost
    bounds: Bounds
    solver: str
    proved: int
    milliseconds: float
    refine_milliseconds: float = 0.0
    swaps: int = 0


@dataclass(slots=True)
class Infeasible:
    """Why no placement exists, most telling reason first."""

    reasons: list[str] = field(default_factory=list)


def build_problem(fabric: Fabric, request: Request, usable: NDArray[np.bool_], root: int) -> Problem:
    """Count free hosts per rail group of one connected fabric (``usable`` by host) and set what a group may hold."""
    unit = request.unit
    count = len(fabric.groups)
    hosts = np.flatnonzero(usable)
    free = np.bincount(fabric.group[hosts], minlength=count).astype(np.int64)
    free[fabric.group_root != root] = 0
    capacity = free // unit
    inside = capacity.copy()
    floor = np.zeros(count, dtype=np.int64)
    rule = request.constraints.tp_in_nvlink_domain
    if unit > 1 and rule != "ignore" and (fabric.domain[hosts] >= 0).any():
        inside = np.minimum(_inside(fabric, hosts, unit), capacity)
        if rule == "required" or int(inside.sum()) >= request.units:
            capacity = inside.copy()
        else:
            # Every unit that a domain can hold is needed: only the rest may leave one.
            floor = inside.copy()
    heat = np.array([round(request.heat.get(g.name, 0.0) * HEAT_SCALE) for g in fabric.groups], dtype=np.int64)
    members = np.flatnonzero(fabric.group_root == root)
    order = members[
        canonical_order(free[members], capacity[members], inside[members], heat[members], fabric.group_pod[members])
    ]
    pods, pod = np.unique(fabric.group_pod[order], return_inverse=True)
    # Pods are renumbered in canonical order of first appearance, so that no name or input order is left in them.
    first = np.full(len(pods), len(order), dtype=np.int64)
    np.minimum.at(first, pod, np.arange(len(order)))
    rank = np.empty(len(pods), dtype=np.int64)
    rank[np.argsort(first, kind="stable")] = np.arange(len(pods))
    return Problem(
        unit=unit,
        units=request.units,
        free=free[order],
        capacity=capacity[order],
        inside=inside[order],
        floor=floor[order],
        pod=rank[pod],
        heat=heat[order],
        origin=order,
        all_to_all=request.job.ep * request.job.tp > request.job.gpus_per_node,
        max_pods=request.constraints.max_pods,
        max_groups=request.constraints.max_rail_groups,
    )


def _inside(fabric: Fabric, hosts: Ints, unit: int) -> Ints:
    """Units of each group that stay inside one NVLink domain; hosts without multi-node NVLink form one set a group."""
    span = len(fabric.domains) + 1
    cells = np.bincount(fabric.group[hosts] * span + fabric.domain[hosts] + 1, minlength=len(fabric.groups) * span)
    total: Ints = (cells // unit).reshape(len(fabric.groups), span).sum(axis=1).astype(np.int64)
    return total


def solve(
    fabric: Fabric, request: Request, usable: NDArray[np.bool_], refine_seconds: float = 0.0
) -> Solution | Infeasible:
    """Place the request on the usable hosts. Separate fabrics are tried one by one; a job never spans two of them."""
    began = time.perf_counter()
    best: tuple[Cost, Problem, Ints, Cost, int] | None = None
    for root in range(fabric.roots):
        problem = build_problem(fabric, request, usable, root)
        start = greedy(problem) if problem.groups else None
        if start is None:
            continue
        x, swaps = improve(problem, start)
        cost = problem.cost(x)
        if not _within(problem, cost):
            continue
        if best is None or cost < best[0]:
            best = (cost, problem, x, problem.cost(start), swaps)
    if best is None:
        if request.constraints.tp_in_rail_group == "soft":
            crossing = _solve_crossing(fabric, request, usable, began)
            if crossing is not None:
                return crossing
        return Infeasible(_why(fabric, request, usable))
    cost, problem, x, greedy_cost, swaps = best
    bounds = lower_bounds(problem)
    searched = time.perf_counter()
    proved, solver = _combinatorial_proof(problem, cost, bounds), "greedy+local"
    refine_ms = 0.0
    if refine_seconds > 0 and proved < len(cpsat.PROVED) and cpsat.available():
        refined = cpsat.refine(problem, x, refine_seconds)
        refine_ms = (time.perf_counter() - searched) * 1e3
        x, proved, solver = refined.x, max(proved, refined.proved), "greedy+local+cp-sat"
        cost = problem.cost(x)
    placed = time.perf_counter()
    order = _named(fabric, request, usable, problem, x)
    spent = (searched - began + time.perf_counter() - placed) * 1e3
    return Solution(order, problem.unit, cost, greedy_cost, bounds, solver, proved, spent, refine_ms, swaps)


def _within(problem: Problem, cost: Cost) -> bool:
    return (problem.max_pods is None or cost.pods <= problem.max_pods) and (
        problem.max_groups is None or cost.groups <= problem.max_groups
    )


def _combinatorial_proof(problem: Problem, cost: Cost, bounds: Bounds) -> int:
    """How many stages are optimal by counting alone: pods and groups at their lower bounds, then no heat, no leftovers.

    A job in one rail group is always optimal: the greedy step has compared every group that holds it.
    """
    if cost.groups == 1 and not problem.floor.any():
        return 3
    if cost.nvlink_breaks or (cost.pods, cost.groups) != tuple(bounds):
        return 0
    if cost.heat:
        return 1
    return 3 if cost.leftover == 0 and cost.residual == 0 else 2


def _named(fabric: Fabric, request: Request, usable: NDArray[np.bool_], problem: Problem, x: Ints) -> Ints:
    runs = arrange(
        problem, x, request.units // request.job.pp if request.units % request.job.pp == 0 else request.units
    )
    parts = [
        pick_units(fabric, usable, int(problem.origin[g]), int(x[g]), problem.unit, int(problem.inside[g]))
        for g in runs
    ]
    return np.concatenate(parts)


def _solve_crossing(fabric: Fabric, request: Request, usable: NDArray[np.bool_], began: float) -> Solution | None:
    """As few tensor-parallel groups as possible cross: every rail group gives all whole units, the rest join leftovers."""
    for root in range(fabric.roots):
        problem = build_problem(fabric, request, usable, root)
        if int(problem.free.sum()) < request.nodes or problem.groups == 0:
            continue
        x = problem.free // problem.unit
        crossings = request.units - int(x.sum())
        if crossings <= 0:
            continue
        order = pick_crossing(fabric, usable, problem, x, crossings)
        groups = fabric.group[order]
        used = np.unique(groups)
        cost = problem.cost(x, crossings)._replace(
            pods=len(np.unique(fabric.group_pod[used])),
            groups=len(used),
            ring=int((groups != np.roll(groups, 1)).sum()),
            leftover=0,
            residual=int(problem.free[np.isin(problem.origin, used)].sum()) - request.nodes,
        )
        if _within(problem, cost):
            spent = (time.perf_counter() - began) * 1e3
            return Solution(order, problem.unit, cost, cost, Bounds(0, 0), "greedy (soft)", 0, spent)
    return None


def _why(fabric: Fabric, request: Request, usable: NDArray[np.bool_]) -> list[str]:
    """Reasons in numbers, and what would help."""
    free = int(usable.sum())
    if free < request.nodes:
        return [f"{request.nodes} nodes asked for, {free} usable"]
    reasons: list[str] = []
    per_root = [int((usable & (fabric.group_root[fabric.group] == r)).sum()) for r in range(fabric.roots)]
    if max(per_root, default=0) < request.nodes:
        return [
            f"{request.nodes} nodes asked for, the largest of {fabric.roots} separate fabrics has {max(per_root)} usable; "
            "a job cannot span separate fabrics"
        ]
    problems = [build_problem(fabric, request, usable, root) for root in range(fabric.roots)]
    units = max(int(p.capacity.sum()) for p in problems)
    limit = request.constraints
    if units < request.units:
        inside = "NVLink domain" if limit.tp_in_nvlink_domain == "required" and request.unit > 1 else "rail group"
        reasons.append(
            f"{request.units} tensor-parallel groups of {request.unit} nodes asked for, {units} fit without leaving a {inside}"
        )
        if inside == "rail group":
            reasons.append("constraints.tp_in_rail_group = soft would let some cross")
        return reasons
    bounds = [lower_bounds(p) for p in problems if int(p.capacity.sum()) >= request.units]
    if limit.max_pods is not None:
        reasons.append(
            f"constraints.max_pods = {limit.max_pods}: at least {min(b.pods for b in bounds)} pods are needed"
        )
    if limit.max_rail_groups is not None:
        reasons.append(
            f"constraints.max_rail_groups = {limit.max_rail_groups}: "
            f"at least {min(b.groups for b in bounds)} rail groups are needed"
        )
    return reasons

"""Refinement with CP-SAT, one integer per rail group, where OR-Tools is installed. Three stages, each fixing the one before.

A boolean per node finds no proof in half a minute on large fabrics; counted groups are proved in milliseconds to seconds.
"""

from __future__ import annotations

import importlib.util
import time
from dataclasses import dataclass
from typing import Any

import numpy as np

from fabricd.placement.problem import Ints, Problem

PROVED = ("pods and rail groups", "heat", "leftovers")


def available() -> bool:
    """Whether OR-Tools can be imported."""
    return importlib.util.find_spec("ortools") is not None


@dataclass(frozen=True, slots=True)
class Refined:
    """``proved`` counts the stages of PROVED whose optimum was proved, in order; all of them: the whole cost is optimal."""

    x: Ints
    proved: int


def refine(problem: Problem, start: Ints, seconds: float) -> Refined:
    """The best placement found within ``seconds``, at least as good as ``start``. Needs OR-Tools."""
    from ortools.sat.python import cp_model

    deadline = time.monotonic() + seconds
    model = cp_model.CpModel()
    groups = [g for g in range(problem.groups) if problem.capacity[g] > 0]
    x = {g: model.new_int_var(int(problem.floor[g]), int(problem.capacity[g]), f"x{g}") for g in groups}
    used = {g: model.new_bool_var(f"u{g}") for g in groups}
    pods = {p: model.new_bool_var(f"p{p}") for p in sorted({int(problem.pod[g]) for g in groups})}
    model.add(sum(x.values()) == problem.units)
    for g in groups:
        model.add(x[g] >= 1).only_enforce_if(used[g])
        model.add(x[g] == 0).only_enforce_if(used[g].Not())
        model.add_implication(used[g], pods[int(problem.pod[g])])
    for p, var in pods.items():
        model.add(sum(x[g] for g in groups if problem.pod[g] == p) >= var)
    if problem.max_pods is not None:
        model.add(sum(pods.values()) <= problem.max_pods)
    if problem.max_groups is not None:
        model.add(sum(used.values()) <= problem.max_groups)
    breaks = [model.new_int_var(0, int(problem.capacity[g]), f"b{g}") for g in groups]
    for var, g in zip(breaks, groups, strict=True):
        model.add(var >= x[g] - int(problem.inside[g]))
    leave = _leaving_terms(model, problem, groups, x, used)
    size = len(groups) + 1
    room = int(problem.free.sum()) + 1
    stages: tuple[Any, ...] = (
        (sum(breaks) * size + sum(pods.values())) * size + sum(used.values()),
        sum(leave),
        sum(used[g] * (int(problem.free[g] % problem.unit) * room + int(problem.free[g])) for g in groups),
    )
    best, proved = start, 0
    for stage, objective in enumerate(stages):
        left = deadline - time.monotonic()
        if left <= 0.01:
            break
        model.minimize(objective)
        model.clear_hints()
        for g in groups:
            model.add_hint(x[g], int(best[g]))
        solver = cp_model.CpSolver()
        solver.parameters.max_time_in_seconds = left
        solver.parameters.num_workers = 1
        solver.parameters.random_seed = 1
        status = solver.solve(model)
        if status not in (cp_model.OPTIMAL, cp_model.FEASIBLE):
            break
        found = np.zeros(problem.groups, dtype=np.int64)
        for g in groups:
            found[g] = solver.value(x[g])
        if problem.cost(found) < problem.cost(best):
            best = found
        if status != cp_model.OPTIMAL:
            break
        proved = stage + 1
        model.add(objective <= round(solver.objective_value))
    return Refined(best, proved)


def _leaving_terms(
    model: Any, problem: Problem, groups: list[int], x: dict[int, Any], used: dict[int, Any]
) -> list[Any]:
    """Heat × share that leaves, one term a group: linear for a ring, a table of x for an all-to-all."""
    terms: list[Any] = []
    for g in groups:
        heat = int(problem.heat[g])
        if heat == 0:
            continue
        table = (heat * problem.leaving(np.arange(int(problem.capacity[g]) + 1, dtype=np.int64))).tolist()
        if problem.all_to_all or problem.capacity[g] >= problem.units:
            cost = model.new_int_var(0, max(table), f"h{g}")
            model.add_element(x[g], table, cost)
            terms.append(cost)
        else:
            terms.append(used[g] * table[1])
    return terms

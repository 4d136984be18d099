"""The first answer, in about a millisecond: best fit in one group, else in one pod, else in the fewest pods."""

from __future__ import annotations

import numpy as np

from fabricd.placement.problem import Ints, Problem


def greedy(problem: Problem) -> Ints | None:
    """Units per group, or None when the groups cannot hold them all."""
    total = problem.units
    if int(problem.capacity.sum()) < total:
        return None
    if problem.floor.any():
        return fill(problem, np.flatnonzero(problem.capacity > 0))
    fits = np.flatnonzero(problem.capacity >= total)
    if len(fits):
        x = np.zeros(problem.groups, dtype=np.int64)
        x[_best_fit(problem, fits)] = total
        return x
    chosen = cover(problem, pods_first(problem))
    if problem.max_groups is not None and len(chosen) > problem.max_groups:
        # Fewer groups may be had by spending pods: let every group compete.
        chosen = cover(problem, np.flatnonzero(problem.capacity > 0))
    return fill(problem, chosen)


def pods_first(problem: Problem) -> Ints:
    """The groups of the fewest pods that hold the job; a single pod by best fit, several by size with a best-fit last."""
    sizes = np.bincount(problem.pod, weights=problem.capacity, minlength=int(problem.pod.max()) + 1).astype(np.int64)
    order = np.argsort(-sizes, kind="stable")
    count = int(np.searchsorted(np.cumsum(sizes[order]), problem.units)) + 1
    base, rest = order[: count - 1], order[count - 1 :]
    missing = problem.units - int(sizes[base].sum())
    able = rest[sizes[rest] >= missing]
    best: Ints | None = None
    best_key: tuple[int, ...] = ()
    for last in able.tolist():
        candidate = np.flatnonzero(np.isin(problem.pod, np.append(base, last)) & (problem.capacity > 0))
        chosen = cover(problem, candidate)
        key = (len(chosen), *(int(v) for v in _key(problem, chosen)))
        if best is None or key < best_key:
            best, best_key = candidate, key
    assert best is not None
    return best


def cover(problem: Problem, candidates: Ints) -> Ints:
    """The fewest of ``candidates`` that hold the job: fullest first, the last one the best fit for what is missing."""
    order = candidates[np.lexsort((problem.heat[candidates], -problem.capacity[candidates]))]
    sums = np.cumsum(problem.capacity[order])
    count = int(np.searchsorted(sums, problem.units)) + 1
    missing = problem.units - (int(sums[count - 2]) if count > 1 else 0)
    rest = order[count - 1 :]
    able = rest[problem.capacity[rest] >= missing]
    return np.append(order[: count - 1], _best_fit(problem, able))


def fill(problem: Problem, chosen: Ints) -> Ints:
    """Spread the units over the chosen groups: coolest first and full, the remainder in the hottest."""
    x = np.zeros(problem.groups, dtype=np.int64)
    x[chosen] = problem.floor[chosen]
    left = problem.units - int(x.sum())
    order = chosen[np.lexsort((-problem.capacity[chosen], problem.heat[chosen]))]
    for g in order.tolist():
        take = min(left, int(problem.capacity[g] - x[g]))
        x[g] += take
        left -= take
        if left == 0:
            break
    return x


def _key(problem: Problem, chosen: Ints) -> tuple[int, int, int]:
    return (
        int(problem.heat[chosen].sum()),
        int((problem.free[chosen] % problem.unit).sum()),
        int(problem.free[chosen].sum()),
    )


def _best_fit(problem: Problem, options: Ints) -> int:
    """Least heat, then least leftover, then least free. Heat does not matter where the whole job fits in."""
    heat = np.where(problem.capacity[options] >= problem.units, 0, problem.heat[options])
    free = problem.free[options]
    return int(options[np.lexsort((free, free % problem.unit, heat))[0]])

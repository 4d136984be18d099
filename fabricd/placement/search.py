"""Local search: exchanges of groups and of pods that lower the cost, until none does. Deterministic, never worse."""

from __future__ import annotations

import numpy as np

from fabricd.placement.greedy import cover, fill
from fabricd.placement.problem import Ints, Problem

MAX_SWAPS = 64
MAX_POD_SWAPS = 48


def improve(problem: Problem, x: Ints) -> tuple[Ints, int]:
    """A placement at least as good as ``x`` and the number of exchanges made."""
    if problem.floor.any() or int((x > 0).sum()) == 0:
        return x, 0
    best, swaps = _swap_groups(problem, x)
    cost = problem.cost(best)
    for candidate in _pod_exchanges(problem, best):
        trial, more = _swap_groups(problem, candidate)
        trial_cost = problem.cost(trial)
        if trial_cost < cost:
            best, cost, swaps = trial, trial_cost, swaps + more + 1
    return best, swaps


def _swap_groups(problem: Problem, x: Ints) -> tuple[Ints, int]:
    cost = problem.cost(x)
    for made in range(MAX_SWAPS):
        trial = _best_swap(problem, x)
        if trial is None:
            return x, made
        trial_cost = problem.cost(trial)
        if not trial_cost < cost:
            return x, made
        x, cost = trial, trial_cost
    return x, MAX_SWAPS


def _best_swap(problem: Problem, x: Ints) -> Ints | None:
    """The one-for-one exchange of a used for an unused group with the least (pods, heat, leftover, residual)."""
    used = np.flatnonzero(x > 0)
    spare = np.flatnonzero((x == 0) & (problem.capacity > 0))
    if len(used) == 0 or len(spare) == 0:
        return None
    slack = int(problem.capacity[used].sum()) - problem.units
    ok = problem.capacity[used][:, None] - problem.capacity[spare][None, :] <= slack
    pods = problem.pod
    count = np.bincount(pods[used], minlength=int(pods.max()) + 1)
    lost = (count[pods[used]] == 1)[:, None] & (pods[used][:, None] != pods[spare][None, :])
    gained = (count[pods[spare]] == 0)[None, :] & np.ones((len(used), 1), dtype=bool)
    single = len(used) == 1
    for column, delta in (
        (None, gained.astype(np.int64) - lost),
        (np.zeros_like(problem.heat) if single else problem.heat, None),
        (problem.free % problem.unit, None),
        (problem.free, None),
    ):
        values = delta if column is None else column[spare][None, :] - column[used][:, None]
        assert values is not None
        if not ok.any():
            return None
        ok &= values == values[ok].min()
    i, j = np.unravel_index(int(np.argmax(ok)), ok.shape)
    chosen = used.copy()
    chosen[i] = spare[j]
    return fill(problem, chosen)


def _pod_exchanges(problem: Problem, x: Ints) -> list[Ints]:
    """Whole pods exchanged for unused ones; the groups chosen anew. The most promising first, a bounded number."""
    sizes = np.bincount(problem.pod, weights=problem.capacity, minlength=int(problem.pod.max()) + 1).astype(np.int64)
    used = np.unique(problem.pod[x > 0])
    spare = np.setdiff1d(np.flatnonzero(sizes > 0), used)
    room = int(sizes[used].sum()) - problem.units
    pairs = [
        (abs(int(sizes[new] - sizes[old])), old, new)
        for old in used.tolist()
        for new in spare.tolist()
        if sizes[old] - sizes[new] <= room
    ]
    out: list[Ints] = []
    for _, old, new in sorted(pairs)[:MAX_POD_SWAPS]:
        pods = np.append(used[used != old], new)
        candidates = np.flatnonzero(np.isin(problem.pod, pods) & (problem.capacity > 0))
        out.append(fill(problem, cover(problem, candidates)))
    # The same pods with the groups chosen anew may use fewer of them than the exchanges so far left.
    candidates = np.flatnonzero(np.isin(problem.pod, used) & (problem.capacity > 0))
    out.append(fill(problem, cover(problem, candidates)))
    return out

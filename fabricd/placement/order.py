"""Rank order of the chosen groups: each group one run, pods together, data-parallel rings cut as seldom as possible."""

from __future__ import annotations

import numpy as np

from fabricd.placement.problem import Ints, Problem

MAX_TRIALS = 400


def arrange(problem: Problem, x: Ints, block: int) -> list[int]:
    """The used groups (canonical indices) in rank order. ``block`` is the units of one pipeline stage: its ring is closed."""
    used = np.flatnonzero(x > 0)
    pods: dict[int, list[int]] = {}
    for g in used.tolist():
        pods.setdefault(int(problem.pod[g]), []).append(g)
    runs: list[int] = []
    for members in sorted(pods.values(), key=lambda gs: (sum(int(x[g]) for g in gs) % block != 0, gs)):
        # Groups that hold whole stages first: they leave the cuts of the rest on stage borders.
        runs += sorted(members, key=lambda g: (int(x[g]) % block != 0, -int(x[g]), g))
    if block >= problem.units or len(runs) < 3:
        return runs
    return _exchange(problem, x, runs, block)


def ring_cuts(labels: Ints, block: int) -> int:
    """Changes of label around the closed ring of each block of ``block`` consecutive labels."""
    whole = len(labels) - len(labels) % block
    rings = labels[:whole].reshape(-1, block)
    cuts = int((rings != np.roll(rings, 1, axis=1)).sum())
    tail = labels[whole:]
    return cuts + (int((tail != np.roll(tail, 1)).sum()) if len(tail) else 0)


def _exchange(problem: Problem, x: Ints, runs: list[int], block: int) -> list[int]:
    """Hill climbing over exchanges of two runs of one pod; deterministic, bounded."""
    sizes = x[runs]
    current = list(range(len(runs)))
    pods = problem.pod[runs]

    def cuts(order: list[int]) -> int:
        return ring_cuts(np.repeat(np.array(order), sizes[order]), block)

    best = cuts(current)
    trials = 0
    improved = True
    while improved and best and trials < MAX_TRIALS:
        improved = False
        for i in range(len(current)):
            for j in range(i + 1, len(current)):
                if pods[current[i]] != pods[current[j]] or sizes[current[i]] == sizes[current[j]]:
                    continue
                trials += 1
                trial = current.copy()
                trial[i], trial[j] = trial[j], trial[i]
                found = cuts(trial)
                if found < best:
                    current, best, improved = trial, found, True
                if trials >= MAX_TRIALS:
                    return [runs[i] for i in current]
    return [runs[i] for i in current]

"""From cumulative counters to windows: deltas over the real elapsed time, ages, resets, sources of different cadence.

Intervals lie on a grid whose step is the cadence of the slower sources, taken from the first rows of each, so a replay of any
prefix cuts the same intervals. A late, lost or slow row only widens its own delta and ages its own cell.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise

import numpy as np
import numpy.typing as npt

from fabricd.detect.fabric import Fabric
from fabricd.detect.window import COLUMNS, Window

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]

_CADENCE_ROWS = 4  # rows of a cell that tell its cadence
_NS_COLUMNS = frozenset({"xmit_wait_ns", "paused_ns"})


class Sampler:
    """Holds the last value, time and rate of every cell (P ports x Q priorities)."""

    def __init__(self, fabric: Fabric, priorities: int, columns: Sequence[str]) -> None:
        shape = (fabric.size, priorities)
        self.columns = [name for name in columns if name in COLUMNS]
        self._value = {name: np.full(shape, np.nan) for name in self.columns}
        self._rate = {name: np.full(shape, np.nan) for name in self.columns}
        self._time = np.full(shape, np.nan)  # ns of the cell's newest row
        self._updated = np.full(shape, -np.inf)  # ns at which its rates were last computed
        self._cadence = np.full(shape, np.nan)
        self._speed = np.full(fabric.size, np.nan)

    def speed(self, port: int, bits_per_second: float) -> None:
        """The device reports a (new) speed of a port."""
        self._speed[port] = bits_per_second

    def feed(self, port: Ints, prio: Ints, t_ns: Floats, values: Mapping[str, Floats]) -> int:
        """Take rows of one interval; returns how many cells were reset by someone else."""
        before = self._time[port, prio]
        elapsed = t_ns - before
        step = elapsed > 0
        reset = np.zeros(len(port), np.bool_)
        deltas: dict[str, Floats] = {}
        for name in self.columns:
            deltas[name] = values[name] - self._value[name][port, prio]
            reset |= deltas[name] < 0
        good = step & ~reset
        p, q, e = port[good], prio[good], elapsed[good]
        for name in self.columns:
            rate = deltas[name][good] / e
            self._rate[name][p, q] = np.minimum(rate, 1.0) if name in _NS_COLUMNS else rate * 1e9
        known = self._cadence[p, q]
        self._cadence[p, q] = np.where(np.isnan(known), e, np.minimum(e, 1.25 * known))
        self._updated[p, q] = t_ns[good]
        first = np.isnan(before) | step
        for name in self.columns:
            self._value[name][port[first], prio[first]] = values[name][first]
        self._time[port[first], prio[first]] = t_ns[first]
        return int((reset & step).sum())

    def window(self, t_ns: int, interval: float, resets: int) -> Window:
        """What is known at the end of an interval. A cell lives on for one missed sample of its own cadence, then it is unknown."""
        age = (t_ns - self._updated) / interval
        fresh = (t_ns - self._updated) < 2 * np.maximum(self._cadence, interval) - interval / 2
        rates = {name: np.where(fresh, rate, np.nan) for name, rate in self._rate.items()}
        pausing = None
        if "pfc_tx" in self._value and "pfc_xon_tx" in self._value:
            owed = self._value["pfc_tx"] - self._value["pfc_xon_tx"]
            pausing = np.where(fresh & ~np.isnan(owed), owed > 0, np.nan)
        ages = np.where(fresh, np.maximum(np.rint(age), 0), np.inf)
        return Window(t_ns, interval, rates, ages, self._speed.copy(), pausing, resets)


def cadence(t_ns: Ints, cell: Ints) -> float:
    """ns between readings of the slower sources: nine tenths of the cells report at least that often. nan when none reports twice.

    A cell's own cadence is the smallest gap between its first rows, so a lost row does not make it look slow. Intervals follow
    the slower sources, because blame between ports of different times would name whoever was read first.
    """
    order = np.lexsort((t_ns, cell))
    sorted_cell, sorted_t = cell[order], t_ns[order]
    first = np.r_[True, sorted_cell[1:] != sorted_cell[:-1]]
    starts = np.flatnonzero(first)
    rank = np.arange(len(order)) - np.repeat(starts, np.diff(np.r_[starts, len(order)]))
    gap = np.diff(sorted_t, prepend=0)
    use = ~first & (rank <= _CADENCE_ROWS) & (gap > 0)
    if not use.any():
        return float("nan")
    smallest = np.full(int(cell.max()) + 1, np.inf)
    np.minimum.at(smallest, sorted_cell[use], gap[use])
    return float(np.quantile(smallest[np.isfinite(smallest)], 0.9, method="lower"))


def windows(
    fabric: Fabric,
    priorities: int,
    t_ns: Ints,
    port: Ints,
    prio: Ints,
    values: Mapping[str, Floats],
    speeds: Sequence[tuple[int, int, float]] = (),
) -> Iterator[Window]:
    """Windows of rows sorted by time. ``port`` and ``prio`` are indices; ``speeds`` (t_ns, port, bits/s), sorted."""
    step = cadence(t_ns, port * priorities + prio)
    if np.isnan(step):
        return
    sampler = Sampler(fabric, priorities, list(values))
    start = int(t_ns[0])
    number = np.floor((t_ns - start) / step + 0.5).astype(np.int64)
    edges = np.flatnonzero(np.diff(number)) + 1
    bounds = [0, *edges.tolist(), len(t_ns)]
    told = 0
    for first, last in pairwise(bounds):
        end = start + round(int(number[first]) * step)
        while told < len(speeds) and speeds[told][0] <= end:
            sampler.speed(speeds[told][1], speeds[told][2])
            told += 1
        rows = slice(first, last)
        resets = sampler.feed(
            port[rows], prio[rows], t_ns[rows].astype(np.float64), {n: v[rows] for n, v in values.items()}
        )
        yield sampler.window(end, step, resets)

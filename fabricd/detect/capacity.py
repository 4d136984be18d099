"""A link that is slower than it says: its rate lies on a plateau that the traffic feeding it does not have.

Where several feeders whose own rates vary add up to a rate that does not, something caps the sum. That rate is the real capacity.
Steady senders can look the same, most of all where the feeders' waits cannot be seen. So a plateau counts from the lowest rate that
links fall back to, and without visible waits only at such a rate (half, a quarter, an eighth: lanes lost, an older generation of
signalling).
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from fabricd.detect.fabric import Fabric
from fabricd.detect.params import Params
from fabricd.detect.shares import Shares
from fabricd.detect.window import Window

Floats = npt.NDArray[np.float64]
STEPS = (0.5, 0.25, 0.125)  # of the nominal rate: half the lanes or the generation before, and so on
STEP_WIDTH = 0.03  # how far from a step a plateau may lie: headers and gaps that the byte counter does not see
LEAST = (1 - STEP_WIDTH) * STEPS[-1]
FELL = 1.1  # a port that once carried this many times its plateau has lost capacity since


class Capacity:
    """``slower`` (P,): inferred capacity in bits/s, nan where the reported one stands."""

    def __init__(self, fabric: Fabric, params: Params) -> None:
        self.fabric = fabric
        self.params = params
        self.slower: Floats = np.full(fabric.size, np.nan)
        self._ring = np.zeros((2 * params.plateau, fabric.size))
        self._level: Floats = np.full(
            fabric.size, np.nan
        )  # mean rate of the plateau, of which ``slower`` is the lower edge
        self._most: Floats = np.zeros(fabric.size)  # highest rate so far
        self._filled = 0
        self.flaps: Floats = np.zeros(fabric.size)  # 1 while a port's speed went away and came back not long ago
        self._speed = np.full(fabric.size, np.nan)
        self._changed = np.full((2, fabric.size), -np.inf)  # interval numbers of the last two changes of speed
        self._quiet = np.zeros(fabric.size, np.intp)

    def update(self, window: Window, total: Floats, shares: list[Shares]) -> None:
        """``total`` (P,): bits/s of the interval over all priorities; ``shares`` per data priority, already fed."""
        params, fabric = self.params, self.fabric
        self._ring[:-1] = self._ring[1:]
        self._ring[-1] = total
        self._filled += 1
        self._follow_speed(window)
        self._most = np.fmax(self._most, total)
        with np.errstate(invalid="ignore"):
            above = self._ring[-2:].mean(axis=0) > (1 + 3 * params.flat) * self._level
            below = total < 0.8 * self._level
        self._quiet = np.where(below, self._quiet + 1, 0)
        self.slower[above | (self._quiet > params.gap)] = np.nan
        if self._filled < params.plateau:
            return
        nominal = np.where(np.isnan(window.rate_bps), fabric.rate, window.rate_bps)
        recent = self._ring[-params.plateau :]
        mean, spread = recent.mean(axis=0), recent.std(axis=0)
        with np.errstate(invalid="ignore"):
            low = (mean < 0.9 * nominal) & (mean > LEAST * nominal) & ~fabric.is_host
            flat = low & (spread < params.flat * mean)
            fell = low & self._fell(nominal)
        suspects = np.flatnonzero((flat | fell) & self._strained(shares))
        order = np.argsort(spread[suspects] / mean[suspects])
        for port in suspects[order[: params.most_facts]].tolist():
            if self._capped(port, shares, nominal, fell=bool(fell[port])):
                self.slower[port], self._level[port] = recent[:, port].min(), mean[port]

    def _fell(self, nominal: Floats) -> npt.NDArray[np.bool_]:
        """(P,): ports that carried more before and are level at a step now.

        Level: the bytes counted never stray far from a straight line. That bears packets (and readings) that fall into the
        interval before or after, which a spread of rates does not.
        """
        if self._filled < len(self._ring):
            return np.zeros(self.fabric.size, np.bool_)
        mean = self._ring.mean(axis=0)
        stray = np.abs(np.cumsum(self._ring - mean, axis=0)).max(axis=0)
        fell: npt.NDArray[np.bool_] = (stray < self.params.stray * mean) & (self._most > FELL * mean)
        return fell & _at_step(mean, nominal)

    def _strained(self, shares: list[Shares]) -> npt.NDArray[np.bool_]:
        """(P,): ports of switches that hold some feeder up, or may do so unseen."""
        fabric = self.fabric
        switches = np.zeros(len(fabric.node_guids), np.bool_)
        for s in shares:
            waits = s.newest_stall()[:-1]
            switches[fabric.node[fabric.peer[np.isnan(waits) | (waits >= self.params.main_stall)]]] = True
        out: npt.NDArray[np.bool_] = switches[fabric.node]
        return out

    def _follow_speed(self, window: Window) -> None:
        """A flap is a second change of speed, or a link-downed count, within ``depth`` intervals."""
        with np.errstate(invalid="ignore"):
            changed = (window.rate_bps != self._speed) & ~np.isnan(window.rate_bps)
        first = np.isnan(self._speed) & (window.rate_bps >= 0.95 * np.nan_to_num(self.fabric.rate))
        changed &= ~first
        self._speed = np.where(np.isnan(window.rate_bps), self._speed, window.rate_bps)
        self._changed[0, changed] = self._changed[1, changed]
        self._changed[1, changed] = self._filled
        downed = window.rate("link_downed")
        recent = self._changed[0] > self._filled - self.params.depth
        if downed is not None:
            self._changed[1, np.nan_to_num(downed).max(axis=1) > 0] = self._filled
            recent |= (self._changed[1] > self._filled - self.params.depth) & (np.nan_to_num(downed).max(axis=1) > 0)
        self.flaps[:] = recent

    def _capped(self, port: int, shares: list[Shares], nominal: Floats, *, fell: bool) -> bool:
        """Do several feeders vary much more than their sum, and wait (or, where waits are invisible, at a step of speeds)?"""
        params = self.params
        parts = [s.feeders(port, params.plateau) for s in shares]
        flow = np.concatenate([flow for flow, _ in parts])
        waits = np.concatenate([wait for _, wait in parts])
        mean = flow.mean(axis=1)
        total = mean.sum()
        if total <= 0 or total**2 < 1.5 * float((mean**2).sum()):
            return False
        spread = float(self._ring[-params.plateau :, port].std())
        parts_spread = float(np.sqrt((flow.std(axis=1) ** 2).sum()))
        main = mean > 0.05 * total
        if bool((np.nan_to_num(waits[main]).min(axis=1) >= params.main_stall).any()):
            return fell or parts_spread > 10 * spread
        if not np.isnan(waits[main]).any() or self._filled < len(self._ring):
            return False
        long = self._ring[:, port]
        steady = bool(long.std() < 0.2 * params.flat * long.mean()) and parts_spread > 20 * spread
        return fell or (steady and bool(_at_step(long.mean(), nominal[port])))


def _at_step(rate: Floats, nominal: Floats) -> npt.NDArray[np.bool_]:
    """Is a rate what a link carries that fell back?"""
    steps = np.multiply.outer(np.array(STEPS), nominal)
    near: npt.NDArray[np.bool_] = (np.abs(rate - steps) < STEP_WIDTH * steps).any(axis=0)
    return near

"""Congestion marks (CE, FECN) on what leaves an egress, by the queue it leaves behind."""

from __future__ import annotations

import numpy as np

from fabricd.flow.controls import Controls
from fabricd.flow.counters import Counters
from fabricd.flow.graph import IntArray


class Marker:
    """RED-like: nothing below kmin, probability rising to pmax at kmax, everything above."""

    def __init__(self, controls: Controls, counters: Counters, mtu_bytes: int, rng: np.random.Generator) -> None:
        self.controls, self.counters, self.mtu_bytes, self.rng = controls, counters, mtu_bytes, rng

    def mark(self, port: IntArray, lane: IntArray, queue: IntArray, size: IntArray) -> IntArray:
        """Packets marked in each departing quantum of ``size`` bytes; counts them and their time in congestion."""
        c = self.controls
        low, high, top = c.ecn_kmin[port, lane], c.ecn_kmax[port, lane], c.ecn_pmax[port, lane]
        marks = np.zeros(len(port), dtype=np.int64)
        hit = np.flatnonzero((queue > low) & (top > 0))
        if len(hit):
            span = np.maximum(high[hit] - low[hit], 1.0)
            chance = np.where(queue[hit] >= high[hit], 1.0, top[hit] * (queue[hit] - low[hit]) / span)
            marks[hit] = self.rng.binomial(-(-size[hit] // self.mtu_bytes), chance)
            self.counters.ecn_marked[port[hit], lane[hit]] += marks[hit]
            self.counters.time_congested_ns[port[hit], lane[hit]] += size[hit] / c.rate[port[hit]] * 1e9
        return marks

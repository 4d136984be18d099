"""Which lane a free port serves next: strict part, weighted part, and the high table's byte limit."""

from __future__ import annotations

import numpy as np

from fabricd.flow.controls import Controls
from fabricd.flow.graph import BoolArray, FloatArray, IntArray


class LaneArbiter:
    """Start-time fair queueing over lanes. P ports, V lanes. Serves both VL arbitration tables and ETS shares."""

    def __init__(self, ports: int, lanes: int, controls: Controls) -> None:
        self.controls = controls
        self.finish: FloatArray = np.zeros((ports, lanes))
        self.clock: FloatArray = np.zeros(ports)
        self.high_sent: FloatArray = np.zeros(ports)  # bytes of the high table since a low lane was last served

    def choose(self, port: IntArray, ready: BoolArray, size: float) -> IntArray:
        """Lane for each of ``port`` (distinct); ``ready`` [n, V] has at least one schedulable lane a row."""
        lane: IntArray = ready.argmax(axis=1)
        contested = np.flatnonzero(ready.sum(axis=1) > 1)
        if not len(contested):
            return lane
        p, choice = port[contested], ready[contested]
        c = self.controls
        high, low = choice & (c.high_weight[p] > 0), choice & (c.low_weight[p] > 0)
        use_high = high.any(axis=1) & (~low.any(axis=1) | (self.high_sent[p] < c.high_limit[p]))
        pool = np.where(use_high[:, None], high, low)
        weight = np.where(use_high[:, None], c.high_weight[p], c.low_weight[p])
        start = np.maximum(self.finish[p], self.clock[p][:, None])
        picked = np.where(pool, start, np.inf).argmin(axis=1)
        rows = np.arange(len(p))
        begin = start[rows, picked]
        self.clock[p] = begin
        self.finish[p, picked] = begin + size / np.maximum(weight[rows, picked], 1e-9)
        self.high_sent[p] = np.where(use_high, self.high_sent[p] + size, 0.0)
        lane[contested] = picked
        return lane

"""Endpoints as receivers: most take everything at once, some drain slowly or not at all and fill their buffer."""

from __future__ import annotations

import numpy as np

from fabricd.flow.controls import Controls
from fabricd.flow.graph import BoolArray, FloatArray, Graph, IntArray


class Receivers:
    """Receive buffers of slow hosts. H endpoints, V lanes."""

    def __init__(self, graph: Graph, controls: Controls, lanes: int) -> None:
        self.graph, self.controls, self.lanes = graph, controls, lanes
        self.held: IntArray = np.zeros((len(graph.endpoints), lanes), dtype=np.int64)
        self._budget: FloatArray = np.zeros(len(graph.endpoints))
        self.slow: IntArray = np.zeros(0, dtype=np.int64)

    def refresh(self) -> None:
        """Follow changed drain rates and storms; a host that recovered is emptied once more."""
        c = self.controls
        self.slow = np.flatnonzero(np.isfinite(c.drain) | c.storm | (self.held.sum(axis=1) > 0))

    def absorb(self, endpoint: IntArray, lane: IntArray, size: IntArray) -> BoolArray | None:
        """Keep what arrives at slow hosts; which arrivals that are, None when no host is slow."""
        if not len(self.slow):
            return None
        slow = np.isfinite(self.controls.drain[endpoint]) | self.controls.storm[endpoint]
        self.held[endpoint[slow], lane[slow]] += size[slow]
        return slow

    def drain(self, seconds: float) -> tuple[IntArray, IntArray, IntArray]:
        """Let slow hosts take bytes for ``seconds``; returns (port, lane, bytes) of what they took."""
        hosts = self.slow
        held = self.held[hosts]
        total = held.sum(axis=1)
        rate = np.where(self.controls.storm[hosts], 0.0, np.minimum(self.controls.drain[hosts], 1e15))
        self._budget[hosts] += rate * seconds
        take = np.minimum(total, self._budget[hosts].astype(np.int64))
        self._budget[hosts] = np.where(take == total, 0.0, self._budget[hosts] - take)
        share = take / np.maximum(total, 1)  # as floats: the product of two stretched byte counts leaves 64 bits
        taken = np.where((take == total)[:, None], held, np.floor(held * share[:, None]).astype(np.int64))
        rest = take - taken.sum(axis=1)
        taken[np.arange(len(hosts)), held.argmax(axis=1)] += rest
        taken = np.clip(taken, 0, held)
        self.held[hosts] = held - taken
        host, lane = np.nonzero(taken)
        ports = self.graph.endpoints[hosts[host]]
        self.slow = hosts[np.isfinite(self.controls.drain[hosts]) | self.controls.storm[hosts]]
        return ports, lane, taken[host, lane]

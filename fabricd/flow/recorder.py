"""Watches a running model and keeps, per window, who waited for whom: exact state, not counters.

Rows are port * V + lane. ``Recorder`` samples the switch memory a few dozen times a window: for every sender that is held
while it has data, the bytes its peer keeps for it are split by the egress they wait for.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from fabricd.flow.engine import Engine
from fabricd.flow.fabric import FlowModel
from fabricd.flow.graph import BoolArray, FloatArray, IntArray


@dataclass(frozen=True, slots=True)
class Pairs:
    """Sparse sums: ``a``, ``b`` index pairs (sorted, distinct) and their ``value``."""

    a: IntArray
    b: IntArray
    value: FloatArray

    @classmethod
    def total(cls, keys: list[IntArray], values: list[FloatArray], span: int) -> Pairs:
        """Sum values of equal keys ``a * span + b``."""
        if not keys:
            none = np.zeros(0, dtype=np.int64)
            return cls(none, none, np.zeros(0))
        distinct, place = np.unique(np.concatenate(keys), return_inverse=True)
        sums: FloatArray = np.bincount(place, weights=np.concatenate(values), minlength=len(distinct)).astype(
            np.float64
        )
        return cls(distinct // span, distinct % span, sums)


@dataclass(frozen=True, slots=True)
class Window:
    """One observation window. Times in nanoseconds of waiting within it."""

    end_s: float
    length_s: float
    wait_ns: FloatArray  # [P * V]
    paused_ns: FloatArray  # [P * V]
    tx_bytes: IntArray  # [P * V] in the window
    drops: IntArray  # [P * V] packets in the window
    rate: FloatArray  # [P] bytes per second at its end
    link_up: BoolArray  # [P]
    queue: IntArray  # [P * V] bytes at its end
    blame: Pairs  # waiting row -> blocking row, ns
    stuck: Pairs  # waiting row -> flow that has data there, ns
    crossed: Pairs  # port -> flow, bytes
    active_ns: Pairs  # 0 -> flow, time with data offered and not delivered


class Recorder:
    """Attach before the first step; call ``close_window`` at each window's end."""

    def __init__(self, model: FlowModel, window_s: float, samples: int = 25) -> None:
        engine = model.engine
        self.model, self.engine, self.window_s = model, engine, window_s
        self.every = max(1, int(window_s / engine.dt / samples))
        v, graph = model.settings.lanes, model.graph
        p = len(graph.ports)
        self.rows = p * v
        self.peer_row: IntArray = (graph.peer[:, None] * v + np.arange(v)).reshape(-1)
        self.to_host: BoolArray = np.repeat(graph.endpoint_of[graph.peer] >= 0, v)
        self.windows: list[Window] = []
        self._begin = 0.0
        counters = engine.counters
        self._wait = counters.xmit_wait_ns.copy()
        self._paused = counters.paused_ns.copy()
        self._tx = counters.tx_bytes.copy()
        self._drops = counters.drops.copy()
        self._blame: tuple[list[IntArray], list[FloatArray]] = ([], [])
        self._stuck: tuple[list[IntArray], list[FloatArray]] = ([], [])
        self._crossed: tuple[list[IntArray], list[FloatArray]] = ([], [])
        self._active: FloatArray = np.zeros(0)
        engine.watcher = self

    def sent(self, port: IntArray, flow: IntArray, size: IntArray) -> None:
        """Every departure: who crosses which port."""
        self._crossed[0].append(port << 32 | flow)
        self._crossed[1].append(size.astype(float))

    def slot(self, engine: Engine, waiting: BoolArray) -> None:
        """Sample the memory of the switches whose senders wait."""
        if engine.slot % self.every:
            return
        ns = self.every * engine.dt * 1e9
        flows = engine.flows
        if len(self._active) < flows.n:
            self._active = np.concatenate([self._active, np.zeros(flows.n - len(self._active))])
        self._active[: flows.n] += (flows.offered > flows.delivered) * ns
        held = waiting.reshape(-1)
        if not held.any():
            return
        queues = engine.queues
        alive = np.flatnonzero(queues.row >= 0)
        row, up = queues.row[alive], self.peer_row[queues.source[alive]]
        self._sample_blame(row, up, queues.size[alive], held, ns)
        inside = held[row]
        lanes = self.model.settings.lanes
        nic = np.flatnonzero(flows.backlog > 0)
        lane = self.engine.controls.lane_of[flows.port[nic], self.model.graph.width, flows.sl[nic]]
        nic_row = flows.port[nic] * lanes + np.minimum(lane, lanes - 1)
        nic_held = held[nic_row]
        pairs = np.concatenate(
            [row[inside] << 32 | queues.flow[alive[inside]], nic_row[nic_held] << 32 | nic[nic_held]]
        )
        pairs = np.unique(pairs)
        self._stuck[0].append(pairs)
        self._stuck[1].append(np.full(len(pairs), ns))

    def _sample_blame(self, row: IntArray, up: IntArray, size: IntArray, held: BoolArray, ns: float) -> None:
        blocked = held[up]
        if blocked.any():
            up, row, weight = up[blocked], row[blocked], size[blocked].astype(float)
            total = np.bincount(up, weights=weight, minlength=self.rows)
            self._blame[0].append(up << 32 | row)
            self._blame[1].append(ns * weight / total[up])
        by_host = np.flatnonzero(held & self.to_host)
        if len(by_host):
            self._blame[0].append(by_host << 32 | self.peer_row[by_host])
            self._blame[1].append(np.full(len(by_host), ns))

    def close_window(self) -> Window:
        """Finish the window that began at the last call."""
        counters, model = self.engine.counters, self.model
        now = self.engine.now
        span = 1 << 32
        active = np.flatnonzero(self._active)
        window = Window(
            end_s=now,
            length_s=max(now - self._begin, self.engine.dt),
            wait_ns=(counters.xmit_wait_ns - self._wait).reshape(-1),
            paused_ns=(counters.paused_ns - self._paused).reshape(-1),
            tx_bytes=(counters.tx_bytes - self._tx).reshape(-1),
            drops=(counters.drops - self._drops).reshape(-1),
            rate=model.controls.rate.copy(),
            link_up=model.controls.link_up.copy(),
            queue=self.engine.queues.bytes.copy(),
            blame=Pairs.total(*self._blame, span),
            stuck=Pairs.total(*self._stuck, span),
            crossed=Pairs.total(*self._crossed, span),
            active_ns=Pairs(np.zeros(len(active), dtype=np.int64), active, self._active[active]),
        )
        self._wait, self._paused = counters.xmit_wait_ns.copy(), counters.paused_ns.copy()
        self._tx, self._drops = counters.tx_bytes.copy(), counters.drops.copy()
        self._blame, self._stuck, self._crossed = ([], []), ([], []), ([], [])
        self._active = np.zeros(self.engine.flows.n)
        self._begin = now
        self.windows.append(window)
        return window

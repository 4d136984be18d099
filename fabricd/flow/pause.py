"""Link-level flow control: Ethernet pause by priority from shared ingress buffers, and InfiniBand credits per VL.

Both answer one question for the sender side of a cable: may (port, lane) send? ``blocked`` is that answer.
"""

from __future__ import annotations

import numpy as np

from fabricd.flow.controls import Controls
from fabricd.flow.counters import Counters
from fabricd.flow.graph import BoolArray, FloatArray, Graph, IntArray
from fabricd.flow.settings import FabricSettings


def headroom_of(graph: Graph, settings: FabricSettings) -> FloatArray:
    """[P] bytes an ingress can still receive after it asked for pause."""
    given = settings.buffers.headroom_bytes
    quanta = 5 * settings.quantum_bytes * settings.slowdown
    if given is not None:
        return np.full(len(graph.ports), max(given * settings.slowdown, quanta))
    return 2 * graph.delay * settings.slowdown * graph.rate + quanta


class PauseControl:
    """PFC. P ports, V lanes. XOFF when the shared part of an ingress passes its threshold, XON when it has drained."""

    def __init__(self, graph: Graph, settings: FabricSettings, controls: Controls) -> None:
        buffers, slow = settings.buffers, settings.slowdown
        p, v = len(graph.ports), settings.lanes
        self.controls = controls
        self.node_of, self.nodes = graph.node_of, len(graph.guids)
        self.rate, self.peer = graph.rate, graph.peer
        self.on_switch = graph.is_switch[graph.node_of]
        self.headroom = headroom_of(graph, settings)
        self.reserve = buffers.reserve_bytes * slow
        nominal = 2 * graph.delay * graph.rate + 5 * settings.mtu_bytes
        taken = np.bincount(graph.node_of, weights=nominal + buffers.reserve_bytes, minlength=self.nodes)
        pool = (buffers.pool_bytes - taken) * slow
        quantum = settings.quantum_bytes * slow
        if buffers.xoff_bytes is None and float(pool[graph.is_switch].min(initial=np.inf)) < 16 * quantum:
            raise ValueError("switch memory is too small for its ports: raise pool_bytes or lower quantum_bytes")
        self.pool = pool
        self.alpha = 0.5**buffers.alpha_shift
        self.fixed = None if buffers.xoff_bytes is None else float(buffers.xoff_bytes * slow)
        host = buffers.host_bytes * slow if buffers.host_bytes is not None else 12 * quantum
        self.host_threshold = float(host)
        # a switch lets go a little below its threshold, an adapter at half of its own
        self.resume = np.where(self.on_switch, buffers.resume_offset_bytes * slow, self.host_threshold / 2)[:, None]
        self.asking: BoolArray = np.zeros((p, v), dtype=bool)  # this ingress holds its peer in XOFF
        self.frozen: FloatArray = np.full((p, v), np.inf)  # shared bytes when XOFF was sent
        self.blocked: BoolArray = np.zeros((p, v), dtype=bool)  # this egress is held
        self.threshold: FloatArray = np.full(p, np.inf)
        self.used: FloatArray = np.zeros((p, v))
        self._seen: IntArray = np.zeros((p, v), dtype=np.int64)
        self._evaluate_threshold()

    def _evaluate_threshold(self) -> None:
        if self.fixed is not None:
            self.threshold[:] = np.where(self.on_switch, self.fixed, self.host_threshold)
            return
        shared = np.minimum(self.used, self.frozen).sum(axis=1)
        per_node = np.bincount(self.node_of, weights=shared, minlength=self.nodes)
        left = np.maximum(self.pool - per_node, 0.0)
        self.threshold[:] = np.where(self.on_switch, left[self.node_of] * self.alpha, self.host_threshold)

    def evaluate(self, ingress: IntArray, storm_ports: IntArray) -> tuple[IntArray, IntArray]:
        """Rows (ingress * V + lane) that now send XOFF, and rows that now send XON."""
        np.maximum(ingress.reshape(self.asking.shape) - self.reserve, 0.0, out=self.used)
        self._evaluate_threshold()
        limit = self.threshold[:, None]
        on = self.controls.pfc_on
        change = ingress.reshape(self.asking.shape) - self._seen
        np.copyto(self._seen, ingress.reshape(self.asking.shape))
        # as switches do: an arrival may ask for pause, a departure may end it; a threshold that moves alone does neither
        ask = (self.used >= limit) & (change > 0)
        full = (self.used > self.frozen) | (self.used + self.resume > limit)
        want = (ask | (self.asking & (self.used > 0) & (full | (change >= 0)))) & on
        if len(storm_ports):
            want[storm_ports] |= on[storm_ports]
        changed = want != self.asking
        if not changed.any():
            return _NO_ROWS, _NO_ROWS
        rise = np.flatnonzero(changed & want)
        fall = np.flatnonzero(changed & ~want)
        self.asking = want
        self.frozen.reshape(-1)[rise] = self.used.reshape(-1)[rise]
        self.frozen.reshape(-1)[fall] = np.inf
        return rise, fall

    def repeat(self, seconds: float, counters: Counters) -> None:
        """Count the frames that renew a pause before its quanta (65535 x 512 bit times) run out; half that is usual."""
        port, lane = np.nonzero(self.asking)
        frames = seconds * self.rate[port] / (65535 * 64 / 2)
        counters.pfc_tx[port, lane] += frames
        counters.pfc_rx[self.peer[port], lane] += frames

    def overflow(self, row: IntArray, ingress: IntArray, size: IntArray) -> BoolArray:
        """Which arrivals do not fit: lossy lanes at the threshold, lossless ones past their headroom."""
        port = row // self.asking.shape[1]
        level = np.minimum(self.frozen.reshape(-1)[row], self.threshold[port])
        room = np.where(self.controls.pfc_on.reshape(-1)[row], self.headroom[port] + level, level) + self.reserve
        over: BoolArray = ingress[row] + size > room
        return over


class CreditControl:
    """InfiniBand: bytes of receive buffer per (sending port, VL), given back when a quantum leaves that buffer."""

    def __init__(self, graph: Graph, settings: FabricSettings) -> None:
        quantum = int(settings.quantum_bytes * settings.slowdown)
        given = settings.buffers.vl_bytes
        size = 10 * quantum if given is None else int(given * settings.slowdown)
        if size < 2 * quantum:
            raise ValueError("vl_bytes must hold at least two quanta")
        self.quantum = quantum
        self.capacity: IntArray = np.full((len(graph.ports), settings.lanes), size, dtype=np.int64)
        self.credits: IntArray = self.capacity.copy()

    @property
    def blocked(self) -> BoolArray:
        """[P, V] fewer credits than a full quantum."""
        return self.credits < self.quantum


_NO_ROWS: IntArray = np.zeros(0, dtype=np.int64)

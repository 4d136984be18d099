"""The clockwork: one slot moves at most one quantum per port.

A slot lasts three quarters of the time the fastest port needs for a quantum. In it, every port that is free, allowed by flow
control and has something queued sends one quantum; slower ports stay busy for several slots (their finish times are
kept exactly). All ports are handled together as arrays, so a slot costs tens of microseconds whatever the load.
"""

from __future__ import annotations

from typing import Protocol

import numpy as np

from fabricd.flow.arbiter import LaneArbiter
from fabricd.flow.controls import Controls
from fabricd.flow.counters import Counters
from fabricd.flow.graph import BoolArray, FloatArray, Graph, IntArray
from fabricd.flow.marking import Marker
from fabricd.flow.pause import CreditControl, PauseControl
from fabricd.flow.queues import Queues
from fabricd.flow.rate_control import RateControl
from fabricd.flow.receivers import Receivers
from fabricd.flow.routing import Routes, spread
from fabricd.flow.settings import DROP_LANE, FabricSettings
from fabricd.flow.sources import Flows
from fabricd.flow.wire import Wire


class Watcher(Protocol):
    """Sees every slot (the truth recorder)."""

    def sent(self, port: IntArray, flow: IntArray, size: IntArray) -> None: ...

    def slot(self, engine: Engine, waiting: BoolArray) -> None: ...


class Engine:
    """State and one-slot step. P ports, V lanes; rows are port * V + lane."""

    def __init__(self, graph: Graph, settings: FabricSettings, controls: Controls, routes: Routes, seed: int) -> None:
        p, v = len(graph.ports), settings.lanes
        self.graph, self.settings, self.controls, self.routes = graph, settings, controls, routes
        self.rng = np.random.default_rng(seed)
        self.quantum = int(settings.quantum_bytes * settings.slowdown)
        self.dt = 0.75 * self.quantum / float(graph.rate.max())
        self.slot = 0
        fifo = (settings.arbiter or ("fifo" if settings.kind == "ethernet" else "round_robin")) == "fifo"
        self.queues = Queues(p, v, graph.width, fifo)
        self.flows = Flows()
        self.cc = RateControl(settings.cc, settings.slowdown)
        self.counters = Counters.zeros(p, v)
        self.arbiter = LaneArbiter(p, v, controls)
        self.marker = Marker(controls, self.counters, settings.mtu_bytes, self.rng)
        self.credit = CreditControl(graph, settings) if settings.kind == "infiniband" else None
        self.pause = None if self.credit else PauseControl(graph, settings, controls)
        self.receivers = Receivers(graph, controls, v)
        travel = (graph.delay + settings.mtu_bytes / graph.rate) * settings.slowdown
        self.hops: IntArray = np.maximum(1, np.rint(travel / self.dt)).astype(np.int64)  # [P] slots on the cable
        self.wire = Wire(self.hops, graph.peer, v)
        self.free_at: FloatArray = np.zeros(p)
        self.limit_at: FloatArray = np.zeros(controls.rate_limit.shape)
        self.fixed_path: IntArray | None = None  # [F, N] egress position per flow and node, -1 = by the tables
        self.watcher: Watcher | None = None
        life = settings.head_of_queue_life_s if settings.kind == "infiniband" else None
        self._lifetime = np.inf if life is None else life * settings.slowdown
        self._held_since: FloatArray = np.full(p * v, np.inf)
        self.completed: list[tuple[float, IntArray]] = []
        self._tick_slots = max(1, int(min(4e-6, settings.cc.increase_timer_s / 4) * settings.slowdown / self.dt))
        self.refresh_controls()

    @property
    def now(self) -> float:
        return self.slot * self.dt

    def refresh_controls(self) -> None:
        """Call after a control was written: derived arrays follow."""
        c = self.controls
        self._schedulable = (c.low_weight > 0) | (c.high_weight > 0)
        self.receivers.refresh()
        self._storm_ports = self.graph.endpoints[c.storm]
        self._limited = bool(np.isfinite(c.rate_limit).any())
        self._any_adaptive = bool(c.adaptive.any())
        self._all_up = bool(c.link_up.all())
        self.flows.dirty = True

    # ---------------------------------------------------------------- one slot

    def step(self) -> None:
        """Advance one slot."""
        wire, now = self.wire, self.now
        place = wire.place(self.slot)
        if self.credit is not None:
            flat = self.credit.credits.reshape(-1)
            for rows, sizes in wire.credits[place]:
                np.add.at(flat, rows, sizes)
            wire.credits[place].clear()
        for rows, state in wire.pauses[place]:
            self._hear_pause(rows, state)
        wire.pauses[place].clear()
        for arrival in wire.arrivals[place]:
            self._arrive(*arrival)
        wire.arrivals[place].clear()
        for flows in wire.notices[place]:
            self._notify(flows, now)
        wire.notices[place].clear()
        if len(self.receivers.slow):
            self._drain_hosts()
        if self.cc.active and self.slot % self._tick_slots == 0:
            self.cc.tick(now)
        if self.pause is not None:
            self._ask_for_pause(self.pause)
        self._send(now)
        self.slot += 1

    def _hear_pause(self, rows: IntArray, state: bool) -> None:
        assert self.pause is not None
        self.pause.blocked.reshape(-1)[rows] = state
        if state:
            self.counters.pfc_rx.reshape(-1)[rows] += 1

    def _ask_for_pause(self, pause: PauseControl) -> None:
        rise, fall = pause.evaluate(self.queues.ingress, self._storm_ports)
        if len(rise):
            self.counters.pfc_tx.reshape(-1)[rise] += 1
            self.wire.pause(self.slot, rise, True)
        if len(fall):
            self.counters.pfc_xon_tx.reshape(-1)[fall] += 1
            self.wire.pause(self.slot, fall, False)

    def _drain_hosts(self) -> None:
        """Slow hosts take bytes out of their receive buffer; credits or room follow."""
        hosts, v = self.receivers.slow, self.settings.lanes
        port, lane, taken = self.receivers.drain(self.dt)
        rows = self.graph.endpoints[hosts][:, None] * v + np.arange(v)
        self.queues.ingress[rows] = self.receivers.held[hosts]
        if self.credit is not None and len(port):
            self.wire.give_back(self.slot, port, lane, taken)

    def cable_bytes(self) -> IntArray:
        """[P, V] bytes on the cable leaving each port."""
        return self.wire.bytes_on_cables()

    # ---------------------------------------------------------------- arrivals

    def _arrive(
        self, port: IntArray, lane: IntArray, flow: IntArray, size: IntArray, sl: IntArray, ce: IntArray
    ) -> None:
        if not self._all_up:
            up = self.controls.link_up[port]
            if not up.all():
                self._discard(port[~up], lane[~up], flow[~up], size[~up])
                port, lane, flow, size, sl, ce = port[up], lane[up], flow[up], size[up], sl[up], ce[up]
        packets = -(-size // self.settings.mtu_bytes)
        counters = self.counters
        counters.rx_bytes[port, lane] += size
        counters.rx_pkts[port, lane] += packets
        counters.sl_rx_bytes[port, sl] += size
        endpoint = self.graph.endpoint_of[port]
        at_host = endpoint >= 0
        if at_host.any():
            self._deliver(
                port[at_host], lane[at_host], flow[at_host], size[at_host], sl[at_host], ce[at_host], endpoint[at_host]
            )
        transit = ~at_host
        if transit.any():
            self._forward(port[transit], lane[transit], flow[transit], size[transit], sl[transit], ce[transit])

    def _forward(
        self, port: IntArray, lane: IntArray, flow: IntArray, size: IntArray, sl: IntArray, ce: IntArray
    ) -> None:
        v = self.settings.lanes
        source = port * v + lane
        node = self.graph.node_of[port]
        local = self._route(node, flow, sl)
        egress = self.graph.node_ports[node, local]
        out_lane = self.controls.lane_of[egress, self.graph.local[port], sl]
        bad = (local < 0) | (out_lane == DROP_LANE)
        if self.pause is not None:
            bad |= self.pause.overflow(source, self.queues.ingress, size)
        if not self._all_up:
            bad |= ~self.controls.link_up[egress]
        if bad.any():
            self._discard(port[bad], lane[bad], flow[bad], size[bad])
            good = ~bad
            port, egress, out_lane = port[good], egress[good], out_lane[good]
            source, flow, size, sl, ce = source[good], flow[good], size[good], sl[good], ce[good]
        position = self.graph.local[port]
        stamp = (self.slot << 8) | ((position * 5 + self.slot) & 255)
        self.queues.push(egress * v + out_lane, position, source, (flow, size, sl, ce), stamp)

    def _route(self, node: IntArray, flow: IntArray, sl: IntArray) -> IntArray:
        flows, routes = self.flows, self.routes
        dst = flows.dst[flow]
        if self.settings.kind == "ethernet":
            pick = spread(flows.hash[flow], node, routes.count[node, dst])
            local = routes.sets[node, dst, pick]
        else:
            local = routes.lft[node, dst]
        if self.fixed_path is not None:
            fixed = self.fixed_path[flow, node]
            local = np.where(fixed >= 0, fixed, local)
        if self._any_adaptive:
            free = np.flatnonzero(self.controls.adaptive[sl])
            if len(free):
                members = routes.sets[node[free], dst[free]]
                ports = self.graph.node_ports[node[free][:, None], members]
                v = self.settings.lanes
                load = (
                    self.queues.bytes.reshape(-1, v).sum(axis=1)[ports] + self.rng.random(members.shape) * self.quantum
                )
                load = np.where((members >= 0) & self.controls.link_up[ports], load, np.inf)
                best = np.take_along_axis(members, load.argmin(axis=1)[:, None], axis=1)[:, 0]
                local[free] = best
        return local

    def _deliver(
        self,
        port: IntArray,
        lane: IntArray,
        flow: IntArray,
        size: IntArray,
        sl: IntArray,
        ce: IntArray,
        endpoint: IntArray,
    ) -> None:
        flows = self.flows
        np.add.at(flows.delivered, flow, size)
        done = flow[flows.delivered[flow] >= flows.watch[flow]]
        if len(done):
            self.completed.append((self.now, np.unique(done)))
        marked = ce > 0
        if marked.any():
            self.counters.ce_rx[port[marked]] += ce[marked]
            self.counters.sl_fecn[port[marked], sl[marked]] += ce[marked]
            self._send_notices(port[marked], flow[marked])
        slow = self.receivers.absorb(endpoint, lane, size)
        if self.credit is not None:
            fast = ~slow if slow is not None else slice(None)
            self.wire.give_back(self.slot, port[fast], lane[fast], size[fast])

    def _send_notices(self, port: IntArray, flow: IntArray) -> None:
        if not self.cc.active:
            return
        self.cc.resize(self.flows.n)
        wait = self.cc.settings.cnp_interval_s * self.settings.slowdown
        due = self.now - self.cc.last_notice[flow] >= wait
        if due.any():
            flow, port = flow[due], port[due]
            self.cc.last_notice[flow] = self.now
            self.counters.cnp_tx[port] += 1
            self.wire.notify(self.slot, flow)

    def _notify(self, flow: IntArray, now: float) -> None:
        flow = np.unique(flow)
        np.add.at(self.counters.cnp_rx, self.flows.port[flow], 1)
        np.add.at(self.counters.sl_becn, (self.flows.port[flow], self.flows.sl[flow]), 1)
        self.cc.notify(flow, now)

    def _discard(self, port: IntArray, lane: IntArray, flow: IntArray, size: IntArray) -> None:
        """Lost quanta are counted where they died and offered again by their source, as a reliable transport does."""
        np.add.at(self.counters.drops, (port, lane), -(-size // self.settings.mtu_bytes))
        np.add.at(self.flows.lost, flow, size)
        np.add.at(self.flows.backlog, flow, size)
        self.flows.next_ok[flow] = self.now + self.settings.retry_timeout_s * self.settings.slowdown
        if self.credit is not None:
            self.wire.give_back(self.slot, port, lane, size)

    def purge(self, port: int) -> None:
        """Discard everything queued at an egress whose link went down."""
        v = self.settings.lanes
        for row in range(port * v, port * v + v):
            while self.queues.count[row]:
                self._drop_heads(np.array([row]))

    def _drop_heads(self, row: IntArray) -> IntArray:
        """Discard the next quantum of each egress row; returns the packets lost per row."""
        v, queues = self.settings.lanes, self.queues
        slot = queues.pop(row, queues.pick(row), self.slot)
        source, size, flow = queues.source[slot], queues.size[slot], queues.flow[slot]
        packets = -(-size // self.settings.mtu_bytes)
        self.counters.drops.reshape(-1)[row] += packets
        np.add.at(self.flows.lost, flow, size)
        np.add.at(self.flows.backlog, flow, size)
        self.flows.next_ok[flow] = self.now + self.settings.retry_timeout_s * self.settings.slowdown
        if self.credit is not None:
            self.wire.give_back(self.slot, source // v, source % v, size)
        return packets

    def _expire_heads(self, waiting: BoolArray) -> None:
        """InfiniBand's head-of-queue lifetime: what could not leave for that long is discarded."""
        held = waiting.reshape(-1) & (self.queues.count > 0)
        self._held_since = np.where(held, np.minimum(self._held_since, self.now), np.inf)
        row = np.flatnonzero(self.now - self._held_since >= self._lifetime)
        if len(row):
            packets = self._drop_heads(row)
            np.add.at(self.counters.hoq_discards, row // self.settings.lanes, packets)

    # ---------------------------------------------------------------- departures

    def _blocked(self) -> BoolArray:
        if self.credit is not None:
            return self.credit.blocked
        assert self.pause is not None
        return self.pause.blocked & self.controls.pfc_on

    def _send(self, now: float) -> None:
        v, flows = self.settings.lanes, self.flows
        if flows.dirty:
            lane = self.controls.lane_of[flows.port, self.graph.width, flows.sl]
            flows.regroup(np.where(lane == DROP_LANE, -1, lane), v)
        blocked = self._blocked()
        queued = (self.queues.count > 0).reshape(blocked.shape)
        rows, flow_of_row = flows.candidates(now)
        if self._limited and len(rows):
            open_ = self.limit_at[flows.src[flow_of_row], flows.sl[flow_of_row]] <= now
            rows, flow_of_row = rows[open_], flow_of_row[open_]
        queued.reshape(-1)[rows] = True
        allowed = queued & ~blocked & self._schedulable
        free = self.free_at <= now
        if not self._all_up:
            queued &= self.controls.link_up[:, None]
            free &= self.controls.link_up
        port = np.flatnonzero(free & allowed.any(axis=1))
        if len(port):
            lane = self.arbiter.choose(port, allowed[port], float(self.quantum))
            row = port * v + lane
            host = self.graph.endpoint_of[port] >= 0
            chosen = np.zeros(len(port), dtype=np.int64)
            if host.any():
                table = self._flow_table(rows, flow_of_row)
                chosen[host] = table[row[host]]
            self._depart(port, lane, row, host, chosen, now)
        self._account(blocked, queued, free, port)

    def _flow_table(self, rows: IntArray, flow_of_row: IntArray) -> IntArray:
        table = np.zeros(self.queues.count.shape, dtype=np.int64)
        table[rows] = flow_of_row
        return table

    def _depart(
        self, port: IntArray, lane: IntArray, row: IntArray, host: BoolArray, flow: IntArray, now: float
    ) -> None:
        flows, queues, counters = self.flows, self.queues, self.counters
        n = len(port)
        size, sl, ce = np.zeros(n, dtype=np.int64), np.zeros(n, dtype=np.int64), np.zeros(n, dtype=np.int64)
        if host.any():
            f = flow[host]
            take = np.minimum(flows.backlog[f], self.quantum)
            flows.backlog[f] -= take
            flows.sent[f] += take
            flows.last[f] = self.slot + 1
            size[host], sl[host] = take, flows.sl[f]
            self._pace(f, take, port[host], now)
        inner = ~host
        if inner.any():
            p, r = port[inner], row[inner]
            voq = queues.pick(r)
            slot = queues.pop(r, voq, self.slot)
            size[inner], sl[inner] = queues.size[slot], queues.sl[slot]
            flow[inner], ce[inner] = queues.flow[slot], queues.ce[slot]
            if self.credit is not None:
                source = queues.source[slot]
                v = self.settings.lanes
                self.wire.give_back(self.slot, source // v, source % v, size[inner])
            ce[inner] += self.marker.mark(p, lane[inner], queues.bytes[r], size[inner])
        start = np.where(self.free_at[port] > now - self.dt, self.free_at[port], now)
        self.free_at[port] = start + size / self.controls.rate[port]
        if self.credit is not None:
            self.credit.credits[port, lane] -= size
        counters.tx_bytes[port, lane] += size
        counters.tx_pkts[port, lane] += -(-size // self.settings.mtu_bytes)
        counters.sl_tx_bytes[port, sl] += size
        self.wire.send(self.slot, port, (lane, flow, size, sl, ce))
        if self.watcher is not None:
            self.watcher.sent(port, flow, size)

    def _pace(self, flow: IntArray, size: IntArray, port: IntArray, now: float) -> None:
        flows = self.flows
        if self.cc.active:
            self.cc.resize(flows.n)
            rate = self.cc.rate[flow] * self.controls.rate[port]
            flows.next_ok[flow] = np.where(flows.next_ok[flow] > now - self.dt, flows.next_ok[flow], now) + size / rate
        if self._limited:
            src, sl = flows.src[flow], flows.sl[flow]
            limit = self.controls.rate_limit[src, sl]
            hold = size / limit  # a bucket one quantum deep
            self.limit_at[src, sl] = np.maximum(self.limit_at[src, sl], now - hold) + hold

    def _account(self, blocked: BoolArray, queued: BoolArray, free: BoolArray, sent: IntArray) -> None:
        """Waiting and pause times of this slot."""
        ns = self.dt * 1e9
        counters = self.counters
        counters.paused_ns[blocked] += ns
        waiting = blocked & queued
        if waiting.any():
            counters.xmit_wait_ns[waiting] += ns
            free[sent] = False
            counters.port_wait_ns[free & waiting.any(axis=1)] += ns
        if self._lifetime < np.inf:
            self._expire_heads(waiting)
        if self.pause is not None and self.settings.pause_refresh and self.pause.asking.any():
            self.pause.repeat(self.dt, counters)
        np.maximum(counters.queue_max, self.queues.bytes.reshape(blocked.shape), out=counters.queue_max)
        if self.watcher is not None:
            self.watcher.slot(self, waiting)

"""The fabric as its users drive it: advance time, read counters, pull levers, offer load.

Ports are named by ``(GUID, port)`` or by their index in ``graph.ports``; endpoints are numbered NIC ports. All setters
act on the next slot. Nothing here reads a clock, a file or a socket, and one seed gives one history.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Sequence
from functools import partial
from typing import Protocol

import numpy as np

from fabricd.errors import UsageError
from fabricd.flow.controls import apply_ecn, default_controls
from fabricd.flow.counters import Counters, wait_ticks
from fabricd.flow.engine import Engine
from fabricd.flow.graph import IntArray, compile_graph
from fabricd.flow.messages import Message, MessageLog
from fabricd.flow.rate_control import RateControl
from fabricd.flow.routing import Routes, minimal_routes
from fabricd.flow.settings import SL_COUNT, CcSettings, EcnSettings, FabricSettings
from fabricd.model.topology import PortRef, Topology


class Workload(Protocol):
    """Offers load. ``poll`` is called once per slot with the model time; ``completed`` with messages that arrived."""

    def start(self, model: FlowModel) -> None: ...

    def poll(self, model: FlowModel, now: float) -> None: ...

    def completed(self, model: FlowModel, messages: Sequence[Message]) -> None: ...


class FlowModel:
    """A running fabric. ``routes`` None: minimal hops over what is up, renewed after link changes (``auto_reroute``)."""

    def __init__(
        self,
        topology: Topology,
        settings: FabricSettings | None = None,
        routes: Routes | None = None,
        seed: int = 0,
        keep_messages: bool = True,
        serial_messages: bool = False,
    ) -> None:
        self.settings = settings or FabricSettings()
        self.graph = compile_graph(topology, self.settings.link_delay_s)
        self.controls = default_controls(self.graph, self.settings)
        self.auto_reroute = routes is None
        self.engine = Engine(self.graph, self.settings, self.controls, routes or minimal_routes(self.graph), seed)
        self.rng = np.random.default_rng((seed, 1))
        self.messages = MessageLog(keep_messages, serial_messages)
        self.link_events: list[tuple[float, int, float]] = []  # (time, port index, bytes/s) as devices report them
        self._workloads: list[Workload] = []
        self._agenda: list[tuple[float, int, Callable[[], None]]] = []
        self._tickets = 0
        self._target = 0.0

    # ---------------------------------------------------------------- reading

    @property
    def time_s(self) -> float:
        """Model time that ``step`` calls have asked for so far."""
        return self._target

    @property
    def counters(self) -> Counters:
        return self.engine.counters

    @property
    def routes(self) -> Routes:
        return self.engine.routes

    @property
    def endpoints(self) -> int:
        return len(self.graph.endpoints)

    def queue_bytes(self) -> IntArray:
        """[P, V] bytes queued at each egress now."""
        return self.engine.queues.bytes.reshape(-1, self.settings.lanes)

    def ingress_bytes(self) -> IntArray:
        """[P, V] bytes held for each ingress now (of a slow host: its receive buffer)."""
        return self.engine.queues.ingress.reshape(-1, self.settings.lanes)

    def xmit_wait_ticks(self, tick_bytes: int = 8) -> IntArray:
        """[P] PortXmitWait in ticks of ``tick_bytes`` bytes of port time."""
        return wait_ticks(self.counters.port_wait_ns, self.graph.rate, tick_bytes)

    def xmit_wait_lane_ticks(self, tick_bytes: int = 8) -> IntArray:
        """[P, V] PortVLXmitWait in ticks."""
        return wait_ticks(self.counters.xmit_wait_ns, self.graph.rate[:, None], tick_bytes)

    def reported_gbps(self, port: int) -> float:
        """The rate the device shows: nominal when a degradation hides itself, 0 when the link is down."""
        if not self.controls.link_up[port]:
            return 0.0
        rate = self.controls.rate[port] if self.controls.reported[port] else self.graph.rate[port]
        return float(rate) / 1.25e8

    def lft(self, switch: int) -> dict[int, int]:
        """Forwarding table of a switch (GUID): endpoint -> physical port number; unreachable endpoints are absent."""
        node = self._node(switch)
        entries = self.routes.lft[node]
        return {
            h: self.graph.ports[self.graph.node_ports[node, local]][1]
            for h, local in enumerate(entries.tolist())
            if local >= 0
        }

    # ---------------------------------------------------------------- time

    def step(self, dt_s: float) -> None:
        """Advance by ``dt_s`` seconds of model time (whole slots; the remainder is carried over)."""
        if dt_s < 0:
            raise UsageError(f"step of {dt_s} s: time does not run backwards")
        before = self._target
        self._target += dt_s
        engine, slot_s = self.engine, self.engine.dt
        while (engine.slot + 1) * slot_s <= self._target + slot_s * 1e-6:
            now = engine.now
            while self._agenda and self._agenda[0][0] <= now:
                heapq.heappop(self._agenda)[2]()
            for workload in self._workloads:
                workload.poll(self, now)
            engine.step()
            if engine.completed:
                self._settle()
        if self.controls.symbol_rate.any():
            expected = self.controls.symbol_rate * (self._target - before)
            errors = self.rng.poisson(expected)
            self.counters.symbol_errors += errors
            self.counters.rcv_errors += self.rng.binomial(errors, 0.3)

    def _settle(self) -> None:
        for when, flows in self.engine.completed:
            closed = self.messages.settle(self.engine.flows, flows, when)
            if self.messages.serial:
                acknowledged = when + self.engine.wire.notice_slots / 2 * self.engine.dt
                for flow in flows.tolist():
                    self.at(acknowledged, partial(self._begin_next, flow))
            if closed:
                for workload in self._workloads:
                    workload.completed(self, closed)
        self.engine.completed.clear()

    def at(self, when_s: float, action: Callable[[], None]) -> None:
        """Do ``action`` in the slot that begins at or after model time ``when_s``."""
        self._tickets += 1
        heapq.heappush(self._agenda, (when_s, self._tickets, action))

    # ---------------------------------------------------------------- load

    def attach(self, workload: Workload) -> None:
        """Start a workload now."""
        self._workloads.append(workload)
        workload.start(self)

    def detach(self, workload: Workload) -> None:
        """Stop a workload; what it has offered is still sent."""
        self._workloads.remove(workload)

    def add_flow(self, src: int, dst: int, sl: int = 0) -> int:
        """A queue pair from endpoint ``src`` to ``dst`` on service level (traffic class) ``sl``; returns its id."""
        return int(self.add_flows([src], [dst], sl)[0])

    def add_flows(
        self, src: Sequence[int] | IntArray, dst: Sequence[int] | IntArray, sl: int | Sequence[int] = 0
    ) -> IntArray:
        """Several queue pairs at once. Raises UsageError for an endpoint that is not there or talks to itself."""
        s, d = np.asarray(src, dtype=np.int64), np.asarray(dst, dtype=np.int64)
        if len(s) and (min(s.min(), d.min()) < 0 or max(s.max(), d.max()) >= self.endpoints):
            raise UsageError(f"flow endpoint outside 0..{self.endpoints - 1}")
        if (s == d).any():
            raise UsageError(f"endpoint {int(s[s == d][0])} cannot send to itself through the fabric")
        level = np.broadcast_to(np.asarray(sl, dtype=np.int64), s.shape)
        if len(s) and (level.min() < 0 or level.max() >= SL_COUNT):
            raise UsageError(f"service level outside 0..{SL_COUNT - 1}")
        hashes = self.rng.integers(0, 1 << 62, size=len(s))
        return self.engine.flows.add(s, d, level, self.graph.endpoints[s], hashes)

    def offer(self, flow: int, size: int) -> None:
        """Queue one message of ``size`` bytes on a flow. A queue pair that was idle starts at line rate."""
        if size <= 0:
            raise UsageError(f"message of {size} bytes")
        if self.engine.flows.backlog[flow] == 0:
            self._line_rate(flow)
        self.messages.offer(self.engine.flows, flow, int(size), self.engine.now)

    def _begin_next(self, flow: int) -> None:
        if self.messages.begin_next(self.engine.flows, flow, self.engine.now):
            self._line_rate(flow)

    def _line_rate(self, flow: int) -> None:
        if self.engine.cc.settings.kind == "dcqcn":
            self.engine.cc.resize(self.engine.flows.n)
            self.engine.cc.reset(np.array([flow]))

    def cancel(self, flow: int) -> None:
        """Forget what a flow has not sent yet (its job ended)."""
        flows = self.engine.flows
        flows.offered[flow] -= flows.backlog[flow]
        flows.backlog[flow] = 0

    # ---------------------------------------------------------------- routing

    def _node(self, guid: int) -> int:
        node = self.graph.node_index.get(guid)
        if node is None or not self.graph.is_switch[node]:
            raise UsageError(f"0x{guid:016x} is not a switch of this fabric")
        return node

    def set_lft(self, switch: int, endpoint: int, port: int | None) -> None:
        """One forwarding-table entry: ``switch`` GUID, physical ``port`` number (None or an uncabled port: unreachable)."""
        found = None if port is None else self.graph.index.get((switch, port))
        self.routes.set_entry(self._node(switch), endpoint, -1 if found is None else int(self.graph.local[found]))

    def set_route_set(self, switch: int, endpoint: int, ports: Sequence[int]) -> None:
        """The equal-cost (or adaptive) set of physical egress ports of ``switch`` towards ``endpoint``."""
        members = [int(self.graph.local[self.graph.port(switch, port)]) for port in ports]
        self.routes.set_members(self._node(switch), endpoint, members)

    def set_adaptive(self, sl: int, on: bool) -> None:
        """Adaptive routing for one service level."""
        self.controls.adaptive[sl] = on
        self.engine.refresh_controls()

    def reroute(self) -> None:
        """Recompute minimal routes over links that are up and not isolated."""
        self.engine.routes = minimal_routes(self.graph, self.controls.link_up & ~self.controls.isolated)

    # ---------------------------------------------------------------- QoS

    def set_sl2vl(self, ref: PortRef, table: Sequence[int], ingress: int | None = None) -> None:
        """SL to VL map of egress ``ref``; ``ingress`` is a physical port of the same switch (None: all, and injection)."""
        local = None if ingress is None else int(self.graph.local[self.graph.port(ref[0], ingress)])
        self.controls.set_sl2vl(self.graph.port(*ref), table, local)
        self.engine.refresh_controls()

    def set_vlarb(
        self, ref: PortRef, low: Sequence[tuple[int, int]], high: Sequence[tuple[int, int]] = (), high_limit: int = 0
    ) -> None:
        """VL arbitration tables of egress ``ref`` (see ``Controls.set_vlarb``)."""
        self.controls.set_vlarb(self.graph.port(*ref), low, high, high_limit)
        self.engine.refresh_controls()

    def set_ets(self, ref: PortRef, shares: Sequence[int], strict: Sequence[int] = ()) -> None:
        """ETS bandwidth shares (percent) of egress ``ref``."""
        self.controls.set_ets(self.graph.port(*ref), shares, strict)
        self.engine.refresh_controls()

    def set_pfc(self, ref: PortRef, prio: int, on: bool) -> None:
        """PFC of one priority on one port."""
        if not 0 <= prio < self.settings.lanes:
            raise UsageError(f"priority {prio} is not modelled (0..{self.settings.lanes - 1})")
        self.controls.set_pfc(self.graph.port(*ref), prio, on)
        self.engine.refresh_controls()

    def set_ecn(self, ref: PortRef | None, prio: int | None, kmin: float, kmax: float, pmax: float) -> None:
        """Marking of one port (None: all switch ports) and priority (None: all). Bytes as the operator writes them."""
        if ref is None:
            ports: list[int] = np.flatnonzero(self.graph.is_switch[self.graph.node_of]).tolist()
        else:
            ports = [self.graph.port(*ref)]
        slow = self.settings.slowdown
        for port in ports:
            self.controls.set_ecn(port, slice(None) if prio is None else prio, kmin * slow, kmax * slow, pmax)
        self.engine.refresh_controls()

    def set_cc(self, cc: CcSettings) -> None:
        """Source rate control and, on InfiniBand, the switches' marking threshold (0 off … 15 earliest)."""
        self.controls.cc = cc
        self.engine.cc = RateControl(cc, self.settings.slowdown)
        self.engine.cc.resize(self.engine.flows.n)
        if self.engine.credit is not None:
            kept = max(0.0, (16 - cc.threshold) / 16.0) if cc.kind == "ib_cc" and cc.threshold else None
            size = float(self.engine.credit.capacity.max()) / self.settings.slowdown
            profile = EcnSettings(enabled=False) if kept is None else None
            if profile is not None:
                apply_ecn(self.controls, self.graph, profile, self.settings.slowdown)
            elif kept is not None:
                self.set_ecn(None, None, kept * size, kept * size, 1.0 / (1 + cc.marking_rate))
        self.engine.refresh_controls()

    # ---------------------------------------------------------------- links and hosts

    def set_link(
        self,
        ref: PortRef,
        up: bool | None = None,
        rate_gbps: float | None = None,
        reported: bool = True,
        both: bool = True,
    ) -> None:
        """Change a cable: down or up, or its rate. ``reported`` False hides a degradation from what the device shows.

        ``both`` False changes only the direction that leaves ``ref`` (rates only; a link is up or down as a whole).
        """
        port = self.graph.port(*ref)
        ends = [port, int(self.graph.peer[port])]
        if rate_gbps is not None:
            if rate_gbps <= 0:
                raise UsageError(f"link rate {rate_gbps} Gb/s")
            for end in ends if both else ends[:1]:
                self.controls.rate[end] = min(rate_gbps * 1.25e8, float(self.graph.rate[end]))
                self.controls.reported[end] = reported
                if reported:
                    self._report(end)
        if up is not None:
            self._set_up(ends, up)
        self.engine.refresh_controls()

    def _set_up(self, ends: list[int], up: bool) -> None:
        for end in ends:
            if bool(self.controls.link_up[end]) == up:
                continue
            self.controls.link_up[end] = up
            if up:
                self.counters.symbol_errors[end] += int(self.rng.integers(1, 20))
                self.counters.link_recovers[end] += 1
            else:
                self.counters.link_downed[end] += 1
                self.engine.purge(end)
            self._report(end)
        self._schedule_reroute()

    def _report(self, end: int) -> None:
        rate = self.controls.rate[end] if self.controls.link_up[end] else 0.0
        self.link_events.append((self.engine.now, end, float(rate)))

    def _schedule_reroute(self) -> None:
        if self.auto_reroute:
            self.at(self.engine.now + self.settings.reroute_delay_s, self.reroute)

    def isolate(self, ref: PortRef, on: bool) -> None:
        """Keep a cable out of routes (or give it back) while its link stays up. With own routing it acts at once."""
        port = self.graph.port(*ref)
        self.controls.isolated[[port, int(self.graph.peer[port])]] = on
        if self.auto_reroute:
            self.reroute()

    def set_drain(self, endpoint: int, gbps: float | None) -> None:
        """How fast an endpoint empties its receive buffer; None = as fast as the wire brings it."""
        self.controls.drain[endpoint] = np.inf if gbps is None else max(gbps, 0.0) * 1.25e8
        self.engine.refresh_controls()

    def set_storm(self, endpoint: int, on: bool) -> None:
        """The endpoint asserts pause (or withholds credits) all the time."""
        self.controls.storm[endpoint] = on
        self.engine.refresh_controls()

    def set_rate_limit(self, endpoint: int, sl: int | None, gbps: float | None) -> None:
        """Injection limit of one endpoint and service level (None: all levels; None Gb/s: no limit)."""
        self.controls.rate_limit[endpoint, slice(None) if sl is None else sl] = (
            np.inf if gbps is None else gbps * 1.25e8
        )
        self.engine.refresh_controls()

    def set_symbol_errors(self, ref: PortRef, per_second: float) -> None:
        """Symbol errors a port receives per second of model time."""
        self.controls.symbol_rate[self.graph.port(*ref)] = per_second

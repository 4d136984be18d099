"""The flow model as the faces see it: a plan of rows, readings, levers. Times run with a wall clock, or as told.

Rows are all ports of all nodes, cabled or not; the model knows only cabled ones. Levers are checked here against
what the model can express, so that a face may hand over whatever its protocol allows.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from fabricd.flow.fabric import FlowModel
from fabricd.flow.graph import Graph
from fabricd.flow.settings import DROP_LANE, CcSettings
from fabricd.flow.staging import Scene
from fabricd.model.topology import SWITCH, PortRef, Topology
from fabricd.twin.face import (
    SERVICE_LEVELS,
    U64,
    Arbitration,
    Counters,
    Marking,
    Plan,
    PlanNode,
    SourceControl,
)

BYTES_PER_GBPS = 1.25e8
FRESH_S = 0.01  # a reading serves all faces for this long
PRIORITIES = 8  # that Ethernet standards speak of
KEPT_EVENTS = 1000


def plan_of(topology: Topology, graph: Graph, technology: str, lanes: int) -> tuple[Plan, NDArray[np.int64]]:
    """The plan of a topology, and the model's port index of each row (-1 = not cabled)."""
    nodes: list[PlanNode] = []
    nics: dict[str, int] = {}
    rows = 0
    tiers = _tiers(topology)
    for index, node in enumerate(topology.nodes.values()):
        host, nic, name = "", 0, node.name
        if node.type != SWITCH:
            host = node.host or node.name
            nic = nics.get(host, 0)
            nics[host] = nic + 1
            name = f"{host} mlx5_{nic}"
        kind: Literal["switch", "adapter"] = "switch" if node.type == SWITCH else "adapter"
        tier = tiers.get(node.guid, 0)
        nodes.append(PlanNode(index, kind, name, node.guid, node.num_ports, rows, host, nic, tier))
        rows += node.num_ports
    model_port = np.full(rows, -1, np.int64)
    for planned in nodes:
        for port in range(1, planned.ports + 1):
            model_port[planned.first_row + port - 1] = graph.index.get((planned.guid, port), -1)
    row_of = np.full(len(graph.ports), -1, np.int64)
    row_of[model_port[model_port >= 0]] = np.flatnonzero(model_port >= 0)
    peer = np.full(rows, -1, np.int32)
    gbps = np.full(rows, float(graph.rate.max()) / BYTES_PER_GBPS)
    cabled = model_port >= 0
    peer[cabled] = row_of[graph.peer[model_port[cabled]]]
    gbps[cabled] = graph.rate[model_port[cabled]] / BYTES_PER_GBPS
    plan = Plan(
        technology="infiniband" if technology == "infiniband" else "ethernet",
        nodes=tuple(nodes),
        row_node=np.array([n.index for n in nodes for _ in range(n.ports)], np.int32),
        row_port=np.array([port for n in nodes for port in range(1, n.ports + 1)], np.int32),
        row_peer=peer,
        row_gbps=gbps,
        lanes=lanes,
        fabric=topology.fabric,
    )
    return plan, model_port


def _tiers(topology: Topology) -> dict[int, int]:
    """Distance of each switch from the nearest adapter: 1 = leaf."""
    neighbours: dict[int, set[int]] = {guid: set() for guid in topology.nodes}
    for link in topology.links:
        neighbours[link.a[0]].add(link.b[0])
        neighbours[link.b[0]].add(link.a[0])
    ring = {guid for guid, node in topology.nodes.items() if node.type != SWITCH}
    tiers = dict.fromkeys(ring, 0)
    distance = 0
    while ring:
        distance += 1
        ring = {n for guid in ring for n in neighbours[guid] if n not in tiers}
        tiers.update(dict.fromkeys(ring, distance))
    return tiers


class World:
    """One scene behind the protocol of :mod:`fabricd.twin.face`. Not thread-safe: one loop steps it and pulls levers."""

    def __init__(self, scene: Scene) -> None:
        self.scene = scene
        self.model: FlowModel = scene.model
        settings = self.model.settings
        graph = self.model.graph
        self._plan, self._port = plan_of(graph.topology, graph, settings.kind, settings.lanes)
        self._cabled = self._port >= 0
        self._index = np.where(self._cabled, self._port, 0)
        self._peer_index = graph.peer[self._index]
        self._endpoint = np.array(
            [int(graph.endpoint_of[self._port[node.first_row]]) for node in self._plan.adapters], dtype=np.int64
        )
        self._reading: Counters | None = None
        self._reading_time = 0.0
        self._refresh = False
        self._cc: CcSettings | None = None
        self._disabled: set[int] = set()
        self._managed = False

    # -- reading -------------------------------------------------------------------------------------------------

    @property
    def plan(self) -> Plan:
        return self._plan

    @property
    def managed(self) -> bool:
        """Whether somebody outside programs the forwarding tables."""
        return self._managed

    def read(self) -> Counters:
        now = self.model.engine.now
        if self._reading is None or now - self._reading_time >= FRESH_S:
            self._reading = self._take()
            self._reading_time = now
        return self._reading

    def _rows(self, values: NDArray[np.generic]) -> U64:
        """Model array [P, …] to rows, rounded down; rows without a cable are zero."""
        out = np.asarray(values[self._index]).astype(np.uint64)
        out[~self._cabled] = 0
        return out

    def _take(self) -> Counters:
        model, counters = self.model, self.model.counters
        rows = self._rows
        queue = counters.queue_max.copy()
        counters.queue_max[:] = model.queue_bytes()
        peer_paused = np.asarray(counters.paused_ns[self._peer_index]).astype(np.uint64)
        peer_paused[~self._cabled] = 0
        controls = model.controls
        rate = np.where(controls.reported, controls.rate, model.graph.rate) / BYTES_PER_GBPS
        return Counters(
            tick=(self._reading.tick if self._reading is not None else 0) + 1,
            clock_ns=round(model.engine.now * 1e9),
            tx_bytes=rows(counters.tx_bytes),
            rx_bytes=rows(counters.rx_bytes),
            tx_packets=rows(counters.tx_pkts),
            rx_packets=rows(counters.rx_pkts),
            wait_ns=rows(counters.xmit_wait_ns),
            pause_rx_frames=rows(counters.pfc_rx),
            pause_tx_frames=rows(counters.pfc_tx),
            pause_rx_ns=rows(counters.paused_ns),
            pause_tx_ns=peer_paused,
            marked=rows(counters.ecn_marked),
            drops=rows(counters.drops),
            lane_congested_ns=rows(counters.time_congested_ns),
            queue_bytes=rows(queue),
            sl_tx_bytes=rows(counters.sl_tx_bytes),
            sl_rx_bytes=rows(counters.sl_rx_bytes),
            sl_fecn=rows(counters.sl_fecn),
            sl_becn=rows(counters.sl_becn),
            port_wait_ns=rows(counters.port_wait_ns),
            congested_ns=rows(counters.time_congested_ns.max(axis=1)),
            ce_rx=rows(counters.ce_rx),
            cnp_rx=rows(counters.cnp_rx),
            cnp_tx=rows(counters.cnp_tx),
            hoq_discards=rows(counters.hoq_discards),
            rcv_errors=rows(counters.rcv_errors),
            symbol_errors=rows(counters.symbol_errors),
            link_downed=rows(counters.link_downed),
            link_recovered=rows(counters.link_recovers),
            up=self._cabled & controls.link_up[self._index],
            gbps=np.where(self._cabled, rate[self._index], self._plan.row_gbps),
        )

    def pfc_on(self, rows: NDArray[np.int64]) -> NDArray[np.bool_]:
        """``[len(rows), lanes]``: priorities whose flow control is on."""
        return self.model.controls.pfc_on[self._index[rows]] & self._cabled[rows][:, None]

    @property
    def buffer_bytes(self) -> int:
        return self.model.settings.buffers.pool_bytes

    def pfc(self, row: int, priority: int) -> bool:
        return bool(self._cabled[row] and self.model.controls.pfc_on[self._port[row], priority])

    def shares(self, row: int) -> tuple[int, ...]:
        weights = self.model.controls.low_weight[self._index[row]]
        exact = weights * 100 / max(float(weights.sum()), 1e-9)
        shares = [int(share) for share in exact]
        shares[int(np.argmax(exact - np.array(shares)))] += 100 - sum(shares)
        return tuple(shares + [0] * (PRIORITIES - len(shares)))

    def marking(self, row: int, priority: int) -> Marking:
        controls, port, slow = self.model.controls, self._index[row], self.model.settings.slowdown
        return Marking(
            enabled=bool(controls.ecn_pmax[port, priority] > 0),
            kmin=round(float(controls.ecn_kmin[port, priority]) / slow),
            kmax=round(float(controls.ecn_kmax[port, priority]) / slow),
            pmax=float(controls.ecn_pmax[port, priority]),
        )

    def routes(self) -> NDArray[np.int16]:
        """``[switches, adapters]`` egress port numbers by the model's tables now."""
        graph, lft = self.model.graph, self.model.routes.lft
        numbers = np.array([number for _, number in graph.ports], dtype=np.int16)
        table = np.zeros((len(self._plan.switches), len(self._plan.adapters)), np.int16)
        for position, switch in enumerate(self._plan.switches):
            node = graph.node_index[switch.guid]
            local = lft[node, self._endpoint]
            port = graph.node_ports[node, np.maximum(local, 0)]
            table[position] = np.where(local >= 0, numbers[port], 0)
        return table

    # -- time ----------------------------------------------------------------------------------------------------

    def advance(self, seconds: float) -> None:
        """Let the fabric live on; levers pulled since the last call act from its first slot."""
        self._commit()
        self.model.step(seconds)
        for row in self._disabled:
            if self.model.controls.link_up[self._port[row]]:
                self.model.set_link(self._ref(row), up=False)
        del self.model.link_events[:-KEPT_EVENTS]

    def _commit(self) -> None:
        if self._cc is not None:
            self.model.set_cc(self._cc)
            self._cc = None
        if self._refresh:
            self.model.engine.refresh_controls()
            self._refresh = False

    # -- levers --------------------------------------------------------------------------------------------------

    def _ref(self, row: int) -> PortRef:
        node = self._plan.node_of(row)
        return node.guid, int(self._plan.row_port[row])

    def set_routes(self, switch: int, egress: NDArray[np.int16]) -> None:
        """A manager's table for one switch. From the first one on the model no longer finds routes by itself, and a table's
        entry is the only way (what spreads traffic adaptively is not in these tables, and managers that write them turn it off).
        """
        if not self._managed:
            self._managed = True
            self.model.auto_reroute = False
            self.model.controls.adaptive[:] = False
            self._refresh = True
        graph, routes = self.model.graph, self.model.routes
        planned = self._plan.switches[switch]
        node = graph.node_index[planned.guid]
        local = np.full(planned.ports + 1, -1, np.int64)
        for number in range(1, planned.ports + 1):
            port = graph.index.get((planned.guid, number))
            if port is not None:
                local[number] = graph.local[port]
        wanted = local[np.clip(egress, 0, planned.ports)]
        for endpoint, place in zip(self._endpoint.tolist(), wanted.tolist(), strict=True):
            if int(routes.lft[node, endpoint]) != place:
                routes.set_entry(node, endpoint, place)
                self._refresh = True

    def set_sl_to_vl(self, row: int, ingress: int, mapping: tuple[int, ...]) -> None:
        if not self._cabled[row]:
            return
        node = self._plan.node_of(row)
        graph, lanes = self.model.graph, self._plan.lanes
        if node.kind == "adapter":
            local = graph.width
        else:
            port = graph.index.get((node.guid, ingress))
            if port is None:
                return
            local = int(graph.local[port])
        table = [lane if lane == DROP_LANE or lane < lanes else lane % lanes for lane in mapping]
        self.model.controls.set_sl2vl(int(self._port[row]), table, local)
        self._refresh = True

    def set_arbitration(self, row: int, arbitration: Arbitration) -> None:
        if self._cabled[row]:
            self.model.controls.set_vlarb(
                int(self._port[row]), arbitration.low, arbitration.high, arbitration.high_limit
            )
            self._refresh = True

    def set_threshold(self, switch: int, threshold: int, marking_rate: int) -> None:
        """The model has one threshold for all switches: the last one written holds."""
        cc = self._cc or self.model.controls.cc
        self._cc = replace(cc, kind="ib_cc", threshold=threshold, marking_rate=marking_rate)

    def set_source_control(self, row: int, level: int, control: SourceControl) -> None:
        """The model has one rule for all sources: the last enabled one written holds."""
        if not control.enabled:
            return
        cc = self._cc or self.model.controls.cc
        self._cc = replace(
            cc,
            kind="ib_cc",
            ccti_increase=control.increase,
            ccti_limit=control.limit,
            ccti_min=control.minimum,
            ccti_timer_s=control.timer_us * 1e-6 or cc.ccti_timer_s,
            cct=control.table if any(control.table) else cc.cct,
        )

    def set_marking(self, row: int, priority: int, marking: Marking) -> None:
        if self._cabled[row] and priority < self._plan.lanes:
            top = marking.pmax if marking.enabled else 0.0
            slow = self.model.settings.slowdown
            self.model.controls.set_ecn(
                int(self._port[row]), priority, marking.kmin * slow, max(marking.kmin, marking.kmax) * slow, top
            )
            self._refresh = True

    def set_enabled(self, row: int, enabled: bool) -> None:
        if not self._cabled[row]:
            return
        if enabled:
            self._disabled.discard(row)
        else:
            self._disabled.add(row)
        both = enabled and int(self._plan.row_peer[row]) not in self._disabled
        self.model.set_link(self._ref(row), up=both)

    def set_isolated(self, row: int, isolated: bool) -> None:
        if self._cabled[row]:
            self.model.isolate(self._ref(row), isolated)

    def set_gbps(self, row: int, gbps: float) -> None:
        if self._cabled[row]:
            self.model.set_link(self._ref(row), rate_gbps=gbps)

    def set_pfc(self, row: int, priority: int, on: bool) -> None:
        if self._cabled[row] and priority < self._plan.lanes:
            self.model.controls.set_pfc(int(self._port[row]), priority, on)
            self._refresh = True

    def set_shares(self, row: int, shares: tuple[int, ...]) -> None:
        """What priorities the model does not have were given is spread over those it has."""
        if not self._cabled[row]:
            return
        lanes = self._plan.lanes
        kept = list(shares[:lanes]) + [0] * (lanes - len(shares))
        rest = 100 - sum(kept)
        kept[0] += rest
        self.model.controls.set_ets(int(self._port[row]), kept)
        self._refresh = True

    def set_service_level(self, rows: list[int], level: int) -> None:
        graph, flows = self.model.graph, self.model.engine.flows
        members = [int(graph.endpoint_of[self._port[row]]) for row in rows if self._cabled[row]]
        between = np.isin(flows.src, members) & np.isin(flows.dst, members)
        flows.sl[between] = level
        self._refresh = True

    def set_rate_limit(self, row: int, level: int | None, gbps: float | None) -> None:
        node = self._plan.node_of(row)
        if node.kind == "adapter" and self._cabled[row]:
            endpoint = int(self.model.graph.endpoint_of[self._port[row]])
            levels = slice(None) if level is None else level
            if level is None or level < SERVICE_LEVELS:
                self.model.controls.rate_limit[endpoint, levels] = np.inf if gbps is None else gbps * BYTES_PER_GBPS
                self._refresh = True

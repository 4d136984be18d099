"""History of counters as a trace: what the detector replays.

Ports are found in a topology (given, or the one the history itself tells of), counters become the detector's columns, ticks of
XmitWait become time. Routes nobody kept are all shortest paths, and the topology's node numbers are the trace's own.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence

import numpy as np
import numpy.typing as npt

from fabricd.errors import FabricdError
from fabricd.model.ident import format_guid
from fabricd.model.series import LINK_RATE, History, Owner, Series
from fabricd.model.topology import CA, SWITCH, Link, Node, PortRef, Topology
from fabricd.outputs.trace import CounterTable, NodeId, Trace
from fabricd.topology.assemble import Assembler
from fabricd.topology.load import complete
from fabricd.topology.minhop import assumed_routes
from fabricd.topology.routes import RouteTable
from fabricd.topology.speeds import LANE_GBPS, WIDTHS

Floats = npt.NDArray[np.float64]

TICK_BYTES = (
    8  # bytes of link time a tick of PortXmitWait on Quantum and later; ibdiagnet manual, "Congestion Assessment"
)
_LANE_TICK_BYTES = 32  # Switch-X, Switch-IB, Switch-IB 2: bytes a lane
_LANE_TICK_DEVICES = frozenset({0xC738, 0xCB20, 0xCF08})
_XDR_WRONG = 250.0 / 200.0  # exporters that take an XDR lane for 250 Gb/s

# Counter of the catalogue -> (column of the trace, factor to its unit). Waits become time by the link's rate.
COLUMNS: Mapping[str, tuple[str, float]] = {
    "port_transmit_data_bytes": ("tx_bytes", 1.0),
    "port_receive_data_bytes": ("rx_bytes", 1.0),
    "port_transmit_packets": ("tx_pkts", 1.0),
    "port_transmit_wait": ("xmit_wait_ns", 1.0),
    "priority_transmit_bytes": ("tx_bytes", 1.0),
    "priority_receive_bytes": ("rx_bytes", 1.0),
    "priority_transmit_packets": ("tx_pkts", 1.0),
    "pfc_receive_pause_duration": ("paused_ns", 1.0),
    "pfc_receive_frames": ("pfc_rx", 1.0),
    "pfc_transmit_frames": ("pfc_tx", 1.0),
    "global_pause_receive_duration": ("paused_ns", 1.0),
    "global_pause_receive_frames": ("pfc_rx", 1.0),
    "global_pause_transmit_frames": ("pfc_tx", 1.0),
    "link_downed": ("link_downed", 1.0),
    "link_down_events": ("link_downed", 1.0),
}


def build(history: History, topology: Topology | None = None, routes: RouteTable | None = None) -> Trace:
    """The trace of a history. ``topology`` goes before the cabling the history tells of; ``routes`` are over that topology.

    Raises FabricdError when there is no topology, or no counter of a port that is in it.
    """
    if topology is None:
        if not history.wires:
            raise FabricdError(
                "no cabling in these data: give it with --topology FILE (ibnetdiscover text or topology JSON)"
            )
        topology = topology_of(history)
    if not topology.links:
        raise FabricdError("the topology has no link")
    if routes is None:
        routes = assumed_routes(topology)
    finder = _Finder(topology)
    placed: list[tuple[PortRef, Series]] = []
    for series in history.series:
        ref = finder.find(series.owner)
        if ref is None:
            history.rejects.add("port_not_in_topology", _spoken(series.owner), series.counter)
        else:
            placed.append((ref, series))
    rates = _rates(topology)
    table = _table(placed, rates, topology)
    if not len(table):
        raise FabricdError(
            f"none of {len({series.owner for series in history.series})} ports with counters is a port of the topology"
        )
    speeds = _speeds(placed, rates)
    unknown = {ref for ref, series in placed if series.counter == "port_transmit_wait" and not rates[ref]}
    if unknown:
        history.notes.append(
            f"waits of {len(unknown)} ports: the speed of their links is not known, so ticks are no time"
        )
    for kind, count in topology.rejects.counts.items():
        history.rejects.counts[kind] += count
    return numbered(Trace(topology, routes, table, speeds, [], rejects=history.rejects, notes=list(history.notes)))


def topology_of(history: History) -> Topology:
    """The fabric the history's wires describe, speeds from the rates the ports report."""
    told: dict[PortRef, float] = {}
    for series in history.series:
        if series.counter == LINK_RATE and series.owner.guid is not None:
            told[series.owner.guid, series.owner.port] = max(series.values)
    build = Assembler("history")
    described = {wire.near[0] for wire in history.wires}
    for guid, kind, name in dict.fromkeys((w.near[0], w.near_type, w.near_name) for w in history.wires):
        build.node(guid, kind, name, full=False)
    for wire in history.wires:
        if wire.far[0] not in described:
            build.node(wire.far[0], wire.far_type, wire.far_name, full=False)
    for wire in history.wires:
        bps = wire.rate_bps or told.get(wire.near, 0.0) or told.get(wire.far, 0.0)
        width, speed = width_and_speed(bps / 1e9)
        build.half(wire.near, wire.far, width, speed)
    topology = build.finish()
    rates = {ref: _real(bps / 1e9) for ref, bps in told.items()}
    for link in topology.links:
        if not link.rate_gbps:
            link.rate_gbps = max(rates.get(link.a, 0.0), rates.get(link.b, 0.0))
    for fault in topology.faults:
        history.rejects.add(fault.kind, fault.detail, fault.where)
    return complete(topology)


def width_and_speed(gbps: float) -> tuple[int, str]:
    """Lanes and speed name of a rate an exporter prints: four lanes before others, XDR lanes also where they are taken for 250."""
    real = _real(gbps)
    for width in sorted(WIDTHS, key=lambda width: width != 4):
        for speed, lane in LANE_GBPS.items():
            if real and abs(lane * width / real - 1) < 0.001:
                return width, speed
    return 0, ""


def _real(gbps: float) -> float:
    """800 for the 1000 that some exporters print for four lanes of XDR; no other InfiniBand link has 250, 500, 1000, 2000, 3000."""
    return gbps / _XDR_WRONG if any(abs(gbps - 250 * width) < 1 for width in WIDTHS) else gbps


def _spoken(owner: Owner) -> str:
    return f"{format_guid(owner.guid) if owner.guid is not None else f'{owner.host} {owner.device}'}:{owner.port}"


class _Finder:
    """Ports of a topology by node GUID, port GUID, or host and device."""

    def __init__(self, topology: Topology) -> None:
        self.cabled = {ref for link in topology.links for ref in (link.a, link.b)}
        self.nodes = topology.nodes
        self.by_port_guid = {
            guid: (node.guid, port) for node in topology.nodes.values() for port, guid in node.port_guids.items()
        }
        self.by_name: dict[tuple[str, str], int] = {}
        for node in topology.nodes.values():
            for device in (node.labels.get("device"), node.labels.get("netdev")):
                if node.type != SWITCH and device:
                    self.by_name.setdefault((node.host or node.name, device), node.guid)
        adapters: dict[str, list[int]] = {}
        for node in topology.nodes.values():
            if node.type == CA:
                adapters.setdefault(node.host or node.name, []).append(node.guid)
        self.only = {host: guids[0] for host, guids in adapters.items() if len(guids) == 1}

    def find(self, owner: Owner) -> PortRef | None:
        if owner.guid is not None:
            own = owner.guid, owner.port
            ref = own if owner.guid in self.nodes else self.by_port_guid.get(owner.guid, (0, 0))
        else:
            guid = self._by_host(owner)
            ref = (guid, owner.port) if guid else (0, 0)
        return ref if ref in self.cabled else None

    def _by_host(self, owner: Owner) -> int:
        for host in dict.fromkeys((owner.host, owner.host.partition(".")[0])):
            guid = self.by_name.get((host, owner.device)) or self.only.get(host)
            if guid:
                return guid
        return 0


def _rates(topology: Topology) -> dict[PortRef, float]:
    return {ref: link.rate_gbps * 1e9 for link in topology.links for ref in (link.a, link.b)}


def _tick_bytes(node: Node, link: Link | None) -> float:
    if node.device_id in _LANE_TICK_DEVICES:
        return _LANE_TICK_BYTES * float(link.width if link is not None and link.width else 4)
    return TICK_BYTES


def _table(placed: Sequence[tuple[PortRef, Series]], rates: dict[PortRef, float], topology: Topology) -> CounterTable:
    """Readings of one port, priority and instant are one row. Where a port has priorities, its whole-port pauses are left out."""
    links = {ref: link for link in topology.links for ref in (link.a, link.b)}
    by_priority = any(series.prio is not None for _, series in placed)
    refs = sorted({ref for ref, _ in placed})
    number = {ref: i for i, ref in enumerate(refs)}
    times: list[npt.NDArray[np.int64]] = []
    cells: list[npt.NDArray[np.int64]] = []
    values: list[Floats] = []
    names: list[str] = []
    for ref, series in placed:
        if series.counter not in COLUMNS or (by_priority and series.prio is None):
            continue
        name, factor = COLUMNS[series.counter]
        if name == "xmit_wait_ns":
            node = topology.nodes[ref[0]]
            if node.type != SWITCH or not rates[ref]:
                continue
            factor = _tick_bytes(node, links.get(ref)) * 8e9 / rates[ref]
        at = np.frombuffer(series.t_ns, np.int64)
        cell = number[ref] * 256 + (series.prio if series.prio is not None else -1) + 1
        times.append(at)
        cells.append(np.full(len(at), cell, np.int64))
        values.append(np.frombuffer(series.values, np.float64) * factor)
        names.append(name)
    if not times:
        empty = np.zeros(0, np.int64)
        return CounterTable(empty, empty, empty, empty, {})
    at_all, cell_all = np.concatenate(times), np.concatenate(cells)
    order = np.lexsort((cell_all, at_all))
    first = np.r_[True, (np.diff(at_all[order]) != 0) | (np.diff(cell_all[order]) != 0)]
    row_of = np.empty(len(at_all), np.int64)
    row_of[order] = np.cumsum(first) - 1
    starts = order[first]
    columns: dict[str, Floats] = {name: np.full(len(starts), np.nan) for name in dict.fromkeys(names)}
    position = 0
    for name, part in zip(names, values, strict=True):
        columns[name][row_of[position : position + len(part)]] = part
        position += len(part)
    port_of = cell_all[starts] // 256
    nodes = np.array([ref[0] for ref in refs], np.uint64).view(np.int64)
    ports = np.array([ref[1] for ref in refs], np.int64)
    return CounterTable(at_all[starts], nodes[port_of], ports[port_of], cell_all[starts] % 256 - 1, columns)


def _speeds(placed: Sequence[tuple[PortRef, Series]], rates: dict[PortRef, float]) -> list[tuple[int, PortRef, float]]:
    """Changes of the speed ports report, the first reading included where it is not the cable's own."""
    out: list[tuple[int, PortRef, float]] = []
    for ref, series in placed:
        if series.counter == LINK_RATE:
            known = rates[ref]
            for t, value in zip(series.t_ns, series.values, strict=True):
                bps = _real(value / 1e9) * 1e9
                # Exporters differ in the encoding they take off: up to a thirtieth is no change of speed.
                if bps > 0 and abs(bps / known - 1 if known else 1.0) > 0.04:
                    out.append((t, ref, bps))
                    known = bps
    return sorted(out)


def numbered(trace: Trace) -> Trace:
    """The same trace with nodes numbered 1, 2, … and their GUIDs as the ids verdicts name."""
    guids = sorted(trace.topology.nodes)
    number = {guid: i + 1 for i, guid in enumerate(guids)}
    old = trace.topology
    nodes = {
        number[guid]: dataclasses.replace(
            node, guid=number[guid], port_guids={}, labels={**node.labels, "node_guid": format_guid(guid)}
        )
        for guid, node in sorted(old.nodes.items())
    }
    links = [
        dataclasses.replace(link, a=(number[link.a[0]], link.a[1]), b=(number[link.b[0]], link.b[1]))
        for link in old.links
    ]
    labels = {(number[guid], port): label for (guid, port), label in old.port_labels.items() if guid in number}
    topology = dataclasses.replace(old, nodes=nodes, links=links, rails=[], faults=[], port_labels=labels)
    guid_of_row = trace.counters.node.view(np.uint64)
    row = np.searchsorted(np.array(guids, np.uint64), guid_of_row).astype(np.int64) + 1
    arrays = trace.routes.arrays()
    return dataclasses.replace(
        trace,
        topology=topology,
        routes=RouteTable.restored(topology, renumbered_arrays(arrays, number)),
        counters=dataclasses.replace(trace.counters, node=row),
        link_state=[(t, (number[ref[0]], ref[1]), bps) for t, ref, bps in trace.link_state],
        ids=_ids(old, guids),
        host_of={number[guid]: node.host for guid, node in old.nodes.items() if node.host},
    )


def _ids(topology: Topology, guids: Sequence[int]) -> list[NodeId]:
    return [format_guid(guid) for guid in guids]


def renumbered_arrays(
    arrays: Mapping[str, npt.NDArray[np.generic]], number: Mapping[int, int]
) -> dict[str, npt.NDArray[np.generic]]:
    """A route table's arrays with other node numbers in the same order."""
    out = dict(arrays)
    for key in ("switches", "destinations"):
        out[key] = np.array([number[int(guid)] for guid in arrays[key]], np.uint64)
    return out

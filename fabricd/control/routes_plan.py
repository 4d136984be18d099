"""Balanced changes of forwarding tables, proved before anything is written: every destination reachable, no cycle of channels.

The ``file`` engine checks nothing, so loops and credit deadlocks would be ours. The proof follows the tables themselves: it needs no
assumption about the shape of the fabric.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
from scipy import sparse
from scipy.sparse.csgraph import connected_components

from fabricd.control.traffic import Traffic
from fabricd.model.topology import PortRef
from fabricd.topology.routes import ENDPOINT, LFT, RouteTable

Moves = dict[tuple[int, int], int]  # (switch GUID, destination index) -> egress port
Load = dict[PortRef, float]
MOST_MOVES = 16
BETTER = 0.02  # a move must lower the fullest port concerned by this share of its rate
FULL = 0.9  # above this the fullest port is worth relieving


@dataclass(slots=True)
class Plan:
    """``moves`` as above; ``peak_before`` and ``peak_after``: wanted load over rate of the fullest port concerned."""

    moves: Moves = field(default_factory=dict)
    peak_before: float = 0.0
    peak_after: float = 0.0

    def by_switch(self) -> dict[int, dict[int, int]]:
        out: dict[int, dict[int, int]] = {}
        for (switch, destination), port in self.moves.items():
            out.setdefault(switch, {})[destination] = port
        return out


def apply(routes: RouteTable, moves: Moves) -> RouteTable:
    """The table with the moves in it."""
    frame = routes.frame
    tables: dict[int, dict[PortRef, list[int]]] = {}
    for (switch, destination), port in moves.items():
        ref = (int(frame.destinations[destination]), int(frame.destination_ports[destination]))
        tables.setdefault(switch, {})[ref] = [port]
    return routes.with_tables(tables, LFT)


def prove(routes: RouteTable) -> list[str]:
    """What is wrong with a table, in words; empty when every route ends at its destination and channels form no cycle."""
    return _unreached(routes) or _cycles(routes)


def _unreached(routes: RouteTable) -> list[str]:
    """Every member of every set must lead nearer: followed hop by hop, all carried traffic arrives within as many hops as switches."""
    frame = routes.frame
    count = len(frame.switches)
    out: list[str] = []
    for column in range(len(frame.destinations)):
        home, door = int(frame.attach_switch[column]), int(frame.attach_port[column])
        carried = np.flatnonzero(routes.carried[:, column])
        edges: list[tuple[int, int]] = []
        for row in carried.tolist():
            ports = routes.set_of(int(routes.group[row, column])).tolist()
            if row == home:
                if ports != [door]:
                    out.append(f"switch {int(frame.switches[row]):#x} sends its own host's traffic to port {ports}")
                continue
            if not ports:
                out.append(f"no route from {int(frame.switches[row]):#x} to {int(frame.destinations[column]):#x}")
            for port in ports:
                peer = int(frame.peer_switch[row, port])
                if peer < 0:
                    out.append(f"{int(frame.switches[row]):#x} port {port} leads nowhere")
                else:
                    edges.append((row, peer))
        if edges:
            a, b = zip(*edges, strict=True)
            graph = sparse.csr_array((np.ones(len(a)), (a, b)), shape=(count, count))
            parts, _ = connected_components(graph, directed=True, connection="strong")
            if parts < count:
                out.append(f"routes to {int(frame.destinations[column]):#x} go round in a circle")
        if len(out) >= 5:
            break
    return out


def _cycles(routes: RouteTable) -> list[str]:
    """The channel dependency graph (egress -> next egress between switches) must have no cycle: then no buffers can wait in a ring."""
    frame, width = routes.frame, routes.frame.peer_switch.shape[1]
    edges: set[tuple[int, int]] = set()
    through = routes.through
    for row, ingress, egress in zip(
        through.switch.tolist(), through.ingress.tolist(), through.egress.tolist(), strict=True
    ):
        peer = int(frame.peer_switch[row, ingress])
        if peer == ENDPOINT or peer < 0 or frame.peer_switch[row, egress] < 0:
            continue
        edges.add((peer * width + int(frame.peer_port[row, ingress]), row * width + egress))
    if not edges:
        return []
    a, b = zip(*edges, strict=True)
    names, codes = np.unique(np.array([*a, *b]), return_inverse=True)
    half = len(a)
    graph = sparse.csr_array((np.ones(half), (codes[:half], codes[half:])), shape=(len(names), len(names)))
    parts, label = connected_components(graph, directed=True, connection="strong")
    if parts == len(names):
        return []
    most = int(np.bincount(label).argmax())
    ring = names[label == most]
    first = int(ring[0])
    return [
        f"{len(ring)} channels depend on each other in a circle, one of them "
        f"{int(frame.switches[first // width]):#x} port {first % width}"
    ]


def plan(
    routes: RouteTable, traffic: Traffic, root: PortRef, rates: Mapping[PortRef, float], *, empty: bool = False
) -> Plan:
    """Moves of destinations away from ``root`` that lower the fullest port concerned.

    ``empty``: move everything (the link is bad), else only until nothing gets better. ``rates`` bytes/s per egress port. Nothing is
    moved to a port whose rate is not known. The result is not yet proved.
    """
    load: Load = {}
    for number, path in enumerate(traffic.paths):
        for ref, share in path:
            load[ref] = load.get(ref, 0.0) + float(traffic.demand[number]) * share
    moves: Moves = {}
    wanted = _by_destination(routes, traffic, root)
    limit = rates.get(root, 0.0)
    before = after = load.get(root, 0.0) / limit if limit else float("inf")
    current = routes
    for column, _size in sorted(wanted.items(), key=lambda item: -item[1]):
        if len(moves) >= MOST_MOVES * (4 if empty else 1):
            break
        best: tuple[float, Moves, Load] | None = None
        for option in _options(current, traffic, root, column):
            shifted = _shift(apply(current, option), traffic, column, load)
            peak = max(
                (shifted[ref] / rates[ref] if rates.get(ref) else float("inf"))
                for ref in {root, *(r for r in shifted if shifted[r] > load.get(r, 0.0) + 1.0)}
                if not (empty and ref == root)
            )
            if best is None or peak < best[0]:
                best = (peak, option, shifted)
        if best is None:
            continue
        now = load.get(root, 0.0) / limit if limit else float("inf")
        if empty or (best[0] < now - BETTER and now > FULL):
            moves |= best[1]
            load, current = best[2], apply(current, best[1])
            after = best[0]
    return Plan(moves, before, after)


def _by_destination(routes: RouteTable, traffic: Traffic, root: PortRef) -> dict[int, float]:
    index = routes.frame.destination_index
    out: dict[int, float] = {}
    for number, share in traffic.over(root):
        column = index[traffic.pairs[number].dst]
        out[column] = out.get(column, 0.0) + float(traffic.demand[number]) * share
    return out


def _options(routes: RouteTable, traffic: Traffic, root: PortRef, column: int) -> list[Moves]:
    """Ways to lead one destination's traffic past the root: another port at its switch, else at the switches before it."""
    frame = routes.frame
    row = frame.switch_index[root[0]]
    local: list[Moves] = [{(root[0], column): port} for port in _others(routes, row, column, root)]
    if local:
        return local
    feeders = set()
    for number, _ in traffic.over(root):
        if frame.destination_index[traffic.pairs[number].dst] == column:
            feeders |= {ref[0] for ref, _ in traffic.paths[number] if ref[0] in frame.switch_index} - {root[0]}
    by_port: dict[int, Moves] = {}
    for guid in sorted(feeders):
        for port in _others(routes, frame.switch_index[guid], column, root):
            by_port.setdefault(port, {})[guid, column] = port
    return list(by_port.values())


def _others(routes: RouteTable, row: int, column: int, root: PortRef) -> list[int]:
    """Ports of a switch, other than its present one, whose neighbour leads to the destination without coming back or by the root."""
    frame = routes.frame
    present = set(routes.set_of(int(routes.group[row, column])).tolist())
    out = []
    for port in np.flatnonzero(frame.peer_switch[row] >= 0).tolist():
        if port in present or (int(frame.switches[row]), port) == root:
            continue
        if _leads(routes, int(frame.peer_switch[row, port]), column, {row}, root):
            out.append(port)
    return out


def _leads(routes: RouteTable, row: int, column: int, seen: set[int], root: PortRef) -> bool:
    frame = routes.frame
    while row not in seen:
        if row == int(frame.attach_switch[column]):
            return True
        seen = seen | {row}
        ports = routes.set_of(int(routes.group[row, column])).tolist()
        if not ports or (int(frame.switches[row]), ports[0]) == root:
            return False
        row = int(frame.peer_switch[row, ports[0]])
        if row < 0:
            return False
    return False


def _shift(routes: RouteTable, traffic: Traffic, column: int, load: Load) -> Load:
    """The load when all pairs to one destination follow ``routes``."""
    out = dict(load)
    index = routes.frame.destination_index
    for number, pair in enumerate(traffic.pairs):
        if index[pair.dst] != column:
            continue
        demand = float(traffic.demand[number])
        for ref, share in traffic.paths[number]:
            out[ref] = out.get(ref, 0.0) - demand * share
        out[pair.src] = out.get(pair.src, 0.0) + demand
        for row, port, share in routes.walk(index[pair.src], column):
            ref = (int(routes.frame.switches[row]), port)
            out[ref] = out.get(ref, 0.0) + demand * share
    return out

"""The fabric as arrays: every port an egress queue, every switch a small dense block of (ingress, egress) pairs.

Ports are numbered 0..P-1; index P is a spare slot that pads blocks and stands for "nothing there" (its values stay zero).
A port's traffic enters the switch at the other end of its cable, so the *ingress* of a switch slot is the peer's egress port.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt

from fabricd.model.topology import CA, ROUTER, SWITCH, Link, PortRef, Topology
from fabricd.topology.routes import AR, NO_ROUTE, RouteTable

Ints = npt.NDArray[np.intp]
Bools = npt.NDArray[np.bool_]
Floats = npt.NDArray[np.float64]
Floats32 = npt.NDArray[np.float32]


@dataclass(frozen=True, slots=True)
class Block:
    """Switches of one size class. B switches with R slots each; unused slots hold the spare index.

    ``out`` (B, R): egress port of slot; ``into`` (B, R): the port that feeds the slot (the cable's other end);
    ``allowed`` (B, R, R): may traffic that enters by slot i leave by slot o, by the routes.
    """

    switches: Ints
    out: Ints
    into: Ints
    allowed: Bools


class Fabric:
    """Built once per topology and route table; immutable.

    Attributes (P ports): ``ports`` [(GUID, port)], ``node`` (P,) node number, ``peer`` (P,) index of the cable's other end or P,
    ``is_host`` (P,) the port is an adapter's, ``to_host`` (P,) an adapter is at the other end, ``rate`` (P,) bits/s (nan unknown),
    ``adaptive`` (P,) the egress belongs to sets that spread packets.
    """

    def __init__(self, topology: Topology, routes: RouteTable, *, adaptive: bool = False) -> None:
        self.topology = topology
        self.routes = routes
        refs: list[PortRef] = []
        rate: list[float] = []
        for link in sorted(topology.links, key=lambda link: (link.a, link.b)):
            for ref in (link.a, link.b):
                refs.append(ref)
                rate.append(link.rate_gbps * 1e9 if link.rate_gbps > 0 else np.nan)
        self.ports = refs
        self.index: dict[PortRef, int] = {ref: i for i, ref in enumerate(refs)}
        count = len(refs)
        self.size = count
        self.rate: Floats = np.array(rate)
        self.peer: Ints = np.arange(count) ^ 1
        guids = sorted(topology.nodes)
        self.node_guids = guids
        number = {guid: i for i, guid in enumerate(guids)}
        self.node: Ints = np.array([number[guid] for guid, _ in refs], np.intp)
        ends = np.array([topology.nodes[guid].type in (CA, ROUTER) for guid in guids], np.bool_)
        self.is_switch_node: Bools = np.array([topology.nodes[guid].type == SWITCH for guid in guids], np.bool_)
        self.is_host: Bools = ends[self.node] if count else np.zeros(0, np.bool_)
        self.to_host: Bools = self.is_host[self.peer] if count else np.zeros(0, np.bool_)
        self._slots()
        self.blocks: list[Block] = self._blocks()
        by_set = np.array([source == AR for source in routes.sources], np.bool_)
        self.adaptive: Bools = np.zeros(count, np.bool_)
        switch_rows = self.switch_row >= 0
        self.adaptive[switch_rows] = adaptive | by_set[self.switch_row[switch_rows]]

    def _slots(self) -> None:
        """``switch_row`` (P,): row of the port's switch in the route table or -1; ``at`` (S, W): port index by (row, number)."""
        frame = self.routes.frame
        self.switch_row: Ints = np.full(self.size, -1, np.intp)
        at = np.full(frame.peer_switch.shape, self.size, np.intp)
        for i, (guid, port) in enumerate(self.ports):
            row = frame.switch_index.get(guid)
            if row is not None:
                self.switch_row[i] = row
                at[row, port] = i
        self.at: Ints = at

    def _blocks(self) -> list[Block]:
        through = self.routes.through
        spare = self.size
        peer = np.append(self.peer, spare)
        used = self.at < spare
        width = used.sum(axis=1)
        slot = np.cumsum(used, axis=1) - 1
        classes: dict[int, list[int]] = {}
        for row, ports in enumerate(width):
            if ports:
                classes.setdefault(1 << int(ports - 1).bit_length(), []).append(row)
        out: list[Block] = []
        for size, rows in sorted(classes.items()):
            members = np.array(rows, np.intp)
            ports = np.full((len(rows), size), spare, np.intp)
            where = np.full(len(self.at), -1, np.intp)
            where[members] = np.arange(len(rows))
            r, p = np.nonzero(used[members])
            ports[r, slot[members[r], p]] = self.at[members[r], p]
            allowed = np.zeros((len(rows), size, size), np.bool_)
            mine = where[through.switch] >= 0
            s, i, o = through.switch[mine], through.ingress[mine], through.egress[mine]
            allowed[where[s], slot[s, i], slot[s, o]] = True
            diagonal = np.arange(size)
            allowed[:, diagonal, diagonal] = False
            out.append(Block(members, ports, peer[ports], allowed))
        return out

    @cached_property
    def links(self) -> dict[PortRef, Link]:
        """The cable of each port."""
        return {ref: link for link in self.topology.links for ref in (link.a, link.b)}

    @cached_property
    def _places(self) -> npt.NDArray[np.intp]:
        places = np.full((self.size + 1, 3), -1, np.intp)
        for number, block in enumerate(self.blocks):
            row, slot = np.indices(block.out.shape)
            places[block.out.ravel(), 0] = number
            places[block.out.ravel(), 1] = row.ravel()
            places[block.out.ravel(), 2] = slot.ravel()
        places[self.size] = -1
        return places

    def place(self, port: int) -> tuple[int, int, int]:
        """(block number, row, slot) of a switch's egress port; -1s for an adapter's."""
        number, row, slot = self._places[port].tolist()
        return number, row, slot

    @cached_property
    def reach_class(self) -> Ints:
        """(P,): equal numbers = egress ports that lead to the same set of destinations; -1 where a port leads nowhere."""
        table = self.routes
        # A set of destinations is told by the sum of their random 64-bit numbers, so no set is ever written out.
        numbers = np.random.default_rng(1).integers(1, 1 << 63, len(table.destinations), dtype=np.uint64)
        digest = np.zeros(self.size + 1, np.uint64)
        for row in range(len(table.switches)):
            of_set = np.zeros(len(table.set_ptr) - 1, np.uint64)
            np.add.at(of_set, table.group[row], numbers)
            used = np.flatnonzero(of_set)
            used = used[used != NO_ROUTE]
            leads = table.member[used] * of_set[used][:, None]
            digest[self.at[row]] = leads.sum(axis=0, dtype=np.uint64)[: self.at.shape[1]]
        out = np.full(self.size, -1, np.intp)
        somewhere = np.flatnonzero(digest[:-1])
        out[somewhere] = np.unique(digest[somewhere], return_inverse=True)[1]
        return out

    def siblings(self, port: int) -> Ints:
        """Egress ports that could carry the same traffic: same switch first, else the same destinations from another switch."""
        mine = self.reach_class[port]
        if mine < 0 or self.to_host[port]:
            return np.zeros(0, np.intp)
        alike = np.flatnonzero((self.reach_class == mine) & ~self.to_host)
        alike = alike[alike != port]
        near: Ints = alike[self.node[alike] == self.node[port]]
        return near if near.size else alike

    def label(self, port: int) -> str:
        """``name:port`` of a port index."""
        guid, number = self.ports[port]
        return f"{self.topology.nodes[guid].name}:{number}"

"""Routes as sets of egress ports, in arrays: (switch, destination) -> id of a set of ports -> the ports.

One byte pair a (switch, destination): 1,000 switches x 5,000 hosts are 10 MB; it grows with the product, so 4,000 switches x 64,000
hosts need 512 MB (1 GB once more than 65,535 distinct sets exist and ids take four bytes). Equal sets share one id over all switches,
so the sets themselves stay small: a table of single-path routes has one set a port number.

Where a table comes from is said per switch (``sources``): ``lft`` linear forwarding tables, ``ar`` adaptive-routing groups, ``config``
written by people (RoCE), ``assumed`` every minimal-hop port, because nothing better was readable.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt

from fabricd.model.topology import CA, ROUTER, SWITCH, PortRef, Topology

LFT, AR, CONFIG, ASSUMED = "lft", "ar", "config", "assumed"
NO_PEER = -1  # peer_switch: nothing is connected there (or the peer is neither switch nor destination)
ENDPOINT = -2  # peer_switch: a host's adapter is connected there
NO_ROUTE = 0  # set id of the empty set: the destination is not reachable from that switch

U64 = npt.NDArray[np.uint64]
U16 = npt.NDArray[np.uint16]
I32 = npt.NDArray[np.int32]
F32 = npt.NDArray[np.float32]
Bools = npt.NDArray[np.bool_]
Ids = npt.NDArray[np.uint16] | npt.NDArray[np.uint32]
SwitchRoutes = Mapping[PortRef, Iterable[int]]  # destination (node GUID, port) -> egress ports


class Frame:
    """The axes of a route table, taken from a topology: switches, destinations, and what is behind each switch port.

    ``switches`` (S,) and ``destinations`` (D,) are node GUIDs, sorted; ``destination_ports`` (D,) the adapter's port.
    ``peer_switch`` (S, P) is the index of the neighbouring switch, ENDPOINT or NO_PEER; ``peer_port`` (S, P) its port;
    column 0 is the switch's management port and never used. Aggregation nodes are no destinations.
    """

    def __init__(self, topology: Topology) -> None:
        nodes = topology.nodes
        self.switches: U64 = np.array(sorted(g for g, n in nodes.items() if n.type == SWITCH), np.uint64)
        self.switch_index: dict[int, int] = {int(guid): i for i, guid in enumerate(self.switches)}
        ends: list[tuple[PortRef, PortRef]] = []  # (adapter port, switch port)
        fabric: list[tuple[PortRef, PortRef]] = []
        for link in topology.links:
            for near, far in ((link.a, link.b), (link.b, link.a)):
                if far[0] not in self.switch_index:
                    continue
                if near[0] in self.switch_index:
                    fabric.append((near, far))
                elif near[0] in nodes and nodes[near[0]].type in (CA, ROUTER):
                    ends.append((near, far))
        ends.sort()
        ports = [ref[1] for pair in fabric for ref in pair] + [far[1] for _, far in ends]
        width = max(ports, default=0) + 1
        self.destinations: U64 = np.array([near[0] for near, _ in ends], np.uint64)
        self.destination_ports: U16 = np.array([near[1] for near, _ in ends], np.uint16)
        self.destination_index: dict[PortRef, int] = {near: i for i, (near, _) in enumerate(ends)}
        self.attach_switch: I32 = np.array([self.switch_index[far[0]] for _, far in ends], np.int32)
        self.attach_port: U16 = np.array([far[1] for _, far in ends], np.uint16)
        self.peer_switch: I32 = np.full((len(self.switches), width), NO_PEER, np.int32)
        self.peer_port: U16 = np.zeros((len(self.switches), width), np.uint16)
        for near, far in fabric:
            row = self.switch_index[near[0]]
            self.peer_switch[row, near[1]] = self.switch_index[far[0]]
            self.peer_port[row, near[1]] = far[1]
        self.peer_switch[self.attach_switch, self.attach_port] = ENDPOINT
        self.peer_port[self.attach_switch, self.attach_port] = self.destination_ports


class SetPool:
    """Gives every distinct set of egress ports one id; id 0 is the empty set."""

    def __init__(self, sets: Iterable[Iterable[int]] = ()) -> None:
        """``sets``: to begin with, id 1 on. Raises ValueError when one of them is empty or there twice."""
        self._ids: dict[tuple[int, ...], int] = {(): NO_ROUTE}
        for number, ports in enumerate(sets, 1):
            if self.id_of(ports) != number:
                raise ValueError(f"set {number} is empty or there twice")

    def id_of(self, ports: Iterable[int]) -> int:
        key = tuple(sorted(set(ports)))
        return self._ids.setdefault(key, len(self._ids))

    def arrays(self) -> tuple[I32, U16]:
        """The sets as CSR: ``ptr`` (n + 1,) and ``ports``."""
        ptr = np.zeros(len(self._ids) + 1, np.int32)
        np.cumsum([len(key) for key in self._ids], out=ptr[1:])
        return ptr, np.array([port for key in self._ids for port in key], np.uint16)

    def __len__(self) -> int:
        return len(self._ids)


@dataclass(frozen=True, slots=True)
class Through:
    """Which egress ports the traffic of each ingress may use, over the whole fabric, sorted by (switch, ingress, egress).

    ``weight`` is the share of the ingress's destinations that leave by the egress (a set splits evenly); the weights of one
    ingress sum to one. It says what may flow, not what does: multiply by measured rates.
    """

    switch: I32
    ingress: U16
    egress: U16
    weight: F32

    def of_switch(self, index: int) -> slice:
        first, last = np.searchsorted(self.switch, [index, index + 1])
        return slice(int(first), int(last))


class RouteTable:
    """See the module. ``group`` (S, D) holds set ids; ``set_ptr``/``set_ports`` are the sets as CSR."""

    def __init__(self, frame: Frame, group: Ids, pool: SetPool, sources: Iterable[str]) -> None:
        self.frame = frame
        self.group: Ids = group
        self.set_ptr, self.set_ports = pool.arrays()
        self.sources: tuple[str, ...] = tuple(sources)
        if len(pool) <= np.iinfo(np.uint16).max:
            self.group = group.astype(np.uint16, copy=False)

    @classmethod
    def build(cls, topology: Topology, tables: Mapping[int, SwitchRoutes], source: str) -> RouteTable:
        """From ``{switch GUID: {destination (GUID, port): egress ports}}``. Unknown switches and destinations are ignored;
        a switch without a table has no routes (see :meth:`filled` for assuming them)."""
        frame, pool = Frame(topology), SetPool()
        group = np.zeros((len(frame.switches), len(frame.destinations)), np.uint32)
        for guid, table in tables.items():
            row = frame.switch_index.get(guid)
            if row is None:
                continue
            for destination, ports in table.items():
                column = frame.destination_index.get(destination)
                if column is not None:
                    group[row, column] = pool.id_of(ports)
        return cls(frame, group, pool, [source] * len(frame.switches))

    def arrays(self) -> dict[str, npt.NDArray[np.generic]]:
        """What :meth:`restored` needs to build the same table over the same topology."""
        frame = self.frame
        return {
            "switches": frame.switches,
            "destinations": frame.destinations,
            "destination_ports": frame.destination_ports,
            "group": self.group,
            "set_ptr": self.set_ptr,
            "set_ports": self.set_ports,
            "sources": np.array(self.sources, np.str_),
        }

    @classmethod
    def restored(cls, topology: Topology, arrays: Mapping[str, npt.NDArray[np.generic]]) -> RouteTable:
        """Raises KeyError or ValueError when the arrays are not of this topology, or no table at all."""
        frame = Frame(topology)
        for key in ("switches", "destinations", "destination_ports"):
            if not np.array_equal(arrays[key], getattr(frame, key)):
                raise ValueError(f"the routes are of another topology: {key} differ")
        ptr: list[int] = arrays["set_ptr"].tolist()
        ports: list[int] = arrays["set_ports"].tolist()
        group = arrays["group"].astype(np.uint32)
        pool = SetPool(ports[first:last] for first, last in itertools.pairwise(ptr[1:]))
        sources = [str(source) for source in arrays["sources"]]
        if group.shape != (len(frame.switches), len(frame.destinations)) or len(sources) != len(frame.switches):
            raise ValueError("the routes' size does not fit the topology")
        if group.size and int(group.max()) >= len(pool):
            raise ValueError("the routes name a set that is not there")
        return cls(frame, group, pool, sources)

    def with_tables(self, tables: Mapping[int, SwitchRoutes], source: str) -> RouteTable:
        """A copy in which the given (switch, destination) entries replace what was there; their switches take ``source``."""
        pool = SetPool()
        renumbered = [pool.id_of(int(port) for port in self.set_of(i)) for i in range(len(self.set_ptr) - 1)]
        group = np.array(renumbered, np.uint32)[self.group]
        sources = list(self.sources)
        for guid, table in tables.items():
            row = self.frame.switch_index.get(guid)
            if row is None:
                continue
            sources[row] = source
            for destination, ports in table.items():
                column = self.frame.destination_index.get(destination)
                if column is not None:
                    group[row, column] = pool.id_of(ports)
        return RouteTable(self.frame, group, pool, sources)

    @property
    def switches(self) -> U64:
        return self.frame.switches

    @property
    def destinations(self) -> U64:
        return self.frame.destinations

    @property
    def source(self) -> str:
        """The source of all switches, or ``mixed``."""
        kinds = set(self.sources)
        return kinds.pop() if len(kinds) == 1 else "mixed"

    @property
    def nbytes(self) -> int:
        """Bytes of the table itself (without what :attr:`through` derives)."""
        frame = self.frame
        arrays = (self.group, self.set_ptr, self.set_ports, frame.peer_switch, frame.peer_port, frame.destinations)
        return sum(array.nbytes for array in arrays)

    def set_of(self, set_id: int) -> U16:
        """The egress ports of one set, ascending."""
        return self.set_ports[self.set_ptr[set_id] : self.set_ptr[set_id + 1]]

    def egress(self, switch: int, destination: int, port: int | None = None) -> list[int]:
        """Egress ports of a switch (GUID) towards an adapter (node GUID; ``port``: only that port of it). Raises KeyError."""
        row = self.frame.switch_index[switch]
        if port is not None:
            columns = [self.frame.destination_index[destination, port]]
        else:
            first, last = np.searchsorted(self.destinations, np.array([destination, destination + 1], np.uint64))
            columns = list(range(int(first), int(last)))
            if not columns:
                raise KeyError(destination)
        return sorted({int(p) for column in columns for p in self.set_of(int(self.group[row, column]))})

    @cached_property
    def member(self) -> Bools:
        """(sets, P): is the port in the set."""
        out = np.zeros((len(self.set_ptr) - 1, self.frame.peer_switch.shape[1]), np.bool_)
        rows = np.repeat(np.arange(len(self.set_ptr) - 1), np.diff(self.set_ptr))
        inside = self.set_ports < out.shape[1]
        out[rows[inside], self.set_ports[inside]] = True
        return out

    @cached_property
    def carried(self) -> Bools:
        """(S, D): does any host's traffic to the destination pass this switch, following the sets from the hosts on?"""
        frame = self.frame
        carried = np.zeros(self.group.shape, np.bool_)
        carried[np.unique(frame.attach_switch)] = True
        fresh = [int(row) for row in np.unique(frame.attach_switch)]
        while fresh:
            changed = np.zeros(len(frame.switches), np.bool_)
            for row in fresh:
                for port in np.flatnonzero(frame.peer_switch[row] >= 0):
                    peer = int(frame.peer_switch[row, port])
                    flows = self.member[:, port][self.group[row]] & carried[row] & ~carried[peer]
                    if flows.any():
                        carried[peer] |= flows
                        changed[peer] = True
            fresh = [int(row) for row in np.flatnonzero(changed)]
        return carried

    def destinations_of_ingress(self, row: int, ingress: int) -> Bools:
        """(D,): destinations whose traffic may enter switch number ``row`` by port ``ingress``."""
        peer = int(self.frame.peer_switch[row, ingress])
        if peer >= 0:
            back = int(self.frame.peer_port[row, ingress])
            arriving: Bools = self.member[:, back][self.group[peer]] & self.carried[peer]
            return arriving
        return np.full(len(self.destinations), peer == ENDPOINT, np.bool_)

    def allowed_egress(self, switch: int, ingress: int) -> list[int]:
        """The egress ports of a switch (GUID) that traffic entering by ``ingress`` may use. Raises KeyError."""
        row = self.frame.switch_index[switch]
        wanted = np.unique(self.group[row][self.destinations_of_ingress(row, ingress)])
        return [int(port) for port in np.flatnonzero(self.member[wanted].any(axis=0)) if port != ingress]

    @cached_property
    def through(self) -> Through:
        """:class:`Through` of every connected switch port; about one microsecond a (switch port x 100 destinations)."""
        frame = self.frame
        size = np.maximum(np.diff(self.set_ptr), 1)
        parts: list[tuple[int, int, npt.NDArray[np.intp], F32]] = []
        for row in range(len(frame.switches)):
            for ingress in np.flatnonzero(frame.peer_switch[row] != NO_PEER):
                ids = self.group[row][self.destinations_of_ingress(row, int(ingress))]
                counts = np.bincount(ids, minlength=len(size)) / size
                used = np.flatnonzero(counts)
                weight = counts[used] @ self.member[used]
                weight[ingress] = 0.0  # only a host's traffic to itself, or a broken table, turns back
                egress = np.flatnonzero(weight)
                if egress.size:
                    share = (weight[egress] / weight.sum()).astype(np.float32)
                    parts.append((row, int(ingress), egress, share))
        lengths = [len(part[2]) for part in parts]
        return Through(
            switch=np.repeat(np.array([part[0] for part in parts], np.int32), lengths),
            ingress=np.repeat(np.array([part[1] for part in parts], np.uint16), lengths),
            egress=np.concatenate([np.zeros(0, np.uint16), *(part[2].astype(np.uint16) for part in parts)]),
            weight=np.concatenate([np.zeros(0, np.float32), *(part[3] for part in parts)]),
        )

    def walk(self, source: int, destination: int) -> list[tuple[int, int, float]]:
        """The switch egress ports a packet between two destination *indices* may cross: (switch index, port, share), by hops.

        Shares split evenly over a set. A loop or a dead end in the tables ends the walk there.
        """
        frame = self.frame
        at = {int(frame.attach_switch[source]): 1.0}
        out: list[tuple[int, int, float]] = []
        for _ in range(len(frame.switches) + 1):
            after: dict[int, float] = {}
            for row, share in sorted(at.items()):
                ports = self.set_of(int(self.group[row, destination]))
                for port in ports:
                    part = share / len(ports)
                    out.append((row, int(port), part))
                    peer = int(frame.peer_switch[row, port])
                    if peer >= 0:
                        after[peer] = after.get(peer, 0.0) + part
            if not after or len(out) > 4 * frame.peer_switch.size:
                break
            at = after
        return out

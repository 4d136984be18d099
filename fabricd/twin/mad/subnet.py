"""The subnet's registers: what nodes and ports remember of what a subnet manager told them, and how a MAD travels.

Rows and nodes come from the plan; LIDs, states, tables and keys live here. Whatever bears on traffic is handed to
the model through :class:`~fabricd.twin.face.Levers` by :mod:`fabricd.twin.mad.programming`.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from fabricd.twin import links
from fabricd.twin.face import Plan, PlanNode
from fabricd.twin.mad.wire import PATH_BACK, PATH_OUT, get, put

SWITCH, ADAPTER = 2, 1  # NodeType
DOWN, INIT, ARMED, ACTIVE = 1, 2, 3, 4  # port states
POLLING, DISABLED, LINK_UP = 2, 3, 5  # physical states
LFT_ENTRIES = 49152
NO_ROUTE = 255
PERMISSIVE = 0xFFFF
LANE_CODES = ((1, 1), (2, 2), (4, 3), (8, 4), (15, 5))  # (data VLs, VLCap)
MTU_4096 = 5
NVIDIA = 0x02C9
SWITCH_DEVICE, ADAPTER_DEVICE = 0xD2F2, 0x1021  # Quantum-2, ConnectX-7
SWITCH_FIRMWARE, ADAPTER_FIRMWARE = (31, 2014, 1000), (28, 43, 1000)
IS_SM, NOTICE, TRAP, SL_MAPPING, SYSTEM_GUID = 1 << 1, 1 << 2, 1 << 3, 1 << 6, 1 << 11
EXTENDED_SPEEDS, VENDOR_CLASS, CAPABILITY_NOTICE, REREGISTER, OTHER_LOCAL_CHANGES = (
    1 << 14,
    1 << 20,
    1 << 22,
    1 << 25,
    1 << 26,
)
PKEYS = 128
MAX_HOPS = 63


class Port:
    """One port with its PortInfo (64 bytes, as on the wire) and its tables."""

    __slots__ = ("admin_down", "arbitration", "full", "info", "node", "number", "peer", "pkeys", "row", "sl_to_vl")

    def __init__(self, node: Node, number: int, row: int, full: links.Link, lanes: int) -> None:
        self.node = node
        self.number = number
        self.row = row  # -1 for a switch's port 0
        self.peer: Port | None = None
        self.full = full  # best setting of the link
        self.admin_down = False
        self.pkeys = bytearray(2 * PKEYS)
        put(self.pkeys, 0, 2, 0xFFFF)
        self.sl_to_vl: dict[int, bytes] = {}  # ingress port -> 16 x 4 bits (adapters: only 0)
        self.arbitration = {block: bytearray(64) for block in (1, 2, 3, 4)}
        self.info = self._fresh_info(next(code for count, code in LANE_CODES if lanes <= count))

    def _fresh_info(self, lanes_code: int) -> bytearray:
        info = bytearray(64)
        capabilities = (
            TRAP | NOTICE | SL_MAPPING | SYSTEM_GUID | EXTENDED_SPEEDS | CAPABILITY_NOTICE | OTHER_LOCAL_CHANGES
        )
        if self.node.type == ADAPTER:
            capabilities |= VENDOR_CLASS | REREGISTER
        widths, speeds, extended = links.below_and_equal(self.full)
        put(info, 8, 8, 0xFE80 << 48)
        put(info, 20, 4, capabilities)
        info[28] = self.number
        info[29] = info[30] = widths
        info[31] = self.full.width_code
        info[32] = speeds << 4 | DOWN
        info[33] = POLLING << 4 | POLLING
        info[35] = self.full.speed_code << 4 | speeds
        info[36] = MTU_4096 << 4
        info[37] = lanes_code << 4
        info[39] = info[40] = 64  # arbitration table entries
        info[41] = MTU_4096
        info[42] = 7 << 5 | 18
        info[43] = lanes_code << 4
        info[50] = 32
        info[51] = 18
        info[52] = 16
        info[53] = 8 << 4 | 8
        info[62] = self.full.extended_code << 4 | extended
        info[63] = extended
        return info

    @property
    def lid(self) -> int:
        return get(self.info, 16, 2)

    @property
    def sm_lid(self) -> int:
        return get(self.info, 18, 2)

    @property
    def lmc(self) -> int:
        return self.info[34] & 7

    @property
    def state(self) -> int:
        return self.info[32] & 15

    @state.setter
    def state(self, value: int) -> None:
        self.info[32] = self.info[32] & 0xF0 | value

    @property
    def physical(self) -> int:
        return self.info[33] >> 4

    @physical.setter
    def physical(self, value: int) -> None:
        self.info[33] = self.info[33] & 15 | value << 4

    @property
    def guid(self) -> int:
        return self.node.guid if self.node.type == SWITCH else self.node.guid + self.number

    def train(self, link: links.Link) -> None:
        """The link comes up at this setting."""
        self.info[31] = link.width_code
        self.info[35] = link.speed_code << 4 | self.info[35] & 15
        self.info[62] = link.extended_code << 4 | self.info[62] & 15
        self.physical = LINK_UP
        self.state = INIT

    def drop(self, physical: int = POLLING) -> None:
        """The link goes down."""
        self.physical = physical
        self.state = DOWN

    def set_sm(self, on: bool) -> None:
        mask = get(self.info, 20, 4)
        put(self.info, 20, 4, mask | IS_SM if on else mask & ~IS_SM)


class Node:
    """A switch or one adapter."""

    __slots__ = ("change", "congestion", "description", "guid", "lft", "lft_top", "life", "mft", "mft_top", "plan",
                 "ports", "type")  # fmt: skip

    def __init__(self, plan: Plan, planned: PlanNode) -> None:
        self.plan = planned
        self.type = SWITCH if planned.kind == "switch" else ADAPTER
        self.guid = planned.guid
        self.description = planned.name.encode()[:64].ljust(64, b"\0")
        self.ports: dict[int, Port] = {}
        if self.type == SWITCH:
            manager = Port(self, 0, -1, links.nearest(10), plan.lanes)
            manager.physical, manager.state = LINK_UP, ACTIVE
            self.ports[0] = manager
        for number in range(1, planned.ports + 1):
            row = plan.row(planned, number)
            self.ports[number] = Port(self, number, row, links.nearest(float(plan.row_gbps[row])), plan.lanes)
        self.lft = bytearray([NO_ROUTE]) * (LFT_ENTRIES if self.type == SWITCH else 0)
        self.lft_top = 0
        self.mft: dict[int, bytes] = {}
        self.mft_top = 0
        self.life = 18
        self.change = True
        self.congestion: dict[int, bytes] = {}  # CC class registers, by attribute (and block)

    @property
    def first(self) -> Port:
        """Where a tool attaches: port 0 of a switch, the adapter's first port."""
        return self.ports[0 if self.type == SWITCH else 1]

    def node_info(self, port: Port) -> bytearray:
        """NodeInfo as seen through ``port``."""
        info = bytearray(64)
        info[0:4] = bytes((1, 1, self.type, len(self.ports) - (self.type == SWITCH)))
        for offset in (4, 12):
            put(info, offset, 8, self.guid)
        put(info, 20, 8, port.guid)
        put(info, 28, 2, PKEYS)
        put(info, 30, 2, SWITCH_DEVICE if self.type == SWITCH else ADAPTER_DEVICE)
        put(info, 32, 4, 0xA0 if self.type == SWITCH else 0)
        info[36] = port.number
        put(info, 37, 3, NVIDIA)
        return info

    def switch_info(self) -> bytearray:
        info = bytearray(64)
        put(info, 0, 2, LFT_ENTRIES - 1)
        put(info, 4, 2, 1024)
        put(info, 6, 2, self.lft_top)
        info[11] = self.life << 3 | self.change << 2
        put(info, 14, 2, PKEYS)
        info[16] = 0xF0  # partitions enforced in and out, raw packets filtered in and out
        put(info, 18, 2, self.mft_top)
        return info


class Subnet:
    """All nodes and ports; finds where a MAD goes."""

    def __init__(self, plan: Plan) -> None:
        self.plan = plan
        self.nodes = [Node(plan, planned) for planned in plan.nodes]
        self.by_row: list[Port] = [
            self.nodes[int(plan.row_node[row])].ports[int(plan.row_port[row])] for row in range(plan.rows)
        ]
        for row, port in enumerate(self.by_row):
            peer = int(plan.row_peer[row])
            port.peer = self.by_row[peer] if peer >= 0 else None
        self._names: dict[str, Node] = {}
        for node in self.nodes:
            prefix = "S" if node.type == SWITCH else "H"
            self._names.setdefault(node.plan.name, node)
            self._names[f"{prefix}-{node.guid:016x}"] = node
        self._cache: dict[tuple[int, int], Port | None] = {}

    def named(self, name: str) -> Node | None:
        """By node id (``H-``/``S-`` and the GUID) or description; "" = the first adapter, or the first node."""
        if name:
            return self._names.get(name)
        return next((node for node in self.nodes if node.type == ADAPTER), self.nodes[0] if self.nodes else None)

    def identifier(self, node: Node) -> str:
        return f"{'S' if node.type == SWITCH else 'H'}-{node.guid:016x}"

    def management_ports(self) -> Iterator[Port]:
        """Every port that can have a LID."""
        for node in self.nodes:
            if node.type == SWITCH:
                yield node.ports[0]
            else:
                yield from node.ports.values()

    def routes_changed(self) -> None:
        """Forget remembered paths: a table, a LID or a link changed."""
        self._cache.clear()

    def by_lid(self, source: Port, lid: int) -> Port | None:
        """Where a LID-routed MAD from ``source`` arrives, following the forwarding tables, or None when it is lost."""
        key = (id(source), lid)
        if key not in self._cache:
            self._cache[key] = self._walk_lid(source, lid)
        return self._cache[key]

    def _walk_lid(self, source: Port, lid: int) -> Port | None:
        if owns(source, lid):
            return source
        port: Port | None = source
        if source.node.type == ADAPTER:
            if source.state < INIT or source.peer is None:
                return None
            port = source.peer
        for _ in range(MAX_HOPS):
            if port is None:
                return None
            node = port.node
            if node.type == ADAPTER:
                return port if owns(port, lid) else None
            number = node.lft[lid] if lid < LFT_ENTRIES else NO_ROUTE
            if number == 0:
                return node.ports[0] if owns(node.ports[0], lid) else None
            out = node.ports.get(number)
            if out is None or out.physical != LINK_UP:
                return None
            port = out.peer
        return None

    def by_path(self, source: Port, mad: bytes | bytearray, hops: int) -> tuple[Port, bytes] | None:
        """Follow a directed route's initial path; the port it ends at (entered through) and the return path, or None."""
        back = bytearray(64)
        port = source
        path = mad[PATH_OUT : PATH_OUT + 64]
        for hop in range(1, hops + 1):
            node = port.node
            if node.type == ADAPTER and hop > 1:
                return None
            out = node.ports.get(path[hop]) if node.type == SWITCH else port
            if out is None or out.peer is None or out.physical != LINK_UP:
                return None
            back[hop] = out.number
            port = out.peer
            back[hop] = port.number
        return port, bytes(back)

    def return_path(self, source: Port, mad: bytes | bytearray, hops: int) -> Port | None:
        """Follow a directed route's return path (a response another program sends back)."""
        port = source
        path = mad[PATH_BACK : PATH_BACK + 64]
        for hop in range(hops, 0, -1):
            out = port.node.ports.get(path[hop], port)
            if out.peer is None:
                return None
            port = out.peer
        return port


def owns(port: Port, lid: int) -> bool:
    """Whether ``lid`` is one of the port's (2^LMC of them)."""
    base = port.lid
    return base != 0 and base <= lid < base + (1 << port.lmc)


def preconfigure(subnet: Subnet, routes: np.ndarray[tuple[int, int], np.dtype[np.int16]]) -> None:
    """Bring the subnet to the state a subnet manager would leave: LIDs, active links and the built routes.

    ``routes`` is ``[switches, adapters]`` egress ports; LID-routed management works at once, without a manager.
    """
    lid = 0
    for port in subnet.management_ports():
        lid += 1
        put(port.info, 16, 2, lid)
        put(port.info, 18, 2, 1)
    for port in subnet.by_row:
        if port.state == INIT:
            port.state = ACTIVE
    for planned in subnet.plan.switches:
        node = subnet.nodes[planned.index]
        node.lft_top = lid
        node.change = False
    write_routes(subnet, routes)
    lanes = min(8, subnet.plan.lanes)
    mapping = bytes((sl % lanes) << 4 | (sl + 1) % lanes for sl in range(0, 16, 2))
    for port in [port for node in subnet.nodes for port in node.ports.values()]:
        sources = range(len(port.node.ports)) if port.node.type == SWITCH else (0,)
        port.sl_to_vl = dict.fromkeys(sources, mapping)
        for lane in range(lanes):
            port.arbitration[1][2 * lane : 2 * lane + 2] = bytes((lane, 64))
    subnet.routes_changed()


def write_routes(subnet: Subnet, routes: np.ndarray[tuple[int, int], np.dtype[np.int16]]) -> None:
    """Fill the forwarding tables from ``[switches, adapters]`` egress ports; the switches' own LIDs by shortest paths."""
    adapters = [subnet.nodes[planned.index] for planned in subnet.plan.adapters]
    switches = [subnet.nodes[planned.index] for planned in subnet.plan.switches]
    for node, row in zip(switches, routes, strict=True):
        node.lft[node.ports[0].lid] = 0
        for adapter, egress in zip(adapters, row.tolist(), strict=True):
            node.lft[adapter.first.lid] = egress if egress > 0 else NO_ROUTE
    _route_between_switches(switches)
    subnet.routes_changed()


def _route_between_switches(switches: list[Node]) -> None:
    """Breadth first over links that are up; the lowest port wins."""
    for target in switches:
        lid = target.ports[0].lid
        seen = {target.guid}
        ring = [target]
        while ring:
            further: list[Node] = []
            for node in ring:
                for number in sorted(node.ports):
                    peer = node.ports[number].peer
                    if peer is None or peer.physical != LINK_UP or peer.node.type != SWITCH or peer.node.guid in seen:
                        continue
                    seen.add(peer.node.guid)
                    peer.node.lft[lid] = peer.number
                    further.append(peer.node)
            ring = further

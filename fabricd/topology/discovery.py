"""The fabric by its own directed-route SMPs, level by level from the local port: no subnet manager and no LID is needed.

Each level is two batches: descriptions and port states of the nodes found last, then NodeInfo through their linked ports. Within a
batch the usual windows hold (two in flight a node, 64 in all); requests through ports are ordered by switch and port, so parallel
cables to one neighbour are all that can meet at a node not yet known.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from fabricd.ib.batch import Batch, BatchResult
from fabricd.ib.health import Health
from fabricd.ib.limits import Limits, TidSpace
from fabricd.ib.mad import MAX_HOPS, MODIFIER_AT, SMP_DATA_AT, Reply, Smp, smp_get
from fabricd.ib.smp import (
    LINK_UP,
    NODE_ROUTER,
    NODE_SWITCH,
    PHYS_STATES,
    STATES,
    NodeInfo,
    PortInfos,
    SwitchInfo,
    decode_node_description,
    decode_node_info,
    decode_port_infos,
    decode_switch_info,
    smp_data,
)
from fabricd.ib.transport import DIRECTED, Address, Transport
from fabricd.model.ident import format_guid
from fabricd.model.rejects import Rejects
from fabricd.model.topology import CA, ROUTER, SWITCH, Fault, PortRef, Topology
from fabricd.topology.assemble import Assembler
from fabricd.topology.speeds import SPEED_OF_CODE, SPEED_OF_EXT_CODE, WIDTH_OF_CODE

Path = tuple[int, ...]
INITIAL_PATH_AT = 129  # of a directed-route SMP: the first egress port
_KIND = {NODE_SWITCH: SWITCH, NODE_ROUTER: ROUTER}
_DEADLINE_S = 120.0


@dataclass(slots=True)
class Found:
    """A node as it answered. ``first``: number of the port in row 0 of ``ports`` (0 on a switch, else 1)."""

    info: NodeInfo
    path: Path
    description: str | None = None
    switch: SwitchInfo | None = None
    ports: PortInfos | None = None
    answered: list[bool] = field(default_factory=list)  # per row of ``ports``
    port_guids: dict[int, int] = field(default_factory=dict)

    @property
    def first(self) -> int:
        return 0 if self.info.kind == NODE_SWITCH else 1


@dataclass(slots=True)
class Snapshot:
    """What one discovery saw. ``silent``: ports behind which something is linked up that did not answer."""

    nodes: dict[int, Found] = field(default_factory=dict)
    links: dict[PortRef, PortRef] = field(default_factory=dict)  # both directions
    twice: list[tuple[PortRef, PortRef]] = field(default_factory=list)  # links that contradict an earlier one
    silent: list[PortRef] = field(default_factory=list)
    counts: Counter[str] = field(default_factory=Counter)
    seconds: float = 0.0


def numbered_gets(attribute: Smp, path: Path, modifiers: Sequence[int], m_key: int = 0) -> list[bytes | bytearray]:
    """The same Get with each attribute modifier."""
    template = smp_get(attribute, path=path, m_key=m_key)
    out: list[bytes | bytearray] = []
    for modifier in modifiers:
        mad = template.copy()
        mad[MODIFIER_AT : MODIFIER_AT + 4] = modifier.to_bytes(4, "big")
        out.append(mad)
    return out


class Discoverer:
    """``m_key``: for fabrics whose nodes answer keyed requests only; ``m_keys``: other keys of single nodes, by GUID (used once the
    node told who it is). One discoverer for one transport."""

    def __init__(
        self,
        transport: Transport,
        limits: Limits | None = None,
        *,
        m_key: int = 0,
        m_keys: Mapping[int, int] | None = None,
        tids: TidSpace | None = None,
    ) -> None:
        self.transport = transport
        self.limits = limits or Limits()
        self.m_key = m_key
        self._m_keys = m_keys or {}
        self._tids = tids or TidSpace()

    def discover(
        self, known: Mapping[int, str] | None = None, progress: Callable[[int], None] | None = None
    ) -> Snapshot:
        """Walk the fabric. ``known``: descriptions by GUID that need not be read again. ``progress`` gets the nodes so far.

        Raises TransportError when the local port itself does not answer or the device is gone.
        """
        started = time.monotonic()
        snapshot = Snapshot()
        fresh = self._local(snapshot)
        while fresh:
            self._read_nodes(snapshot, fresh, known or {})
            fresh = self._follow(snapshot, fresh)
            if progress is not None:
                progress(len(snapshot.nodes))
        snapshot.seconds = time.monotonic() - started
        return snapshot

    def changed_ports(self, snapshot: Snapshot) -> list[PortRef]:
        """Switch ports that came up or went down since the snapshot, by their states alone: half of a discovery's requests.

        Port 0 stands for the switch: its LID changed, or it does not answer. Paths of the snapshot are used, so what lies behind
        a broken link does not answer either. Switches that did not tell their states in the snapshot are not asked.
        """
        switches = [
            (g, f) for g, f in snapshot.nodes.items() if f.info.kind == NODE_SWITCH and f.answered[:1] == [True]
        ]
        groups: list[tuple[Hashable, Address, list[bytes | bytearray]]] = [
            (
                guid,
                DIRECTED,
                numbered_gets(Smp.PORT_INFO, f.path, range(f.info.num_ports + 1), self._m_keys.get(guid, self.m_key)),
            )
            for guid, f in switches
        ]
        result = self._run(Snapshot(), groups)
        answered = result.reply == Reply.OK
        infos = decode_port_infos(smp_data(result.mads))
        changed: list[PortRef] = []
        row = 0
        for guid, found in switches:
            last = row + found.info.num_ports + 1
            if found.ports is None or not answered[row] or infos.lid[row] != found.ports.lid[0]:
                changed.append((guid, 0))
            else:
                moved = (infos.phys_state[row:last] == LINK_UP) != (found.ports.phys_state == LINK_UP)
                changed += [(guid, int(port)) for port in np.flatnonzero(moved & answered[row:last]) if port]
            row = last
        return changed

    def _run(
        self, snapshot: Snapshot, groups: Sequence[tuple[Hashable, Address, Sequence[bytes | bytearray]]]
    ) -> BatchResult:
        batch = Batch(self.transport, groups, self.limits)
        result = batch.run(Health(), self._tids, deadline_s=_DEADLINE_S)
        snapshot.counts.update(result.counts)
        snapshot.counts["sent"] += len(batch)
        return result

    def _local(self, snapshot: Snapshot) -> list[int]:
        result = self._run(snapshot, [("local", DIRECTED, [smp_get(Smp.NODE_INFO, path=(), m_key=self.m_key)])])
        if result.reply[0] != Reply.OK:
            return []
        info = decode_node_info(result.mads[0, SMP_DATA_AT:].tobytes())
        snapshot.nodes[info.node_guid] = Found(info, (), port_guids={info.local_port: info.port_guid})
        return [info.node_guid]

    def _read_nodes(self, snapshot: Snapshot, fresh: list[int], known: Mapping[int, str]) -> None:
        """Description, switch information and port states of new nodes."""
        groups: list[tuple[Hashable, Address, list[bytes | bytearray]]] = []
        layout: list[tuple[Found, bool]] = []
        for guid in fresh:
            node = snapshot.nodes[guid]
            node.description = known.get(guid)
            mads: list[bytes | bytearray] = []
            asks = node.description is None
            key = self._m_keys.get(guid, self.m_key)
            if asks:
                mads.append(smp_get(Smp.NODE_DESCRIPTION, path=node.path, m_key=key))
            if node.info.kind == NODE_SWITCH:
                mads.append(smp_get(Smp.SWITCH_INFO, path=node.path, m_key=key))
            mads += numbered_gets(Smp.PORT_INFO, node.path, range(node.first, node.info.num_ports + 1), key)
            groups.append((guid, DIRECTED, mads))
            layout.append((node, asks))
        result = self._run(snapshot, groups)
        answered: list[bool] = (result.reply == Reply.OK).tolist()
        infos = decode_port_infos(smp_data(result.mads))  # of every row: the few others are not looked at
        row = 0
        for node, asks in layout:
            if asks:
                if answered[row]:
                    node.description = decode_node_description(result.mads[row, SMP_DATA_AT:].tobytes())
                row += 1
            if node.info.kind == NODE_SWITCH:
                if answered[row]:
                    node.switch = decode_switch_info(result.mads[row, SMP_DATA_AT:].tobytes())
                row += 1
            last = row + node.info.num_ports + 1 - node.first
            node.ports = infos.rows(row, last)
            node.answered = answered[row:last]
            row = last

    def _follow(self, snapshot: Snapshot, fresh: list[int]) -> list[int]:
        """NodeInfo through every linked port whose neighbour is not known yet; returns the nodes not seen before."""
        nears: list[tuple[PortRef, Path]] = []
        groups: list[tuple[Hashable, Address, list[bytes | bytearray]]] = []
        for guid in fresh:
            node = snapshot.nodes[guid]
            ways = [port for port in self._ways(node) if (guid, port) not in snapshot.links]
            if not ways:
                continue
            template = smp_get(Smp.NODE_INFO, path=(*node.path, 1), m_key=self.m_key)
            for port in ways:
                mad = template.copy()
                mad[INITIAL_PATH_AT + len(node.path)] = port
                groups.append(((guid, port), DIRECTED, [mad]))
                nears.append(((guid, port), (*node.path, port)))
        result = self._run(snapshot, groups)
        answered: list[bool] = (result.reply == Reply.OK).tolist()
        rows = result.mads[:, SMP_DATA_AT : SMP_DATA_AT + 40].tobytes()
        found: list[int] = []
        for number, (near, path) in enumerate(nears):
            if not answered[number]:
                snapshot.silent.append(near)
                continue
            info = decode_node_info(rows[40 * number : 40 * number + 40])
            guid = info.node_guid
            if guid not in snapshot.nodes:
                snapshot.nodes[guid] = Found(info, path)
                found.append(guid)
            snapshot.nodes[guid].port_guids[info.local_port] = info.port_guid
            self._link(snapshot, near, (guid, info.local_port))
        return found

    @staticmethod
    def _ways(node: Found) -> list[int]:
        """The ports behind which there is somebody: none of an adapter, but the one we sit at."""
        if node.ports is None or len(node.path) >= MAX_HOPS:
            return []
        if node.info.kind == NODE_SWITCH:
            linked: list[int] = np.flatnonzero(node.ports.phys_state == LINK_UP).tolist()
            return [port for port in linked if port]
        return [] if node.path else [node.info.local_port]

    @staticmethod
    def _link(snapshot: Snapshot, near: PortRef, far: PortRef) -> None:
        if snapshot.links.get(near, far) != far or snapshot.links.get(far, near) != near:
            snapshot.twice.append((near, far))
            return
        snapshot.links[near] = far
        snapshot.links[far] = near


def to_topology(
    snapshot: Snapshot,
    fabric: str = "default",
    names: Mapping[int, str] | None = None,
    rejects: Rejects | None = None,
) -> Topology:
    """Nodes, links, faults. ``names``: a node-name-map, which wins over what a node calls itself; ``rejects``: to go on with."""
    build = Assembler("smp", fabric)
    topology, names = build.topology, names or {}
    if rejects is not None:
        topology.rejects = rejects
    for guid, found in snapshot.nodes.items():
        info = found.info
        name = names.get(guid, found.description or "")
        node = build.node(guid, _KIND.get(info.kind, CA), name, num_ports=info.num_ports, where="smp")
        if node is None:
            continue
        node.system_guid, node.device_id = info.system_guid, info.device_id
        node.vendor_id, node.revision = info.vendor_id, info.revision
        if guid in names and found.description:
            node.labels["description"] = found.description
        if node.type != SWITCH:
            node.port_guids = dict(found.port_guids)
        _lids(topology, guid, found)
    for near, far in snapshot.links.items():
        if near[0] in topology.nodes and far[0] in topology.nodes:
            width, speed = _rate(snapshot.nodes[near[0]], near[1])
            build.half(near, far, width, speed, "smp")
    for near, far in snapshot.twice:
        build.half(near, far, 0, "", "smp")
        build.half(far, near, 0, "", "smp")
    topology = build.finish()
    for guid, port in snapshot.silent:
        where = topology.port_name(guid, port)
        detail = "linked up, but what is behind it does not answer: refused, keyed, hung or lost"
        topology.faults.append(Fault("silent_port", where, detail, [(guid, port)]))
        topology.rejects.add("silent_smp", f"{format_guid(guid)}[{port}]", "smp")
    return topology


def _lids(topology: Topology, guid: int, found: Found) -> None:
    if found.ports is None:
        return
    node = topology.nodes[guid]
    rows = range(1) if node.type == SWITCH else range(len(found.answered))
    for row in rows:
        if row >= len(found.answered) or not found.answered[row]:
            topology.rejects.add("port_unread", f"{format_guid(guid)}[{row + found.first}]", "smp")
            continue
        lid = int(found.ports.lid[row])
        if lid:
            node.lids[row + found.first] = lid
        if found.ports.lmc[row]:
            node.labels["lmc"] = str(int(found.ports.lmc[row]))


def _rate(found: Found, port: int) -> tuple[int, str]:
    """Width and speed a port runs at; (0, "") when it did not tell."""
    row = port - found.first
    if found.ports is None or not 0 <= row < len(found.answered) or not found.answered[row]:
        return 0, ""
    ports = found.ports
    speed = SPEED_OF_EXT_CODE.get(int(ports.ext_speed[row])) or SPEED_OF_CODE.get(int(ports.speed[row]), "")
    return WIDTH_OF_CODE.get(int(ports.width[row]), 0), speed


def port_states(snapshot: Snapshot) -> dict[PortRef, tuple[str, str]]:
    """(state, physical state) of every port that answered, switches' port 0 left out."""
    out: dict[PortRef, tuple[str, str]] = {}
    for guid, found in snapshot.nodes.items():
        if found.ports is None:
            continue
        states, physical = found.ports.state.tolist(), found.ports.phys_state.tolist()
        for row, answered in enumerate(found.answered):
            if answered and row + found.first:
                out[guid, row + found.first] = (STATES.get(states[row], ""), PHYS_STATES.get(physical[row], ""))
    return out

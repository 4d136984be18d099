"""What a sweep asks: switches and their ports, taken from a topology that someone else discovered."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

from fabricd.model.ident import format_guid
from fabricd.model.rejects import Rejects
from fabricd.model.topology import CA, SWITCH, Link, Node, Topology

DeviceType = tuple[int, int, int]  # vendor id, device id, hardware revision


@dataclass(frozen=True, slots=True)
class Target:
    """One management agent: a switch (all its ports), or one port of a channel adapter.

    ``guid`` is the node GUID: the identity of a port is node GUID + port number, whoever reads it. An adapter's port read in-band
    and by the agent on its host is thus one port. ``labels`` and ``rates`` are per port number.
    """

    guid: int
    lid: int
    ports: tuple[int, ...]
    name: str = ""
    kind: str = SWITCH
    device: DeviceType = (0, 0, 0)
    plane: int = 0
    sl: int = 0
    pkey_index: int = 0
    rates: dict[int, float] = field(default_factory=dict, hash=False)
    labels: dict[int, dict[str, str]] = field(default_factory=dict, hash=False)

    @property
    def key(self) -> tuple[int, int]:
        """The window it counts in: one per switch, one per adapter port."""
        return (self.guid, 0 if self.kind == SWITCH else self.ports[0])


def targets_of(
    topology: Topology, *, adapters: bool = False, connected_only: bool = False, sl: int = 0, pkey_index: int = 0
) -> tuple[list[Target], Rejects]:
    """The switches of a topology, and with ``adapters`` the ports of its channel adapters too.

    Ports that are down are asked as well, unless ``connected_only``: their error counters say why they are down. A node without a
    LID, or one that shares its LID with another, is rejected (``no_lid``, ``duplicate_lid``): an answer could be either's.
    """
    rejects = Rejects()
    by_port = {end: link for link in topology.links for end in (link.a, link.b)}
    candidates: list[tuple[Node, int, tuple[int, ...]]] = []
    for node in topology.nodes.values():
        cabled = tuple(port for port in range(1, node.num_ports + 1) if (node.guid, port) in by_port)
        if node.type == SWITCH:
            ports = cabled if connected_only else tuple(range(1, node.num_ports + 1))
            candidates.append((node, node.lids.get(0, 0), ports))
        elif node.type == CA and adapters:
            candidates += [(node, node.lids.get(port, 0), (port,)) for port in cabled]
    uses = Counter(lid for _, lid, _ in candidates)
    targets = []
    for node, lid, ports in candidates:
        where = f"{node.name} {format_guid(node.guid)}"
        if not 0 < lid < 0xC000:
            rejects.add("no_lid", f"LID {lid}", where)
        elif uses[lid] > 1:
            rejects.add("duplicate_lid", f"LID {lid} of {uses[lid]} nodes", where)
        elif ports:
            targets.append(_target(node, lid, ports, by_port, topology, sl, pkey_index))
    return targets, rejects


def _target(
    node: Node,
    lid: int,
    ports: tuple[int, ...],
    by_port: dict[tuple[int, int], Link],
    topology: Topology,
    sl: int,
    pkey_index: int,
) -> Target:
    rates, labels = {}, {}
    for port in ports:
        link = by_port.get((node.guid, port))
        if link is None:
            continue
        rates[port] = link.rate_gbps
        peer = link.peer(node.guid, port)
        if peer is not None:
            known = topology.nodes.get(peer[0])
            labels[port] = {
                "peer": known.name if known is not None else "",
                "peer_guid": format_guid(peer[0]),
                "peer_port": str(peer[1]),
                "width": str(link.width or ""),
            }
    return Target(
        guid=node.guid,
        lid=lid,
        ports=ports,
        name=node.name,
        kind=node.type,
        device=(node.vendor_id, node.device_id, node.revision),
        plane=node.plane,
        sl=sl,
        pkey_index=pkey_index,
        rates=rates,
        labels=labels,
    )

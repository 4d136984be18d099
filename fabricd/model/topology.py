"""The fabric as a graph: nodes by GUID, links between (GUID, port) pairs, what is wrong with it. Pure data.

The JSON of ``fabricd topo show --json`` is :meth:`Topology.to_json`.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from fabricd.model.ident import format_guid
from fabricd.model.rejects import Rejects

SWITCH, CA, ROUTER, AGGREGATION = "switch", "ca", "router", "aggregation"
PortRef = tuple[int, int]  # (node GUID, port number)


@dataclass(slots=True)
class Node:
    """A switch, channel adapter, router or SHARP aggregation node. ``name`` is a label; the GUID is the identity."""

    guid: int
    type: str
    name: str
    num_ports: int = 0
    system_guid: int = 0
    port_guids: dict[int, int] = field(default_factory=dict)  # port -> port GUID (0 for switches: the node GUID)
    lids: dict[int, int] = field(default_factory=dict)  # port -> base LID (a switch uses port 0)
    vendor_id: int = 0
    device_id: int = 0
    revision: int = 0
    host: str = ""  # physical host this adapter sits in ("" = unknown or not an adapter)
    plane: int = 0
    labels: dict[str, str] = field(default_factory=dict)  # rack, role, pci, ... as known

    def to_json(self) -> dict[str, Any]:
        out: dict[str, Any] = {"guid": format_guid(self.guid), "type": self.type, "name": self.name}
        if self.host:
            out["host"] = self.host
        if self.lids:
            out["lids"] = {str(port): lid for port, lid in sorted(self.lids.items())}
        if self.labels:
            out["labels"] = dict(sorted(self.labels.items()))
        if any(guid != self.guid for guid in self.port_guids.values()):
            out["port_guids"] = {str(port): format_guid(guid) for port, guid in sorted(self.port_guids.items())}
        out["ports"] = self.num_ports
        out["plane"] = self.plane
        return out


@dataclass(slots=True)
class Link:
    """A cable. ``a`` and ``b`` are (GUID, port), ``a`` the smaller. ``rate_gbps`` is the signalling data rate, 0 = unknown."""

    a: PortRef
    b: PortRef
    rate_gbps: float = 0.0
    width: int = 0
    speed: str = ""  # SDR … XDR, or "" when unknown / Ethernet
    labels: dict[str, str] = field(default_factory=dict)  # cable part and serial number, faceplate of each end, optics

    def __post_init__(self) -> None:
        if self.a > self.b:
            self.a, self.b = self.b, self.a

    def peer(self, guid: int, port: int) -> PortRef | None:
        if (guid, port) == self.a:
            return self.b
        if (guid, port) == self.b:
            return self.a
        return None

    def to_json(self) -> dict[str, Any]:
        out: dict[str, Any] = {
            "a": [format_guid(self.a[0]), self.a[1]],
            "b": [format_guid(self.b[0]), self.b[1]],
            "rate_gbps": self.rate_gbps,
        }
        if self.width:
            out["width"] = self.width
        if self.speed:
            out["speed"] = self.speed
        if self.labels:
            out["labels"] = dict(sorted(self.labels.items()))
        return out


@dataclass(slots=True)
class Fault:
    """Something wrong with the fabric: ``kind`` is a stable slug (crossed_rail, missing_link, duplicate_guid, …)."""

    kind: str
    where: str
    detail: str
    ports: list[PortRef] = field(default_factory=list)

    def to_json(self) -> dict[str, Any]:
        return {
            "kind": self.kind,
            "where": self.where,
            "detail": self.detail,
            "ports": [[format_guid(guid), port] for guid, port in self.ports],
        }


@dataclass(slots=True)
class RailGroup:
    """Hosts whose NIC k all sit on the group's rail k: ``leaves[k]`` are the leaf GUIDs of rail k."""

    name: str
    hosts: list[str]
    leaves: list[list[int]]
    kind: str = "compute"  # compute | storage | management
    pod: str = ""

    def to_json(self) -> dict[str, Any]:
        return {
            "name": self.name,
            "kind": self.kind,
            "pod": self.pod,
            "hosts": list(self.hosts),
            "rails": [[format_guid(guid) for guid in rail] for rail in self.leaves],
        }


@dataclass(slots=True)
class Topology:
    """One fabric (one plane or several). Rails and faults are filled by ``topology/``."""

    fabric: str = "default"
    nodes: dict[int, Node] = field(default_factory=dict)
    links: list[Link] = field(default_factory=list)
    rails: list[RailGroup] = field(default_factory=list)
    faults: list[Fault] = field(default_factory=list)
    rejects: Rejects = field(default_factory=Rejects)
    source: str = ""  # smp | ibnetdiscover | file | ufm | lldp | …
    port_labels: dict[PortRef, str] = field(default_factory=dict)  # faceplate label, where it is not the port number

    def port_label(self, guid: int, port: int) -> str:
        """The port as printed on the box: ``1/16/1`` (cage 16, its first port), else the port number."""
        return self.port_labels.get((guid, port), str(port))

    def port_name(self, guid: int, port: int) -> str:
        """A port as people name it: ``LEAF-01 1/16/1``, ``gpu001 mlx5_0``; the GUID where the node has no name."""
        node = self.nodes.get(guid)
        name = (node.labels.get("short") or node.name if node is not None else "") or format_guid(guid)
        if node is not None and node.type == CA and node.num_ports == 1:
            return name
        return f"{name} {self.port_label(guid, port)}"

    def neighbours(self) -> dict[PortRef, PortRef]:
        """Both directions of every link."""
        out: dict[PortRef, PortRef] = {}
        for link in self.links:
            out[link.a] = link.b
            out[link.b] = link.a
        return out

    def to_json(self) -> dict[str, Any]:
        return {
            "fabric": self.fabric,
            "source": self.source,
            "nodes": [node.to_json() for _, node in sorted(self.nodes.items())],
            "links": [link.to_json() for link in sorted(self.links, key=lambda link: (link.a, link.b))],
            "rails": [rail.to_json() for rail in self.rails],
            "faults": [fault.to_json() for fault in self.faults],
            "rejects": self.rejects.to_json(),
        }

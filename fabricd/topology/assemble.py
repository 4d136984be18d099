"""Puts a topology together from what the readers saw: nodes, and each link from either end.

A reader may see a link twice, once, or differently from its two ends; two devices may share a GUID. Whatever does not fit becomes a
fault or a counted rejection, and the rest of the fabric stands.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from fabricd.model.ident import format_guid
from fabricd.model.topology import AGGREGATION, CA, SWITCH, Fault, Link, Node, PortRef, Topology
from fabricd.topology.names import apply_names, clean_name, faceplate, is_factory_name, node_type, split_lane
from fabricd.topology.speeds import rate_gbps

PORT_MAX = 254  # 255 means "all ports" in management datagrams


@dataclass(slots=True)
class Half:
    """One end's view of its link."""

    far: PortRef
    width: int = 0
    speed: str = ""
    labels: dict[str, str] = field(default_factory=dict)


class Assembler:
    """Collects nodes and half links; :meth:`finish` joins them."""

    def __init__(self, source: str, fabric: str = "default") -> None:
        self.topology = Topology(fabric=fabric, source=source)
        self._halves: dict[PortRef, Half] = {}
        self._contested: dict[int, list[str]] = {}  # GUID -> why it seems to belong to two devices
        self._contested_ports: set[PortRef] = set()
        self._described: set[int] = set()

    def node(
        self, guid: int, kind: str, name: str, *, num_ports: int = 0, full: bool = True, where: str = ""
    ) -> Node | None:
        """The node of a GUID, made or completed. ``full`` says its own description was read, not a mention by a neighbour.

        A second full description that differs marks a duplicate GUID. Returns None for GUID 0, which is counted.
        """
        if not guid:
            self.topology.rejects.add("guid_zero", name, where)
            return None
        name = clean_name(name)
        kind = node_type(kind, name)
        node = self.topology.nodes.get(guid)
        if node is None:
            node = self.topology.nodes[guid] = Node(guid, kind, name, num_ports)
        elif full and guid in self._described:
            if (node.type, node.num_ports, node.name) != (kind, num_ports, name):
                self._contest(guid, f"described as {node.name!r} and as {name!r}")
            else:
                self.topology.rejects.add("node_twice", format_guid(guid), where)
        elif full:
            node.type, node.name, node.num_ports = kind, name or node.name, num_ports or node.num_ports
        if full:
            self._described.add(guid)
        return node

    def half(
        self,
        near: PortRef,
        far: PortRef,
        width: int,
        speed: str,
        where: str = "",
        labels: Mapping[str, str] | None = None,
    ) -> None:
        """One end's view. The same end with two different peers marks a duplicate GUID; a port out of range is counted."""
        if not (1 <= near[1] <= PORT_MAX and 1 <= far[1] <= PORT_MAX):
            self.topology.rejects.add("port_number", f"{near[1]} - {far[1]}", where)
            return
        if near == far:
            self.topology.rejects.add("link_to_itself", f"{format_guid(near[0])}[{near[1]}]", where)
            return
        seen = self._halves.get(near)
        if seen is None:
            self._halves[near] = Half(far, width, speed, dict(labels or {}))
        elif seen.far != far:
            self._contest(near[0], f"port {near[1]} leads to two peers")
            self._contested_ports |= {near, far, seen.far}

    def _contest(self, guid: int, why: str) -> None:
        self._contested.setdefault(guid, []).append(why)

    def finish(self) -> Topology:
        """Join the halves into links, name everything, list what does not fit."""
        topology = self.topology
        done: set[PortRef] = set()
        for near, half in sorted(self._halves.items()):
            if near in done or near in self._contested_ports:
                continue
            back = self._halves.get(half.far)
            if back is not None and back.far != near:
                third = self._halves.get(back.far)
                if third is not None and third.far == half.far:
                    self._contest(half.far[0], f"two cables lead to its port {half.far[1]}")
                    self._contested_ports |= {near, half.far, back.far}
                    continue
                topology.faults.append(
                    Fault(
                        "asymmetric_link",
                        f"{format_guid(near[0])}[{near[1]}]",
                        "the peer's own description names another neighbour",
                        [near, half.far, back.far],
                    )
                )
                continue
            done |= {near, half.far}
            width, speed, labels = half.width, half.speed, dict(half.labels)
            if back is not None:
                width, speed = width or back.width, speed or back.speed
                labels = {**back.labels, **labels}
            topology.links.append(Link(near, half.far, rate_gbps(width, speed), width, speed, labels))
        topology.links = [link for link in topology.links if not {link.a, link.b} & self._contested_ports]
        for guid, reasons in sorted(self._contested.items()):
            ports = sorted(ref for ref in self._contested_ports if ref[0] == guid)
            topology.faults.append(Fault("duplicate_guid", format_guid(guid), "; ".join(sorted(set(reasons))), ports))
            topology.nodes[guid].labels["duplicate_guid"] = "yes"
        label_everything(topology)
        return topology


def label_everything(topology: Topology) -> None:
    """Hosts and adapters from descriptions, faceplate labels, links to SHARP nodes marked, factory names as faults."""
    for guid, node in topology.nodes.items():
        node.type = node_type(node.type, node.name)
        apply_names(node)
        if node.type in (SWITCH, CA) and is_factory_name(node.name):
            what = "no name" if not node.name else f"factory name {node.name!r}"
            topology.faults.append(Fault("factory_name", format_guid(guid), f"{node.type} has {what}"))
    for link in topology.links:
        for guid, port in (link.a, link.b):
            node = topology.nodes[guid]
            if node.type == SWITCH and (guid, port) not in topology.port_labels:
                label = faceplate(node.device_id, node.num_ports, port)
                if label is not None:
                    topology.port_labels[guid, port] = label
                    if lane := split_lane(label, node.device_id):
                        link.labels["split_a" if (guid, port) == link.a else "split_b"] = lane
        if AGGREGATION in (topology.nodes[link.a[0]].type, topology.nodes[link.b[0]].type):
            link.labels.setdefault("internal", "sharp")

"""The text of ``ibnetdiscover`` and of ``ibnetdiscover -p``, as rdma-core 1.6 to 56 print them.

Node descriptions may hold anything printable, quotes and separators included, so every pattern is anchored at what follows the
description. One bad line costs itself and is counted.
"""

from __future__ import annotations

import re

from fabricd.model.ident import parse_guid
from fabricd.model.topology import CA, ROUTER, SWITCH, PortRef, Topology
from fabricd.topology.assemble import Assembler
from fabricd.topology.speeds import parse_width_speed

_KIND = {"Switch": SWITCH, "Ca": CA, "Rt": ROUTER}
_KIND_OF_PREFIX = {"S": SWITCH, "H": CA, "R": ROUTER}
_KIND_OF_COLUMN = {"SW": SWITCH, "CA": CA, "RT": ROUTER}

_HEAD = re.compile(
    r"^(?P<key>vendid|devid|sysimgguid|switchguid|caguid|rtguid)=(?P<value>0x[0-9A-Fa-f]{1,16})(?:\(.*\))?\s*$"
)
_NODE = re.compile(
    r'^(?P<kind>Switch|Ca|Rt)\s+(?P<ports>\d{1,3})\s+"(?P<prefix>[SHR])-(?P<guid>[0-9A-Fa-f]{1,16})"\s*'
    r'#\s*"(?P<name>.*)"(?:\s+(?:base|enhanced)\s+port\s+0\s+lid\s+(?P<lid>\d{1,5})\s+lmc\s+(?P<lmc>\d))?[^"]*$'
)
_PORT = re.compile(
    r"^\[(?P<port>\d{1,3})\](?:\[ext \d+\])?(?:\((?P<own>[0-9A-Fa-f]{1,16})\))?\s+"
    r'"(?P<prefix>[SHR])-(?P<guid>[0-9A-Fa-f]{1,16})"\[(?P<far>\d{1,3})\](?:\[ext \d+\])?'
    r"(?:\((?P<far_guid>[0-9A-Fa-f]{1,16})\))?\s*"
    r'#\s*(?:lid\s+(?P<lid>\d{1,5})\s+lmc\s+(?P<lmc>\d)\s+)?"(?P<name>.*)"\s+lid\s+(?P<far_lid>\d{1,5})\s+(?P<rate>\S+)[^"]*$'
)
_NOISE = re.compile(r"^(?:#|\s*$|Chassis\s|Non-Chassis|ChassisID|\s+(?:Chassis|Spine|Line)\b)")
_LINE_P = re.compile(
    r"^\s*(?P<kind>SW|CA|RT)\s+(?P<lid>\d{1,5})\s+(?P<port>\d{1,3})\s+0x(?P<guid>[0-9A-Fa-f]{1,16})\s+"
    r"(?P<width>\S+)\s(?P<speed>\S+)\s+(?:-\s(?P<far_kind>SW|CA|RT)\s+(?P<far_lid>\d{1,5})\s+(?P<far>\d{1,3})\s+"
    r"0x(?P<far_guid>[0-9A-Fa-f]{1,16})\s\(\s'(?P<names>.*)'\s\)|'(?P<name>.*)')\s*$"
)
_BETWEEN = "' - '"


def looks_like_ibnetdiscover(text: str) -> bool:
    """Does the text begin as one of the two outputs does?"""
    head = text[:20_000].splitlines()
    return any(_HEAD.match(line) or _NODE.match(line) or _LINE_P.match(line) for line in head)


def parse_ibnetdiscover(text: str, where: str = "ibnetdiscover") -> Topology:
    """Either output, told apart line by line. Never raises on bad text: see the topology's ``rejects``."""
    reader = _Reader(where)
    for number, line in enumerate(text.lstrip("\ufeff").splitlines(), 1):
        reader.line(line.rstrip("\r"), f"{where}:{number}")
    return reader.finish()


class _Reader:
    def __init__(self, where: str) -> None:
        self.build = Assembler("ibnetdiscover")
        self.where = where
        self.head: dict[str, int] = {}
        self.current: tuple[int, int] | None = None  # (GUID, ports) of the node whose ports follow
        self.named: dict[PortRef, tuple[PortRef, str]] = {}  # -p: port -> (peer, both names as printed)

    def line(self, line: str, where: str) -> None:
        rejects = self.build.topology.rejects
        if match := _PORT.match(line):
            self._port(match, line, where)
        elif match := _NODE.match(line):
            self._node(match, line, where)
        elif match := _HEAD.match(line):
            if match["key"] == "vendid":
                self.head = {}
            self.current = None
            self.head[match["key"]] = int(match["value"], 16)
        elif match := _LINE_P.match(line):
            self._line_p(match, line, where)
        elif not _NOISE.match(line):
            rejects.add("line", line, where)
            if line.startswith(("Switch", "Ca", "Rt")):
                self.current = None  # its ports must not be given to the node before it

    def _node(self, match: re.Match[str], line: str, where: str) -> None:
        self.current = None
        kind, guid = _KIND[match["kind"]], parse_guid(match["guid"])
        if _KIND_OF_PREFIX[match["prefix"]] != kind:
            self.build.topology.rejects.add("node_kind", line, where)
            return
        node = self.build.node(guid, kind, match["name"], num_ports=int(match["ports"]), where=where)
        if node is None:
            return
        node.vendor_id = self.head.get("vendid", node.vendor_id)
        node.device_id = self.head.get("devid", node.device_id)
        node.system_guid = self.head.get("sysimgguid", node.system_guid)
        if match["lid"]:
            node.lids[0] = int(match["lid"])
            if match["lmc"] != "0":
                node.labels["lmc"] = match["lmc"]
        self.head = {}
        self.current = (guid, int(match["ports"]))

    def _port(self, match: re.Match[str], line: str, where: str) -> None:
        rejects = self.build.topology.rejects
        if self.current is None:
            rejects.add("port_without_node", line, where)
            return
        guid, ports = self.current
        port, far_guid, far_port = int(match["port"]), parse_guid(match["guid"]), int(match["far"])
        if not 1 <= port <= ports:
            rejects.add("port_number", line, where)
            return
        try:
            width, speed = parse_width_speed(match["rate"])
        except ValueError:
            rejects.add("width_speed", match["rate"], where)
            width, speed = 0, ""  # the cable is there all the same
        far_kind = _KIND_OF_PREFIX[match["prefix"]]
        far = self.build.node(far_guid, far_kind, match["name"], full=False, where=where)
        if far is None:
            return
        node = self.build.topology.nodes[guid]
        if match["own"]:
            node.port_guids[port] = parse_guid(match["own"])
        if match["lid"]:
            node.lids[port] = int(match["lid"])
            if match["lmc"] != "0":
                node.labels["lmc"] = match["lmc"]
        if match["far_guid"]:
            far.port_guids.setdefault(far_port, parse_guid(match["far_guid"]))
        far.lids.setdefault(0 if far_kind == SWITCH else far_port, int(match["far_lid"]))
        self.build.half((guid, port), (far_guid, far_port), width, speed, where)

    def _line_p(self, match: re.Match[str], line: str, where: str) -> None:
        """One line of ``-p``: an adapter is known there by its port GUID only, which then stands for the node's."""
        rejects = self.build.topology.rejects
        near = (parse_guid(match["guid"]), int(match["port"]))
        try:
            width, speed = parse_width_speed(f"{match['width'].rstrip('x')}x{match['speed']}")
        except ValueError:
            rejects.add("width_speed", f"{match['width']} {match['speed']}", where)
            width, speed = 0, ""
        kind = _KIND_OF_COLUMN[match["kind"]]
        if not self._seen_p(near, kind, match["lid"], match["name"] or "", where):
            return
        if match["far_kind"]:
            far = (parse_guid(match["far_guid"]), int(match["far"]))
            if not self._seen_p(far, _KIND_OF_COLUMN[match["far_kind"]], match["far_lid"], "", where):
                return
            self.named[near] = (far, match["names"])
            self.build.half(near, far, width, speed, where)

    def _seen_p(self, ref: PortRef, kind: str, lid: str, name: str, where: str) -> bool:
        node = self.build.node(ref[0], kind, name, full=False, where=where)
        if node is None:
            return False
        node.name = node.name or name
        node.num_ports = max(node.num_ports, ref[1])
        node.lids[0 if kind == SWITCH else ref[1]] = int(lid)
        if kind != SWITCH:
            node.port_guids[ref[1]] = ref[0]
        return True

    def finish(self) -> Topology:
        nodes = self.build.topology.nodes
        for near, (far, names) in self.named.items():
            local, remote = self._split_names(far, names)
            for ref, name in ((near, local), (far, remote)):
                node = self.build.node(ref[0], nodes[ref[0]].type, name, full=False)
                if node is not None and not node.name:
                    node.name = name
        return self.build.finish()

    def _split_names(self, far: PortRef, names: str) -> tuple[str, str]:
        """``local' - 'remote``: where a name itself holds the separator, the peer's own line, which prints them the other
        way round, decides."""
        parts = names.split(_BETWEEN)
        other = self.named.get(far)
        for cut in sorted(range(1, len(parts)), key=lambda cut: abs(2 * cut - len(parts))):
            local, remote = _BETWEEN.join(parts[:cut]), _BETWEEN.join(parts[cut:])
            if len(parts) == 2 or (other is not None and other[1] == remote + _BETWEEN + local):
                return local, remote
        return (parts[0], _BETWEEN.join(parts[1:])) if len(parts) > 1 else (names, "")

"""A RoCE fabric's wiring: a links file written by people (TOML), and what LLDP heard (``lldpcli show neighbors -f json``).

Ethernet has no fabric-wide GUIDs: a device is known by its MAC address (as EUI-64), or, where only its name is known, by a number
made from the name. Port numbers follow the interface index SONiC gives (``Ethernet0`` is 1), else the number in the name.
LLDP tells neighbours, not routes: those come from ``[[route]]`` tables, or are assumed.
"""

from __future__ import annotations

import fnmatch
import hashlib
import re
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from fabricd.errors import BAD_DOCUMENT
from fabricd.model.ident import guid_from_mac, parse_guid
from fabricd.model.topology import CA, SWITCH, Fault, Link, Node, PortRef, Topology
from fabricd.topology.minhop import assumed_routes
from fabricd.topology.rails import natural_key
from fabricd.topology.routes import CONFIG, RouteTable

PORT_LIMIT = 4096
_SONIC = re.compile(r"^Ethernet(\d+)$")
_TRAILING = re.compile(r"^\D*(\d+)$")
_MAC = re.compile(r"^[0-9A-Fa-f]{2}(:[0-9A-Fa-f]{2}){5}$")


@dataclass(frozen=True, slots=True)
class Neighbour:
    """One line of LLDP: ``interface`` of the device that listened, and who is at the other end."""

    interface: str
    name: str
    chassis: str  # MAC address of the neighbour, "" when it told something else
    port: str  # the neighbour's interface name or MAC address
    bridge: bool  # does it say that it switches?


def _first(value: Any) -> Any:
    return value[0] if isinstance(value, list) and value else value


def _text(value: Any) -> str:
    value = _first(value)
    if isinstance(value, dict):
        value = value.get("value", "")
    return value if isinstance(value, str) else ""


def parse_lldp(document: Any) -> Iterator[Neighbour]:
    """Neighbours of both JSON forms of lldpcli (``json``, ``json0``); what does not look like one raises ValueError."""
    root = _first(document.get("lldp")) if isinstance(document, dict) else None
    if not isinstance(root, dict):
        raise ValueError('no "lldp" object')
    interfaces = root.get("interface", [])
    for entry in interfaces if isinstance(interfaces, list) else [interfaces]:
        if not isinstance(entry, dict):
            raise ValueError(f"interface is {entry!r}")
        pairs = [(entry["name"], entry)] if isinstance(entry.get("name"), str) else list(entry.items())
        for name, body in pairs:
            chassis, port = _first(body.get("chassis")), _first(body.get("port"))
            if not isinstance(chassis, dict) or not isinstance(port, dict):
                raise ValueError(f"{name}: no chassis or port")
            told = _text(chassis.get("name"))
            if "id" not in chassis and len(chassis) == 1:  # the plain form keys the chassis by its name
                told, chassis = next(iter(chassis.items()))
            if not isinstance(chassis, dict):
                raise ValueError(f"{name}: chassis is {chassis!r}")
            mac = _text(chassis.get("id"))
            capabilities = chassis.get("capability", [])
            bridge = any(
                isinstance(c, dict) and c.get("type") in ("Bridge", "Router") and c.get("enabled") in (True, "on")
                for c in (capabilities if isinstance(capabilities, list) else [capabilities])
            )
            port_id = _text(port.get("id"))
            yield Neighbour(str(name), told, mac if _MAC.match(mac) else "", port_id, bridge)


def guid_of_name(name: str) -> int:
    """A stable number for a device of which only the name is known; its top byte 0xFD marks it as made up."""
    return 0xFD << 56 | int.from_bytes(hashlib.blake2b(name.encode(), digest_size=7).digest(), "big")


@dataclass(slots=True)
class _Wiring:
    topology: Topology
    guids: dict[str, int] = field(default_factory=dict)  # device name -> GUID
    names: dict[tuple[int, str], int] = field(default_factory=dict)  # (GUID, interface) -> port number
    interfaces: dict[int, set[str]] = field(default_factory=dict)
    cables: list[tuple[int, str, int, str, float, dict[str, str]]] = field(default_factory=list)

    def device(self, name: str, kind: str, guid: int = 0) -> int:
        found = self.guids.get(name)
        if found is None:
            found = guid or guid_of_name(name)
            if found in self.topology.nodes:
                raise ValueError(f"{name} has the address of {self.topology.nodes[found].name}")
            self.guids[name] = found
            self.topology.nodes[found] = Node(found, kind, name)
        return found

    def adapter(self, host: str, interface: str, guid: int = 0) -> int:
        """Each interface of a host is an adapter of its own, as each RDMA device is."""
        name = f"{host} {interface}"
        found = self.device(name, CA, guid)
        self.topology.nodes[found].host = host
        self.topology.nodes[found].labels["netdev"] = interface
        return found

    def number_ports(self) -> None:
        """Port numbers by name where the names say them without clash, else by natural order."""
        for guid, names in self.interfaces.items():
            ordered = sorted(names, key=natural_key)
            numbers = [_number(name) for name in ordered]
            if self.topology.nodes[guid].type == CA and len(ordered) == 1:
                numbers = [1]
            elif None in numbers or len(set(numbers)) < len(numbers):
                numbers = list(range(1, len(ordered) + 1))
            for name, number in zip(ordered, numbers, strict=True):
                assert number is not None
                self.names[guid, name] = number
                self.topology.port_labels[guid, number] = name
            self.topology.nodes[guid].num_ports = max((n for n in numbers if n), default=0)

    def connect(self) -> None:
        taken: dict[PortRef, PortRef] = {}
        for guid_a, name_a, guid_b, name_b, rate, labels in self.cables:
            a, b = (guid_a, self.names[guid_a, name_a]), (guid_b, self.names[guid_b, name_b])
            if taken.get(a, b) == b and taken.get(b, a) == a:
                if a not in taken:
                    self.topology.links.append(Link(a, b, rate, labels=dict(labels)))
                taken[a], taken[b] = b, a
                continue
            where = self.topology.port_name(*(a if a in taken else b))
            self.topology.faults.append(
                Fault("two_neighbours", where, "two different neighbours are given for this port", [a, b])
            )


def _number(name: str) -> int | None:
    if match := _SONIC.match(name):
        number = int(match[1]) + 1
    elif match := _TRAILING.match(name):
        number = int(match[1])
    else:
        return None
    return number if 1 <= number < PORT_LIMIT else None


def parse_links_file(
    text: str, heard: Mapping[str, Any] | None = None, where: str = "links"
) -> tuple[Topology, RouteTable | None]:
    """The fabric of a links file, completed by LLDP documents (name of the device that listened -> document).

    Returns the topology, and the routes if the file has any ``[[route]]``. Raises ValueError when the text is not TOML; bad
    entries are counted.
    """
    try:
        tree = tomllib.loads(text)
    except BAD_DOCUMENT as error:
        raise ValueError(str(error)) from None
    wiring = _Wiring(Topology(fabric=str(tree.get("fabric", "default")), source="lldp" if heard else "links"))
    rejects = wiring.topology.rejects
    default_rate = float(tree.get("rate_gbps", 0))
    for kind in ("switch", "adapter", "link"):
        entries = tree.get(kind, [])
        for number, entry in enumerate(entries if isinstance(entries, list) else []):
            try:
                _READERS[kind](wiring, entry, default_rate)
            except (KeyError, ValueError, TypeError, AttributeError) as error:
                rejects.add(f"bad_{kind}", f"{type(error).__name__}: {error}", f"{where}: {kind}[{number}]")
    for listener, document in (heard or {}).items():
        try:
            for neighbour in parse_lldp(document):
                _hear(wiring, listener, neighbour, default_rate)
        except (ValueError, AttributeError, KeyError) as error:
            rejects.add("lldp_document", error, listener)
    for guid_a, name_a, guid_b, name_b, _, _ in wiring.cables:
        wiring.interfaces.setdefault(guid_a, set()).add(name_a)
        wiring.interfaces.setdefault(guid_b, set()).add(name_b)
    wiring.number_ports()
    wiring.connect()
    routes = _routes(wiring, tree.get("route"), where) if tree.get("route") else None
    return wiring.topology, routes


def _switch(wiring: _Wiring, entry: Any, _: float) -> None:
    guid = parse_guid(entry["guid"]) if "guid" in entry else guid_from_mac(entry["mac"]) if "mac" in entry else 0
    node = wiring.topology.nodes[wiring.device(str(entry["name"]), SWITCH, guid)]
    node.labels.update({key: str(entry[key]) for key in ("rack", "model", "mac") if key in entry})


def _adapter(wiring: _Wiring, entry: Any, _: float) -> None:
    guid = parse_guid(entry["guid"]) if "guid" in entry else guid_from_mac(entry["mac"]) if "mac" in entry else 0
    node = wiring.topology.nodes[wiring.adapter(str(entry["host"]), str(entry["netdev"]), guid)]
    node.labels.update({key: str(entry[key]) for key in ("rack", "device", "mac", "pci", "hca") if key in entry})


def _link(wiring: _Wiring, entry: Any, default_rate: float) -> None:
    ends = []
    for key in ("a", "b"):
        device, colon, interface = str(entry[key]).rpartition(":")
        if not colon or not device or not interface:
            raise ValueError(f"{key} = {entry[key]!r}: not DEVICE:INTERFACE")
        known = wiring.guids.get(device)
        if known is not None and wiring.topology.nodes[known].type == SWITCH:
            ends.append((known, interface))
        else:
            ends.append((wiring.adapter(device, interface), interface))
    labels = {f"cable_{key}": str(entry[key]) for key in ("serial", "part") if key in entry}
    wiring.cables.append((*ends[0], *ends[1], float(entry.get("rate_gbps", default_rate)), labels))


_READERS = {"switch": _switch, "adapter": _adapter, "link": _link}


def _hear(wiring: _Wiring, listener: str, neighbour: Neighbour, rate: float) -> None:
    """A listener that is no switch of the file is a host."""
    own = wiring.guids.get(listener)
    if own is None or wiring.topology.nodes[own].type != SWITCH:
        own = wiring.adapter(listener, neighbour.interface)
    name = neighbour.name or neighbour.chassis
    if not name:
        raise ValueError(f"{neighbour.interface}: the neighbour tells neither name nor address")
    known = wiring.guids.get(name)
    if neighbour.bridge or (known is not None and wiring.topology.nodes[known].type == SWITCH):
        far = wiring.device(name, SWITCH, guid_from_mac(neighbour.chassis) if neighbour.chassis else 0)
        port = neighbour.port
    else:
        by_mac = guid_from_mac(neighbour.port) if _MAC.match(neighbour.port) else 0
        mine = [g for g, n in wiring.topology.nodes.items() if n.host == name and by_mac and g == by_mac]
        far = mine[0] if mine else wiring.adapter(name, neighbour.port, by_mac)
        port = wiring.topology.nodes[far].labels["netdev"]
    wiring.cables.append((own, neighbour.interface, far, port, rate, {}))


def _routes(wiring: _Wiring, entries: Any, where: str) -> RouteTable:
    """``[[route]] switch = "leaf*", to = ["gpu1*"], via = ["Ethernet64", "Ethernet72"]``: ``to`` matches host names, later entries
    win; whatever no entry speaks of is assumed."""
    topology = wiring.topology
    switches = {node.name: guid for guid, node in topology.nodes.items() if node.type == SWITCH}
    adapters = [
        (node.host, near) for near, far in topology.neighbours().items() if (node := topology.nodes[near[0]]).type == CA
    ]
    tables: dict[int, dict[PortRef, set[int]]] = {}
    for number, entry in enumerate(entries):
        try:
            to = [str(pattern) for pattern in entry["to"]]
            via = [str(name) for name in entry["via"]]
            for name, guid in switches.items():
                if not fnmatch.fnmatchcase(name, str(entry["switch"])):
                    continue
                ports = {wiring.names[guid, interface] for interface in via}
                for host, ref in adapters:
                    if any(fnmatch.fnmatchcase(host, pattern) for pattern in to):
                        tables.setdefault(guid, {})[ref] = ports
        except (KeyError, TypeError) as error:
            topology.rejects.add("bad_route", f"{type(error).__name__}: {error}", f"{where}: route[{number}]")
    return assumed_routes(topology).with_tables(tables, CONFIG)

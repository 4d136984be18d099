"""The fabric as UFM lists its ports (``GET /ufmRest/resources/ports``): wiring, rates, faceplate labels, FEC, bit error rates.

For fabrics that answer nobody but their subnet manager. UFM writes ``"N/A"`` or null for what it does not know, and numbers now as
numbers, now as text.
"""

from __future__ import annotations

from typing import Any

from fabricd.model.ident import parse_guid
from fabricd.model.topology import CA, SWITCH, PortRef, Topology
from fabricd.topology.assemble import Assembler
from fabricd.topology.speeds import LANE_GBPS

_UNKNOWN = (None, "", "N/A")
_LABELS = {"fec_mode": "fec", "cable_serial": "cable_serial", "cable_part": "cable_part"}
_CABLE = {
    "serial_number": "cable_serial",
    "part_number": "cable_part",
    "identifier": "cable_type",
    "length": "cable_length",
}


def looks_like_ufm_ports(document: Any) -> bool:
    rows = _rows(document)
    return bool(rows) and isinstance(rows[0], dict) and {"guid", "number", "peer"} <= rows[0].keys()


def _rows(document: Any) -> list[Any]:
    """The bare array, or the one inside ``{"data": [...]}`` that paged answers have."""
    rows = document.get("data") if isinstance(document, dict) else document
    return rows if isinstance(rows, list) else []


def parse_ufm_ports(document: Any, where: str = "ufm") -> Topology:
    """One entry a port, connected or not. A bad entry costs itself and is counted."""
    build = Assembler("ufm")
    halves: list[tuple[PortRef, PortRef, dict[str, Any], str]] = []
    for number, row in enumerate(_rows(document)):
        place = f"{where}[{number}]"
        try:
            near = parse_guid(row["guid"]), int(row["number"])
            _see(build, near, row, place)
            if row.get("peer") not in _UNKNOWN:
                guid, _, port = str(row["peer"]).rpartition("_")
                halves.append((near, (parse_guid(guid), int(port)), row, place))
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            build.topology.rejects.add("ufm_port", f"{type(error).__name__}: {error}", place)
    for near, far, row, place in halves:
        if far[0] not in build.topology.nodes:
            build.node(far[0], CA, str(row.get("peer_node_name") or ""), full=False, where=place)
        build.half(near, far, *_rate(row), where=place, labels=_told(row))
    topology = build.finish()
    _bit_errors(topology, _rows(document))
    return topology


def _see(build: Assembler, ref: PortRef, row: dict[str, Any], place: str) -> None:
    switch = "switch" in str(row.get("description", "")).lower()
    description = str(row.get("node_description") or "")
    name = description.rsplit(":", 1)[0] if switch else description
    if name in _UNKNOWN:
        name = str(row.get("system_name") or "")
    node = build.node(ref[0], SWITCH if switch else CA, name, full=False, where=place)
    if node is None:
        return
    node.num_ports = max(node.num_ports, ref[1])
    if row.get("systemID") not in _UNKNOWN:
        node.system_guid = parse_guid(str(row["systemID"]))
    if row.get("lid") not in _UNKNOWN:
        node.lids[0 if switch else ref[1]] = int(row["lid"])
    label = row.get("dname")
    if switch and label not in _UNKNOWN and str(label) != str(ref[1]):
        build.topology.port_labels[ref] = str(label)


def _rate(row: dict[str, Any]) -> tuple[int, str]:
    width = str(row.get("active_width") or "").lower().removeprefix("ib_").rstrip("x")
    speed = str(row.get("active_speed") or "")
    return (int(width) if width.isdigit() else 0), (speed if speed in LANE_GBPS else "")


def _told(row: dict[str, Any]) -> dict[str, str]:
    labels = {ours: str(row[theirs]) for theirs, ours in _LABELS.items() if row.get(theirs) not in _UNKNOWN}
    cable = row.get("cable_info")
    if isinstance(cable, dict):
        labels |= {ours: str(cable[theirs]) for theirs, ours in _CABLE.items() if cable.get(theirs) not in _UNKNOWN}
    return labels


def _bit_errors(topology: Topology, rows: list[Any]) -> None:
    ends = {ref: link for link in topology.links for ref in (link.a, link.b)}
    for row in rows:
        try:
            ref = parse_guid(row["guid"]), int(row["number"])
        except (KeyError, TypeError, ValueError, AttributeError):
            continue  # counted when the links were read
        link = ends.get(ref)
        for theirs in ("raw_ber", "effective_ber", "symbol_ber"):
            if link is not None and row.get(theirs) not in _UNKNOWN:
                side = "a" if ref == link.a else "b"
                link.labels[f"ber_{theirs.removesuffix('_ber')}_{side}"] = str(row[theirs])

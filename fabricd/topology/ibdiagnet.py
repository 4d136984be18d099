"""What ibdiagnet leaves in its output directory: ``ibdiagnet2.far`` (adaptive-routing groups), ``ibdiagnet2.db_csv`` (nodes, links,
cables, faceplate labels), ``ibdiagnet2.net_dump_ext`` (FEC, bit error rates).

Columns are found by name: they move between releases. Only what we understand is used; sections we do not know are passed over.
"""

from __future__ import annotations

import re

from fabricd.model.ident import parse_guid
from fabricd.model.rejects import Rejects
from fabricd.model.topology import CA, ROUTER, SWITCH, PortRef, Topology
from fabricd.sources.ibdiagnet_dir import read_sections
from fabricd.topology.assemble import Assembler
from fabricd.topology.speeds import SPEED_OF_CODE, WIDTH_OF_CODE

_FAR_SWITCH = re.compile(r"^Switch\s+(0x[0-9A-Fa-f]{1,16})\b")
_FAR_GROUP = re.compile(r"^\s*(\d+)\s+(\d+)\s+(.*)$")
_FAR_LID = re.compile(r"^\s*0x([0-9A-Fa-f]{1,4})\s+(\d{1,3})\s+(\w+)\s+(\d+)\s*$")
_RULE = re.compile(r"^-{5,}\s*$")

SPEED_OF_IBDM = {
    **SPEED_OF_CODE,
    1 << 8: "FDR",
    2 << 8: "EDR",
    4 << 8: "HDR",
    8 << 8: "NDR",
    16 << 8: "XDR",
    1 << 16: "FDR10",
}
_NODE_TYPES = {"1": CA, "2": SWITCH, "3": ROUTER}
_NOTHING = {"", "NA", "N/A", "-", "na", "n/a"}
_CABLE_COLUMNS = {
    "Vendor": "cable_vendor",
    "PN": "cable_part",
    "SN": "cable_serial",
    "Rev": "cable_revision",
    "LengthDesc": "cable_length",
    "TypeDesc": "cable_type",
    "Type": "cable_type",
    "FWVersion": "optics_firmware",
}
_PHY_COLUMNS = {
    "FEC mode": "fec",
    "Raw BER": "ber_raw",
    "Effective BER": "ber_effective",
    "Symbol BER": "ber_symbol",
}
CableInfo = dict[PortRef, dict[str, str]]


def parse_far(text: str, rejects: Rejects, where: str = "ibdiagnet2.far") -> dict[int, dict[int, tuple[int, ...]]]:
    """Switch GUID -> LID -> egress ports. A ``Static`` LID has its static port, a ``Free`` or ``HBF`` one its group's ports (all
    sub-groups; the static port where the group is unknown); several private tables (PLFT) of a switch are joined."""
    out: dict[int, dict[int, tuple[int, ...]]] = {}
    guid, section, leading = 0, "", 2
    groups: dict[int, set[int]] = {}
    for number, line in enumerate(text.splitlines(), 1):
        place = f"{where}:{number}"
        if match := _FAR_SWITCH.match(line):
            guid, section, groups = parse_guid(match[1]), "", {}
            out.setdefault(guid, {})
        elif line.startswith("Groups Definition"):
            section = "groups"
        elif line.startswith("LFT Definition"):
            section = "lids"
        elif section == "groups" and line.lstrip().startswith("Group"):
            leading = 3 if "WHBF" in line else 2  # columns before the ports
        elif not line.strip() or _RULE.match(line) or line.startswith(("#", "File version")) or not guid:
            if not guid and line.strip() and not line.startswith(("#", "File version", "-")):
                rejects.add("row_without_switch", line, place)
        elif section == "groups":
            _far_group(line, leading, groups, rejects, place)
        elif section == "lids" and (match := _FAR_LID.match(line)):
            lid, port, state, group = int(match[1], 16), int(match[2]), match[3], int(match[4])
            ports = {port} if state == "Static" else groups.get(group) or {port}
            out[guid][lid] = tuple(sorted({*out[guid].get(lid, ()), *ports} - {0, 255}))
        elif section == "lids" and not line.lstrip().startswith(("LID", "PLFT")):
            rejects.add("far_lid", line, place)
    return out


def _far_group(line: str, leading: int, groups: dict[int, set[int]], rejects: Rejects, place: str) -> None:
    match = _FAR_GROUP.match(line)
    if match is None:
        rejects.add("far_group", line, place)
        return
    rest = match[3]
    if leading == 3:
        rest = rest.split(None, 1)[1] if len(rest.split(None, 1)) == 2 else ""
    words = rest.replace(",", " ").split()
    if not all(word.isdigit() and int(word) < 255 for word in words):
        rejects.add("far_group", line, place)
        return
    groups.setdefault(int(match[1]), set()).update(int(word) for word in words)


def looks_like_db_csv(text: str) -> bool:
    return "START_NODES" in text[:200_000]


def parse_db_csv(text: str, where: str = "ibdiagnet2.db_csv") -> Topology:
    """Nodes, links, rates, cables and faceplate labels of a ``db_csv``."""
    build = Assembler("ibdiagnet")
    topology = build.topology
    rates: dict[PortRef, tuple[int, str]] = {}
    links: list[tuple[PortRef, PortRef, str]] = []
    for section, row, place in read_sections(text, {"NODES", "LINKS", "PORTS"}, topology.rejects, where):
        try:
            if section == "NODES":
                kind = _NODE_TYPES[row["NodeType"]]
                ports = int(row["NumPorts"])
                node = build.node(parse_guid(row["NodeGUID"]), kind, row["NodeDesc"], num_ports=ports, where=place)
                if node is not None:
                    node.system_guid, node.device_id = parse_guid(row["SystemImageGUID"]), int(row["DeviceID"], 0)
                    node.vendor_id = int(row["VendorID"], 0)
            elif section == "PORTS":
                ref = parse_guid(row["NodeGuid"]), int(row["PortNum"])
                width, speed = int(row["LinkWidthActv"], 0), int(row["LinkSpeedActv"], 0)
                rates[ref] = WIDTH_OF_CODE.get(width, 0), SPEED_OF_IBDM.get(speed, "")
                lid = int(row["LID"], 0)
                if lid and ref[0] in topology.nodes and (topology.nodes[ref[0]].type != SWITCH or ref[1] == 0):
                    topology.nodes[ref[0]].lids[ref[1]] = lid
            else:
                ends = [(parse_guid(row[f"NodeGuid{n}"]), int(row[f"PortNum{n}"])) for n in (1, 2)]
                links.append((ends[0], ends[1], place))
        except (KeyError, ValueError) as error:
            topology.rejects.add(f"{section.lower()}_row", f"{type(error).__name__}: {error}", place)
    for a, b, place in links:
        if a[0] not in topology.nodes or b[0] not in topology.nodes:
            topology.rejects.add("link_of_unknown_node", f"{a} - {b}", place)
            continue
        build.half(a, b, *rates.get(a, (0, "")), where=place)
    topology = build.finish()
    apply_db_csv(topology, text, where)
    return topology


def apply_db_csv(topology: Topology, text: str, where: str = "ibdiagnet2.db_csv") -> None:
    """Cables onto the links and faceplate labels onto the ports of a topology read elsewhere."""
    cables: CableInfo = {}
    for section, row, place in read_sections(text, {"CABLE_INFO", "PORT_HIERARCHY_INFO"}, topology.rejects, where):
        try:
            guid = parse_guid(row.get("NodeGuid") or row["NodeGUID"])
            port = int(row["PortNum"])
        except (KeyError, ValueError) as error:
            topology.rejects.add(f"{section.lower()}_row", f"{type(error).__name__}: {error}", place)
            continue
        if section == "CABLE_INFO":
            told = {key: row[column] for column, key in _CABLE_COLUMNS.items() if row.get(column, "") not in _NOTHING}
            if told:
                cables[guid, port] = told
        else:
            label = _faceplate(row)
            if label and guid in topology.nodes:
                topology.port_labels[guid, port] = label
    for link in topology.links:
        for ref in (link.b, link.a):  # both ends read the same cable: the first end that tells wins
            link.labels.update(cables.get(ref, {}))


def _faceplate(row: dict[str, str]) -> str:
    label = row.get("Label", "")
    if label not in _NOTHING:
        return label
    cage, port, split = (row.get(key, "") for key in ("Cage", "Port", "Split"))
    if cage in _NOTHING or not cage.lstrip("-").isdigit():
        return ""
    parts = ["1", cage] + [part for part in (port, split) if part not in _NOTHING and part != "0"]
    return "/".join(parts)


def apply_net_dump_ext(topology: Topology, text: str, where: str = "ibdiagnet2.net_dump_ext") -> None:
    """FEC mode and bit error rates of each link end: ``fec``, and ``ber_raw_a``, ``ber_effective_b``, ... by end."""
    header: list[str] = []
    ends = {ref: link for link in topology.links for ref in (link.a, link.b)}
    for number, line in enumerate(text.splitlines(), 1):
        if not line.strip() or line.startswith("#"):
            continue
        cells = [cell.strip() for cell in line.split(":")]
        if not header:
            if cells[0] != "Ty":
                topology.rejects.add("line", line, f"{where}:{number}")
            else:
                header = cells
            continue
        row = dict(zip(header, cells, strict=False))  # only the last column, the name, may hold a colon
        try:
            ref = parse_guid(row["GUID"]), int(row["#IB"])
        except (KeyError, ValueError) as error:
            topology.rejects.add("net_dump_row", f"{type(error).__name__}: {error}", f"{where}:{number}")
            continue
        link = ends.get(ref)
        if link is None:
            continue
        side = "a" if ref == link.a else "b"
        for column, key in _PHY_COLUMNS.items():
            value = row.get(column, "")
            if value not in _NOTHING:
                link.labels[key if key == "fec" else f"{key}_{side}"] = value

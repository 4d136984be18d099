"""What a subnet manager writes down, for fabrics that do not answer us: ``opensm-subnet.lst`` (ibdiagnet's ``.lst`` is the same),
forwarding tables (``dump_lfts``, ``opensm-lfts.dump``, ``opensm.fdbs``, ibdiagnet's ``.fdbs``), and ``saquery``'s records.

Numbers in ``.lst`` lines are hexadecimal, ports included (opensm's osm_dump.c).
"""

from __future__ import annotations

import re
from collections.abc import Iterator

import numpy as np

from fabricd.model.ident import parse_guid
from fabricd.model.rejects import Rejects
from fabricd.model.topology import CA, ROUTER, SWITCH, Topology
from fabricd.topology.assemble import Assembler
from fabricd.topology.speeds import LANE_GBPS, WIDTHS
from fabricd.topology.tables import Lft

LID_MAX = 0xBFFF  # the highest unicast LID
_NO_PORT = 255

_END = (
    r"\{{ (?P<kind{n}>CA|SW|RT|Rt)(?:-SM)? Ports:(?P<ports{n}>[0-9A-Fa-f]{{1,2}}) SystemGUID:(?P<system{n}>[0-9A-Fa-f]{{1,16}}) "
    r"NodeGUID:(?P<guid{n}>[0-9A-Fa-f]{{1,16}}) PortGUID:(?P<port_guid{n}>[0-9A-Fa-f]{{1,16}}) VenID:(?P<vendor{n}>[0-9A-Fa-f]+) "
    r"DevID:(?P<device{n}>[0-9A-Fa-f]+) Rev:(?P<rev{n}>[0-9A-Fa-f]+) \{{(?P<name{n}>.*?)\}} LID:(?P<lid{n}>[0-9A-Fa-f]{{1,4}}) "
    r"PN:(?P<port{n}>[0-9A-Fa-f]{{1,2}}) \}}"
)
_LST = re.compile(
    "^" + _END.format(n=1) + " " + _END.format(n=2) + r" PHY=(?P<width>\S+) LOG=(?P<state>\S+) SPD=(?P<speed>\S+)\s*$"
)
_KINDS = {"CA": CA, "SW": SWITCH, "RT": ROUTER, "Rt": ROUTER}
_LANES = {f"{lane:g}": name for name, lane in reversed(LANE_GBPS.items())}

_LFT_HEAD = re.compile(r"^Unicast lids .*\bguid (0x[0-9A-Fa-f]{1,16})\b")
_FDB_HEAD = re.compile(r"^\w*dump_ucast_routes: Switch (0x[0-9A-Fa-f]{1,16})\b")
_LFT_ROW = re.compile(r"^\s*0x([0-9A-Fa-f]{4}) (\d{3})(?:\s|$)")
_FDB_ROW = re.compile(r"^\s*0x([0-9A-Fa-f]{4})\s*: (?:(\d{3})\s*:|UNREACHABLE)")
_FDB_NOISE = re.compile(r"^(?:\s*$|LID\s*:|\s+Lid\s+Out|\s+Port\s+Info|\d+ (?:valid )?lids dumped|#|\*\*\* WARNING)")

_RECORD = re.compile(r"^(\w+Record) dump:")
_FIELD = re.compile(r"^\s+(\w+):?\.*(.*)$")


def looks_like_lst(text: str) -> bool:
    return bool(_LST.match(text[:2000].split("\n", 1)[0].rstrip("\r")))


def parse_subnet_lst(text: str, where: str = "opensm-subnet.lst") -> Topology:
    """The links a subnet manager lists, both directions of each. Bad lines are counted."""
    build = Assembler("opensm")
    for number, line in enumerate(text.splitlines(), 1):
        place = f"{where}:{number}"
        match = _LST.match(line)
        if match is None:
            if line.strip() and not line.startswith("#"):
                build.topology.rejects.add("line", line, place)
            continue
        refs = []
        for n in ("1", "2"):
            guid, port, kind = parse_guid(match["guid" + n]), int(match["port" + n], 16), _KINDS[match["kind" + n]]
            node = build.node(
                guid, kind, match["name" + n], num_ports=int(match["ports" + n], 16), full=False, where=place
            )
            if node is None:
                break
            node.system_guid, node.vendor_id = int(match["system" + n], 16), int(match["vendor" + n], 16)
            device = match["device" + n]
            node.device_id = int(device[:4] if len(device) == 8 else device, 16)
            node.lids[0 if kind == SWITCH else port] = int(match["lid" + n], 16)
            if kind != SWITCH:
                node.port_guids[port] = int(match["port_guid" + n], 16)
            refs.append((guid, port))
        if len(refs) == 2:
            width = int(match["width"].rstrip("x")) if match["width"].rstrip("x").isdigit() else 0
            speed = _LANES.get(match["speed"].removesuffix(".0"), "")
            if width not in WIDTHS or not speed:
                build.topology.rejects.add("width_speed", f"PHY={match['width']} SPD={match['speed']}", place)
            build.half(refs[0], refs[1], width if width in WIDTHS else 0, speed, place)
    return build.finish()


def parse_lfts(text: str, rejects: Rejects, where: str = "lfts") -> dict[int, Lft]:
    """Egress port by LID of every switch in a dump; 255 where there is none. Rows before a heading and bad rows are counted."""
    tables: dict[int, dict[int, int]] = {}
    current: dict[int, int] | None = None
    for number, line in enumerate(text.splitlines(), 1):
        if head := _LFT_HEAD.match(line) or _FDB_HEAD.match(line):
            current = tables.setdefault(parse_guid(head[1]), {})
            continue
        row = _LFT_ROW.match(line) or _FDB_ROW.match(line)
        if row is None:
            if not _FDB_NOISE.match(line):
                rejects.add("line", line, f"{where}:{number}")
                if "lids" in line or "Switch" in line:
                    current = None  # a heading we could not read: its rows belong to nobody
            continue
        lid, port = int(row[1], 16), int(row[2]) if row[2] else _NO_PORT
        if current is None or not 1 <= lid <= LID_MAX or port > _NO_PORT:
            rejects.add("row_without_switch" if current is None else "lft_row", line, f"{where}:{number}")
            continue
        current[lid] = port
    out: dict[int, Lft] = {}
    for guid, entries in tables.items():
        table = np.full(max(entries, default=0) + 1, _NO_PORT, np.uint8)
        table[list(entries)] = list(entries.values())
        out[guid] = table
    return out


def looks_like_saquery(text: str) -> bool:
    return bool(_RECORD.match(text[:200].lstrip()))


def _records(text: str, rejects: Rejects, where: str) -> Iterator[tuple[str, dict[str, str], str]]:
    kind, fields, place = "", dict[str, str](), ""
    for number, line in enumerate(text.splitlines(), 1):
        if head := _RECORD.match(line):
            if kind:
                yield kind, fields, place
            kind, fields, place = head[1], {}, f"{where}:{number}"
        elif field := _FIELD.match(line):
            fields.setdefault(field[1], field[2].strip())
        elif line.strip():
            rejects.add("line", line, f"{where}:{number}")
    if kind:
        yield kind, fields, place


def parse_saquery(text: str, where: str = "saquery") -> Topology:
    """NodeRecord, LinkRecord and, for rates, PortInfoRecord dumps of ``saquery``, one after another in one text."""
    build = Assembler("sa")
    rejects = build.topology.rejects
    by_lid: dict[int, tuple[int, int]] = {}  # LID -> node GUID, port (0 for a switch)
    links: list[tuple[int, int, int, int, str]] = []
    rates: dict[tuple[int, int], tuple[int, str]] = {}  # LID, port number -> width, speed
    for kind, fields, place in _records(text, rejects, where):
        try:
            if kind == "NodeRecord":
                _node_record(build, fields, by_lid, place)
            elif kind == "LinkRecord":
                numbers = [int(fields[key]) for key in ("FromLID", "FromPort", "ToLID", "ToPort")]
                links.append((numbers[0], numbers[1], numbers[2], numbers[3], place))
            elif kind == "PortInfoRecord":
                rates[int(fields["EndPortLid"]), int(fields["PortNum"])] = _sa_rate(fields)
        except (KeyError, ValueError) as error:
            rejects.add("record", f"{kind}: {error}", place)
    for from_lid, from_port, to_lid, to_port, place in links:
        near, far = by_lid.get(from_lid), by_lid.get(to_lid)
        if near is None or far is None:
            rejects.add("link_of_unknown_lid", f"{from_lid} - {to_lid}", place)
            continue
        build.half((near[0], from_port), (far[0], to_port), *rates.get((from_lid, from_port), (0, "")), where=place)
    return build.finish()


def _node_record(build: Assembler, fields: dict[str, str], by_lid: dict[int, tuple[int, int]], place: str) -> None:
    kind = {"Channel Adapter": CA, "Switch": SWITCH, "Router": ROUTER}[fields["node_type"]]
    guid, lid, port = parse_guid(fields["node_guid"]), int(fields["lid"]), int(fields["port_num"])
    node = build.node(
        guid, kind, fields.get("NodeDescription", ""), num_ports=int(fields["num_ports"]), full=False, where=place
    )
    if node is None:
        return
    node.system_guid, node.device_id = parse_guid(fields["sys_guid"]), int(fields["device_id"], 16)
    node.vendor_id, node.revision = int(fields["vendor_id"], 16), int(fields["revision"], 16)
    node.lids[0 if kind == SWITCH else port] = lid
    if kind != SWITCH:
        node.port_guids[port] = parse_guid(fields["port_guid"])
    by_lid[lid] = (guid, 0 if kind == SWITCH else port)


def _sa_rate(fields: dict[str, str]) -> tuple[int, str]:
    width = fields["LinkWidthActive"].rstrip("Xx")
    lane = 0.0
    for key in ("LinkSpeedActive", "LinkSpeedExtActive"):
        text = fields.get(key, "").removesuffix("Gbps").strip()
        lane = float(text) if re.fullmatch(r"\d+(\.\d+)?", text) else lane
    # Extended speeds are printed with their encoding (14.0625, 25.78125, 53.125, 106.25): the nominal lane rate is just below.
    speed = next(
        (name for name, rate in reversed(LANE_GBPS.items()) if rate <= lane < rate * 1.08 and name != "FDR10"), ""
    )
    return (int(width) if width.isdigit() and int(width) in WIDTHS else 0), speed

"""A topology from a file of any kind we read, told apart by its content, and the additions that come from other files."""

from __future__ import annotations

import fnmatch
import json
from pathlib import Path
from typing import Any

from fabricd.errors import BAD_DOCUMENT, UsageError
from fabricd.model.topology import Topology
from fabricd.topology.assemble import label_everything
from fabricd.topology.golden import GOLDEN, topology_from_json
from fabricd.topology.ibdiagnet import apply_db_csv, apply_net_dump_ext, looks_like_db_csv, parse_db_csv
from fabricd.topology.ibnetdiscover import looks_like_ibnetdiscover, parse_ibnetdiscover
from fabricd.topology.lldp import parse_links_file
from fabricd.topology.names import clean_name, parse_name_map
from fabricd.topology.opensm_files import looks_like_lst, looks_like_saquery, parse_saquery, parse_subnet_lst
from fabricd.topology.planes import assign_planes
from fabricd.topology.railfaults import check_rails
from fabricd.topology.routes import RouteTable
from fabricd.topology.ufm import looks_like_ufm_ports, parse_ufm_ports

FILE_MAX = 1 << 30


def read_text(path: str | Path) -> str:
    """The file's text, undecodable bytes replaced. Raises UsageError naming the file."""
    try:
        if Path(path).stat().st_size > FILE_MAX:
            raise UsageError(f"{path}: larger than {FILE_MAX >> 20} MiB")
        return Path(path).read_bytes().decode("utf-8", "replace")
    except OSError as error:
        raise UsageError(f"{path}: {error.strerror}") from None


def parse_topology(text: str, where: str) -> Topology:
    """Any text form: JSON (exported, cached, UFM's ports), ibnetdiscover (either form), ``.lst``, ``db_csv``, saquery, links file.
    Raises UsageError when it is none of them. Rails are not recovered yet (see :func:`complete`)."""
    if text.lstrip()[:1] in ("{", "[") and not looks_like_lst(text):
        try:
            return _from_json(json.loads(text), where)
        except BAD_DOCUMENT as error:
            raise UsageError(f"{where}: {error}") from None
    for looks_like, parse in (
        (looks_like_lst, parse_subnet_lst),
        (looks_like_db_csv, parse_db_csv),
        (looks_like_saquery, parse_saquery),
        (looks_like_ibnetdiscover, parse_ibnetdiscover),
    ):
        if looks_like(text):
            return parse(text, where)
    try:
        topology, _ = parse_links_file(text, where=where)
    except BAD_DOCUMENT:
        topology = Topology()
    if not topology.nodes:
        raise UsageError(
            f"{where}: not a topology: expected exported JSON, ibnetdiscover text, opensm-subnet.lst, ibdiagnet2.db_csv, "
            "saquery records, UFM's list of ports or a links file (TOML)"
        )
    return topology


def _from_json(document: Any, where: str) -> Topology:
    """Exported, cached (the topology is one part of the cache), or UFM's list of ports. Raises ValueError."""
    if looks_like_ufm_ports(document):
        return parse_ufm_ports(document, where)
    if isinstance(document, dict) and "topology" in document:
        document = document["topology"]
    return topology_from_json(document, where)


def load_topology(path: str | Path) -> Topology:
    """A topology file, complete with rails and faults. Raises UsageError."""
    return complete(parse_topology(read_text(path), Path(path).name))


def load_ibnetdiscover(path: str | Path) -> Topology:
    """A file that must be ibnetdiscover's output. Raises UsageError when nothing in it is."""
    topology = parse_ibnetdiscover(read_text(path), Path(path).name)
    if not topology.nodes:
        raise UsageError(f"{path}: no line of it is ibnetdiscover output")
    return complete(topology)


def load_roce(path: str | Path) -> tuple[Topology, RouteTable | None]:
    """A links file and the LLDP documents its ``lldp_dir`` names (``NAME.json``, the listener's name), and the routes in it."""
    import tomllib

    text = read_text(path)
    heard: dict[str, Any] = {}
    try:
        directory = tomllib.loads(text).get("lldp_dir")
        bad: list[tuple[str, str]] = []
        for file in sorted((Path(path).parent / str(directory)).glob("*.json")) if directory else []:
            try:
                heard[file.stem] = json.loads(read_text(file))
            except BAD_DOCUMENT as error:
                bad.append((file.name, str(error)))
        topology, routes = parse_links_file(text, heard, Path(path).name)
    except BAD_DOCUMENT as error:
        raise UsageError(f"{path}: not TOML: {error}") from None
    for name, reason in bad:
        topology.rejects.add("lldp_document", reason, name)
    return topology, routes


def complete(topology: Topology) -> Topology:
    """Planes numbered; rails recovered and the wiring checked, unless the file tells. Rails a golden file names are kept."""
    assign_planes(topology)
    given = topology.rails
    if not given or topology.source == GOLDEN:
        check_rails(topology)
        topology.rails = given or topology.rails
    return topology


def apply_name_map(topology: Topology, text: str, where: str) -> None:
    """Names of a node-name-map replace descriptions; what a description said of host and adapter stays, if the new name is silent."""
    for guid, name in parse_name_map(text, topology.rejects, where).items():
        node = topology.nodes.get(guid)
        if node is not None and name:
            node.labels.setdefault("description", node.name)
            node.name = clean_name(name)
            for key in ("short", "model", "asic"):
                node.labels.pop(key, None)
    topology.faults = [fault for fault in topology.faults if fault.kind != "factory_name"]
    label_everything(topology)


def apply_ibdiagnet_dir(topology: Topology, directory: str | Path) -> None:
    """Cables, faceplate labels, FEC and bit error rates of an ibdiagnet output directory, as far as its files are there."""
    base = Path(directory)
    if not base.is_dir():
        raise UsageError(f"{directory}: not a directory")
    for name, apply in (("ibdiagnet2.db_csv", apply_db_csv), ("ibdiagnet2.net_dump_ext", apply_net_dump_ext)):
        if (base / name).exists():
            apply(topology, read_text(base / name), name)


def apply_racks(topology: Topology, text: str, where: str) -> None:
    """``pattern rack`` a line: the rack of nodes whose name, short name or host matches (the first line that does)."""
    patterns: list[tuple[str, str]] = []
    for number, line in enumerate(text.splitlines(), 1):
        words = line.split("#", 1)[0].split()
        if len(words) == 2:
            patterns.append((words[0], words[1]))
        elif words:
            topology.rejects.add("rack_line", line, f"{where}:{number}")
    for node in topology.nodes.values():
        names = [name for name in (node.host, node.labels.get("short", ""), node.name) if name]
        rack = next((rack for pattern, rack in patterns if any(fnmatch.fnmatchcase(n, pattern) for n in names)), None)
        if rack is not None:
            node.labels["rack"] = rack

"""A topology as a file: what ``topo export --format json`` writes, and the golden form to keep under version control.

Reading accepts either, and any document with the keys ``nodes`` and ``links``; the rest is optional.
"""

from __future__ import annotations

import json
from typing import Any

from fabricd.model.ident import parse_guid
from fabricd.model.topology import Fault, Link, Node, PortRef, RailGroup, Topology
from fabricd.topology.assemble import PORT_MAX

GOLDEN = "golden"  # source of a topology whose file says how things should be, and nothing of what is wrong
_KEEP = 3  # decimals of a rate


def golden_json(topology: Topology) -> str:
    """What a fabric should be: names, types, cables, rails. One line an element, sorted, so that a diff tool shows changes;
    LIDs, faults and rejections are left out because they change by themselves."""
    document = topology.to_json()
    for node in document["nodes"]:
        node.pop("lids", None)
    sections = {"nodes": document["nodes"], "links": document["links"], "rails": document["rails"]}
    body = ",\n".join(
        f'"{key}":[\n' + ",\n".join(json.dumps(row, separators=(",", ":"), sort_keys=True) for row in rows) + "\n]"
        for key, rows in sections.items()
    )
    labels = json.dumps(_labels_json(topology), separators=(",", ":"), sort_keys=True)
    return f'{{"fabric":{json.dumps(topology.fabric)},\n{body},\n"port_labels":{labels}}}\n'


def full_json(topology: Topology) -> dict[str, Any]:
    """The document of ``topo show --json``, with the faceplate labels besides."""
    return {**topology.to_json(), "port_labels": _labels_json(topology)}


def _labels_json(topology: Topology) -> dict[str, dict[str, str]]:
    out: dict[str, dict[str, str]] = {}
    for (guid, port), label in sorted(topology.port_labels.items()):
        out.setdefault(f"0x{guid:016x}", {})[str(port)] = label
    return out


def topology_from_json(document: Any, where: str = "topology") -> Topology:
    """The topology of a document. A bad element costs itself and is counted; raises ValueError when it is no such document."""
    if (
        not isinstance(document, dict)
        or not isinstance(document.get("nodes"), list)
        or not isinstance(document.get("links"), list)
    ):
        raise ValueError('not a topology: no "nodes" and "links"')
    source = "file" if "faults" in document else GOLDEN
    topology = Topology(fabric=str(document.get("fabric", "default")), source=source)
    for kind, read in (("nodes", _node), ("links", _link), ("rails", _rail), ("faults", _fault)):
        rows = document.get(kind) or []
        for number, row in enumerate(rows if isinstance(rows, list) else []):
            try:
                read(topology, row)
            except (KeyError, TypeError, ValueError, AttributeError, IndexError) as error:
                topology.rejects.add(
                    f"bad_{kind[:-1]}", f"{type(error).__name__}: {error}", f"{where}: {kind}[{number}]"
                )
    labels = document.get("port_labels")
    for guid, ports in labels.items() if isinstance(labels, dict) else ():
        try:
            topology.port_labels.update({(parse_guid(guid), int(port)): str(label) for port, label in ports.items()})
        except (ValueError, AttributeError) as error:
            topology.rejects.add("bad_port_label", error, where)
    return topology


def _ref(pair: Any) -> PortRef:
    guid, port = parse_guid(pair[0]), int(pair[1])
    if not 0 <= port <= max(PORT_MAX, 4096):
        raise ValueError(f"port {port}")
    return guid, port


def _texts(row: Any) -> dict[str, str]:
    return {str(key): str(value) for key, value in (row.get("labels") or {}).items()}


def _node(topology: Topology, row: Any) -> None:
    guid = parse_guid(row["guid"])
    if guid in topology.nodes:
        raise ValueError(f"{row['guid']} is there twice")
    node = Node(
        guid, str(row["type"]), str(row.get("name", "")), int(row.get("ports", 0)), host=str(row.get("host", ""))
    )
    node.plane = int(row.get("plane", 0))
    node.lids = {int(port): int(lid) for port, lid in (row.get("lids") or {}).items()}
    node.port_guids = {int(port): parse_guid(text) for port, text in (row.get("port_guids") or {}).items()}
    node.labels = _texts(row)
    topology.nodes[guid] = node


def _link(topology: Topology, row: Any) -> None:
    ends = _ref(row["a"]), _ref(row["b"])
    for guid, _ in ends:
        if guid not in topology.nodes:
            raise ValueError(f"link of unknown node 0x{guid:016x}")
    rate, width = float(row.get("rate_gbps", 0)), int(row.get("width", 0))
    topology.links.append(Link(*ends, round(rate, _KEEP), width, str(row.get("speed", "")), _texts(row)))


def _rail(topology: Topology, row: Any) -> None:
    leaves = [[parse_guid(guid) for guid in rail] for rail in row["rails"]]
    hosts = [str(host) for host in row["hosts"]]
    topology.rails.append(
        RailGroup(str(row["name"]), hosts, leaves, str(row.get("kind", "compute")), str(row.get("pod", "")))
    )


def _fault(topology: Topology, row: Any) -> None:
    ports = [_ref(pair) for pair in row.get("ports") or []]
    topology.faults.append(Fault(str(row["kind"]), str(row["where"]), str(row.get("detail", "")), ports))

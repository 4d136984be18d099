"""Read a trace directory (``counters.csv.gz``, ``topology.json``, ``link_state.csv``) as tables and a topology.

Columns and the priority may be absent and cells empty: not observable. A bad line costs itself and is counted.
"""

from __future__ import annotations

import csv
import gzip
import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from fabricd.errors import BAD_DOCUMENT, FabricdError
from fabricd.model.rejects import Rejects
from fabricd.model.topology import CA, SWITCH, Link, Node, PortRef, Topology
from fabricd.topology.routes import RouteTable

Floats = npt.NDArray[np.float64]
NodeId = str | int
COUNTERS = ("counters.csv.gz", "counters.csv")


@dataclass(slots=True)
class CounterTable:
    """Rows sorted by time. ``node`` is the number of a node in ``Trace.ids``; ``prio`` -1 = whole port; values nan = absent."""

    t_ns: npt.NDArray[np.int64]
    node: npt.NDArray[np.int64]
    port: npt.NDArray[np.int64]
    prio: npt.NDArray[np.int64]
    values: dict[str, Floats]

    def __len__(self) -> int:
        return len(self.t_ns)


@dataclass(slots=True)
class Trace:
    """A trace in memory. ``ids[guid - 1]`` is the node id the trace itself uses."""

    topology: Topology
    routes: RouteTable
    counters: CounterTable
    link_state: list[tuple[int, PortRef, float]]
    ids: list[NodeId]
    adaptive: bool = False
    control_priority: int | None = None
    host_of: dict[int, str] = field(default_factory=dict)
    rejects: Rejects = field(default_factory=Rejects)
    notes: list[str] = field(default_factory=list)  # what its source cannot show, for every verdict's ``blind``

    def guid(self, node: NodeId) -> int:
        """GUID of a trace's node id. Raises KeyError."""
        return self._numbers[str(node)]

    @property
    def _numbers(self) -> dict[str, int]:
        return {str(node): i + 1 for i, node in enumerate(self.ids)}


def read_trace(directory: Path) -> Trace:
    """Raises FabricdError when the directory holds no readable trace."""
    rejects = Rejects()
    document = _json(directory / "topology.json")
    try:
        topology, ids, routes = _topology(document, rejects)
    except (KeyError, TypeError, ValueError) as error:
        raise FabricdError(f"{directory / 'topology.json'}: not a topology: {error!r}") from None
    numbers = {str(node): i + 1 for i, node in enumerate(ids)}
    path = next((directory / name for name in COUNTERS if (directory / name).exists()), None)
    if path is None:
        raise FabricdError(f"{directory}: no {COUNTERS[0]}")
    counters = _counters(path, numbers, rejects)
    control = document.get("control_prio")
    return Trace(
        topology=topology,
        routes=routes,
        counters=counters,
        link_state=_link_state(directory / "link_state.csv", numbers, rejects),
        ids=ids,
        adaptive=bool(document.get("adaptive", False)),
        control_priority=int(control) if control is not None else None,
        host_of={numbers[str(k)]: str(v) for k, v in _host_of(document).items() if str(k) in numbers},
        rejects=rejects,
        notes=[str(note) for note in document.get("notes") or ()],
    )


def _json(path: Path) -> dict[str, Any]:
    try:
        document = json.loads(path.read_bytes())
    except OSError as error:
        raise FabricdError(f"{path}: {error.strerror}") from None
    except BAD_DOCUMENT as error:
        raise FabricdError(f"{path}: not JSON: {error}") from None
    if not isinstance(document, dict):
        raise FabricdError(f"{path}: not a JSON object")
    return document


def _host_of(document: dict[str, Any]) -> dict[str, Any]:
    known = document.get("host_of")
    if isinstance(known, dict):
        return known
    if isinstance(known, list):
        return {str(i): host for i, host in enumerate(known)}
    return {}


def _topology(document: dict[str, Any], rejects: Rejects) -> tuple[Topology, list[NodeId], RouteTable]:
    ids: list[NodeId] = [node["id"] for node in document["nodes"]]
    number = {str(node): i + 1 for i, node in enumerate(ids)}
    topology = Topology(source="trace")
    for node in document["nodes"]:
        guid = number[str(node["id"])]
        kind = CA if node.get("kind") == "host" else SWITCH
        topology.nodes[guid] = Node(guid, kind, str(node.get("name", node["id"])))
    for link in document["links"]:
        try:
            a, b = number[str(link["a"])], number[str(link["b"])]
        except KeyError as error:
            rejects.add("link_node", error, "topology.json")
            continue
        topology.links.append(
            Link((a, int(link["a_port"])), (b, int(link["b_port"])), float(link.get("rate_bps", 0)) / 1e9)
        )
    adapter_ports: dict[int, list[int]] = {}
    for link in topology.links:
        for guid, port in (link.a, link.b):
            if topology.nodes[guid].type == CA:
                adapter_ports.setdefault(guid, []).append(port)
    tables: dict[int, dict[PortRef, list[int]]] = {}
    for switch, table in (document.get("fib") or {}).items():
        if str(switch) not in number:
            rejects.add("fib_switch", switch, "topology.json")
            continue
        mine = tables.setdefault(number[str(switch)], {})
        for host, ports in table.items():
            if str(host) not in number:
                rejects.add("fib_host", host, "topology.json")
                continue
            guid = number[str(host)]
            for port in adapter_ports.get(guid, ()):
                mine[guid, port] = [int(p) for p in ports]
    routes = RouteTable.build(topology, tables, "config")
    if not tables:
        from fabricd.topology.minhop import assumed_routes

        routes = assumed_routes(topology)
    return topology, ids, routes


def _open(path: Path) -> bytes:
    try:
        raw = path.read_bytes()
        return gzip.decompress(raw) if path.suffix == ".gz" else raw
    except (OSError, EOFError, gzip.BadGzipFile) as error:
        raise FabricdError(f"{path}: {error}") from None


def _counters(path: Path, numbers: dict[str, int], rejects: Rejects) -> CounterTable:
    data = _open(path)
    head, _, body = data.partition(b"\n")
    names = [name.strip() for name in head.decode("utf-8", "replace").split(",")]
    for needed in ("t_ns", "node", "port"):
        if needed not in names:
            raise FabricdError(f"{path}: no column {needed}")
    table = _parse_fast(body, len(names))
    if table is None:
        table = _parse_lines(body, names, numbers, rejects, path.name)
    else:
        known = np.zeros(int(max(1, np.nanmax(table[:, names.index("node")], initial=0))) + 1, np.int64)
        for text, guid in numbers.items():
            if text.isdecimal() and int(text) < len(known):
                known[int(text)] = guid
        table[:, names.index("node")] = known[table[:, names.index("node")].astype(np.int64)]
    need = table[:, [names.index(n) for n in ("t_ns", "node", "port")]]
    good = np.isfinite(need).all(axis=1) & (need[:, 1] > 0)
    if not good.all():
        rejects.counts["counter_row"] += int((~good).sum())
        table = table[good]
    order = np.argsort(table[:, names.index("t_ns")], kind="stable")
    table = table[order]
    column = {name: table[:, i] for i, name in enumerate(names)}
    prio = column.get("prio")
    whole = np.full(len(table), -1, np.int64)
    return CounterTable(
        t_ns=column["t_ns"].astype(np.int64),
        node=column["node"].astype(np.int64),
        port=column["port"].astype(np.int64),
        prio=whole if prio is None else np.where(np.isnan(prio), -1, prio).astype(np.int64),
        values={n: np.ascontiguousarray(v) for n, v in column.items() if n not in ("t_ns", "node", "port", "prio")},
    )


def _parse_fast(body: bytes, width: int) -> Floats | None:
    """All-numeric tables; None when a line is irregular."""
    body = body.replace(b"\r", b"").strip(b"\n")
    if not body:
        return np.zeros((0, width))
    if body.translate(None, b"0123456789.,-\n"):
        return None
    lines = body.count(b"\n") + 1
    if body.count(b",") != lines * (width - 1):
        return None
    text = body.replace(b"\n", b",")
    while b",," in text:
        text = text.replace(b",,", b",nan,")
    if text.startswith(b","):
        text = b"nan" + text
    if text.endswith(b","):
        text += b"nan"
    try:
        flat = np.fromstring(text.decode(), dtype=np.float64, sep=",")
    except ValueError:
        return None
    return flat.reshape(lines, width) if flat.size == lines * width else None


def _parse_lines(body: bytes, names: list[str], numbers: dict[str, int], rejects: Rejects, where: str) -> Floats:
    rows: list[list[float]] = []
    node_at = names.index("node")
    for number, row in enumerate(csv.reader(body.decode("utf-8", "replace").splitlines()), start=2):
        if len(row) != len(names):
            rejects.add("csv_line", ",".join(row), f"{where}:{number}")
            continue
        row[node_at] = str(numbers.get(row[node_at].strip(), 0))
        try:
            rows.append([float(cell) if cell.strip() else np.nan for cell in row])
        except ValueError as error:
            rejects.add("csv_number", error, f"{where}:{number}")
    return np.array(rows) if rows else np.zeros((0, len(names)))


def _link_state(path: Path, numbers: dict[str, int], rejects: Rejects) -> list[tuple[int, PortRef, float]]:
    if not path.exists():
        return []
    out: list[tuple[int, PortRef, float]] = []
    with path.open(newline="") as file:
        for row in csv.DictReader(file):
            try:
                out.append((int(row["t_ns"]), (numbers[row["node"].strip()], int(row["port"])), float(row["rate_bps"])))
            except (KeyError, TypeError, ValueError, AttributeError):
                rejects.add("link_state", row, path.name)
    return sorted(out)

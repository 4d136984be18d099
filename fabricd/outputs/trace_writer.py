"""Write a trace directory that ``read_trace`` reads: ``topology.json``, ``counters.csv.gz``, ``link_state.csv``."""

from __future__ import annotations

import dataclasses
import gzip
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from fabricd.model.topology import AGGREGATION, SWITCH
from fabricd.outputs.trace import Trace
from fabricd.topology.routes import ASSUMED


def cut(trace: Trace, start_ns: int, end_ns: int) -> Trace:
    """The rows of a span of time. Speeds reported before it are kept, at its beginning."""
    table = trace.counters
    keep = (table.t_ns >= start_ns) & (table.t_ns <= end_ns)
    rows = dataclasses.replace(
        table,
        t_ns=table.t_ns[keep],
        node=table.node[keep],
        port=table.port[keep],
        prio=table.prio[keep],
        values={name: values[keep] for name, values in table.values.items()},
    )
    speeds = sorted((max(t, start_ns), ref, bps) for t, ref, bps in trace.link_state if t <= end_ns)
    return dataclasses.replace(trace, counters=rows, link_state=speeds)


def write_trace(trace: Trace, directory: Path) -> None:
    """Raises OSError. Routes that were assumed are left out, so that a reader assumes them too, and says so."""
    directory.mkdir(parents=True, exist_ok=True)
    (directory / "topology.json").write_text(json.dumps(_topology(trace), separators=(",", ":")))
    with gzip.open(directory / "counters.csv.gz", "wt", encoding="ascii", compresslevel=6) as file:
        file.writelines(_rows(trace))
    lines = [f"{t},{trace.ids[ref[0] - 1]},{ref[1]},{bps:.0f}\n" for t, ref, bps in trace.link_state]
    (directory / "link_state.csv").write_text("".join(["t_ns,node,port,rate_bps\n", *lines]))


def _topology(trace: Trace) -> dict[str, Any]:
    topology, ids = trace.topology, trace.ids
    nodes = {guid: node for guid, node in sorted(topology.nodes.items()) if node.type != AGGREGATION}
    document: dict[str, Any] = {
        "nodes": [
            {"id": ids[guid - 1], "kind": "switch" if node.type == SWITCH else "host", "name": node.name}
            for guid, node in nodes.items()
        ],
        "links": [
            {
                "a": ids[link.a[0] - 1],
                "a_port": link.a[1],
                "b": ids[link.b[0] - 1],
                "b_port": link.b[1],
                "rate_bps": round(link.rate_gbps * 1e9),
            }
            for link in topology.links
            if link.a[0] in nodes and link.b[0] in nodes
        ],
        "adaptive": trace.adaptive,
        "notes": trace.notes,
    }
    if trace.control_priority is not None:
        document["control_prio"] = trace.control_priority
    if set(trace.routes.sources) != {ASSUMED}:
        document["fib"] = _fib(trace)
    return document


def _fib(trace: Trace) -> dict[str, dict[str, list[int]]]:
    routes = trace.routes
    hosts = sorted({int(guid) for guid in routes.destinations})
    return {
        str(trace.ids[int(switch) - 1]): {
            str(trace.ids[host - 1]): ports for host in hosts if (ports := routes.egress(int(switch), host))
        }
        for switch in routes.switches
    }


def _rows(trace: Trace) -> Iterator[str]:
    table = trace.counters
    yield ",".join(["t_ns", "node", "port", "prio", *table.values]) + "\n"
    columns = list(table.values.values())
    for i in range(len(table)):
        prio = "" if table.prio[i] < 0 else str(table.prio[i])
        cells = ["" if np.isnan(column[i]) else _number(float(column[i])) for column in columns]
        yield ",".join([str(table.t_ns[i]), str(trace.ids[table.node[i] - 1]), str(table.port[i]), prio, *cells]) + "\n"


def _number(value: float) -> str:
    return str(int(value)) if value.is_integer() else repr(value)

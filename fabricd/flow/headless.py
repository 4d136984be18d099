"""Run a scenario without waiting and give back a trace: the files of the packet-level trace format, in memory.

The model does no I/O, so the caller writes ``Trace.files()`` where it likes (``benchmarks/flow_draws.py`` does).
"""

from __future__ import annotations

import gzip
import json
from dataclasses import dataclass
from typing import Any

import numpy as np

from fabricd.flow.fabric import FlowModel
from fabricd.flow.graph import IntArray
from fabricd.flow.labels import build_label
from fabricd.flow.paths import base_times, ideal_seconds, path_of
from fabricd.flow.recorder import Recorder
from fabricd.flow.scenarios import build
from fabricd.flow.settings import DROP_LANE
from fabricd.flow.staging import Draw, Scene

COLUMNS = (
    "t_ns,node,port,prio,tx_bytes,rx_bytes,tx_pkts,rx_pkts,pfc_tx,pfc_rx,paused_ns,xmit_wait_ns,"
    "ecn_marked,cnp_tx,cnp_rx,q_bytes,q_max,ingress_bytes,drops,pfc_xon_tx"
)


@dataclass(slots=True)
class Trace:
    """One run: rows of counters per window, and the documents beside them."""

    name: str
    counters: list[IntArray]  # per window [rows, 20] in COLUMNS order
    topology: dict[str, Any]
    link_state: list[tuple[int, int, int, int]]
    label: dict[str, Any]
    flows: list[dict[str, Any]]

    def files(self) -> dict[str, bytes]:
        """File name -> content, as the trace format has them."""
        lines = [COLUMNS]
        for block in self.counters:
            lines.extend(",".join(map(str, row)) for row in block.tolist())
        states = ["t_ns,node,port,rate_bps", *(",".join(map(str, state)) for state in self.link_state)]
        return {
            "counters.csv.gz": gzip.compress(("\n".join(lines) + "\n").encode(), 1, mtime=0),
            "link_state.csv": ("\n".join(states) + "\n").encode(),
            "topology.json": json.dumps(self.topology, separators=(",", ":")).encode(),
            "label.json": json.dumps(self.label, separators=(",", ":")).encode(),
            "flows.json": json.dumps(self.flows, separators=(",", ":")).encode(),
        }


def run(name: str, draw: Draw) -> Trace:
    """Draw a scenario, run it to its end and label it. Raises UsageError for an unknown name."""
    return run_scene(build(name, draw))


def run_scene(scene: Scene) -> Trace:
    """Run a scene that was set up already."""
    model = scene.model
    recorder = Recorder(model, scene.window_s)
    paths = [path_of(model, flow) for flow in range(model.engine.flows.n)]
    rows = CounterRows(model, used_lanes(scene))
    blocks: list[IntArray] = []
    for n in scene.run():
        recorder.close_window()
        blocks.append(rows.take(round((n + 1) * scene.window_s * 1e9)))
    header = {
        "scenario": scene.name,
        "seed": scene.seed,
        "cc": model.settings.cc.kind,
        "topology": model.graph.topology.fabric,
    }
    header["intent"] = scene.intent
    label = build_label(model, recorder, paths, header, scene.wrong, scene.quiet_by_design)
    states = [(round(t * 1e9), *_port(model, end), round(rate * 8)) for t, end, rate in model.link_events]
    return Trace(
        f"{scene.name}-{scene.seed}",
        blocks,
        topology_json(model, used_lanes(scene)),
        states,
        label,
        flows_json(scene, paths),
    )


def used_lanes(scene: Scene) -> list[int]:
    """Lanes traffic can ride, by the maps in force."""
    flows = scene.model.engine.flows
    levels = {scene.lanes.compute, scene.lanes.storage} | set(np.unique(flows.sl).tolist())
    lanes = np.unique(scene.model.controls.lane_of[:, :, sorted(levels)])
    return [lane for lane in lanes.tolist() if lane != DROP_LANE]


class CounterRows:
    """Takes the counter rows of one moment, cumulative, of every port and used lane."""

    def __init__(self, model: FlowModel, lanes: list[int]) -> None:
        self.model, self.lanes = model, np.asarray(lanes)
        ports = [_port(model, p) for p in range(len(model.graph.ports))]
        self._names = np.repeat(np.asarray(ports, dtype=np.int64), len(lanes), axis=0)
        self._prio = np.tile(self.lanes, len(ports))

    def take(self, t_ns: int) -> IntArray:
        """[rows, 20] in COLUMNS order; notifications are shown on the lowest lane. Resets the queue maximum."""
        model, c = self.model, self.model.counters
        lanes = self.lanes

        def flat(values: np.ndarray[Any, Any]) -> IntArray:
            return values[:, lanes].reshape(-1).astype(np.int64)

        first = (np.arange(len(lanes)) == 0).astype(np.int64)
        notices = [(values[:, None] * first).reshape(-1) for values in (c.cnp_tx, c.cnp_rx)]
        queue = model.queue_bytes()
        block = np.column_stack(
            [
                np.full(len(self._prio), t_ns),
                self._names,
                self._prio,
                *(
                    flat(x)
                    for x in (
                        c.tx_bytes,
                        c.rx_bytes,
                        c.tx_pkts,
                        c.rx_pkts,
                        c.pfc_tx,
                        c.pfc_rx,
                        c.paused_ns,
                        c.xmit_wait_ns,
                    )
                ),
                flat(c.ecn_marked),
                *notices,
                *(flat(x) for x in (queue, c.queue_max, model.ingress_bytes(), c.drops, c.pfc_xon_tx)),
            ]
        )
        c.queue_max[:] = queue
        return block.astype(np.int64)


def _port(model: FlowModel, port: int) -> tuple[int, int]:
    guid, number = model.graph.ports[port]
    return model.graph.node_index[guid], number


def topology_json(model: FlowModel, lanes: list[int]) -> dict[str, Any]:
    """Nodes, links, forwarding sets and switch settings as the trace format has them."""
    graph, routes, settings = model.graph, model.routes, model.settings
    topology = graph.topology
    nodes = [
        {"id": n, "kind": "switch" if graph.is_switch[n] else "host", "name": topology.nodes[guid].name}
        for n, guid in enumerate(graph.guids)
    ]
    links = []
    for p, peer in enumerate(graph.peer.tolist()):
        if p < peer:
            a, b = _port(model, p), _port(model, peer)
            rate, delay = round(float(graph.rate[p]) * 8), round(float(graph.delay[p]) * settings.slowdown * 1e9)
            links.append({"a": a[0], "a_port": a[1], "b": b[0], "b_port": b[1], "rate_bps": rate, "delay_ns": delay})
    fib: dict[str, dict[str, list[int]]] = {}
    ends = [graph.node_index[graph.ports[p][0]] for p in graph.endpoints.tolist()]
    adaptive = bool(model.controls.adaptive.any())
    for n in np.flatnonzero(graph.is_switch).tolist():
        table: dict[str, list[int]] = {}
        for h, host in enumerate(ends):
            single = settings.kind == "infiniband" and not adaptive
            members = [int(routes.lft[n, h])] if single else routes.sets[n, h, : int(routes.count[n, h])].tolist()
            table[str(host)] = [graph.ports[int(graph.node_ports[n, m])][1] for m in members if m >= 0]
        fib[str(n)] = table
    size = settings.slowdown
    pool = int(settings.buffers.pool_bytes * size)
    switches = {
        str(n): {
            "buffer_bytes": pool,
            "ecn_kmin_bytes": int(model.controls.ecn_kmin[int(graph.node_ports[n, 0]), lanes[0]]),
        }
        for n in np.flatnonzero(graph.is_switch).tolist()
    }
    out: dict[str, Any] = {
        "kind": topology.fabric,
        "nodes": nodes,
        "links": links,
        "fib": fib,
        "switches": switches,
        "prios": lanes,
    }
    hosts = {str(n): topology.nodes[guid].host for n, guid in enumerate(graph.guids) if topology.nodes[guid].host}
    if len(set(hosts.values())) < len(hosts):
        out["host_of"] = hosts
    if adaptive:
        out["adaptive"] = True
    return out


def flows_json(scene: Scene, paths: list[list[int]]) -> list[dict[str, Any]]:
    """Every flow with its way, bytes and message slowdowns."""
    model = scene.model
    flows, messages = model.engine.flows, model.messages.all
    ideal = ideal_seconds(model, messages, paths)
    delay, rate = base_times(model, paths)
    ratios: dict[int, list[float]] = {}
    starts: dict[int, float] = {}
    count: dict[int, int] = {}
    for message, alone in zip(messages, ideal.tolist(), strict=True):
        starts.setdefault(message.flow, message.request_s)
        count[message.flow] = count.get(message.flow, 0) + 1
        if message.done_s is not None and message.start_s is not None:
            ratios.setdefault(message.flow, []).append((message.done_s - message.start_s) / alone)
    ends = [model.graph.node_index[model.graph.ports[p][0]] for p in model.graph.endpoints.tolist()]
    out: list[dict[str, Any]] = []
    for flow in range(flows.n):
        if flow not in count:
            continue
        values = ratios.get(flow, [])
        src, dst = int(flows.src[flow]), int(flows.dst[flow])
        lane = int(model.controls.lane_of[int(flows.port[flow]), model.graph.width, int(flows.sl[flow])])
        out.append(
            {
                "id": flow,
                "src": ends[src],
                "dst": ends[dst],
                "prio": lane,
                "kind": scene.kind_of(flow),
                "path": [list(_port(model, p)) for p in paths[flow]],
                "n_msgs": count[flow],
                "bytes": int(flows.offered[flow]),
                "start_ns": round(starts[flow] * 1e9),
                "min_rate_bps": round(float(rate[flow]) * 8),
                "base_rtt_ns": round(2e9 * float(delay[flow])),
                "unfinished": count[flow] - len(values),
                "slowdown_mean": round(float(np.mean(values)), 3) if values else None,
                "slowdown_p50": round(float(np.median(values)), 3) if values else None,
                "slowdown_p99": round(float(np.percentile(values, 99)), 3) if values else None,
            }
        )
    return out

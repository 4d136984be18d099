"""Set the model up as a packet-level trace was: same fabric, same flows on the same paths, same trouble.

Takes the parsed documents of a trace (``topology.json``, ``flows.json``, ``label.json``, rows of ``link_state.csv`` and, where
there is one, of ``messages.csv.gz``), so that truth and stalls of both can be compared. Without the message file the
times of single messages are drawn: Poisson over the span the flow was active, rings and bursts by their own rule.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

import numpy as np

from fabricd.flow.collectives import RingAllReduce
from fabricd.flow.fabric import FlowModel
from fabricd.flow.messages import Message
from fabricd.flow.settings import BufferSettings, CcSettings, EcnSettings, FabricSettings
from fabricd.flow.staging import ETHERNET_LANES, Scene
from fabricd.flow.workloads import Arrivals
from fabricd.model.topology import CA, SWITCH, Link, Node, Topology

RINGS = ("rail", "tp")
HOST_XOFF = 131072  # receive buffer of the trace's slow host, read off its counters
LANES = 5
MessageRow = tuple[int, int, int]  # flow, request ns, size


def trace_topology(document: dict[str, Any]) -> Topology:
    """The fabric of a trace; GUID = node id + 1, ports as numbered there."""
    topology = Topology(fabric=str(document["kind"]), source="trace")
    for node in document["nodes"]:
        kind = CA if node["kind"] == "host" else SWITCH
        topology.nodes[node["id"] + 1] = Node(
            node["id"] + 1, kind, node["name"], host=node["name"] if kind == CA else ""
        )
    for link in document["links"]:
        a, b = (link["a"] + 1, link["a_port"]), (link["b"] + 1, link["b_port"])
        topology.links.append(Link(a, b, link["rate_bps"] / 1e9, labels={"delay_ns": str(link["delay_ns"])}))
    return topology


def scene_from_trace(
    topology: dict[str, Any],
    flows: list[dict[str, Any]],
    label: dict[str, Any],
    link_state: Sequence[tuple[int, int, int, int]],
    messages: Sequence[MessageRow] | None = None,
    quantum: int = 16384,
    seed: int = 1,
) -> Scene:
    """A scene that replays the trace in the model."""
    intent = label["intent"]
    dcqcn = label["cc"] == "dcqcn"
    first = next(iter(topology["switches"].values()))
    kmin = int(first["ecn_kmin_bytes"])
    settings = FabricSettings(
        kind="ethernet",
        lanes=LANES,
        quantum_bytes=quantum,
        mtu_bytes=4096,
        buffers=BufferSettings(pool_bytes=int(first["buffer_bytes"]), alpha_shift=3, host_bytes=HOST_XOFF),
        ecn=EcnSettings(kmin_bytes=kmin, kmax_bytes=4 * kmin, pmax=0.2, ref_gbps=25.0, enabled=dcqcn),
        cc=CcSettings(
            kind="dcqcn" if dcqcn else "none",
            cnp_interval_s=4e-6,
            alpha_timer_s=4e-6,
            increase_timer_s=300e-6,
            fast_recovery=1,
            additive=0.002,
            hyper=0.004,
            min_rate=0.004,
        ),
        lossless=(3, 4),
        pause_refresh=False,
    )
    model = FlowModel(trace_topology(topology), settings, seed=seed, serial_messages=True)
    graph = model.graph
    end_of = {guid - 1: h for h, guid in enumerate(graph.ports[p][0] for p in graph.endpoints.tolist())}
    ids = model.add_flows(
        [end_of[f["src"]] for f in flows], [end_of[f["dst"]] for f in flows], [f["prio"] for f in flows]
    )
    if topology.get("adaptive"):
        model.set_adaptive(3, True)
    else:
        _fix_paths(model, flows)
    begin = float(intent.get("t0") or 0) * 1e-9
    end = float(intent.get("t1") or label["duration_ns"]) * 1e-9
    window_s = label["dt_ns"] * 1e-9
    windows = round(label["duration_ns"] / label["dt_ns"])
    rng = np.random.default_rng((seed, 31))
    scene = Scene(label["scenario"], label["seed"], model, window_s, windows, ETHERNET_LANES, begin, end, rng)
    # flows.json counts the bytes of the whole run, also when the label was cut short
    scene.intent = dict(intent, span_s=label.get("flows_span_ns", label["duration_ns"]) * 1e-9)
    scene.kinds = [(int(flow), f["kind"]) for flow, f in zip(ids, flows, strict=True)]
    _load(scene, flows, messages)
    _trouble(scene, link_state, end_of)
    return scene


def _fix_paths(model: FlowModel, flows: list[dict[str, Any]]) -> None:
    graph = model.graph
    fixed = np.full((len(flows), len(graph.guids)), -1, dtype=np.int64)
    for n, flow in enumerate(flows):
        for node, port in flow["path"][1:]:
            index = graph.port(node + 1, port)
            fixed[n, graph.node_of[index]] = graph.local[index]
    model.engine.fixed_path = fixed


class _Sequential:
    """A flow that sends its messages one after the other, each when the last has arrived."""

    def __init__(self, flow: int, begin: float, sizes: Sequence[int]) -> None:
        self.flow, self.begin, self.sizes = flow, begin, list(sizes)

    def start(self, model: FlowModel) -> None:
        """Nothing to prepare."""

    def poll(self, model: FlowModel, now: float) -> None:
        """Offer the first message."""
        if now >= self.begin:
            self.begin = np.inf
            model.offer(self.flow, self.sizes.pop(0))

    def completed(self, model: FlowModel, messages: Sequence[Message]) -> None:
        """Offer the next."""
        if self.sizes and any(message.flow == self.flow for message in messages):
            model.offer(self.flow, self.sizes.pop(0))


class _TraceRing(RingAllReduce):
    """A ring over flows that exist already."""

    def __init__(self, flows: list[int], chunk: int, compute_s: float, begin: float, seed: int) -> None:
        super().__init__(flows, chunk * len(flows), compute_s, seed, begin=begin, jitter=0.0)
        self._flows = flows

    def _connect(self, model: FlowModel) -> None:
        self._place = {flow: k for k, flow in enumerate(self._flows)}
        self._got = [0] * len(self._flows)


def _load(scene: Scene, flows: list[dict[str, Any]], messages: Sequence[MessageRow] | None) -> None:
    """Attach arrivals: recorded ones where there are, else drawn by kind."""
    model = scene.model
    if messages is not None:
        table = np.asarray(messages, dtype=np.int64)
        model.attach(Arrivals(table[:, 1].astype(np.float64) * 1e-9, table[:, 0], table[:, 2]))
        return
    rings: dict[str, list[int]] = {}
    times: list[float] = []
    owners: list[int] = []
    sizes: list[int] = []
    for n, flow in enumerate(flows):
        kind, count = flow["kind"], int(flow["n_msgs"])
        if kind.rstrip("0123456789") in RINGS:
            rings.setdefault(kind, []).append(n)
            continue
        if kind == "storage" and count > 1:
            model.attach(_Sequential(n, flow["start_ns"] * 1e-9, [flow["bytes"] // count] * count))
            continue
        moments, parts = _draw(scene, flow)
        times.extend(moments.tolist())
        owners.extend([n] * len(moments))
        sizes.extend(parts.tolist())
    for members in rings.values():
        model.attach(_ring(scene, flows, members))
    model.attach(Arrivals(np.array(times), np.array(owners, dtype=np.int64), np.array(sizes, dtype=np.int64)))


def _draw(scene: Scene, flow: dict[str, Any]) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
    """Times and sizes of one flow's messages."""
    count, rng, intent = int(flow["n_msgs"]), scene.rng, scene.intent
    start, total = flow["start_ns"] * 1e-9, int(flow["bytes"])
    stop = float(intent["span_s"])
    if count == 1:
        return np.array([start]), np.array([total])
    sizes = np.full(count, total // count)
    if flow["kind"] == "bg":
        draw = rng.lognormal(0.0, 0.8, count)  # spread read off the byte totals of the traces' flows
        sizes = np.maximum(64, (draw / draw.sum() * total)).astype(np.int64)
    if flow["kind"] == "incast" and ("period" in intent or "period_us" in intent):
        period = intent["period"] * 1e-9 if "period" in intent else intent["period_us"] * 1e-6
        return start + period * np.arange(count), sizes
    if flow["kind"] == "incast":
        for _, begin, end in intent.get("incasts", []):
            if begin <= flow["start_ns"] < end:
                stop = end * 1e-9
        stop = min(stop, scene.end) if "incasts" not in intent else stop
    if flow["kind"] == "steady":
        return start + (stop - start) / count * np.arange(count), sizes
    moments = np.sort(rng.uniform(start, stop, count - 1))
    return np.concatenate([[start], moments]), sizes


def _ring(scene: Scene, flows: list[dict[str, Any]], members: list[int]) -> _TraceRing:
    """The ring of one group, in the order its flows follow each other, with the compute gap its byte count implies."""
    after = {flows[n]["src"]: n for n in members}
    order = [members[0]]
    while len(order) < len(members):
        order.append(after[flows[order[-1]]["dst"]])
    first = flows[order[0]]
    chunk = int(first["bytes"]) // int(first["n_msgs"])
    rounds = int(first["n_msgs"]) / (2 * (len(members) - 1))
    span = scene.intent["span_s"] - first["start_ns"] * 1e-9
    sending = first["n_msgs"] * (chunk / (first["min_rate_bps"] / 8) + first["base_rtt_ns"] * 0.5e-9)
    gap = max(0.0, (span - sending) / max(rounds, 1.0))
    return _TraceRing(order, chunk, gap, first["start_ns"] * 1e-9, int(scene.rng.integers(1 << 31)))


def _trouble(scene: Scene, link_state: Sequence[tuple[int, int, int, int]], end_of: dict[int, int]) -> None:
    """Slow hosts, storms and link rates at the times they had."""
    model, intent = scene.model, scene.intent

    def rate(node: int, port: int, bps: float, reported: bool) -> None:
        model.set_link((node + 1, port), rate_gbps=bps / 1e9, reported=reported, both=False)

    for t_ns, node, port, bps in link_state:
        model.at(t_ns * 1e-9, partial(rate, node, port, bps, True))
    if intent.get("unreported"):
        graph = model.graph
        a, b = (graph.node_index[node + 1] for node in intent["link"])
        for p in range(len(graph.ports)):
            q = int(graph.peer[p])
            if {int(graph.node_of[p]), int(graph.node_of[q])} == {a, b}:
                (guid, port), full = graph.ports[p], float(graph.rate[p]) * 8
                slow = full * float(intent["to"])
                model.at(scene.begin, partial(rate, guid - 1, port, slow, False))
                model.at(scene.end, partial(rate, guid - 1, port, full, False))
    host = intent.get("host", intent.get("R2") if intent.get("second") == "slow_receiver" else None)
    if host is None:
        return
    drain = float(intent.get("drain_rate", 0.15 * 25e9)) / 1e9
    begin = float(intent["u0"] if "u0" in intent else intent["t0"]) * 1e-9
    end = float(intent["u1"] if "u1" in intent else intent["t1"]) * 1e-9
    endpoint = end_of[host]
    storm = bool(intent.get("storm"))
    if storm:
        model.at(begin, lambda: model.set_storm(endpoint, True))
        model.at(end, lambda: model.set_storm(endpoint, False))
    else:
        model.at(begin, lambda: model.set_drain(endpoint, drain))
        model.at(end, lambda: model.set_drain(endpoint, None))

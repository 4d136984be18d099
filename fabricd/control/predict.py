"""Predict before push: the proposal first runs on the flow model, seeded with the live fabric, routes and demands.

One model runs as things are, then with the change; both halves see the same load. Where the model does not show the stall that is
measured, its word on the change is worth nothing, and it says so.
"""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from fabricd.control.effects import Effects
from fabricd.control.remedies.base import Draft, NotPossible, Situation
from fabricd.errors import UsageError
from fabricd.flow.fabric import FlowModel
from fabricd.flow.graph import Graph
from fabricd.flow.messages import Message
from fabricd.flow.routing import Routes
from fabricd.flow.settings import BufferSettings, CcSettings, FabricSettings
from fabricd.model.topology import Topology
from fabricd.topology.routes import RouteTable

Floats = npt.NDArray[np.float64]
QUANTUM = 65536
SLOTS = 40  # a second of model time
# Waits take a while to spread, and what stands in buffers before the change has to drain first.
WARM_S, MEASURE_S, SETTLE_S = 5.0, 1.5, 4.0
BUFFER_QUANTA = 5  # real buffers drain in far less than an interval: no larger than the model needs to keep links full
REPRODUCED = 0.25  # of the measured stall, below which the model is not believed
NOISE = 0.05
MOST_ENDPOINTS = 128  # beyond it only the part of the fabric around the root is modelled
MESSAGE_S = 0.1


@dataclass(frozen=True, slots=True)
class Prediction:
    """``before`` and ``after``: mean stall of the victims in the model; ``worse``: the largest increase elsewhere.

    ``gain`` None: it cannot be predicted, ``why`` says what for. ``seconds``: our own time.
    """

    gain: float | None
    before: float
    after: float
    worse: float
    why: str
    seconds: float


def predict(situation: Situation, draft: Draft, seed: int = 0) -> Prediction:
    """What the draft would do to the victims' stall and to everybody else."""
    began = time.perf_counter()

    def unknown(why: str, before: float = 0.0) -> Prediction:
        return Prediction(None, before, before, 0.0, why, time.perf_counter() - began)

    try:
        model, effects = _seeded(situation, draft, seed)
    except (NotPossible, UsageError) as error:
        return unknown(str(error))
    if not model.engine.flows.n:
        return unknown("it is not known who talks to whom")
    graph = model.graph
    victims = [graph.index[ref] for ref in situation.victims() if ref in graph.index]
    if not victims:
        return unknown("no victim lies in the modelled part")
    model.step(WARM_S)
    first = _of_lane(situation, _stall(model, MEASURE_S))
    before = float(first[victims].mean())
    measured = float(np.nan_to_num(situation.state.stall_of(situation.victims(), situation.verdict.priority)).mean())
    if before < max(NOISE, REPRODUCED * measured):
        return unknown(f"the model shows a stall of {before:.0%} where {measured:.0%} is measured", before)
    try:
        for change in draft.changes:
            effects.write(change.lever, change.new)
    except UsageError as error:
        return unknown(str(error), before)
    model.step(SETTLE_S)
    second = _of_lane(situation, _stall(model, MEASURE_S))
    after = float(second[victims].mean())
    return Prediction(
        gain=max(-1.0, 1.0 - after / before),
        before=before,
        after=after,
        worse=_worse(situation, model, first, second, set(victims)),
        why="",
        seconds=time.perf_counter() - began,
    )


def _stall(model: FlowModel, seconds: float) -> Floats:
    """(P, V) share of the time each port waited with data."""
    before = model.counters.xmit_wait_ns.copy()
    model.step(seconds)
    out: Floats = (model.counters.xmit_wait_ns - before) / (seconds * 1e9)
    return out


def _of_lane(s: Situation, stall: Floats) -> Floats:
    """(P,) the wait of the verdict's priority, where the model tells it apart: else the worst lane stands for the port."""
    lane = s.verdict.priority
    out: Floats = stall[:, lane] if lane is not None and lane < stall.shape[1] else stall.max(axis=1)
    return out


def _worse(s: Situation, model: FlowModel, first: Floats, second: Floats, victims: set[int]) -> float:
    """Contributors and the root itself are not innocents."""
    ours = {s.root, s.crowded, *s.traffic.part_of(s.root), *s.traffic.part_of(s.crowded)}
    rows = [i for i, ref in enumerate(model.graph.ports) if i not in victims and ref not in ours]
    return float(max(0.0, (second[rows] - first[rows]).max())) if rows else 0.0


def _seeded(s: Situation, draft: Draft, seed: int) -> tuple[FlowModel, Effects]:
    topology, numbers = _part(s, draft)
    levels = [pair.level for pair in (s.traffic.pairs[n] for n in numbers) if pair.level is not None]
    levels += [int(change.new["sl"]) for change in draft.changes if change.lever.name == "qos_policy"]
    lanes = 8 if s.ethernet else max([1, *(level + 1 for level in levels)])
    fastest = max((link.rate_gbps for link in topology.links), default=0.0) * 1.25e8
    if not fastest:
        raise NotPossible("the rates of the links are not known")
    slowdown = max(1.0, fastest / SLOTS / 0.75 / QUANTUM)
    settings = FabricSettings(
        kind="ethernet" if s.ethernet else "infiniband",
        lanes=min(lanes, 15),
        quantum_bytes=QUANTUM,
        slowdown=slowdown,
        link_delay_s=5e-7,
        buffers=BufferSettings(vl_bytes=BUFFER_QUANTA * QUANTUM),
        cc=CcSettings(),
    )
    settings = replace(settings, ecn=replace(settings.ecn, enabled=False), pause_refresh=False)
    model = FlowModel(topology, settings, seed=seed, keep_messages=False)
    model.auto_reroute = False
    model.engine.routes = model_routes(model.graph, s.routes)
    _faults(s, model)
    _load(s, model, numbers)
    effects = Effects(model)
    for change in draft.changes:
        # What the levers hold now is part of how things are (other settings are the model's defaults).
        if change.old is not None and change.lever.name in ("option", "ets", "pfc"):
            effects.write(change.lever, change.old)
    return model, effects


def _part(s: Situation, draft: Draft) -> tuple[Topology, list[int]]:
    """The fabric and its pairs, or the part around root, victims and touched switches when it is large."""
    whole = s.world.topology
    everyone = list(range(len(s.traffic.pairs)))
    if len(s.routes.frame.destinations) <= MOST_ENDPOINTS:
        return whole, everyone
    watched = {s.root, *s.victims(), *draft.touched.links}
    watched |= {ref for ref in s.world.peers() if ref[0] in draft.touched.switches}
    numbers = sorted({n for ref in watched for n, _ in s.traffic.over(ref)})
    nodes = {ref[0] for n in numbers for ref, _ in s.traffic.paths[n]} | {s.traffic.pairs[n].dst[0] for n in numbers}
    nodes |= {ref[0] for ref in watched}
    peers = s.world.peers()
    switches = set(map(int, s.routes.switches))
    near = {*draft.touched.switches, s.root[0]}
    nodes |= {far[0] for ref, far in peers.items() if ref[0] in near and far[0] in switches}
    part = Topology(fabric=whole.fabric)
    part.nodes = {guid: node for guid, node in whole.nodes.items() if guid in nodes}
    part.links = [link for link in whole.links if link.a[0] in nodes and link.b[0] in nodes]
    return part, numbers


def model_routes(graph: Graph, table: RouteTable) -> Routes:
    """A route table in the model's arrays. Ports and destinations the model does not have are left out."""
    frame = table.frame
    n, h = len(graph.guids), len(graph.endpoints)
    width = frame.peer_switch.shape[1]
    local = np.full((n, width + 1), -1, np.int64)
    for port, (guid, number) in enumerate(graph.ports):
        if number < width:
            local[graph.node_index[guid], number] = graph.local[port]
    sizes = np.diff(table.set_ptr)
    k = max(1, int(sizes.max(initial=1)))
    members = np.full((len(sizes), k), width, np.int64)
    for number, size in enumerate(sizes.tolist()):
        members[number, :size] = table.set_of(number)
    sets = np.full((n, h, k), -1, np.int64)
    columns = np.array(
        [frame.destination_index.get(graph.ports[port], -1) for port in graph.endpoints.tolist()], np.int64
    )
    known = columns >= 0
    for guid, row in frame.switch_index.items():
        node = graph.node_index.get(guid)
        if node is not None:
            found = local[node][members[table.group[row, columns[known]]]]
            # Members first, padding last.
            order = np.argsort(found < 0, axis=1, kind="stable")
            sets[node, known] = np.take_along_axis(found, order, axis=1)
    return Routes(sets, (sets >= 0).sum(axis=2), sets[:, :, 0].copy())


def _faults(s: Situation, model: FlowModel) -> None:
    """What makes the root a root, as far as it is not load."""
    cause = s.verdict.cause
    if cause in ("slow_receiver", "pfc_storm"):
        endpoint = model.graph.endpoint(*s.host)
        carried = s.state.tx_of(s.root)
        if cause == "pfc_storm" or math.isnan(carried):
            model.set_storm(endpoint, True)
        else:
            model.set_drain(endpoint, carried / 1.25e8)
    elif cause == "degraded_link":
        rate = s.state.rate_of(s.root)
        nominal = float(model.graph.rate[model.graph.port(*s.root)])
        carried = s.state.tx_of(s.root)
        slow = rate if rate < 0.95 * nominal else carried
        if slow > 0:
            model.set_link(s.root, rate_gbps=slow / 1.25e8)


class _Demand:
    """Every pair offers its demand evenly; what is not sent yet bounds what is offered.

    Messages are at least one quantum: a port sends one thing in a slot, however small.
    """

    def __init__(self, pairs: Sequence[tuple[int, int, int]], rates: Floats, quantum: int, seed: int) -> None:
        self.pairs, self.rates = pairs, rates
        self.flows: npt.NDArray[np.int64] = np.zeros(0, np.int64)
        self._size = np.maximum(quantum, rates * MESSAGE_S).astype(np.int64)
        self._every = self._size / rates
        self._due = np.random.default_rng((seed, 7)).random(len(rates)) * self._every

    def start(self, model: FlowModel) -> None:
        src, dst, level = zip(*self.pairs, strict=True)
        self.flows = model.add_flows(list(src), list(dst), list(level))

    def poll(self, model: FlowModel, now: float) -> None:
        due = np.flatnonzero(self._due <= now)
        for n in due.tolist():
            if model.engine.flows.backlog[self.flows[n]] <= 3 * self._size[n]:
                model.offer(int(self.flows[n]), int(self._size[n]))
        self._due[due] += self._every[due]

    def completed(self, model: FlowModel, messages: Sequence[Message]) -> None:
        """Open loop."""


def _load(s: Situation, model: FlowModel, numbers: list[int]) -> None:
    graph = model.graph
    pairs, rates = [], []
    for n in numbers:
        pair = s.traffic.pairs[n]
        if s.traffic.demand[n] > 1.0 and pair.src in graph.index and pair.dst in graph.index:
            level = min(pair.level or 0, model.settings.lanes - 1)
            pairs.append((graph.endpoint(*pair.src), graph.endpoint(*pair.dst), level))
            rates.append(float(s.traffic.demand[n]))
    if pairs:
        model.attach(_Demand(pairs, np.asarray(rates), model.engine.quantum, 0))

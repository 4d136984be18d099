"""Why a root is a root, read from the model's state: hosts, links, lane maps, sources and equal-cost siblings."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

import numpy as np

from fabricd.flow.episodes import Episode
from fabricd.flow.fabric import FlowModel
from fabricd.flow.graph import IntArray
from fabricd.flow.recorder import Window

STORM_SHARE = 0.97
ONE_RECEIVER = 0.7
SIBLING_USE = 0.75
BORDER = (0.6, 0.9)
FLAP_MEMORY = 4  # windows a flap explains what follows


@dataclass(frozen=True, slots=True)
class Misconfiguration:
    """A lane map that is not what the rest of the fabric has: where, which service levels, and the lane they end up in."""

    port: int
    levels: tuple[int, ...]
    lane: int


def classify(model: FlowModel, episode: Episode, windows: list[Window], wrong: list[Misconfiguration]) -> None:
    """Set ``cause`` and ``also_accept`` of one episode."""
    if episode.deadlock:
        episode.cause = "pfc_deadlock"
        return
    span = windows[episode.first : episode.last + 1]
    row, lanes = episode.rows[0], model.settings.lanes
    port = row // lanes
    if model.graph.endpoint_of[port] >= 0:
        up = int(model.graph.peer[port]) * lanes + row % lanes
        held = float(np.median([w.paused_ns[up] / (w.length_s * 1e9) for w in span]))
        # a sender without credits counts as held while its last quantum still leaves: look at what got through as well
        through = float(np.median([w.tx_bytes[up] / (w.rate[up // lanes] * w.length_s) for w in span]))
        episode.cause = "pfc_storm" if held >= STORM_SHARE and through <= 1 - STORM_SHARE else "slow_receiver"
        return
    base, also = _by_traffic(model, episode, span, port)
    if wrong and _misled(model, episode, wrong):
        episode.cause, episode.also_accept = "qos_mismatch", [base, *also]
        return
    episode.cause, episode.also_accept = base, also
    if base in ("ecmp_collision", "oversubscription") and _flapped(model, windows, episode, port):
        episode.cause, episode.also_accept = "link_flap", [base, *also]


def _by_traffic(model: FlowModel, episode: Episode, span: list[Window], port: int) -> tuple[str, list[str]]:
    graph, flows = model.graph, model.engine.flows
    lane = episode.rows[0] % model.settings.lanes
    mine = {flow: size for flow, size in episode.flow_bytes.items() if _lane_on(model, port, flow) == lane}
    total = sum(mine.values())
    big = {flow: size for flow, size in mine.items() if size >= 0.02 * total}
    sources = {int(flows.src[flow]) for flow in big}
    if graph.endpoint_of[graph.peer[port]] >= 0:
        return ("incast", []) if len(sources) >= 2 else ("priority_contention", ["incast"])
    slow = np.mean([w.rate[port] < 0.999 * graph.rate[port] for w in span])
    if slow >= 0.5:
        return "degraded_link", []
    receivers = Counter[int]()
    for flow, size in mine.items():
        receivers[int(flows.dst[flow])] += int(size)
    top = receivers.most_common(1)
    if top and top[0][1] >= ONE_RECEIVER * total and len(sources) >= 2:
        return "incast", ["ecmp_collision"]
    siblings = sibling_ports(model, port)
    if not len(siblings):
        return "oversubscription", []
    use = _use(model, span, np.array([port]))[0]
    other = float(np.mean(_use(model, span, siblings))) / max(use, 1e-9)
    adaptive = any(model.controls.adaptive[int(flows.sl[flow])] for flow in big)
    cause = "ecmp_collision" if other < SIBLING_USE and not adaptive else "oversubscription"
    other_cause = "oversubscription" if cause == "ecmp_collision" else "ecmp_collision"
    return cause, [other_cause] if BORDER[0] <= other <= BORDER[1] and not adaptive else []


def _lane_on(model: FlowModel, port: int, flow: int) -> int:
    """Lane of a flow on an egress (by the map most ingresses have)."""
    column = model.controls.lane_of[port, :, int(model.engine.flows.sl[flow])]
    return int(np.bincount(column).argmax())


def sibling_ports(model: FlowModel, port: int) -> IntArray:
    """Ports that could have carried the same traffic: its route-set members, else others that lead to the same node."""
    graph, routes = model.graph, model.routes
    node, local = int(graph.node_of[port]), int(graph.local[port])
    sets = routes.sets[node]
    members = np.unique(sets[(sets == local).any(axis=1)])
    members = members[(members >= 0) & (members != local)]
    if len(members):
        found: IntArray = graph.node_ports[node, members]
        return found
    towards = graph.node_of[graph.peer]
    same: IntArray = np.flatnonzero((towards == towards[port]) & graph.is_switch[graph.node_of])
    others: IntArray = same[same != port]
    return others


def _use(model: FlowModel, span: list[Window], ports: IntArray) -> list[float]:
    lanes = model.settings.lanes
    seconds = sum(w.length_s for w in span)
    sent = sum(w.tx_bytes.reshape(-1, lanes)[ports].sum(axis=1) for w in span)
    out: list[float] = (np.asarray(sent) / (model.graph.rate[ports] * seconds)).tolist()
    return out


def _misled(model: FlowModel, episode: Episode, wrong: list[Misconfiguration]) -> bool:
    """Whether traffic hurt or doing the hurt rides a lane only because of a wrong map at a port of this tree."""
    levels = {level for item in wrong for level in item.levels}
    flows = model.engine.flows
    hurt = {victim.flow for victim in episode.victims if victim.confirmed}
    touched = [flow for flow in hurt | set(episode.contributors) if int(flows.sl[flow]) in levels]
    lanes = model.settings.lanes
    near = {row // lanes for row in episode.tree} | {row // lanes for row in episode.rows}
    lane = episode.rows[0] % lanes
    return bool(touched) and any(item.port in near and item.lane == lane for item in wrong)


def _flapped(model: FlowModel, windows: list[Window], episode: Episode, port: int) -> bool:
    """A sibling (or the port itself) was down when the episode began or shortly before."""
    group = np.append(sibling_ports(model, port), port)
    first = max(0, episode.first - FLAP_MEMORY)
    return any(not bool(w.link_up[group].all()) for w in windows[first : episode.first + 2])

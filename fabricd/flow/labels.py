"""The truth of a run as one JSON document: episodes, contention, transients and soft congestion.

Names of the fields are those of the packet-level trace format, so one scorer reads both. Times in nanoseconds.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from fabricd.flow.causes import Misconfiguration, classify
from fabricd.flow.episodes import (
    MIN_WINDOWS,
    Episode,
    SlowdownIndex,
    Victim,
    crossing_flows,
    find_episodes,
    find_victims,
)
from fabricd.flow.fabric import FlowModel
from fabricd.flow.graph import BoolArray
from fabricd.flow.paths import ideal_seconds
from fabricd.flow.recorder import Recorder, Window
from fabricd.flow.roots import Attribution, attribute

ROBUST_PASS = (0.1, 0.4)
FULL = 0.95
SOFT_WINDOWS = 3
STUCK_HERE = 0.2  # windows a victim flow is stuck at a port to call the port affected


def truth_episodes(
    model: FlowModel, recorder: Recorder, paths: list[list[int]], wrong: list[Misconfiguration]
) -> tuple[list[Episode], list[Attribution]]:
    """All episodes of a recorded run with cause, contributors and victims, and the attribution of each window."""
    windows, lanes = recorder.windows, model.settings.lanes
    host_row = _host_rows(model)
    marks = [attribute(window, host_row) for window in windows]
    episodes = find_episodes(windows, marks, lanes)
    messages = model.messages.all
    slowdowns = SlowdownIndex(messages, ideal_seconds(model, messages, paths), windows[-1].end_s if windows else 0.0)
    flows = model.engine.flows
    for episode in episodes:
        if episode.active >= MIN_WINDOWS:
            crossing = crossing_flows(windows, episode, flows.n, lanes, flows.sent)
            find_victims(episode, windows, marks, slowdowns, crossing)
            classify(model, episode, windows, wrong)
    return episodes, marks


def _host_rows(model: FlowModel) -> BoolArray:
    return np.repeat(model.graph.endpoint_of >= 0, model.settings.lanes)


def build_label(
    model: FlowModel,
    recorder: Recorder,
    paths: list[list[int]],
    header: dict[str, Any],
    wrong: list[Misconfiguration],
    quiet_by_design: bool,
) -> dict[str, Any]:
    """The label document; ``header`` holds scenario, seed, cc, topology, intent."""
    windows = recorder.windows
    episodes, _ = truth_episodes(model, recorder, paths, wrong)
    scored = [e for e in episodes if e.scored]
    contention = [e for e in episodes if not e.scored and e.active >= MIN_WINDOWS]
    transients = [e for e in episodes if not e.scored and e.active < MIN_WINDOWS]
    robust = _robust_roots(model, recorder) if scored else {}
    dt_ns = round(recorder.window_s * 1e9)
    return {
        **header,
        "dt_ns": dt_ns,
        "duration_ns": dt_ns * len(windows),
        "negative": quiet_by_design and not scored and not contention,
        "episodes": [_episode_json(model, e, dt_ns, robust) for e in scored],
        "contention": [_short_json(model, e, dt_ns) for e in contention],
        "transients": [_short_json(model, e, dt_ns) for e in transients],
        "soft_congestion": _soft(model, windows, dt_ns),
        "drops": int(model.counters.drops.sum()),
    }


def _robust_roots(model: FlowModel, recorder: Recorder) -> dict[float, set[tuple[int, int]]]:
    """Per alternative pass-through: (row, window) pairs that are active roots."""
    host_row = _host_rows(model)
    out: dict[float, set[tuple[int, int]]] = {}
    for constant in ROBUST_PASS:
        hits: set[tuple[int, int]] = set()
        for n, window in enumerate(recorder.windows):
            mark = attribute(window, host_row, constant)
            hits.update((int(row), n) for row in np.concatenate([mark.active, mark.cycle]))
        out[constant] = hits
    return out


def _port_json(model: FlowModel, row: int) -> list[int]:
    guid, number = model.graph.ports[row // model.settings.lanes]
    return [model.graph.node_index[guid], number]


def port_name(model: FlowModel, port: int) -> str:
    """``node name:port number``."""
    guid, number = model.graph.ports[port]
    return f"{model.graph.topology.nodes[guid].name}:{number}"


def _short_json(model: FlowModel, episode: Episode, dt_ns: int) -> dict[str, Any]:
    lanes = model.settings.lanes
    return {
        "start_ns": episode.first * dt_ns,
        "end_ns": (episode.last + 1) * dt_ns,
        "roots": [_port_json(model, row) for row in episode.rows],
        "root_names": [port_name(model, row // lanes) for row in episode.rows],
        "prio": episode.rows[0] % lanes,
        "cause": episode.cause,
        "blocked_port_ms": round(episode.blocked_windows * dt_ns / 1e6, 3),
        "tree_ports": [_port_json(model, row) for row in _tree(episode)],
    }


def _tree(episode: Episode) -> list[int]:
    return [row for row, part in sorted(episode.tree.items(), key=lambda item: -item[1]) if part >= 0.1]


def _episode_json(
    model: FlowModel, episode: Episode, dt_ns: int, robust: dict[float, set[tuple[int, int]]]
) -> dict[str, Any]:
    span = range(episode.first, episode.last + 1)
    sturdy = all(any((row, n) in hits for row in episode.rows for n in span) for hits in robust.values())
    confirmed = [victim for victim in episode.victims if victim.confirmed]
    ports: dict[tuple[int, int], None] = {}
    for victim in confirmed:
        for row, part in victim.at.items():
            if part >= STUCK_HERE:
                node, number = _port_json(model, row)
                ports[node, number] = None
    flows = model.engine.flows
    return {
        **_short_json(model, episode, dt_ns),
        "also_accept": episode.also_accept,
        "active_windows": episode.active,
        "victims": [list(port) for port in ports],
        "victim_flows": [_victim_json(model, victim, dt_ns) for victim in episode.victims],
        "victim_pairs": sorted({(int(flows.src[v.flow]), int(flows.dst[v.flow])) for v in confirmed}),
        "contributors": episode.contributors,
        "scored": True,
        "secondary": False,
        "robust": sturdy,
    }


def _victim_json(model: FlowModel, victim: Victim, dt_ns: int) -> dict[str, Any]:
    at = sorted(victim.at.items(), key=lambda item: -item[1])[:3]
    return {
        "flow": victim.flow,
        "blocked_ms": round(victim.stuck_windows * dt_ns / 1e6, 3),
        "blocked_frac_of_active": round(victim.stuck_share, 3),
        "at": [[*_port_json(model, row), round(part * dt_ns / 1e6, 3)] for row, part in at],
        "slowdown_in": None if victim.slowdown_in is None else round(victim.slowdown_in, 3),
        "slowdown_out": None if victim.slowdown_out is None else round(victim.slowdown_out, 3),
        "confirmed": victim.confirmed,
    }


def _soft(model: FlowModel, windows: list[Window], dt_ns: int) -> list[dict[str, Any]]:
    """Full switch ports with a standing queue that nobody waits for."""
    if not windows:
        return []
    lanes, graph = model.settings.lanes, model.graph
    use = np.stack([w.tx_bytes.reshape(-1, lanes).sum(axis=1) / (w.rate * w.length_s) for w in windows])
    queue = np.stack([w.queue for w in windows]).reshape(len(windows), -1, lanes)
    deep = queue > np.maximum(model.controls.ecn_kmin, model.engine.quantum)[None]
    idle = np.stack([w.wait_ns for w in windows]).reshape(queue.shape) < 0.01 * dt_ns
    soft = deep & idle & (use >= FULL)[:, :, None] & graph.is_switch[graph.node_of][None, :, None]
    out: list[dict[str, Any]] = []
    for port, lane in zip(*np.nonzero(soft.sum(axis=0) >= SOFT_WINDOWS), strict=True):
        hits = np.flatnonzero(soft[:, port, lane])
        for run in np.split(hits, np.flatnonzero(np.diff(hits) > 4) + 1):
            if len(run) >= SOFT_WINDOWS:
                row = int(port) * lanes + int(lane)
                begin, end = int(run[0]) * dt_ns, (int(run[-1]) + 1) * dt_ns
                out.append({"start_ns": begin, "end_ns": end, "root": _port_json(model, row), "prio": int(lane)})
    return out

"""The way a flow takes by the present tables, and the time a message would need on an empty fabric."""

from __future__ import annotations

import numpy as np

from fabricd.flow.fabric import FlowModel
from fabricd.flow.graph import FloatArray
from fabricd.flow.messages import Message
from fabricd.flow.routing import spread

MAX_HOPS = 32


def path_of(model: FlowModel, flow: int) -> list[int]:
    """Egress ports from the NIC on; shorter than it should be when a table has no entry. Adaptive flows: one possible way."""
    graph, routes, flows = model.graph, model.routes, model.engine.flows
    dst = int(flows.dst[flow])
    port = int(graph.endpoints[flows.src[flow]])
    path = [port]
    fixed = model.engine.fixed_path
    while len(path) < MAX_HOPS:
        here = int(graph.peer[port])
        if graph.endpoint_of[here] >= 0:
            break
        node = int(graph.node_of[here])
        local = int(fixed[flow, node]) if fixed is not None else -1
        if local < 0 and model.settings.kind == "ethernet":
            count = routes.count[node, dst]
            pick = spread(flows.hash[flow : flow + 1], np.array([node]), np.array([count]))
            local = int(routes.sets[node, dst, int(pick[0])])
        elif local < 0:
            local = int(routes.lft[node, dst])
        if local < 0:
            break
        port = int(graph.node_ports[node, local])
        path.append(port)
    return path


def base_times(model: FlowModel, paths: list[list[int]]) -> tuple[FloatArray, FloatArray]:
    """Per flow: one-way delay of an empty fabric in the model's slots (s), and the slowest nominal rate (bytes/s)."""
    hops, dt = model.engine.hops, model.engine.dt
    delay = np.array([float(hops[path].sum()) * dt for path in paths])
    rate = np.array([float(model.graph.rate[path].min()) for path in paths])
    return delay, rate


def ideal_seconds(model: FlowModel, messages: list[Message], paths: list[list[int]]) -> FloatArray:
    """[M] what each message would take alone: the last quantum's way plus its bytes at the slowest link."""
    delay, rate = base_times(model, paths)
    flow = np.array([message.flow for message in messages], dtype=np.int64)
    size = np.array([message.size for message in messages], dtype=float)
    if not len(flow):
        return np.zeros(0)
    out: FloatArray = delay[flow] + size / rate[flow]
    return out

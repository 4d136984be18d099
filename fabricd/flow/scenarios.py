"""The scenario library: each name draws a fabric, a load and one kind of trouble, and leaves the truth to the state.

``build(name, Draw(seed=…))`` gives a :class:`~fabricd.flow.staging.Scene`; the same draw gives the same history.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable

import numpy as np

from fabricd.errors import UsageError
from fabricd.flow.causes import Misconfiguration
from fabricd.flow.collectives import AllToAll, RingAllReduce, TreeAllReduce
from fabricd.flow.settings import SL_COUNT
from fabricd.flow.staging import Draw, Scene, dragonfly_stage, set_stage
from fabricd.flow.topologies import ring
from fabricd.flow.workloads import Bursts, PacedPairs, Pair, Saturating
from fabricd.model.topology import Topology


def build(name: str, draw: Draw) -> Scene:
    """Draw a scenario. Raises UsageError for an unknown name."""
    maker = SCENARIOS.get(name)
    if maker is None:
        raise UsageError(f"unknown scenario {name!r}; there are: {' '.join(SCENARIOS)}")
    rng = np.random.default_rng((zlib.crc32(name.encode()), draw.seed))
    topology: Topology | None = None
    if name == "deadlock":
        topology = ring(int(rng.integers(4, 7)), 2, draw.host_gbps)
    elif draw.hosts is None and draw.topology is None and name in _DRAGONFLY_TOO and rng.random() < 0.1:
        topology = dragonfly_stage(draw)
    scene = set_stage(name, draw, rng, topology)
    scene.intent["scenario"] = name
    adaptive = scene.model.settings.kind == "infiniband" and name in _ADAPTIVE_TOO and bool(rng.random() < 0.3)
    if adaptive:
        for level in (scene.lanes.compute, scene.lanes.storage):
            scene.model.set_adaptive(level, True)
    scene.intent["adaptive"] = adaptive
    maker(scene)
    return scene


def quiet(scene: Scene) -> None:
    """Random traffic at a moderate load; nobody is hurt."""
    scene.quiet_by_design = True
    scene.background(float(scene.rng.uniform(0.15, 0.3)), 0.6)


def allreduce(scene: Scene) -> None:
    """Rings inside each leaf (rail), compute between; links are full and nobody is hurt."""
    scene.quiet_by_design = True
    for group in scene.by_leaf():
        if len(group) >= 2:
            _ring(scene, group, scene.lanes.compute)


def _ring(scene: Scene, members: list[int], sl: int, kind: str = "ring") -> None:
    """A ring all-reduce of about one window with a compute phase of a fraction of it."""
    size = int(scene.host_rate * scene.window_s * float(scene.rng.uniform(0.4, 1.2)))
    compute = float(scene.rng.uniform(0.1, 0.6)) * scene.window_s
    scene.attach(kind, RingAllReduce(members, size, compute, seed=int(scene.rng.integers(1 << 31)), sl=sl))


def incast(scene: Scene) -> None:
    """Many senders to one host; others share the up-links on their way to its neighbours."""
    _background(scene)
    _incast(scene, scene.begin, scene.end)


def _background(scene: Scene) -> None:
    scene.background(float(scene.rng.uniform(0.04, 0.12)))


def _incast(
    scene: Scene, begin: float, end: float, avoid: set[int] | None = None, sl: int | None = None, beside: bool = True
) -> int:
    groups = scene.by_leaf()
    level = scene.lanes.compute if sl is None else sl
    home = groups[int(scene.rng.integers(len(groups)))]
    choices = [h for h in home if h not in (avoid or set())] or home
    receiver = int(scene.rng.choice(np.asarray(choices)))
    others = [h for group in groups if group is not home for h in group]
    senders = scene.sample(others, int(scene.rng.integers(5, 13)))
    scene.attach(
        "incast",
        Saturating(
            [(s, receiver) for s in senders], scene.message * 4, level, begin, end, int(scene.rng.integers(1, 3))
        ),
    )
    scene.intent.update(receiver=receiver, senders=senders)
    if not beside:
        return receiver
    neighbours = [h for h in home if h != receiver]
    scene.innocents(scene.pairs(others, neighbours, 2 * max(2, len(neighbours))), float(scene.rng.uniform(0.1, 0.2)))
    shared = scene.pairs(senders, [h for h in others if h not in senders], len(senders))
    scene.innocents(shared, float(scene.rng.uniform(0.08, 0.2)))
    return receiver


def slow_receiver(scene: Scene) -> None:
    """One host takes data slower than it comes."""
    _background(scene)
    _slow(scene, scene.begin, scene.end, storm=False)


def pfc_storm(scene: Scene) -> None:
    """One host asserts pause (or withholds credits) all the time."""
    _background(scene)
    _slow(scene, scene.begin, scene.end, storm=True)


def _slow(scene: Scene, begin: float, end: float, storm: bool, avoid: set[int] | None = None) -> int:
    model = scene.model
    groups = scene.by_leaf()
    home = groups[int(scene.rng.integers(len(groups)))]
    choices = [h for h in home if h not in (avoid or set())] or home
    host = int(scene.rng.choice(np.asarray(choices)))
    others = [h for group in groups if group is not home for h in group]
    drain = float(scene.rng.uniform(0.08, 0.3)) * scene.host_rate / 1.25e8
    if storm:
        model.at(begin, lambda: model.set_storm(host, True))
        model.at(end, lambda: model.set_storm(host, False))
    else:
        model.at(begin, lambda: model.set_drain(host, drain))
        model.at(end, lambda: model.set_drain(host, None))
    sources = scene.sample(others, int(scene.rng.integers(3, 6)))
    scene.innocents([(s, host) for s in sources], 0.7 / len(sources), "to_slow")
    neighbours = [h for h in home if h != host]
    scene.innocents(scene.pairs(others, neighbours, 2 * max(2, len(neighbours))), float(scene.rng.uniform(0.1, 0.2)))
    scene.intent.update(host=host, drain_gbps=0.0 if storm else drain)
    return host


def _busy_uplink(scene: Scene) -> tuple[list[int], int, list[Pair]]:
    """A leaf, one of its up-links, and pairs of the leaf's hosts with far hosts that can use it."""
    groups = [g for g in scene.by_leaf() if len(g) >= 3] or scene.by_leaf()
    group = groups[int(scene.rng.integers(len(groups)))]
    leaf = scene.leaf_of(group[0])
    up = scene.uplinks(leaf)
    port = up[int(scene.rng.integers(len(up)))]
    far = [h for h in range(scene.model.endpoints) if scene.leaf_of(h) != leaf]
    crossing: list[Pair] = []
    for src in scene.sample(group, len(group)):
        options = [d for d in far if port in scene.egress(leaf, src, d)]
        for dst in scene.sample(options, 4):
            crossing.append((src, dst))
    return group, port, crossing


def _spread_pairs(crossing: list[Pair], sources: int) -> list[Pair]:
    """One pair per source with distinct sinks."""
    out: list[Pair] = []
    for src, dst in crossing:
        if src not in {s for s, _ in out} and dst not in {d for _, d in out} and len(out) < sources:
            out.append((src, dst))
    return out


def _off_link(scene: Scene, sources: list[int], port: int, count: int) -> list[Pair]:
    """Pairs from the same hosts that need not use ``port``: to the same leaf or by another up-link."""
    model = scene.model
    leaf = int(model.graph.node_of[port])
    out: list[Pair] = []
    for src in sources * 3:
        near = [h for h in range(model.endpoints) if h != src and scene.leaf_of(h) == leaf and h not in sources]
        ways = [h for h in range(model.endpoints) if scene.leaf_of(h) != leaf and scene.egress(leaf, src, h) != [port]]
        if model.settings.kind == "infiniband":
            ways = [h for h in ways if port not in scene.egress(leaf, src, h)]
        pool = [h for h in near + scene.sample(ways, 6) if (src, h) not in out]
        if pool and len(out) < count:
            out.append((src, int(scene.rng.choice(np.asarray(pool)))))
    return out


def _cross(scene: Scene, pairs: list[Pair], port: int, share: float, begin: float, end: float, kind: str) -> None:
    """Paced flows that all leave by ``port``, in messages too short to fill its queue when they meet."""
    size = max(scene.message // 8, scene.model.engine.quantum)
    load = PacedPairs(
        pairs, share * scene.host_rate, size, int(scene.rng.integers(1 << 31)), scene.lanes.compute, begin, end
    )
    scene.attach(kind, load)
    for flow in load.flows.tolist():
        scene.steer(flow, int(scene.model.graph.node_of[port]), port)


def _keep_off(scene: Scene, pairs: list[Pair], port: int, share: float) -> None:
    """Innocent flows from the same hosts, steered to other up-links where a hash decides."""
    first = scene.model.engine.flows.n
    scene.innocents(pairs, share)
    node = int(scene.model.graph.node_of[port])
    for flow in range(first, scene.model.engine.flows.n):
        dst = int(scene.model.engine.flows.dst[flow])
        others = [p for p in scene.egress(node, -1, dst) if p != port]
        if others:
            scene.steer(flow, node, others[int(scene.rng.integers(len(others)))])


def ecmp_collision(scene: Scene) -> None:
    """Several large flows of one leaf on the same up-link while its siblings have room."""
    _background(scene)
    _, port, crossing = _busy_uplink(scene)
    ratio = float(scene.model.graph.rate[port]) / scene.host_rate
    pairs = _spread_pairs(crossing, 8)
    pairs = pairs[: max(2, int(np.ceil(2.2 * ratio)))]
    load = Saturating(pairs, scene.message * 4, scene.lanes.compute, scene.begin, scene.end)
    scene.attach("elephant", load)
    for flow in load.flows.tolist():
        scene.steer(flow, int(scene.model.graph.node_of[port]), port)
    sources = [s for s, _ in pairs]
    _keep_off(scene, _off_link(scene, sources, port, 2 * len(sources)), port, float(scene.rng.uniform(0.06, 0.12)))
    scene.intent.update(link=list(scene.ref(port)))


def degraded_link(scene: Scene) -> None:
    """A cable runs far below its rate for a while, reported or hidden; before, it has room."""
    scene.background(float(scene.rng.uniform(0.02, 0.06)))
    _, port, crossing = _busy_uplink(scene)
    ratio = float(scene.model.graph.rate[port]) / scene.host_rate
    pairs = _spread_pairs(crossing, 6)
    share = min(0.6, 0.55 * ratio / max(1, len(pairs)))
    _cross(scene, pairs, port, share, 0.0, np.inf, "cross")
    sources = [s for s, _ in pairs]
    _keep_off(scene, _off_link(scene, sources, port, 2 * len(sources)), port, float(scene.rng.uniform(0.06, 0.12)))
    model, ref = scene.model, scene.ref(port)
    to, hidden = float(scene.rng.choice([0.25, 0.25, 0.5])), bool(scene.rng.random() < 0.4)
    nominal = float(model.graph.rate[port]) / 1.25e8
    model.at(scene.begin, lambda: model.set_link(ref, rate_gbps=nominal * to, reported=not hidden))
    model.at(scene.end, lambda: model.set_link(ref, rate_gbps=nominal, reported=not hidden))
    model.at(scene.begin, lambda: model.set_symbol_errors(ref, 40.0 / scene.window_s))
    model.at(scene.end, lambda: model.set_symbol_errors(ref, 0.0))
    scene.intent.update(link=list(ref), to=to, hidden=hidden)


def link_flap(scene: Scene) -> None:
    """An up-link goes down and comes back again and again; its siblings must carry its load meanwhile."""
    scene.background(float(scene.rng.uniform(0.02, 0.06)))
    group, port, _ = _busy_uplink(scene)
    model, leaf = scene.model, int(scene.model.graph.node_of[port])
    far = [h for h in range(model.endpoints) if scene.leaf_of(h) != leaf]
    up = scene.uplinks(leaf)
    capacity = sum(float(model.graph.rate[p]) for p in up) / scene.host_rate
    pairs, ways = _spread_over(scene, group, far, up)
    share = min(0.65, 0.65 * capacity / max(1, len(pairs)))
    first = model.engine.flows.n
    scene.innocents(pairs, share, "cross")
    for k, way in enumerate(ways):
        scene.steer(first + k, leaf, way)
    near = [(a, b) for a in group for b in scene.sample([h for h in group if h != a], 1)]
    scene.innocents(near, 0.1)
    ref, windows = scene.ref(port), scene.window_s
    when, flaps = scene.begin, 0
    while when < scene.end:
        down = float(scene.rng.uniform(8, 14)) * windows
        model.at(when, lambda: model.set_link(ref, up=False))
        model.at(when + down, lambda: model.set_link(ref, up=True))
        when += down + float(scene.rng.uniform(2, 4)) * windows
        flaps += 1
    scene.intent.update(link=list(ref), flaps=flaps)


def _spread_over(scene: Scene, sources: list[int], far: list[int], up: list[int]) -> tuple[list[Pair], list[int]]:
    """One pair per source, dealt over the up-links in turn; sinks are distinct and on many leaves."""
    pairs: list[Pair] = []
    ways: list[int] = []
    load: dict[int, int] = {}
    for k, src in enumerate(sources):
        way = up[k % len(up)]
        sinks = [d for d in far if way in scene.egress(scene.leaf_of(src), src, d) and d not in {b for _, b in pairs}]
        if sinks:
            least = min(load.get(scene.leaf_of(d), 0) for d in sinks)
            dst = scene.sample([d for d in sinks if load.get(scene.leaf_of(d), 0) == least], 1)[0]
            load[scene.leaf_of(dst)] = load.get(scene.leaf_of(dst), 0) + 1
            pairs.append((src, dst))
            ways.append(way)
    return pairs, ways


def qos_mismatch(scene: Scene) -> None:
    """A leaf puts the compute class on the storage lane; storage congestion then stops training traffic."""
    _background(scene)
    model, graph = scene.model, scene.model.graph
    groups = scene.by_leaf()
    receiver = _incast(scene, scene.begin, scene.end, sl=scene.lanes.storage)
    suspects = [g for g in groups if receiver not in g]
    group = suspects[int(scene.rng.integers(len(suspects)))]
    leaf = scene.leaf_of(group[0])
    table = [sl % scene.lanes.count for sl in range(SL_COUNT)]
    table[scene.lanes.compute] = scene.lanes.storage
    for port in scene.uplinks(leaf):
        model.set_sl2vl(scene.ref(port), table)
        scene.wrong.append(Misconfiguration(port, (scene.lanes.compute,), scene.lanes.storage))
    mates = next(g for g in groups if receiver in g)
    pairs = scene.pairs(group, [h for h in mates if h != receiver], 2 * len(group), fan_in=3)
    scene.innocents(pairs, float(scene.rng.uniform(0.1, 0.2)))
    scene.attach(
        "incast",
        Saturating(
            [(s, receiver) for s in scene.sample(group, 3)],
            scene.message * 4,
            scene.lanes.storage,
            scene.begin,
            scene.end,
        ),
    )
    scene.intent.update(switch=graph.guids[leaf])


def two_trees(scene: Scene) -> None:
    """Two roots at once: an incast, and another incast or a slow receiver, overlapping in time."""
    _background(scene)
    first = _incast(scene, scene.begin, scene.end)
    shift = 0.3 * (scene.end - scene.begin)
    second = str(scene.rng.choice(["incast", "slow_receiver"]))
    if second == "incast":
        _incast(scene, scene.begin + shift, scene.end + shift, {first})
    else:
        _slow(scene, scene.begin + shift, scene.end + shift, False, {first})
    scene.intent.update(second=second)


def tp_storage(scene: Scene) -> None:
    """Tensor-parallel rings on the compute lane, a checkpoint incast on the storage lane beside them."""
    hosts = list(range(scene.model.endpoints))
    for first in range(0, len(hosts), 8):
        members = hosts[first : first + 8]
        if len(members) >= 2:
            _ring(scene, members, scene.lanes.compute, "tp")
    receiver = _incast(scene, scene.begin, scene.end, sl=scene.lanes.storage, beside=False)
    home = [h for h in hosts if scene.leaf_of(h) == scene.leaf_of(receiver) and h != receiver]
    away = [h for h in hosts if scene.leaf_of(h) != scene.leaf_of(receiver)]
    saved = scene.pairs(away, home, max(4, len(hosts) // 4), fan_in=2) + scene.pairs(
        scene.intent["senders"], away, 6, 1
    )
    scene.innocents(saved, float(scene.rng.uniform(0.06, 0.12)), "ckpt", scene.lanes.storage)


def deadlock(scene: Scene) -> None:
    """A ring of switches routed one way round, each host sending two hops on: buffers wait for each other in a circle."""
    model, graph = scene.model, scene.model.graph
    switches = [n for n in range(len(graph.guids)) if graph.is_switch[n]]
    model.auto_reroute = False
    for place, node in enumerate(switches):
        onward = switches[(place + 1) % len(switches)]
        port = next(int(p) for p in graph.node_ports[node] if p >= 0 and graph.node_of[graph.peer[p]] == onward)
        for endpoint in range(model.endpoints):
            if scene.leaf_of(endpoint) != node:
                model.set_route_set(graph.guids[node], endpoint, [graph.ports[port][1]])
                model.set_lft(graph.guids[node], endpoint, graph.ports[port][1])
    n = len(switches)
    by_leaf = scene.by_leaf()
    hops = n - 1
    cycle = [(by_leaf[k][0], by_leaf[(k + hops) % n][0]) for k in range(n)]
    scene.attach("cyc", Saturating(cycle, scene.message * 8, scene.lanes.compute, scene.begin))
    onwards = [(by_leaf[k][1], by_leaf[(k + 1) % n][1]) for k in range(n)]
    beside = [(by_leaf[k][0], by_leaf[k][1]) for k in range(n)]  # same switch, stuck behind their own adapter
    scene.innocents(onwards + beside, 0.05)


def multi_tenant(scene: Scene) -> None:
    """Jobs come and go: rings, trees and an all-to-all of several tenants; one tenant's incast hurts the others."""
    hosts = scene.sample(list(range(scene.model.endpoints)), scene.model.endpoints)
    quarter = max(2, len(hosts) // 4)
    rate, window = scene.host_rate, scene.window_s
    total = scene.windows * window
    arrive = [float(x) for x in scene.rng.uniform(0, 0.3, 4) * total]
    leave = [float(x) for x in scene.rng.uniform(0.7, 1.2, 4) * total]
    sl, seed = scene.lanes.compute, int(scene.rng.integers(1 << 30))
    scene.attach(
        "job-ring",
        RingAllReduce(hosts[:quarter], int(0.4 * rate * window), 0.5 * window, seed, sl, arrive[0], leave[0]),
    )
    tree = TreeAllReduce(
        hosts[quarter : 2 * quarter], int(0.2 * rate * window), 0.5 * window, seed, sl, 4, arrive[1], leave[1]
    )
    scene.attach("job-tree", tree)
    mixed = hosts[2 * quarter : 3 * quarter][:8]
    scene.attach("job-a2a", AllToAll(mixed, int(0.15 * rate * window), 0.8 * window, seed, sl, arrive[2], leave[2]))
    rest = hosts[3 * quarter :]
    burst = [(a, rest[0]) for a in rest[1:4]]
    if burst:
        period = float(scene.rng.uniform(4, 8)) * window
        scene.attach("job-write", Bursts(burst, scene.message * 2, period, seed, sl, arrive[3], leave[3]))
    _incast(scene, scene.begin, scene.end)


SCENARIOS: dict[str, Callable[[Scene], None]] = {
    "quiet": quiet,
    "allreduce": allreduce,
    "incast": incast,
    "slow-receiver": slow_receiver,
    "pfc-storm": pfc_storm,
    "ecmp-collision": ecmp_collision,
    "degraded-link": degraded_link,
    "link-flap": link_flap,
    "qos-mismatch": qos_mismatch,
    "two-trees": two_trees,
    "tp-storage": tp_storage,
    "deadlock": deadlock,
    "multi-tenant": multi_tenant,
}
_ADAPTIVE_TOO = {"quiet", "incast", "slow-receiver", "pfc-storm", "two-trees", "tp-storage", "multi-tenant"}
_DRAGONFLY_TOO = {"quiet", "incast", "slow-receiver", "pfc-storm", "two-trees"}

"""A stage for scenarios: a drawn fabric with its time scale, base load and the small vocabulary scenarios are written in."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from fabricd.flow.causes import Misconfiguration
from fabricd.flow.fabric import FlowModel, Workload
from fabricd.flow.routing import spread
from fabricd.flow.settings import SL_COUNT, BufferSettings, CcSettings, EcnSettings, FabricSettings, Kind
from fabricd.flow.topologies import dragonfly, fat_tree, leaf_spine, rail_pods
from fabricd.flow.workloads import PacedPairs, Pair, PoissonPairs
from fabricd.model.topology import PortRef, Topology

QUANTUM = 65536


@dataclass(frozen=True, slots=True)
class Lanes:
    """Which service level carries what: on Ethernet the usual priorities, on InfiniBand the first VLs."""

    compute: int
    storage: int
    count: int


ETHERNET_LANES = Lanes(compute=3, storage=4, count=5)
INFINIBAND_LANES = Lanes(compute=0, storage=1, count=2)
DRAGONFLY_LANES = Lanes(compute=0, storage=1, count=4)  # two more VLs for what has crossed a global link


@dataclass(slots=True)
class Scene:
    """A scenario drawn and set up: run ``model`` for ``windows`` windows of ``window_s`` (it may run on)."""

    name: str
    seed: int
    model: FlowModel
    window_s: float
    windows: int
    lanes: Lanes
    begin: float  # when the trouble starts, s
    end: float
    rng: np.random.Generator
    intent: dict[str, Any] = field(default_factory=dict)
    kinds: list[tuple[int, str]] = field(default_factory=list)  # first flow id -> what kind of flow
    wrong: list[Misconfiguration] = field(default_factory=list)
    quiet_by_design: bool = False

    @property
    def host_rate(self) -> float:
        """Bytes per second of a host link."""
        return float(self.model.graph.rate[self.model.graph.endpoints].min())

    @property
    def message(self) -> int:
        """A usual message: a tenth of a window at line rate."""
        return max(int(0.1 * self.window_s * self.host_rate), self.model.engine.quantum)

    def attach(self, kind: str, workload: Workload) -> None:
        """Start a workload; its flows are listed as ``kind``."""
        first = self.model.engine.flows.n
        self.model.attach(workload)
        self.kinds.append((first, kind))

    def kind_of(self, flow: int) -> str:
        """Kind of a flow by its id."""
        name = "other"
        for first, kind in self.kinds:
            if first <= flow:
                name = kind
        return name

    # ------------------------------------------------------------ places

    def leaf_of(self, endpoint: int) -> int:
        """Node index of the switch an endpoint hangs on."""
        graph = self.model.graph
        return int(graph.node_of[graph.peer[graph.endpoints[endpoint]]])

    def by_leaf(self) -> list[list[int]]:
        """Endpoints of each leaf."""
        groups: dict[int, list[int]] = {}
        for endpoint in range(self.model.endpoints):
            groups.setdefault(self.leaf_of(endpoint), []).append(endpoint)
        return list(groups.values())

    def sample(self, pool: Sequence[int], count: int) -> list[int]:
        """Up to ``count`` distinct members."""
        if not pool:
            return []
        return [int(x) for x in self.rng.choice(np.asarray(pool), size=min(count, len(pool)), replace=False)]

    def ref(self, port: int) -> PortRef:
        return self.model.graph.ports[port]

    def uplinks(self, leaf: int) -> list[int]:
        """Port indices of a leaf that lead to other switches."""
        graph = self.model.graph
        ports = [int(p) for p in graph.node_ports[leaf] if p >= 0]
        return [p for p in ports if graph.endpoint_of[graph.peer[p]] < 0]

    def egress(self, node: int, src: int, dst: int) -> list[int]:
        """Ports of ``node`` that traffic to ``dst`` may leave by (one on InfiniBand)."""
        routes, graph = self.model.routes, self.model.graph
        if self.model.settings.kind == "infiniband":
            members = [int(routes.lft[node, dst])]
        else:
            members = [int(m) for m in routes.sets[node, dst, : int(routes.count[node, dst])]]
        return [int(graph.node_ports[node, m]) for m in members if m >= 0]

    def steer(self, flow: int, node: int, port: int) -> bool:
        """Re-draw an ECMP flow's hash until ``node`` sends it out of ``port``; False when it cannot (tables decide)."""
        model = self.model
        dst = int(model.engine.flows.dst[flow])
        members = self.egress(node, -1, dst)
        if port not in members:
            return False
        if model.settings.kind == "infiniband":
            return True
        want = members.index(port)
        count = np.array([len(members)])
        for _ in range(256):
            guess = self.rng.integers(0, 1 << 62, size=1)
            if int(spread(guess, np.array([node]), count)[0]) == want:
                model.engine.flows.hash[flow] = guess[0]
                return True
        return False

    # ------------------------------------------------------------ load

    def background(self, load: float, size: float = 1.0) -> None:
        """Random pairs everywhere at ``load`` of the hosts' capacity."""
        n = self.model.endpoints
        pairs = [(a, int(b)) for a in range(n) for b in self.rng.choice(n, size=min(12, n), replace=False) if a != b]
        rate = load * n * self.host_rate
        seed = int(self.rng.integers(1 << 31))
        self.attach("bg", PoissonPairs(pairs, rate, self.message * 0.5 * size, seed, self.lanes.compute))

    def innocents(self, pairs: Sequence[Pair], share: float, kind: str = "innocent", sl: int | None = None) -> None:
        """Steady flows at ``share`` of a host link each."""
        seed = int(self.rng.integers(1 << 31))
        level = self.lanes.compute if sl is None else sl
        self.attach(kind, PacedPairs(pairs, share * self.host_rate, self.message, seed, level))

    def pairs(self, sources: Sequence[int], sinks: Sequence[int], count: int, fan_in: int = 2) -> list[Pair]:
        """``count`` pairs; no source twice as long as possible, no sink more than ``fan_in`` times."""
        out: list[Pair] = []
        used: dict[int, int] = {}
        starts = self.sample(sources, len(sources))
        for src in (starts * (1 + count // max(1, len(starts))))[:count]:
            free = [d for d in sinks if d != src and used.get(d, 0) < fan_in and (src, d) not in out]
            if not free:
                break
            dst = int(self.rng.choice(np.asarray(free)))
            used[dst] = used.get(dst, 0) + 1
            out.append((src, dst))
        return out

    # ------------------------------------------------------------ running

    def run(self, each: Callable[[int], None] | None = None) -> Iterator[int]:
        """Step window by window."""
        for n in range(self.windows):
            self.model.step(self.window_s)
            if each is not None:
                each(n)
            yield n


@dataclass(frozen=True, slots=True)
class Draw:
    """What the caller fixes; None is drawn. ``slots`` per window trades speed for resolution."""

    seed: int
    hosts: int | None = None
    kind: Kind | None = None
    topology: Topology | None = None
    window_s: float = 1.0
    windows: int = 120
    slots: int = 100
    begin_s: float | None = None
    length_s: float | None = None
    host_gbps: float = 400.0


def drawn_topology(rng: np.random.Generator, hosts: int | None, gbps: float) -> Topology:
    """A fabric of about ``hosts`` endpoints (drawn from 16 to 64 when None)."""
    n = int(rng.choice([16, 32, 32, 54, 64])) if hosts is None else hosts
    shapes = ["leaf-spine", "leaf-spine", "rails", "fat-tree"] if n <= 64 else ["leaf-spine", "rails"]
    shape = str(rng.choice(shapes)) if n >= 16 else "leaf-spine"
    if shape == "fat-tree" and n <= 16:
        return fat_tree(4, gbps)
    if shape == "fat-tree" and n >= 54:
        return fat_tree(6, gbps)
    if shape == "rails":
        rails = 4 if n <= 32 else 8
        per_pod = max(2, n // (2 * rails))
        return rail_pods(2, per_pod, max(2, per_pod // 2 * 2), rails, gbps)
    per_leaf = 4 if n <= 16 else 8
    leaves = max(2, -(-n // per_leaf))
    double = bool(rng.random() < 0.5)
    return leaf_spine(leaves, per_leaf, per_leaf // 2 if double else per_leaf, gbps, 2 * gbps if double else gbps)


def set_stage(name: str, draw: Draw, rng: np.random.Generator, topology: Topology | None = None) -> Scene:
    """A model on a drawn fabric and a drawn begin and end of the trouble; no load yet."""
    kind: Kind = draw.kind or ("infiniband" if rng.random() < 0.5 else "ethernet")
    topology = draw.topology or topology or drawn_topology(rng, draw.hosts, draw.host_gbps)
    groups = {node.labels.get("group") for node in topology.nodes.values()} - {None}
    if groups:
        kind = "infiniband"  # minimal routes on a dragonfly lock up unless the lane changes after the global link
    fastest = max(link.rate_gbps for link in topology.links) * 1.25e8
    quantum = draw.window_s / draw.slots * fastest / 0.75  # bytes that make a window ``slots`` slots long
    slowdown = max(1.0, quantum / QUANTUM)
    size = max(4096, int(quantum / slowdown))
    lanes = ETHERNET_LANES if kind == "ethernet" else DRAGONFLY_LANES if groups else INFINIBAND_LANES
    dcqcn = kind == "ethernet" and bool(rng.random() < 0.3)
    degree = max(sum(1 for link in topology.links if guid in (link.a[0], link.b[0])) for guid in topology.nodes)
    room = float(rng.uniform(5, 10))  # quanta in an ingress before it asks for pause, on an empty switch
    settings = FabricSettings(
        kind=kind,
        lanes=lanes.count,
        quantum_bytes=size,
        mtu_bytes=4096,
        slowdown=slowdown,
        link_delay_s=5e-7,
        buffers=BufferSettings(
            pool_bytes=int(size * room * 8 + degree * (5 * 4096 + 60_000 + 4096)),
            vl_bytes=int(size * rng.integers(8, 14)),
        ),
        ecn=EcnSettings(
            kmin_bytes=int(rng.uniform(2, 5) * size),
            kmax_bytes=int(rng.uniform(8, 16) * size),
            ref_gbps=draw.host_gbps,
            enabled=dcqcn,
        ),
        cc=CcSettings(kind="dcqcn", cnp_interval_s=20e-6, additive=0.01, hyper=0.05) if dcqcn else CcSettings(),
        lossless=None if kind == "infiniband" else (3, 4),
        pause_refresh=True,
        reroute_delay_s=0.1 * draw.window_s,
    )
    model = FlowModel(topology, settings, seed=draw.seed)
    if groups:
        change_lane_after_global_link(model)
    total = draw.windows * draw.window_s
    begin = float(rng.uniform(0.2, 0.35)) * total if draw.begin_s is None else draw.begin_s
    length = float(rng.uniform(0.25, 0.45)) * total if draw.length_s is None else draw.length_s
    scene = Scene(name, draw.seed, model, draw.window_s, draw.windows, lanes, begin, begin + length, rng)
    scene.intent.update(kind=kind, cc=settings.cc.kind, begin_s=begin, end_s=begin + length, topology=topology.fabric)
    return scene


def change_lane_after_global_link(model: FlowModel) -> None:
    """SL n rides VL n up to the global link of a dragonfly and VL n + 2 behind it, which breaks every cycle of buffers."""
    graph, nodes = model.graph, model.graph.topology.nodes
    group = [nodes[guid].labels.get("group") for guid in graph.guids]
    before = [sl % 2 for sl in range(SL_COUNT)]
    behind = [sl % 2 + 2 for sl in range(SL_COUNT)]
    for port, (guid, _) in enumerate(graph.ports):
        model.controls.set_sl2vl(port, before)
        node = graph.node_index[guid]
        for local, ingress in enumerate(graph.node_ports[node].tolist()):
            if ingress >= 0 and graph.is_switch[node]:
                far = group[int(graph.node_of[graph.peer[ingress]])]
                if far is not None and far != group[node]:
                    model.controls.set_sl2vl(port, behind, local)
    model.engine.refresh_controls()


def dragonfly_stage(draw: Draw) -> Topology:
    """A small dragonfly of about the wanted size."""
    hosts = draw.hosts or 36
    routers = 4 if hosts >= 32 else 3
    groups = max(3, min(routers * 2 + 1, hosts // (routers * 2)))
    return dragonfly(groups, routers, max(1, hosts // (groups * routers)), draw.host_gbps)

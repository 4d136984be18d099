"""One scenario under the control loop: model, detector, loop and in-process adapters, interval by interval."""

from __future__ import annotations

import time
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from fabricd.config.control import ControlConfig
from fabricd.control.adapters.model import ModelAdapter
from fabricd.control.effects import Effects
from fabricd.control.journal import SqliteJournal
from fabricd.control.loop import Inputs, Loop
from fabricd.control.policy import load_policy
from fabricd.control.predict import Prediction
from fabricd.control.remedies.base import Draft, Situation
from fabricd.control.state import State, from_window
from fabricd.control.traffic import Pair
from fabricd.control.world import World
from fabricd.detect.detector import Detector
from fabricd.detect.fabric import Fabric
from fabricd.detect.sampling import Sampler
from fabricd.flow.fabric import FlowModel
from fabricd.flow.headless import COLUMNS, CounterRows, used_lanes
from fabricd.flow.scenarios import build
from fabricd.flow.staging import Draw, Scene
from fabricd.model.action import Action
from fabricd.model.ident import format_guid
from fabricd.model.topology import PortRef
from fabricd.model.verdict import Verdict
from fabricd.topology.routes import LFT, RouteTable

EPOCH = 1_800_000_000_000_000_000
MANAGERS = {
    "opensm": ("option", "routes", "hop_weight", "qos_policy"),
    "ufm": ("sl_rate", "unhealthy_port"),
    "snmp": ("pfc", "ecn", "port_admin"),
}
Floats = npt.NDArray[np.float64]


@dataclass(slots=True)
class Run:
    """What happened. ``delivered`` (windows, flows) bytes; ``kinds`` of the flows; times in windows."""

    scene: Scene
    delivered: npt.NDArray[np.int64]
    kinds: list[str]
    actions: list[Action] = field(default_factory=list)
    detected: list[int] = field(default_factory=list)
    causes: list[str] = field(default_factory=list)
    timings: list[float] = field(default_factory=list)
    advised: set[str] = field(default_factory=set)
    why_not: dict[str, str] = field(default_factory=dict)

    @property
    def begin(self) -> int:
        return round(self.scene.begin / self.scene.window_s)

    @property
    def end(self) -> int:
        return round(self.scene.end / self.scene.window_s)


def routes_of(model: FlowModel) -> RouteTable:
    """The model's routes as the collector would read them."""
    graph, routes = model.graph, model.routes
    ends = [graph.ports[port] for port in graph.endpoints.tolist()]
    tables: dict[int, dict[PortRef, list[int]]] = {}
    single = model.settings.kind == "infiniband" and not model.controls.adaptive.any()
    for node in np.flatnonzero(graph.is_switch).tolist():
        table: dict[PortRef, list[int]] = {}
        for h, ref in enumerate(ends):
            found = (
                [int(routes.lft[node, h])] if single else routes.sets[node, h, : int(routes.count[node, h])].tolist()
            )
            table[ref] = [graph.ports[int(graph.node_ports[node, m])][1] for m in found if m >= 0]
        tables[graph.guids[node]] = table
    return RouteTable.build(graph.topology, tables, LFT)


class Bench:
    """A scene with everything around it. ``adaptive``: the subnet manager knows adaptive routing (NVIDIA's)."""

    def __init__(self, scene: Scene, mode: str, *, adaptive: bool, noise: int = 0) -> None:
        self.scene, model = scene, scene.model
        for number, node in enumerate(model.graph.topology.nodes.values()):
            node.lids = dict.fromkeys(node.port_guids or {0: 0, 1: 0}, number + 1)
        for h, port in enumerate(model.graph.endpoints.tolist()):
            guid, number = model.graph.ports[port]
            model.graph.topology.nodes[guid].lids = {
                **{p: lid for p, lid in model.graph.topology.nodes[guid].lids.items() if p not in (0, 1)},
                number: 1000 + h,
            }
        if noise:
            shake(model, noise)
        self.now_ns = EPOCH
        self.routes = routes_of(model)
        self._tables = model.routes.lft.copy(), model.routes.count.copy(), model.controls.adaptive.copy()
        self.fabric = Fabric(model.graph.topology, self.routes)
        self.lanes = used_lanes(scene)
        names = COLUMNS.split(",")
        self._columns = {name: i for i, name in enumerate(names)}
        self.sampler = Sampler(self.fabric, len(self.lanes), names)
        self.detector = Detector(self.fabric, list(self.lanes))
        self._order = np.array([self.fabric.index[ref] for ref in model.graph.ports])
        self.rows = CounterRows(model, self.lanes)
        self.effects = Effects(model, buffer_bytes=float(model.settings.buffers.pool_bytes))
        lanes = scene.lanes.count
        options = {"qos_sl2vl": ",".join(str(sl % lanes) for sl in range(16)), "congestion_control": "FALSE"}
        if adaptive:
            options["ar_sl_mask"] = "0x0000"
        infiniband = model.settings.kind == "infiniband"
        managers = ("opensm", "ufm") if infiniband else ("snmp",)
        self.adapters = {name: ModelAdapter(name, self.effects, MANAGERS[name], options) for name in managers}
        self.journal = SqliteJournal(":memory:")
        config = ControlConfig(mode="enforce" if mode == "enforce" else "observe")
        self.loop = Loop(config, load_policy(), self.journal, self.adapters, lambda: self.now_ns)
        self.loop.start()
        self.world = World(model.graph.topology)
        self.pairs = self._pairs()
        self.verdicts: dict[str, Verdict] = {}
        self._errors = model.counters.symbol_errors.copy()

    def _pairs(self) -> list[Pair]:
        """Who talks to whom, as jobs tell; not how much."""
        model, flows = self.scene.model, self.scene.model.engine.flows
        ends = [model.graph.ports[port] for port in model.graph.endpoints.tolist()]
        found = {
            (
                int(flows.src[n]),
                int(flows.dst[n]),
                int(model.controls.lane_of[int(flows.port[n]), -1, int(flows.sl[n])]),
            )
            for n in range(flows.n)
        }
        return [Pair(ends[src], ends[dst], level) for src, dst, level in sorted(found)]

    def window(self, number: int) -> State:
        """Run one interval and read it: the detector's verdicts are open ones afterwards."""
        model = self.scene.model
        model.step(self.scene.window_s)
        self.now_ns = EPOCH + round((number + 1) * self.scene.window_s * 1e9)
        block = self.rows.take(self.now_ns).astype(np.float64)
        ports = np.repeat(self._order, len(self.lanes))
        prio = np.tile(np.arange(len(self.lanes)), len(self._order))
        times = np.full(len(ports), float(self.now_ns))
        self.sampler.feed(ports, prio, times, {name: block[:, i] for name, i in self._columns.items()})
        reported = np.array([model.reported_gbps(p) * 1e9 for p in range(len(self._order))])
        for at, bits in zip(self._order.tolist(), reported.tolist(), strict=True):
            self.sampler.speed(at, bits or float("nan"))
        interval = self.scene.window_s * 1e9
        window = self.sampler.window(self.now_ns, interval, 0)
        self.detector.step(window)
        errors = model.counters.symbol_errors - self._errors
        self._errors = model.counters.symbol_errors.copy()
        per_port = np.zeros(self.fabric.size)
        per_port[self._order] = errors / self.scene.window_s
        return from_window(window, self.fabric.ports, self.lanes, self.fabric.rate, per_port)

    def open_verdicts(self) -> dict[str, Verdict]:
        """What the detector holds open now, as the aggregator publishes it."""
        out = {}
        for finding in self.detector.open():
            episode = finding.episode
            ident = f"v{episode.start}-{episode.key.kind}-{finding.roots[0] if finding.roots else episode.key.port}"
            out[ident] = Verdict(
                id=ident,
                start=episode.start,
                detected_at=episode.detected_at or self.now_ns,
                roots=[self._ref(port) for port in finding.roots],
                cause=finding.cause,
                priority=self.lanes[episode.key.prio],
                victims=[self._ref(port) for port in finding.affected],
                confidence=0.9,
            )
        return out

    def _ref(self, port: int) -> tuple[str, int]:
        guid, number = self.fabric.ports[port]
        return format_guid(guid), number

    def current_routes(self) -> RouteTable:
        """Read again only after something was written to them."""
        model = self.scene.model
        lft, count, adaptive = self._tables
        same = np.array_equal(lft, model.routes.lft) and np.array_equal(count, model.routes.count)
        if not same or not np.array_equal(adaptive, model.controls.adaptive):
            self.routes = routes_of(model)
            self._tables = model.routes.lft.copy(), model.routes.count.copy(), model.controls.adaptive.copy()
        return self.routes


def shake(model: FlowModel, seed: int) -> None:
    """Other arrival times of the same load: what differs then is noise."""
    for number, workload in enumerate(model._workloads):
        if hasattr(workload, "rng"):
            workload.rng = np.random.default_rng((seed, number))


def run(
    name: str,
    draw: Draw,
    mode: str,
    *,
    adaptive: bool = False,
    noise: int = 0,
    plant: bool = False,
) -> Run:
    """``mode``: off (no loop), observe or enforce.

    ``plant``: a wrong verdict is open from the tenth interval on, and its predictions are believed.
    """
    scene = build(name, draw)
    bench = Bench(scene, mode, adaptive=adaptive, noise=noise)
    planted = _wrong_verdict(bench) if plant else None
    if plant:
        bench.loop.predictor = _believed
    out: list[npt.NDArray[np.int64]] = []
    result = Run(scene, np.zeros((0, 0), np.int64), [])
    ethernet = scene.model.settings.kind == "ethernet"
    before = scene.model.engine.flows.delivered.copy()
    for number in range(scene.windows):
        state = bench.window(number)
        flows = scene.model.engine.flows
        out.append(flows.delivered[: len(before)] - before)
        before = flows.delivered[: len(before)].copy()
        verdicts = bench.open_verdicts()
        for ident, verdict in verdicts.items():
            if ident not in bench.verdicts:
                result.detected.append(number)
                result.causes.append(verdict.cause)
        bench.verdicts = verdicts
        if planted is not None and number >= 10:
            verdicts = {**verdicts, planted.id: planted}
        if mode != "off":
            inputs = Inputs(bench.world, bench.current_routes(), state, verdicts, bench.pairs, ethernet)
            bench.loop.step(inputs)
            result.advised |= set(bench.loop.advice)
            for one in bench.loop.advice.values():
                result.why_not.update(one["not_possible"])
    result.delivered = np.array(out)
    result.kinds = [scene.kind_of(flow) for flow in range(result.delivered.shape[1])]
    result.actions = bench.journal.actions()
    result.timings = bench.loop.timings
    return result


def _wrong_verdict(bench: Bench) -> Verdict:
    """An incast at a host's port where there is none, victims that have nothing to do with it."""
    model = bench.scene.model
    hosts = [model.graph.ports[port] for port in model.graph.endpoints.tolist()]
    root = bench.world.peers()[hosts[0]]
    at = EPOCH + round(9 * bench.scene.window_s * 1e9)
    return Verdict(
        id="planted",
        start=at,
        detected_at=at,
        roots=[(format_guid(root[0]), root[1])],
        cause="incast" if model.settings.kind == "infiniband" else "slow_receiver",
        priority=bench.lanes[0],
        victims=[(format_guid(guid), port) for guid, port in hosts[-3:]],
        confidence=0.95,
    )


def _believed(situation: Situation, draft: Draft) -> Prediction:
    return Prediction(0.8, 0.5, 0.1, 0.0, "", 0.0)


def main() -> None:
    """Print one run: for looking at a single scenario."""
    import sys

    name, seed = sys.argv[1], int(sys.argv[2])
    draw = Draw(seed=seed, hosts=16, windows=80, slots=60)
    began = time.perf_counter()
    result = run(name, draw, "enforce", adaptive=len(sys.argv) > 3)
    print(name, seed, result.scene.intent.get("kind"), f"{time.perf_counter() - began:.1f} s", result.begin, result.end)
    print("detected", list(zip(result.detected, result.causes, strict=True)), "why not", result.why_not)
    for action in result.actions:
        print(action.id, action.proposal.remedy, action.state, action.proposal.why)
        for event in action.events:
            data = event.data.get("prediction", "")
            print("   ", (event.at_ns - EPOCH) / 1e9, event.state, event.detail[:150], data)


if __name__ == "__main__":
    main()

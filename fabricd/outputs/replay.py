"""Run the detector over a recorded trace: counters in, verdicts out (the JSON of ``fabricd replay``)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import msgspec
import numpy as np

from fabricd.detect.detector import Detector, Finding
from fabricd.detect.fabric import Fabric
from fabricd.detect.pairs import Pair
from fabricd.detect.params import Params
from fabricd.detect.sampling import windows
from fabricd.detect.verdicts import VerdictMaker
from fabricd.detect.window import Window
from fabricd.model.rejects import Rejects
from fabricd.model.verdict import NodeId, Verdict
from fabricd.outputs.trace import Trace
from fabricd.topology.routes import ASSUMED


@dataclass(slots=True)
class Prepared:
    """A trace cut into intervals: what a detector needs."""

    fabric: Fabric
    priorities: list[int | None]
    control: int | None
    windows: Iterator[Window]


@dataclass(slots=True)
class Replay:
    """A finished replay: verdicts by detection time, and how many intervals were looked at."""

    verdicts: list[Verdict]
    intervals: int
    rejects: Rejects
    open_ids: set[str] = field(default_factory=set)

    def to_json(self) -> dict[str, Any]:
        return {
            "verdicts": [msgspec.to_builtins(verdict) for verdict in self.verdicts],
            "intervals": self.intervals,
            "rejects": self.rejects.to_json(),
        }


def prepare(trace: Trace) -> Prepared:
    """Match counter rows with the ports of the fabric; rows of ports without a cable are counted and left out."""
    fabric = Fabric(trace.topology, trace.routes, adaptive=trace.adaptive)
    table = trace.counters
    levels = sorted(set(table.prio.tolist()))
    priorities: list[int | None] = [None if level < 0 else int(level) for level in levels]
    control = None
    if trace.control_priority in priorities and len(priorities) > 1:
        control = priorities.index(trace.control_priority)
    width = max((port for _, port in fabric.ports), default=0) + 1
    number = np.full((max(trace.topology.nodes, default=0) + 1, width), -1, np.int64)
    for ref, index in fabric.index.items():
        number[ref] = index
    inside = (table.port >= 0) & (table.port < width)
    port = np.where(inside, number[table.node, np.where(inside, table.port, 0)], -1)
    known = port >= 0
    if not known.all():
        trace.rejects.counts["port_without_cable"] += int((~known).sum())
    prio = np.searchsorted(np.array(levels), table.prio)
    speeds = [(t, fabric.index[ref], bps) for t, ref, bps in trace.link_state if ref in fabric.index]
    values = {name: values[known] for name, values in table.values.items()}
    cut = windows(fabric, max(len(levels), 1), table.t_ns[known], port[known], prio[known], values, speeds)
    return Prepared(fabric, priorities, control, cut)


def run(trace: Trace, pairs: Sequence[tuple[NodeId, NodeId, int | None]] = (), params: Params | None = None) -> Replay:
    """Replay a whole trace. Pairs of unknown hosts are counted in the trace's rejects."""
    ready = prepare(trace)
    params = params or Params()
    detector = Detector(ready.fabric, ready.priorities, ready.control, params)
    maker = VerdictMaker(
        ready.fabric,
        ready.priorities,
        params,
        _known_pairs(trace, pairs),
        node_id=lambda guid: trace.ids[guid - 1],
        assumed_routes=ASSUMED in trace.routes.sources,
    )
    heard = set(np.unique(trace.counters.node).tolist())
    maker.silent = [node.name for guid, node in sorted(trace.topology.nodes.items()) if guid not in heard]
    findings: list[Finding] = []
    count = 0
    for window in ready.windows:
        findings += detector.step(window).ended
        count += 1
    last = detector.open()
    for finding in last:
        finding.end = finding.episode.end
    verdicts = [maker.make(finding) for finding in findings + last]
    for verdict in verdicts:
        verdict.blind.extend(trace.notes)
    verdicts.sort(key=lambda verdict: (verdict.detected_at, verdict.start, str(verdict.roots)))
    return Replay(verdicts, count, trace.rejects, {maker.identity(finding) for finding in last})


def _known_pairs(trace: Trace, pairs: Sequence[tuple[NodeId, NodeId, int | None]]) -> list[Pair]:
    known: dict[Pair, None] = {}
    numbers = {str(node): i + 1 for i, node in enumerate(trace.ids)}
    for guid, node in trace.topology.nodes.items():
        numbers.setdefault(node.name, guid)
    for source, destination, prio in pairs:
        try:
            known[numbers[str(source)], numbers[str(destination)], prio] = None
        except KeyError as error:
            trace.rejects.add("pair_host", error.args[0], "pairs")
    return list(known)

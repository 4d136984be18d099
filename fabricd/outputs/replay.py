"""Run the detector over a recorded trace: counters in, the verdicts of DESIGN's replay JSON out."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from fabricd.detect.detector import Detector, Finding
from fabricd.detect.fabric import Fabric
from fabricd.detect.params import Params
from fabricd.detect.sampling import windows
from fabricd.outputs.trace import Trace


@dataclass(slots=True)
class Replay:
    """A finished replay."""

    trace: Trace
    fabric: Fabric
    priorities: list[int | None]
    detector: Detector

    def ref(self, port: int) -> list[Any]:
        """[node id of the trace, port]."""
        guid, number = self.fabric.ports[port]
        return [self.trace.ids[guid - 1], number]

    def verdict(self, finding: Finding) -> dict[str, Any]:
        episode = finding.episode
        return {
            "start": episode.start,
            "end": finding.end,
            "detected_at": episode.detected_at,
            "roots": [self.ref(port) for port in finding.roots],
            "cause": finding.cause,
            "priority": self.priorities[episode.key[0]],
            "victims": [self.ref(port) for port in finding.affected],
            "victim_pairs": [],
            "contributors": [],
            "confidence": 0.0,
            "evidence": {"active_intervals": episode.active, "blocked_ports": round(episode.mass / episode.active, 3)},
        }

    def to_json(self) -> dict[str, Any]:
        found = sorted(self.detector.findings, key=lambda f: (f.episode.detected_at or 0, f.episode.start, f.roots))
        return {"verdicts": [self.verdict(finding) for finding in found], "rejects": self.trace.rejects.to_json()}


def run(trace: Trace, params: Params | None = None) -> Replay:
    """Replay a whole trace."""
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
    detector = Detector(fabric, priorities, control, params)
    for window in windows(
        fabric, len(levels), table.t_ns[known], port[known], prio[known],
        {name: values[known] for name, values in table.values.items()}, speeds,
    ):  # fmt: skip
        detector.step(window)
    detector.finish()
    return Replay(trace, fabric, priorities, detector)

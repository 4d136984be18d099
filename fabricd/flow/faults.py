"""What bad telemetry does to a trace: lost rows, skewed clocks, cleared counters, blind switches, mixed cadences.

Each fault is a seeded transformation of the counters; topology and truth stay.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np

from fabricd.errors import UsageError
from fabricd.flow.graph import IntArray
from fabricd.flow.headless import COLUMNS, Trace

_FIELDS = COLUMNS.split(",")
_TIME, _NODE, _PORT = _FIELDS.index("t_ns"), _FIELDS.index("node"), _FIELDS.index("port")
_GAUGES = {_FIELDS.index(name) for name in ("q_bytes", "q_max", "ingress_bytes")}
_COUNTERS = [k for k in range(4, len(_FIELDS)) if k not in _GAUGES]
Blocks = list[IntArray]


def _lose(blocks: Blocks, trace: Trace, rng: np.random.Generator) -> Blocks:
    """Every node's report gets lost now and then (5 to 20 %), rows of a window together."""
    share = float(rng.uniform(0.05, 0.2))
    out = []
    for block in blocks:
        nodes = np.unique(block[:, _NODE])
        gone = nodes[rng.random(len(nodes)) < share]
        out.append(block[~np.isin(block[:, _NODE], gone)])
    return out


def _skew(blocks: Blocks, trace: Trace, rng: np.random.Generator) -> Blocks:
    """Each node's clock is off by up to 40 % of a window, and jitters a little."""
    dt = int(trace.label["dt_ns"])
    off: dict[int, int] = {}
    out = []
    for block in blocks:
        moved = block.copy()
        for node in np.unique(block[:, _NODE]).tolist():
            shift = off.setdefault(node, int(rng.uniform(-0.4, 0.4) * dt))
            moved[block[:, _NODE] == node, _TIME] += shift + int(rng.normal(0, 0.02 * dt))
        out.append(moved)
    return out


def _reset(blocks: Blocks, trace: Trace, rng: np.random.Generator) -> Blocks:
    """Somebody clears the counters of some nodes once; from then on they count from zero."""
    nodes = np.unique(blocks[0][:, _NODE])
    chosen = rng.choice(nodes, size=max(1, len(nodes) // 5), replace=False)
    when = {int(node): int(rng.integers(1, max(2, len(blocks)))) for node in chosen}
    base: dict[int, IntArray] = {}
    out = []
    for n, block in enumerate(blocks):
        cleared = block.copy()
        for node, window in when.items():
            mine = block[:, _NODE] == node
            if n == window:
                base[node] = block[mine]
            if node in base:
                cleared[np.ix_(mine, _COUNTERS)] -= base[node][:, _COUNTERS]
        out.append(cleared)
    return out


def _blind(blocks: Blocks, trace: Trace, rng: np.random.Generator) -> Blocks:
    """One to a fifth of the switches cannot be read at all."""
    switches = np.array([node["id"] for node in trace.topology["nodes"] if node["kind"] == "switch"])
    hidden = rng.choice(switches, size=max(1, int(len(switches) * float(rng.uniform(0.05, 0.2)))), replace=False)
    return [block[~np.isin(block[:, _NODE], hidden)] for block in blocks]


def _mixed(blocks: Blocks, trace: Trace, rng: np.random.Generator) -> Blocks:
    """Nodes report every window, every second or every fifth, each with its own phase."""
    nodes = np.unique(blocks[0][:, _NODE])
    pace = {int(node): (int(rng.choice([1, 1, 2, 5])), int(rng.integers(5))) for node in nodes}
    out = []
    for n, block in enumerate(blocks):
        heard = [node for node, (period, phase) in pace.items() if (n + phase) % period == 0]
        out.append(block[np.isin(block[:, _NODE], heard)])
    return out


FAULTS: dict[str, Callable[[Blocks, Trace, np.random.Generator], Blocks]] = {
    "loss": _lose,
    "skew": _skew,
    "resets": _reset,
    "blind": _blind,
    "mixed-cadence": _mixed,
}


def apply_fault(trace: Trace, fault: str, seed: int) -> Trace:
    """A copy of ``trace`` as it looks through that fault. Raises UsageError for an unknown name."""
    change = FAULTS.get(fault)
    if change is None:
        raise UsageError(f"unknown telemetry fault {fault!r}; there are: {' '.join(FAULTS)}")
    rng = np.random.default_rng((seed, sum(map(ord, fault))))
    return replace(trace, counters=change(trace.counters, trace, rng))

"""Where waiting ends: blame followed downstream, window by window.

A port that waited a share w of the window hands min(1, w / 20 %) of the blame it receives on to whatever blocks it and
keeps the rest; an adapter keeps all. Where blame stays is a root; blame still moving after sixteen rounds goes in a circle.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from fabricd.flow.graph import BoolArray, FloatArray, IntArray
from fabricd.flow.recorder import Window

PASS_ON = 0.2
ROUNDS = 16
MAIN_CAUSE = 0.5
MIN_WAIT = 0.05
MIN_HELD = 0.2  # blocked port-time of an active root, in windows


@dataclass(frozen=True, slots=True)
class Attribution:
    """One window: ``held`` [O, R] ns of blame of waiting row o that came to rest at row r."""

    origins: IntArray  # [O] waiting rows
    rests: IntArray  # [R] rows where blame rests
    held: FloatArray  # [O, R]
    active: IntArray  # rows that are roots in this window
    cycle: IntArray  # rows of a cyclic wait
    circling: FloatArray  # [O] ns of each origin still moving

    def share(self) -> FloatArray:
        """[O, R] share of each origin's waiting caused by each rest."""
        total = self.held.sum(axis=1, keepdims=True) + self.circling[:, None]
        out: FloatArray = self.held / np.maximum(total, 1e-9)
        return out


def attribute(window: Window, is_host_row: BoolArray, pass_on: float = PASS_ON) -> Attribution:
    """Follow the blame of one window. ``is_host_row`` [P * V]: rows of adapter ports."""
    none = np.zeros(0, dtype=np.int64)
    if not len(window.blame.a):
        return Attribution(none, none, np.zeros((0, 0)), none, none, np.zeros(0))
    length_ns = window.length_s * 1e9
    nodes = np.unique(np.concatenate([window.blame.a, window.blame.b]))
    a, b = np.searchsorted(nodes, window.blame.a), np.searchsorted(nodes, window.blame.b)
    n = len(nodes)
    edges = np.zeros((n, n))
    edges[a, b] = window.blame.value
    out = edges.sum(axis=1)
    step = edges / np.maximum(out, 1e-9)[:, None]
    wait = window.wait_ns[nodes] / length_ns
    forward = np.where((out > 0) & ~is_host_row[nodes], np.minimum(1.0, wait / pass_on), 0.0)
    # a waiting adapter is an origin, but blame that arrives at an adapter (it drains slowly) stays there
    origins = np.flatnonzero(out > 0)
    moving = edges[origins]
    kept = np.zeros_like(moving)
    for _ in range(ROUNDS):
        kept += moving * (1.0 - forward)
        moving = (moving * forward) @ step
    circling = moving.sum(axis=1)
    total = kept.sum(axis=0)
    share = kept / np.maximum(out[origins], 1e-9)[:, None]
    blames_mainly = (share >= MAIN_CAUSE) & (wait[origins] >= MIN_WAIT)[:, None]
    active = (total >= MIN_HELD * length_ns) & blames_mainly.any(axis=0)
    cycle = np.zeros(n, dtype=bool)
    if circling.sum() >= MIN_HELD * length_ns:
        mass = moving.sum(axis=0)
        cycle = mass >= 0.02 * mass.sum()
    rests = np.flatnonzero(total > 0)
    return Attribution(nodes[origins], nodes[rests], kept[:, rests], nodes[active], nodes[cycle], circling)

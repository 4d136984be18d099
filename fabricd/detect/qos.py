"""Pauses and traffic on different priorities: the two ends of a cable, or a host and its switch, do not mean the same by "priority 3".

Two signs, both need per-priority counters: a port is paused on a priority on which it has nothing to send while it sends on
others; or what one end sends as one priority the other end counts as another (their DSCP maps differ), while pauses are seen.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from fabricd.detect.episodes import Candidate
from fabricd.detect.fabric import Fabric
from fabricd.detect.params import Params
from fabricd.detect.window import Window

Floats = npt.NDArray[np.float64]


def mismatches(fabric: Fabric, window: Window, control: int | None, params: Params) -> list[tuple[int, Candidate]]:
    """(priority index, candidate) per cable end that receives the pauses or sends what is counted elsewhere."""
    tx, rx = window.rate("tx_bytes"), window.rate("rx_bytes")
    paused = window.rate("paused_ns")
    if tx is None or paused is None or tx.shape[1] < 2:
        return []
    wait = window.rate("xmit_wait_ns")
    data = np.ones(tx.shape[1], np.bool_)
    if control is not None:
        data[control] = False
    sent = np.nan_to_num(tx) * data
    total = sent.sum(axis=1)
    busy = total * 8.0 > params.main_stall * np.nan_to_num(fabric.rate, nan=np.inf)
    hold = np.nan_to_num(paused) * data
    idle = (sent == 0.0) & data & (np.nan_to_num(wait) == 0.0 if wait is not None else True)
    wrong = (hold >= params.main_stall) & idle & busy[:, None]
    if rx is not None:
        heard = rx[fabric.peer] * data
        both = ~np.isnan(tx).any(axis=1) & ~np.isnan(rx[fabric.peer]).any(axis=1)
        moved = np.nan_to_num(np.abs(sent - heard)).sum(axis=1) / 2.0
        alike = np.abs(np.nan_to_num(heard).sum(axis=1) - total) < 0.05 * total
        differs = both & busy & alike & (moved > 0.2 * total)
        strained = (hold >= params.main_stall).any(axis=1) | (hold[fabric.peer] >= params.main_stall).any(axis=1)
        wrong |= (differs & strained)[:, None] & (sent - np.nan_to_num(heard) > 0.2 * total[:, None]) & data
    found = []
    for port, prio in zip(*np.nonzero(wrong), strict=True):
        held = np.array([port], np.intp)
        mass = max(float(hold[port].max()), params.mean_mass)
        found.append((int(prio), Candidate(int(port), "qos", mass, held, np.ones(1), np.ones(1, np.bool_))))
    return found

"""Waits nobody can see (host channel adapters on InfiniBand, unseen switches), inferred from the queues they feed.

An egress that was full in this and the last interval and whose feeders could offer more than it carries has a standing queue.
A feeder with a fair part in it that does not run at line rate is held by it for the rest of the time.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from fabricd.detect.fabric import Fabric
from fabricd.detect.features import Features
from fabricd.detect.params import Params
from fabricd.detect.shares import Shares

Floats = npt.NDArray[np.float64]


def infer_waits(fabric: Fabric, features: Features, prio: int, shares: Shares, params: Params) -> Floats:
    """Stall (P+1,) of ports without any evidence of their own; zero elsewhere."""
    out = np.zeros(fabric.size + 1)
    unknown = features.unknown[:, prio]
    if not unknown.any():
        return out
    full = np.clip((shares.standing() - params.full) / (1.0 - params.full) * 2.0, 0.0, 1.0)
    rate = np.append(np.nan_to_num(fabric.rate), 0.0)
    for number, block in enumerate(fabric.blocks):
        rows = np.flatnonzero((full[block.out] > 0).any(axis=1) & unknown[block.into].any(axis=1))
        if not rows.size:
            continue
        _, composition = shares.of(number, block, rows)
        into, egress = block.into[rows], block.out[rows]
        feeders = 1.0 / np.maximum((composition**2).sum(axis=1), 1e-9)  # n, O: effective number of feeders
        part = np.minimum(1.0, composition * feeders[:, None, :])
        offered = (part * rate[into][:, :, None]).sum(axis=1)
        crowd = np.clip(offered / np.maximum(features.capacity[egress], 1.0) - 1.0, 0.0, 1.0)
        held = (part * (full[egress] * crowd)[:, None, :]).max(axis=2)
        room = np.maximum(0.0, 1.0 - features.use[into])
        out[into] = np.where(unknown[into], held * room, 0.0)
    out[-1] = 0.0
    return out

"""Who fills whom: the share of an ingress's traffic that leaves by each egress of its switch, from rates alone.

Model: egress rate y_o(k) = sum_i A_io x_i(k) over the last intervals k, A_io >= 0, rows sum to one, A_io = 0 where no route allows it.
Fitted by the multiplicative (Poisson / Richardson-Lucy) update from a gravity start, so a few rounds stay close to "in proportion
to the egress" unless the rates' changes over time say otherwise. Where nothing moves (a deadlock) the last estimate stays.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from fabricd.detect.fabric import Block, Fabric
from fabricd.detect.params import Params

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.intp]
Array = npt.NDArray[np.float32]


class Shares:
    """One priority: a ring of recent volumes and, per block of switches, the estimate of those at work."""

    def __init__(self, fabric: Fabric, params: Params) -> None:
        self.fabric = fabric
        self.params = params
        self._ring = np.zeros((params.depth, fabric.size + 1), np.float32)
        self._stall = np.zeros_like(self._ring)
        self._backlog = np.zeros_like(self._ring)
        self._filled = 0
        self._cache: dict[int, tuple[Ints, Array, Array]] = {}
        self._singles: dict[tuple[int, int], tuple[Array, Array]] = {}
        self._estimate: list[dict[int, tuple[Array, Array]]] = [{} for _ in fabric.blocks]

    def push(self, volume: Floats, stall: Floats, backlog: Floats, unknown: npt.NDArray[np.bool_]) -> None:
        """Volumes (P+1,) of the interval, newest last."""
        # A port that stood still all the time says nothing about where its traffic goes: what it did before still holds.
        volume = np.where(stall > 0.98, np.maximum(volume, self._ring[-1]), volume)
        for ring, new in (
            (self._ring, volume),
            (self._stall, np.where(unknown, np.nan, stall)),
            (self._backlog, backlog),
        ):
            ring[:-1] = ring[1:]
            ring[-1] = new
        self._cache.clear()
        self._singles.clear()
        self._filled = min(self._filled + 1, len(self._ring))

    def of(self, number: int, block: Block, rows: Ints) -> tuple[Array, Array]:
        """Cached for the interval: see :meth:`_fit`."""
        cache = self._cache.get(number)
        if cache is not None and len(cache[0]) == len(rows) and bool((cache[0] == rows).all()):
            return cache[1], cache[2]
        if cache is not None and len(rows) == 1:
            at = int(np.searchsorted(cache[0], rows[0]))
            if at < len(cache[0]) and cache[0][at] == rows[0]:
                return cache[1][at : at + 1], cache[2][at : at + 1]
            single = self._singles.get((number, int(rows[0])))
            if single is not None:
                return single
        shares, composition = self._fit(number, block, rows)
        if len(rows) == 1 and cache is not None:
            self._singles[number, int(rows[0])] = shares, composition
        else:
            self._cache[number] = rows, shares, composition
        return shares, composition

    def _fit(self, number: int, block: Block, rows: Ints) -> tuple[Array, Array]:
        """For switches ``rows`` of block ``number``: (A (n, R, R) shares of each ingress, C (n, R, R) composition of each egress)."""
        depth = max(self._filled, 1)
        weight = self.params.memory ** np.arange(depth - 1, -1, -1, dtype=np.float32)
        ring = self._ring[-depth:] * (weight / weight.sum())[:, None].astype(np.float32)
        into = ring[:, block.into[rows]].transpose(1, 2, 0)  # n, R, K
        out = ring[:, block.out[rows]].transpose(1, 2, 0)
        scale = np.float32(max(float(ring.max(initial=0.0)), 1e-9))
        into, out = into / scale, out / scale
        allowed = block.allowed[rows]
        volume = into.sum(axis=2)
        shares = self._start(number, rows, allowed, out.sum(axis=2))
        tiny = np.float32(1e-9)
        prior = shares
        counted = volume**2 / np.maximum((into**2).sum(axis=2), tiny)  # effective intervals with data
        pull = (np.float32(self.params.share_prior) / np.maximum(counted, np.float32(1)))[:, :, None]
        for _ in range(self._rounds(self.params.em_rounds, len(rows))):
            fitted = np.matmul(shares.transpose(0, 2, 1), into)  # n, R(out), K
            ratio = np.where(fitted > tiny, out / np.maximum(fitted, tiny), np.float32(1))
            gain = np.matmul(into, ratio.transpose(0, 2, 1))
            moved = volume > tiny
            factor = np.where(moved[:, :, None], gain / np.maximum(volume, tiny)[:, :, None], np.float32(1))
            shares = shares * factor + pull * prior
            total = shares.sum(axis=2, keepdims=True)
            shares = np.where(total > tiny, shares / np.maximum(total, tiny), shares)
        flow = shares * volume[:, :, None]
        arriving = flow.sum(axis=1, keepdims=True)
        composition = np.where(arriving > tiny, flow / np.maximum(arriving, tiny), np.float32(0))
        known = self._estimate[number]
        quiet = (arriving[:, 0, :] <= tiny).any(axis=1)
        for at in np.flatnonzero(quiet):
            before = known.get(int(rows[at]))
            if before is not None:
                composition[at] = np.where(arriving[at] > tiny, composition[at], before[1])
        known.update(zip(rows.tolist(), zip(shares, composition, strict=True), strict=True))
        return shares, composition

    def _rounds(self, wanted: int, switches: int) -> int:
        """Fewer rounds where very many switches are at work at once: then a cycle's time matters more than the last percent."""
        return max(3, min(wanted, self.params.most_work // max(switches, 1)))

    def row(self, ingress: int) -> list[tuple[int, float]]:
        """Egress ports that traffic entering by a switch port leaves by, with their shares; [] at a host."""
        number, at, slot = self.fabric.place(ingress)
        if number < 0:
            return []
        block = self.fabric.blocks[number]
        share, _ = self.of(number, block, np.array([at]))
        row = share[0, slot]
        return [(int(block.out[at, o]), float(row[o])) for o in np.flatnonzero(row > 1e-3)]

    def feeders(self, port: int, depth: int) -> tuple[Floats, Floats]:
        """Twice (R, depth): estimated bits/s an egress got from each ingress of its switch, and those ingresses' waits."""
        number, row, slot = self.fabric.place(port)
        block = self.fabric.blocks[number]
        share, _ = self.of(number, block, np.array([row]))
        part = share[0, :, slot].astype(np.float64)
        flow: Floats = part[:, None] * self._ring[-depth:, block.into[row]].T.astype(np.float64)
        return flow, self._stall[-depth:, block.into[row]].T.astype(np.float64)

    def newest_stall(self) -> Array:
        """(P+1,): stall of the last interval, nan where it is not observable."""
        newest: Array = self._stall[-1]
        return newest

    def standing(self) -> Array:
        """(P+1,): the lower of the last two backlogs."""
        last = self._backlog[-min(2, max(self._filled, 1)) :]
        return last.min(axis=0) if self._filled > 1 else np.zeros_like(last[0])

    def propensity(self, block: Block, rows: Ints, composition: Array) -> Array:
        """(n, R): how much an egress's activity explains the stalls of the ingresses that feed it, over the last intervals.

        Model: stall_i(k) = sum_o C_io b_o(k) theta_o, theta >= 0, fitted by the multiplicative update from theta = b^sharpness.
        A steady egress cannot explain a wait that comes and goes, nor can one whose main feeders do not wait.
        """
        depth = max(self._filled, 1)
        weight = self.params.memory ** np.arange(depth - 1, -1, -1, dtype=np.float32)
        stall = self._stall[-depth:, block.into[rows]].transpose(1, 2, 0)  # n, R(in), K
        active = self._backlog[-depth:, block.out[rows]].transpose(1, 2, 0)  # n, R(out), K
        seen = ~np.isnan(stall)
        stall = np.nan_to_num(stall)
        w = (weight / weight.sum()).astype(np.float32)
        level = active[:, :, -1]
        start = (np.maximum(level, np.float32(1e-3)) ** (self.params.sharpness - 1)).astype(np.float32)
        theta = start
        pull = np.float32(self.params.theta_prior)
        tiny = np.float32(1e-6)
        span = np.matmul(composition.transpose(0, 2, 1), seen * w)  # n, O, K
        norm = (span * active).sum(axis=2)
        for _ in range(self._rounds(self.params.theta_rounds, len(rows))):
            fitted = np.matmul(composition, theta[:, :, None] * active)  # n, I, K
            ratio = np.where(seen, stall / np.maximum(fitted, tiny), 0) * w
            gain = (np.matmul(composition.transpose(0, 2, 1), ratio) * active).sum(axis=2)
            theta = ((theta * gain + pull) / np.maximum(norm + pull / start, tiny)).astype(np.float32)
        return theta * level

    def _start(self, number: int, rows: Ints, allowed: npt.NDArray[np.bool_], out: Array) -> Array:
        """The estimate of the interval before where there is one, mixed with gravity; else gravity."""
        gravity: Array = allowed * out[:, None, :]
        total = gravity.sum(axis=2, keepdims=True)
        even = allowed / np.maximum(allowed.sum(axis=2, keepdims=True), 1)
        gravity = np.where(total > 0, gravity / np.maximum(total, np.float32(1e-9)), even).astype(np.float32)
        known = self._estimate[number]
        for at in np.flatnonzero((total[:, :, 0] <= 0).any(axis=1)):
            before = known.get(int(rows[at]))
            if before is not None:
                idle = total[at, :, 0] <= 0
                gravity[at] = np.where(idle[:, None], before[0], gravity[at])
        return gravity

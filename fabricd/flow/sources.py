"""Flows: who sends to whom, what is still to send, what has arrived, and which flow a NIC serves next."""

from __future__ import annotations

import numpy as np

from fabricd.flow.graph import FloatArray, IntArray

_NONE = np.iinfo(np.int64).max
_INDEX_BITS = 22


class Flows:
    """A growing table. A NIC serves the flows of one lane round robin (least recently served first)."""

    def __init__(self) -> None:
        self.n = 0
        self.src: IntArray = np.zeros(0, dtype=np.int64)  # endpoint
        self.dst: IntArray = np.zeros(0, dtype=np.int64)
        self.sl: IntArray = np.zeros(0, dtype=np.int64)
        self.hash: IntArray = np.zeros(0, dtype=np.int64)
        self.port: IntArray = np.zeros(0, dtype=np.int64)  # NIC port index
        self.backlog: IntArray = np.zeros(0, dtype=np.int64)  # bytes offered and not yet sent
        self.sent: IntArray = np.zeros(0, dtype=np.int64)
        self.delivered: IntArray = np.zeros(0, dtype=np.int64)
        self.lost: IntArray = np.zeros(0, dtype=np.int64)  # bytes discarded (and offered again)
        self.offered: IntArray = np.zeros(0, dtype=np.int64)
        self.next_ok: FloatArray = np.zeros(0)  # earliest next send (pacing)
        self.last: IntArray = np.zeros(0, dtype=np.int64)
        self.watch: IntArray = np.zeros(0, dtype=np.int64)  # delivered bytes at which a message is complete
        self.dirty = True
        self._order: IntArray = np.zeros(0, dtype=np.int64)
        self._starts: IntArray = np.zeros(0, dtype=np.int64)
        self.rows: IntArray = np.zeros(0, dtype=np.int64)  # (port, lane) rows that own flows

    def add(self, src: IntArray, dst: IntArray, sl: IntArray, port: IntArray, hashes: IntArray) -> IntArray:
        """Append flows; returns their ids."""
        k = len(src)
        zeros = np.zeros(k, dtype=np.int64)
        for name, value in (("src", src), ("dst", dst), ("sl", sl), ("port", port), ("hash", hashes)):
            setattr(self, name, np.concatenate([getattr(self, name), value.astype(np.int64)]))
        for name in ("backlog", "sent", "delivered", "lost", "offered", "last"):
            setattr(self, name, np.concatenate([getattr(self, name), zeros]))
        self.watch = np.concatenate([self.watch, np.full(k, _NONE, dtype=np.int64)])
        self.next_ok = np.concatenate([self.next_ok, np.zeros(k)])
        ids = np.arange(self.n, self.n + k)
        self.n += k
        self.dirty = True
        return ids

    def regroup(self, lane: IntArray, lanes: int) -> None:
        """Sort flows by (port, lane) after flows or lane maps changed. ``lane`` < 0 = the map discards that flow."""
        row = self.port * lanes + np.maximum(lane, 0)
        order = np.argsort(row, kind="stable")
        order = order[lane[order] >= 0]
        sorted_row = row[order]
        self._starts = np.flatnonzero(np.r_[True, sorted_row[1:] != sorted_row[:-1]]) if len(order) else order
        self._order = order
        self.rows = sorted_row[self._starts] if len(order) else order
        self.dirty = False

    def candidates(self, now: float) -> tuple[IntArray, IntArray]:
        """(rows, flow) of every NIC lane that has something to send now."""
        order = self._order
        if not len(order):
            return order, order
        ready = (self.backlog[order] > 0) & (self.next_ok[order] <= now)
        key = np.where(ready, (self.last[order] << _INDEX_BITS) | order, _NONE)
        best = np.minimum.reduceat(key, self._starts)
        has = best != _NONE
        return self.rows[has], best[has] & ((1 << _INDEX_BITS) - 1)

"""The byte quanta inside switches: one queue per (egress port, lane, ingress port of the same switch).

A queue is a linked list in flat arrays, so that pushing and popping many queues is a handful of array operations. Which
ingress an egress serves next is the smallest ``key``: the head's arrival (fifo) or the time of the last service (round
robin). Each quantum also names the ingress (port, lane) whose buffer it occupies.
"""

from __future__ import annotations

import numpy as np

from fabricd.flow.graph import IntArray

NEVER = np.iinfo(np.int64).max


class Queues:
    """P ports, V lanes, I ingress positions per egress. At most one push and one pop per queue and call."""

    def __init__(self, ports: int, lanes: int, width: int, fifo: bool) -> None:
        self.lanes, self.width, self.fifo = lanes, width, fifo
        voqs = ports * lanes * width
        self.head: IntArray = np.full(voqs, -1, dtype=np.int64)
        self.tail: IntArray = np.full(voqs, -1, dtype=np.int64)
        self.key: IntArray = np.full(voqs, NEVER, dtype=np.int64)
        self.served: IntArray = np.zeros(voqs, dtype=np.int64)
        self.count: IntArray = np.zeros(ports * lanes, dtype=np.int64)  # quanta per (egress, lane)
        self.bytes: IntArray = np.zeros(ports * lanes, dtype=np.int64)
        self.ingress: IntArray = np.zeros(ports * lanes, dtype=np.int64)
        self._allocate(4096)

    def _allocate(self, size: int) -> None:
        """(Re)build the slot pool with ``size`` slots, keeping what is in use."""
        old = len(self.next) if hasattr(self, "next") else 0
        for name in ("next", "flow", "size", "source", "sl", "ce", "stamp", "row"):
            grown = np.zeros(size, dtype=np.int64)
            if old:
                grown[:old] = getattr(self, name)
            setattr(self, name, grown)
        self.row[old:] = -1
        fresh = np.arange(size - 1, old - 1, -1)
        self.free: IntArray = np.concatenate([fresh, np.zeros(old, dtype=np.int64)])
        self.free_top = len(fresh)

    next: IntArray
    flow: IntArray
    size: IntArray
    source: IntArray  # (ingress port, ingress lane) row the bytes are accounted to
    sl: IntArray
    ce: IntArray  # packets of the quantum that carry a congestion mark
    stamp: IntArray
    row: IntArray  # (egress, lane) row a slot waits in, -1 = free

    def push(
        self,
        row: IntArray,
        position: IntArray,
        source: IntArray,
        fields: tuple[IntArray, ...],
        stamp: IntArray,
    ) -> None:
        """Append quanta: ``row`` = egress * lanes + lane, ``position`` = ingress position,

        ``fields`` = flow, size, sl, ce."""
        n = len(row)
        if n > self.free_top:
            self._grow(n)
        self.free_top -= n
        slot = self.free[self.free_top : self.free_top + n]
        flow, size, sl, ce = fields
        self.flow[slot], self.size[slot], self.sl[slot], self.ce[slot] = flow, size, sl, ce
        self.source[slot], self.stamp[slot], self.row[slot] = source, stamp, row
        voq = row * self.width + position
        tail = self.tail[voq]
        empty = tail < 0
        self.next[tail[~empty]] = slot[~empty]
        fresh = voq[empty]
        self.head[fresh] = slot[empty]
        self.key[fresh] = stamp[empty] if self.fifo else self.served[fresh]
        self.tail[voq] = slot
        self.next[slot] = -1
        np.add.at(self.count, row, 1)
        np.add.at(self.bytes, row, size)
        self.ingress[source] += size

    def _grow(self, need: int) -> None:
        in_use_free = self.free[: self.free_top].copy()
        old = len(self.next)
        self._allocate(max(old * 2, old + need))
        self.free[self.free_top : self.free_top + len(in_use_free)] = in_use_free
        self.free_top += len(in_use_free)

    def pick(self, row: IntArray) -> IntArray:
        """The VOQ each (egress, lane) row serves next; every row must hold something."""
        keys: IntArray = self.key.reshape(-1, self.width)[row]
        voq: IntArray = row * self.width + keys.argmin(axis=1)
        return voq

    def pop(self, row: IntArray, voq: IntArray, now: int) -> IntArray:
        """Take the head of each queue; returns slots whose fields stay readable until the next push."""
        slot = self.head[voq]
        follow = self.next[slot]
        self.head[voq] = follow
        more = follow >= 0
        left = voq[more]
        self.key[left] = self.stamp[follow[more]] if self.fifo else now
        done = voq[~more]
        self.tail[done] = -1
        self.key[done] = NEVER
        self.served[voq] = now
        size, source = self.size[slot], self.source[slot]
        self.row[slot] = -1
        self.count[row] -= 1
        self.bytes[row] -= size
        np.subtract.at(self.ingress, source, size)
        self.free[self.free_top : self.free_top + len(slot)] = slot
        self.free_top += len(slot)
        return slot

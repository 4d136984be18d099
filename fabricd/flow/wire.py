"""What is under way: quanta on cables, pause frames and credits coming back, congestion notices to their sources."""

from __future__ import annotations

import numpy as np

from fabricd.flow.graph import IntArray

Arrival = tuple[IntArray, IntArray, IntArray, IntArray, IntArray, IntArray]  # port, lane, flow, size, sl, ce


class Wire:
    """Rings of batches by the slot they are due. ``hops`` [P]: slots a cable takes from a port to its peer."""

    def __init__(self, hops: IntArray, peer: IntArray, lanes: int) -> None:
        self.hops, self.peer, self.lanes = hops, peer, lanes
        self.notice_slots = 4 * int(hops.max())
        self._ring = self.notice_slots + 1
        self.arrivals: list[list[Arrival]] = [[] for _ in range(self._ring)]
        self.pauses: list[list[tuple[IntArray, bool]]] = [[] for _ in range(self._ring)]
        self.credits: list[list[tuple[IntArray, IntArray]]] = [[] for _ in range(self._ring)]
        self.notices: list[list[IntArray]] = [[] for _ in range(self._ring)]

    def place(self, slot: int) -> int:
        """Index of the batches due in ``slot``."""
        return slot % self._ring

    def send(self, slot: int, port: IntArray, fields: tuple[IntArray, IntArray, IntArray, IntArray, IntArray]) -> None:
        """Quanta (lane, flow, size, sl, ce) leave ``port``."""
        there = self.peer[port]
        lane, flow, size, sl, ce = fields
        for hop, k in by_value(self.hops[port]):
            self.arrivals[self.place(slot + hop)].append((there[k], lane[k], flow[k], size[k], sl[k], ce[k]))

    def pause(self, slot: int, rows: IntArray, state: bool) -> None:
        """Ingress ``rows`` (port * lanes + lane) ask their peers to stop, or to go on."""
        port = rows // self.lanes
        up = self.peer[port] * self.lanes + rows % self.lanes
        for hop, k in by_value(self.hops[port]):
            self.pauses[self.place(slot + hop)].append((up[k], state))

    def give_back(self, slot: int, port: IntArray, lane: IntArray, size: IntArray) -> None:
        """Credits of ``size`` bytes travel from receiving ``port`` to its peer."""
        rows = self.peer[port] * self.lanes + lane
        for hop, k in by_value(self.hops[port]):
            self.credits[self.place(slot + hop)].append((rows[k], size[k]))

    def notify(self, slot: int, flow: IntArray) -> None:
        """Congestion notices start towards the sources of ``flow``."""
        self.notices[self.place(slot + self.notice_slots)].append(flow)

    def bytes_on_cables(self) -> IntArray:
        """[P, V] bytes on the cable leaving each port."""
        total = np.zeros(len(self.peer) * self.lanes, dtype=np.int64)
        for batch in self.arrivals:
            for port, lane, _, size, _, _ in batch:
                np.add.at(total, self.peer[port] * self.lanes + lane, size)
        return total.reshape(-1, self.lanes)


def by_value(values: IntArray) -> list[tuple[int, IntArray | slice]]:
    """Group positions by value; one group (the usual case) costs no copy."""
    if not len(values):
        return []
    first = int(values[0])
    if (values == first).all():
        return [(first, slice(None))]
    return [(int(value), np.flatnonzero(values == value)) for value in np.unique(values)]

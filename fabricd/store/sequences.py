"""Which frames of a node are stored: inclusive ranges of sequence numbers per boot. Every frame is taken once, in whatever order."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable

import msgspec

MAX_RANGES = 64  # per boot; beyond it the oldest gap is given up as lost
MAX_BOOTS = 8  # per node; a node that restarts more often than its backlog drains loses the oldest boot's memory


class Ranges:
    """A set of integers as sorted, disjoint, non-adjacent inclusive ranges; adding the next number is the fast case."""

    __slots__ = ("given_up", "highs", "lows")

    def __init__(self, ranges: Iterable[tuple[int, int]] = ()) -> None:
        self.lows: list[int] = []
        self.highs: list[int] = []
        self.given_up = 0  # numbers declared lost when there were too many gaps
        for low, high in sorted(ranges):
            if self.highs and low <= self.highs[-1] + 1:
                self.highs[-1] = max(self.highs[-1], high)
            else:
                self.lows.append(low)
                self.highs.append(high)

    def __contains__(self, number: int) -> bool:
        at = bisect_right(self.lows, number) - 1
        return at >= 0 and number <= self.highs[at]

    def add(self, number: int) -> bool:
        """False if it was there."""
        highs = self.highs
        if highs and number == highs[-1] + 1:
            highs[-1] = number
            return True
        at = bisect_right(self.lows, number) - 1
        if at >= 0 and number <= highs[at]:
            return False
        joins_left = at >= 0 and highs[at] + 1 == number
        joins_right = at + 1 < len(self.lows) and self.lows[at + 1] == number + 1
        if joins_left and joins_right:
            highs[at] = highs.pop(at + 1)
            del self.lows[at + 1]
        elif joins_left:
            highs[at] = number
        elif joins_right:
            self.lows[at + 1] = number
        else:
            self.lows.insert(at + 1, number)
            highs.insert(at + 1, number)
            if len(highs) > MAX_RANGES:
                self.given_up += self.lows[1] - highs[0] - 1
                del highs[0], self.lows[1]
        return True

    def remove(self, number: int) -> None:
        """Take one number out again; one that is not there is ignored."""
        at = bisect_right(self.lows, number) - 1
        if at < 0 or number > self.highs[at]:
            return
        low, high = self.lows[at], self.highs[at]
        rest = [(a, b) for a, b in ((low, number - 1), (number + 1, high)) if a <= b]
        self.lows[at : at + 1] = [a for a, _ in rest]
        self.highs[at : at + 1] = [b for _, b in rest]

    def pairs(self) -> list[tuple[int, int]]:
        return list(zip(self.lows, self.highs, strict=True))

    def __len__(self) -> int:
        return sum(high - low + 1 for low, high in self.pairs())


class StoredBoot(msgspec.Struct):
    boot: int
    stored: list[tuple[int, int]]


class StoredNode(msgspec.Struct):
    """The retained report to a node (see transport/publisher.py), and a line of a recording's checkpoint."""

    fabric: str
    node: str
    boots: list[StoredBoot]


class Ledger:
    """What is stored of one node."""

    __slots__ = ("boots",)

    def __init__(self, boots: Iterable[StoredBoot] = ()) -> None:
        self.boots: dict[int, Ranges] = {entry.boot: Ranges(entry.stored) for entry in boots}

    def add(self, boot: int, seq: int) -> bool:
        """False if that frame is stored already."""
        ranges = self.boots.get(boot)
        if ranges is None:
            ranges = self.boots[boot] = Ranges()
            while len(self.boots) > MAX_BOOTS:
                del self.boots[next(iter(self.boots))]
        return ranges.add(seq)

    def remove(self, boot: int, seq: int) -> None:
        """The frame could not be written after all."""
        if boot in self.boots:
            self.boots[boot].remove(seq)

    def __contains__(self, key: tuple[int, int]) -> bool:
        return key[0] in self.boots and key[1] in self.boots[key[0]]

    def merge(self, boots: Iterable[StoredBoot]) -> None:
        for entry in boots:
            mine = self.boots.get(entry.boot)
            self.boots[entry.boot] = Ranges([*entry.stored, *(mine.pairs() if mine else ())])

    def report(self, fabric: str, node: str) -> StoredNode:
        return StoredNode(fabric, node, [StoredBoot(boot, ranges.pairs()) for boot, ranges in self.boots.items()])

"""How far a node's clock is from ours: the smallest (received - sent) of the last minutes. It contains the shortest transit time."""

from __future__ import annotations

WINDOW_NS = 120_000_000_000


class SkewEstimate:
    """Minimum over two windows that take turns, so that a clock that was set is noticed within two windows at most."""

    __slots__ = ("_began", "_current", "_previous")

    def __init__(self) -> None:
        self._began = 0
        self._current: int | None = None
        self._previous: int | None = None

    def add(self, received_ns: int, sent_ns: int) -> None:
        difference = received_ns - sent_ns
        if self._current is None or received_ns - self._began > WINDOW_NS:
            self._previous, self._current, self._began = self._current, difference, received_ns
        elif difference < self._current:
            self._current = difference

    @property
    def ns(self) -> int | None:
        """Positive: the node's clock is behind ours. None before the first frame."""
        if self._current is None or self._previous is None:
            return self._current
        return min(self._current, self._previous)

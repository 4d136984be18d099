"""How hard the fabric may be asked, and transaction ids that are never used twice while outstanding."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

MAX_PER_DESTINATION = 4
MAX_TOTAL = 128
INDEX_BITS = 20
INDEX_MASK = (1 << INDEX_BITS) - 1
MAX_BATCH = 1 << INDEX_BITS
GENERATIONS = 1 << (32 - INDEX_BITS)


@dataclass(frozen=True, slots=True)
class Limits:
    """In flight per destination and in all, time-out of one try, and tries after the first.

    More than two MADs on the wire to one switch were measured to gain nothing on a Quantum switch and to overflow its
    management queue from about twenty on; hence the caps. Raises ValueError outside them.
    """

    per_destination: int = 2
    total: int = 64
    timeout_ms: int = 200
    retries: int = 1

    def __post_init__(self) -> None:
        for name, value, low, high in (
            ("per_destination", self.per_destination, 1, MAX_PER_DESTINATION),
            ("total", self.total, 1, MAX_TOTAL),
            ("timeout_ms", self.timeout_ms, 1, 60_000),
            ("retries", self.retries, 0, 5),
        ):
            if not low <= value <= high:
                raise ValueError(f"{name} = {value}: allowed {low} to {high}")

    @property
    def horizon_s(self) -> float:
        """After this no request of now can still be outstanding in the kernel."""
        return 2 * self.timeout_ms / 1000 + 1.0

    def slower(self) -> Limits:
        """Half of it, down to one MAD in flight: for a fabric whose management queues overflow."""
        return Limits(
            per_destination=max(1, self.per_destination // 2),
            total=max(1, self.total // 2),
            timeout_ms=self.timeout_ms,
            retries=self.retries,
        )


class TidSpace:
    """Hands out *generations*: the upper 12 of the 32 bits of transaction id that belong to the sender.

    One space for one transport. A generation is not handed out again before ``horizon_s`` has passed since it was last used,
    so a late answer can never match a later request.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._next = 0
        self._busy_until = [0.0] * GENERATIONS

    def take(self, horizon_s: float) -> int:
        """A fresh generation, shifted into place: TID = this | index. Raises RuntimeError when all are outstanding."""
        now = self._clock()
        for _ in range(GENERATIONS):
            generation = self._next
            self._next = (self._next + 1) % GENERATIONS
            if self._busy_until[generation] <= now:
                self._busy_until[generation] = now + horizon_s
                return generation << INDEX_BITS
        raise RuntimeError("all transaction id generations are outstanding")

    def used(self, base: int, horizon_s: float) -> None:
        """The generation ``base`` was used until now."""
        self._busy_until[base >> INDEX_BITS] = self._clock() + horizon_s

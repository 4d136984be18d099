"""Open-loop load: Poisson messages, paced and saturating flows, synchronised bursts, replayed arrivals. All seeded.

Every workload implements ``fabric.Workload``. Sizes in bytes at nominal rates, times in seconds of model time. Like
applications with bounded outstanding work, the steady ones skip a message while ``DEPTH`` of them are still unsent.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from fabricd.flow.fabric import FlowModel
from fabricd.flow.graph import FloatArray, IntArray
from fabricd.flow.messages import Message

Pair = tuple[int, int]
DEPTH = 4


class Arrivals:
    """Messages at given times on given flows (a recording, or drawn beforehand)."""

    def __init__(self, times: FloatArray, flows: IntArray, sizes: IntArray, most_unsent: float = np.inf) -> None:
        self.most_unsent = most_unsent
        order = np.argsort(times, kind="stable")
        self.times, self.flows, self.sizes = times[order], flows[order], sizes[order]
        self._next = 0
        self._due = float(self.times[0]) if len(self.times) else np.inf

    def start(self, model: FlowModel) -> None:
        """Nothing to prepare: the flows exist."""

    def poll(self, model: FlowModel, now: float) -> None:
        """Offer what is due."""
        while self._due <= now:
            k = self._next
            if model.engine.flows.backlog[self.flows[k]] <= self.most_unsent:
                model.offer(int(self.flows[k]), int(self.sizes[k]))
            self._next = k + 1
            self._due = float(self.times[k + 1]) if k + 1 < len(self.times) else np.inf

    def completed(self, model: FlowModel, messages: Sequence[Message]) -> None:
        """Open loop: arrivals do not wait for completions."""


class PoissonPairs:
    """Messages on random pairs at a total rate, log-normal sizes. Runs until ``stop``."""

    def __init__(
        self,
        pairs: Sequence[Pair],
        bytes_per_s: float,
        mean_size: float,
        seed: int,
        sl: int = 0,
        sigma: float = 0.3,
        stop: float = np.inf,
    ) -> None:
        self.pairs, self.bytes_per_s, self.mean_size = list(pairs), bytes_per_s, mean_size
        self.sl, self.sigma, self.stop = sl, sigma, stop
        self.rng = np.random.default_rng((seed, 11))
        self.flows: IntArray = np.zeros(0, dtype=np.int64)
        self._horizon = 0.0
        self._batch: Arrivals | None = None

    def start(self, model: FlowModel) -> None:
        """Create one flow per pair."""
        self.flows = model.add_flows([a for a, _ in self.pairs], [b for _, b in self.pairs], self.sl)
        self._horizon = model.engine.now

    def poll(self, model: FlowModel, now: float) -> None:
        """Draw the next stretch when the last one is used up."""
        if now >= self._horizon and now < self.stop:
            span = 64 * model.engine.dt
            count = int(self.rng.poisson(self.bytes_per_s * span / self.mean_size))
            times = self._horizon + np.sort(self.rng.random(count)) * span
            sizes = self.rng.lognormal(-0.5 * self.sigma**2, self.sigma, count) * self.mean_size
            flows = self.flows[self.rng.integers(0, len(self.flows), count)]
            self._batch = Arrivals(times, flows, np.maximum(64, sizes).astype(np.int64), DEPTH * self.mean_size)
            self._horizon += span
        if self._batch is not None:
            self._batch.poll(model, now)

    def completed(self, model: FlowModel, messages: Sequence[Message]) -> None:
        """Open loop."""


class PacedPairs:
    """Each pair sends messages of one size at a steady rate with a little jitter, between ``begin`` and ``stop``."""

    def __init__(
        self,
        pairs: Sequence[Pair],
        bytes_per_s: float,
        size: int,
        seed: int,
        sl: int = 0,
        begin: float = 0.0,
        stop: float = np.inf,
        jitter: float = 0.3,
    ) -> None:
        self.pairs, self.period, self.size = list(pairs), size / bytes_per_s, int(size)
        self.sl, self.begin, self.stop, self.jitter = sl, begin, stop, jitter
        self.rng = np.random.default_rng((seed, 12))
        self.flows: IntArray = np.zeros(0, dtype=np.int64)
        self._due: FloatArray = np.zeros(0)
        self._first = np.inf

    def start(self, model: FlowModel) -> None:
        """Create the flows, each with its own phase."""
        self.flows = model.add_flows([a for a, _ in self.pairs], [b for _, b in self.pairs], self.sl)
        self._due = max(self.begin, model.engine.now) + self.rng.random(len(self.flows)) * self.period
        self._first = float(self._due.min()) if len(self._due) else np.inf

    def poll(self, model: FlowModel, now: float) -> None:
        """Offer each flow's next message when it is due."""
        if now < self._first or now >= self.stop:
            return
        for k in np.flatnonzero(self._due <= now).tolist():
            if model.engine.flows.backlog[self.flows[k]] <= DEPTH * self.size:
                model.offer(int(self.flows[k]), self.size)
            self._due[k] += self.period * (1.0 + self.jitter * (self.rng.random() - 0.5))
        self._first = float(self._due.min())

    def completed(self, model: FlowModel, messages: Sequence[Message]) -> None:
        """Open loop."""


class Saturating:
    """Pairs that always have something to send between ``begin`` and ``stop``: elephants, incasts, storage writes.

    ``in_hand`` chunks are outstanding per flow; with one, the queue pair falls idle between chunks and starts each at
    line rate.
    """

    def __init__(
        self,
        pairs: Sequence[Pair],
        chunk: int,
        sl: int = 0,
        begin: float = 0.0,
        stop: float = np.inf,
        in_hand: int = 2,
    ) -> None:
        self.in_hand = in_hand
        self.pairs, self.chunk, self.sl, self.begin, self.stop = list(pairs), int(chunk), sl, begin, stop
        self.flows: IntArray = np.zeros(0, dtype=np.int64)
        self._mine: set[int] = set()
        self._running = False
        self._over = False

    def start(self, model: FlowModel) -> None:
        """Create the flows."""
        self.flows = model.add_flows([a for a, _ in self.pairs], [b for _, b in self.pairs], self.sl)
        self._mine = set(self.flows.tolist())

    def poll(self, model: FlowModel, now: float) -> None:
        """Begin with the first chunks; at the end offer no more."""
        if not self._running and not self._over and self.begin <= now < self.stop:
            self._running = True
            for flow in self.flows.tolist():
                for _ in range(self.in_hand):
                    model.offer(flow, self.chunk)
        elif self._running and now >= self.stop:
            self._running, self._over = False, True

    def completed(self, model: FlowModel, messages: Sequence[Message]) -> None:
        """One chunk arrived: offer the next."""
        if self._running:
            for message in messages:
                if message.flow in self._mine:
                    model.offer(message.flow, self.chunk)


class Bursts:
    """All pairs offer one message at the same moment, every ``period`` seconds (synchronised micro-bursts)."""

    def __init__(
        self,
        pairs: Sequence[Pair],
        size: int,
        period: float,
        seed: int,
        sl: int = 0,
        begin: float = 0.0,
        stop: float = np.inf,
    ) -> None:
        self.pairs, self.size, self.period, self.sl, self.begin, self.stop = (
            list(pairs),
            int(size),
            period,
            sl,
            begin,
            stop,
        )
        self.rng = np.random.default_rng((seed, 13))
        self.flows: IntArray = np.zeros(0, dtype=np.int64)
        self._due = begin

    def start(self, model: FlowModel) -> None:
        """Create the flows."""
        self.flows = model.add_flows([a for a, _ in self.pairs], [b for _, b in self.pairs], self.sl)

    def poll(self, model: FlowModel, now: float) -> None:
        """Fire when due."""
        if self._due <= now < self.stop:
            for flow in self.flows.tolist():
                model.offer(flow, self.size)
            self._due += self.period * float(self.rng.uniform(0.9, 1.1))

    def completed(self, model: FlowModel, messages: Sequence[Message]) -> None:
        """Open loop."""

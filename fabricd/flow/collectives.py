"""Closed-loop load of training jobs: ring and tree all-reduce and all-to-all with compute phases between.

A rank sends a piece only when it holds what the piece is made of, so one slow link slows the whole group, as in reality.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence

import numpy as np

from fabricd.flow.fabric import FlowModel
from fabricd.flow.messages import Message


class _Iterations(ABC):
    """Compute, communicate, repeat. Subclasses start one exchange and say when it is over."""

    def __init__(self, compute_s: float, seed: int, begin: float, stop: float, jitter: float) -> None:
        self.compute_s, self.begin, self.stop, self.jitter = compute_s, begin, stop, jitter
        self.rng = np.random.default_rng((seed, 21))
        self.steps: list[tuple[float, float]] = []  # (start of the exchange, its duration)
        self._due = begin
        self._since: float | None = None

    def start(self, model: FlowModel) -> None:
        """Create the flows of the group."""
        self._connect(model)

    def poll(self, model: FlowModel, now: float) -> None:
        """Start the next exchange when its compute phase is over."""
        if self._since is None and self._due <= now < self.stop:
            self._since = now
            self._exchange(model)

    def completed(self, model: FlowModel, messages: Sequence[Message]) -> None:
        """Follow the exchange; at its end begin to compute."""
        if self._since is None:
            return
        for message in messages:
            self._arrived(model, message.flow)
        if self._finished():
            now = model.engine.now
            self.steps.append((self._since, now - self._since))
            self._since = None
            self._due = now + self.compute_s * (1.0 + self.jitter * (float(self.rng.random()) - 0.5))

    @abstractmethod
    def _connect(self, model: FlowModel) -> None:
        """Create the flows."""

    @abstractmethod
    def _exchange(self, model: FlowModel) -> None:
        """Offer the first pieces."""

    @abstractmethod
    def _arrived(self, model: FlowModel, flow: int) -> None:
        """A message of ``flow`` (of anybody's) arrived."""

    @abstractmethod
    def _finished(self) -> bool:
        """Whether every member has everything."""


class RingAllReduce(_Iterations):
    """Ring all-reduce over ``members`` (endpoints): 2(n-1) rounds of size/n to the next member."""

    def __init__(
        self,
        members: Sequence[int],
        size: int,
        compute_s: float,
        seed: int = 0,
        sl: int = 0,
        begin: float = 0.0,
        stop: float = np.inf,
        jitter: float = 0.1,
    ) -> None:
        super().__init__(compute_s, seed, begin, stop, jitter)
        self.members, self.chunk, self.sl = list(members), max(1, int(size / len(members))), sl
        self._place: dict[int, int] = {}
        self._flows: list[int] = []
        self._got: list[int] = []

    def _connect(self, model: FlowModel) -> None:
        n = len(self.members)
        self._flows = model.add_flows(self.members, [self.members[(k + 1) % n] for k in range(n)], self.sl).tolist()
        self._place = {flow: k for k, flow in enumerate(self._flows)}
        self._got = [0] * n

    def _exchange(self, model: FlowModel) -> None:
        self._got = [0] * len(self.members)
        for flow in self._flows:
            model.offer(flow, self.chunk)

    def _arrived(self, model: FlowModel, flow: int) -> None:
        place = self._place.get(flow)
        if place is None:
            return
        receiver = (place + 1) % len(self.members)
        self._got[receiver] += 1
        if self._got[receiver] < 2 * (len(self.members) - 1):
            model.offer(self._flows[receiver], self.chunk)

    def _finished(self) -> bool:
        return min(self._got) >= 2 * (len(self.members) - 1)


class TreeAllReduce(_Iterations):
    """Binary-tree all-reduce in ``pieces``: reduce towards member 0, then broadcast back down, pipelined."""

    def __init__(
        self,
        members: Sequence[int],
        size: int,
        compute_s: float,
        seed: int = 0,
        sl: int = 0,
        pieces: int = 4,
        begin: float = 0.0,
        stop: float = np.inf,
        jitter: float = 0.1,
    ) -> None:
        super().__init__(compute_s, seed, begin, stop, jitter)
        self.members, self.sl, self.pieces, self.piece = list(members), sl, pieces, max(1, size // pieces)
        self._up: dict[int, int] = {}  # flow -> child place
        self._down: dict[int, int] = {}  # flow -> child place
        self._flow_up: dict[int, int] = {}
        self._flow_down: dict[int, int] = {}
        self._heard: dict[int, dict[int, int]] = {}
        self._reduced: list[int] = []
        self._final: list[int] = []

    def _children(self, place: int) -> list[int]:
        return [c for c in (2 * place + 1, 2 * place + 2) if c < len(self.members)]

    def _connect(self, model: FlowModel) -> None:
        for child in range(1, len(self.members)):
            parent = (child - 1) // 2
            self._flow_up[child] = model.add_flow(self.members[child], self.members[parent], self.sl)
            self._flow_down[child] = model.add_flow(self.members[parent], self.members[child], self.sl)
        self._up = {flow: child for child, flow in self._flow_up.items()}
        self._down = {flow: child for child, flow in self._flow_down.items()}

    def _exchange(self, model: FlowModel) -> None:
        n = len(self.members)
        self._heard = {place: dict.fromkeys(self._children(place), 0) for place in range(n)}
        self._reduced, self._final = [0] * n, [0] * n
        for place in range(n):
            if not self._children(place):
                self._reduced[place] = self.pieces
                for _ in range(self.pieces):
                    model.offer(self._flow_up[place], self.piece)

    def _arrived(self, model: FlowModel, flow: int) -> None:
        if flow in self._up:
            child = self._up[flow]
            parent = (child - 1) // 2
            self._heard[parent][child] += 1
            while self._reduced[parent] < min(self._heard[parent].values()):
                self._reduced[parent] += 1
                if parent:
                    model.offer(self._flow_up[parent], self.piece)
                else:
                    self._spread(model, 0)
        elif flow in self._down:
            self._spread(model, self._down[flow])

    def _spread(self, model: FlowModel, place: int) -> None:
        self._final[place] += 1
        for child in self._children(place):
            model.offer(self._flow_down[child], self.piece)

    def _finished(self) -> bool:
        return min(self._final) >= self.pieces


class AllToAll(_Iterations):
    """Every member sends ``size``/n to every other one, at once."""

    def __init__(
        self,
        members: Sequence[int],
        size: int,
        compute_s: float,
        seed: int = 0,
        sl: int = 0,
        begin: float = 0.0,
        stop: float = np.inf,
        jitter: float = 0.1,
    ) -> None:
        super().__init__(compute_s, seed, begin, stop, jitter)
        self.members, self.piece, self.sl = list(members), max(1, int(size / len(members))), sl
        self._flows: list[int] = []
        self._mine: set[int] = set()
        self._open = 0

    def _connect(self, model: FlowModel) -> None:
        pairs = [(a, b) for k, a in enumerate(self.members) for b in self.members[k + 1 :] + self.members[:k]]
        self._flows = model.add_flows([a for a, _ in pairs], [b for _, b in pairs], self.sl).tolist()
        self._mine = set(self._flows)

    def _exchange(self, model: FlowModel) -> None:
        self._open = len(self._flows)
        for flow in self._flows:
            model.offer(flow, self.piece)

    def _arrived(self, model: FlowModel, flow: int) -> None:
        if flow in self._mine:
            self._open -= 1

    def _finished(self) -> bool:
        return self._open == 0

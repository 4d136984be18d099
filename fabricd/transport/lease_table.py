"""Who holds which shard, decided from an ordered log of messages that all contenders see: a small replicated state machine.

A broker delivers the messages of a topic to all subscribers in one order. The first *claim* seen while nobody living holds the shard
wins; later claims are ignored; the holder *renews*. Time is each contender's own: a holder not heard for its ``ttl`` is dead. Clocks
of different machines are never compared.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import msgspec

Kind = Literal["claim", "renew", "release"]


class LeaseMessage(msgspec.Struct, frozen=True):
    kind: Kind
    holder: str


@dataclass(slots=True)
class _Lease:
    holder: str = ""
    heard: float = -math.inf


class LeaseTable:
    """The view of one contender, ``me``. Feed it every message, act on what ``due`` says, look at ``held``.

    With several contenders each takes its fair share: ceil(shards / contenders); a holder of more gives the surplus back.
    """

    def __init__(self, me: str, shards: int, ttl: float, clock: Callable[[], float] = time.monotonic) -> None:
        self.me, self.shards, self.ttl = me, shards, ttl
        self._clock = clock
        self._leases = [_Lease() for _ in range(shards)]
        self._peers: dict[str, float] = {}
        self._listening_since: float | None = None
        self._alone_from: float | None = clock() + ttl / 2  # None once the log was ever heard

    def connected(self) -> None:
        """The log is heard from now on; what is retained comes first."""
        self._listening_since = self._clock()
        self._alone_from = None

    def disconnected(self) -> None:
        """Nothing is heard: what we hold we keep, since reading counters twice harms nobody and not at all is worse."""
        self._listening_since = None

    def peer(self, name: str) -> None:
        """A contender gave a sign of life."""
        self._peers[name] = self._clock()

    def message(self, shard: int, message: LeaseMessage) -> None:
        if not 0 <= shard < self.shards:
            return
        lease, now = self._leases[shard], self._clock()
        living = lease.holder if now - lease.heard < self.ttl else ""
        if message.kind == "release":
            if lease.holder == message.holder:
                lease.holder, lease.heard = "", -math.inf
        elif message.kind == "renew" or not living or living == message.holder:
            lease.holder, lease.heard = message.holder, now

    def due(self) -> list[tuple[int, LeaseMessage]]:
        """What to send now; ask about three times per ``ttl``."""
        now = self._clock()
        if self._listening_since is None:
            return []
        out: list[tuple[int, LeaseMessage]] = []
        mine = sorted(self.held)
        share = math.ceil(self.shards / len(self._living_peers(now)))
        for position, shard in enumerate(mine):
            out.append((shard, LeaseMessage("renew" if position < share else "release", self.me)))
        # Retained words of a holder that died before we came look fresh: they get a whole ttl to prove it.
        free = [s for s, lease in enumerate(self._leases) if not lease.holder or now - lease.heard >= self.ttl]
        if now - self._listening_since >= min(1.0, self.ttl / 3):
            out += [(shard, LeaseMessage("claim", self.me)) for shard in free[: max(0, share - len(mine))]]
        return out

    def _living_peers(self, now: float) -> set[str]:
        return {name for name, heard in self._peers.items() if now - heard < self.ttl} | {self.me}

    @property
    def held(self) -> frozenset[int]:
        """Shards that are ours: the log says so, and recently, unless nothing can be heard.

        Where the log was never heard since the start, all are: the fabric is watched although the broker is down.
        """
        now = self._clock()
        if self._alone_from is not None:
            return frozenset(range(self.shards)) if now >= self._alone_from else frozenset()
        blind = self._listening_since is None
        return frozenset(
            shard
            for shard, lease in enumerate(self._leases)
            if lease.holder == self.me and (blind or now - lease.heard < self.ttl)
        )

    @property
    def others(self) -> dict[int, str]:
        """Shards that another contender holds."""
        now = self._clock()
        return {
            shard: lease.holder
            for shard, lease in enumerate(self._leases)
            if lease.holder not in ("", self.me) and now - lease.heard < self.ttl
        }

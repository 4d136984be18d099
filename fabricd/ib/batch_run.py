"""One pass over a batch: the sweep's hot loop.

A destination has at most ``per_destination`` requests in flight, all together at most ``total``; the answer of a destination
releases its next request. Matching is by transaction id alone: an id that is not outstanding (late, doubled, foreign) is counted
and dropped, so no answer can be taken for another port's.

Trouble with a destination: after a time-out it has one request in flight until its repeated request is answered. A request that
stays unanswered after its retry makes the destination *silent*: the rest of it is skipped, and in the following sweeps it is
asked one probe, until it answers.
"""

from __future__ import annotations

import struct
from collections import Counter
from collections.abc import Callable
from typing import TYPE_CHECKING

from fabricd.ib.health import Health
from fabricd.ib.limits import INDEX_MASK, TidSpace
from fabricd.ib.mad import TID_LOW_AT, Reply

if TYPE_CHECKING:
    from fabricd.ib.batch import Batch

_POLL_MS = 10
_GRACE_S = 0.1
_PATIENCE_WHILE_BUSY = 10
_MAX_STRIKES = 32  # time-outs of one destination in one pass, whatever was answered between them: bounds the pass
_REPORT_S = 0.1


class BatchRun:
    """State of one pass. ``answers``: per request the received frame or None, ``when`` it came; ``fate``: why there is none."""

    def __init__(
        self,
        batch: Batch,
        health: Health,
        tids: TidSpace,
        *,
        probe_silent: bool,
        demote: bool,
        clock: Callable[[], float],
    ) -> None:
        self._batch, self._health, self._tids, self._clock = batch, health, tids, clock
        self._limits = batch.limits
        self._demote = demote
        # One generation of transaction ids for each try: an answer to the first never passes for one to the second.
        self._bases = [tids.take(self._limits.horizon_s) for _ in range(1 + self._limits.retries)]
        batch.stamp(self._bases[0])
        self.answers: list[bytes | None] = [None] * len(batch)
        self.when = [0.0] * len(batch)
        self.fate: dict[int, Reply] = {}
        self.counts: Counter[str] = Counter()
        self._flight: dict[int, float] = {}  # transaction id -> when sent; oldest first
        count = len(batch.keys)
        self._next = list(batch.starts)
        self._end = list(batch.ends)
        self._out = [0] * count
        self._width = [self._limits.per_destination] * count
        self._tries: dict[int, int] = {}  # by request, only of those that timed out
        self._again: dict[int, list[int]] = {}  # destination -> requests to repeat
        self._strikes: Counter[int] = Counter()
        self._troubled: set[int] = set()  # destinations off the fast path: probed, timed out, or silent
        self._probing: set[int] = set()
        self._dead: set[int] = set()
        self._stalled: list[int] = []  # destinations whose send would have blocked
        self._order = self._plan(probe_silent)
        self._opened = 0
        self._now = clock()

    def _plan(self, probe_silent: bool) -> list[int]:
        """The order of destinations: probes first, so that their wait overlaps the sweep, and at most half the window of them."""
        keys, silent = self._batch.keys, self._health.silent
        if not silent:
            return list(range(len(keys)))
        place = {key: i for i, key in enumerate(silent)}
        asleep = [c for _, c in sorted((place[key], c) for c, key in enumerate(keys) if key in place)]
        probes = asleep[: max(1, self._limits.total // 2)] if probe_silent else []
        self._troubled.update(asleep)
        self._probing.update(probes)
        for c in asleep[len(probes) :]:
            self._dead.add(c)
            self._drop_rest(c)
        for c in probes:
            self._width[c] = 1
        return probes + [c for c, key in enumerate(keys) if key not in place]

    def loop(self, stop_at: float, progress: Callable[[int], None] | None) -> None:
        """Until every request has an answer or a fate."""
        batch, transport, clock = self._batch, self._batch.transport, self._clock
        send, recv, poll = transport.send, transport.recv, transport.poll
        size, drains, status_at = transport.size, transport.drains, transport.status_at
        head = struct.Struct(f">I{transport.mad_at + TID_LOW_AT - status_at - 4}xI").unpack_from
        views, owner, answers, when, flight = batch.views, batch.owner, self.answers, self.when, self._flight
        following, end, out, width, base = self._next, self._end, self._out, self._width, self._bases[0]
        troubled, total = self._troubled, self._limits.total
        patience = self._limits.timeout_ms / 1000 + (_GRACE_S if transport.reports_timeouts else 0.0)
        report_at = self._now + _REPORT_S
        self._refill()
        while flight or self._stalled or self._opened < len(self._order):
            ready = bool(poll(_POLL_MS if flight else 1))
            now = self._now = clock()
            while ready:
                try:
                    frame = recv()
                except BlockingIOError:
                    break
                if len(frame) < size:
                    self._short(frame)
                else:
                    failed, tid = head(frame, status_at)
                    if flight.pop(tid, None) is None:
                        self.counts["late"] += 1
                    elif failed:
                        self._timed_out(tid & INDEX_MASK)
                    else:
                        row = tid & INDEX_MASK
                        answers[row] = frame
                        when[row] = now
                        c = owner[row]
                        n = following[c]
                        # The common case, inlined: the destination's next request takes the answered one's place.
                        if n < end[c] and out[c] <= width[c] and c not in troubled:
                            try:
                                send(views[n])
                            except BlockingIOError:
                                out[c] -= 1
                                self._stalled.append(c)
                            else:
                                flight[base | n] = now
                                following[c] = n + 1
                        else:
                            self._answered(c)
                if not drains:
                    break
            # While answers wait to be read, the oldest request may well be among them: we were kept from running, not it.
            if flight and now - next(iter(flight.values())) > (
                patience if not ready else _PATIENCE_WHILE_BUSY * patience
            ):
                self._expire(now - patience)
            if now > stop_at:
                self._abandon()
            if self._stalled or (len(flight) < total and self._opened < len(self._order)):
                self._refill()
            if progress is not None and now >= report_at:
                progress(sum(following) - sum(batch.starts))
                report_at = now + _REPORT_S

    def close(self) -> None:
        """The transaction ids may stay outstanding in the kernel for a while yet."""
        for base in self._bases:
            self._tids.used(base, self._limits.horizon_s)

    def _refill(self) -> None:
        """Destinations that stalled, then new ones, while the window has room and the transport takes them."""
        stalled, self._stalled = self._stalled, []
        for position, c in enumerate(stalled):
            self._pump(c)
            if self._stalled:
                self._stalled += stalled[position + 1 :]
                return
        while self._opened < len(self._order) and len(self._flight) < self._limits.total:
            c = self._order[self._opened]
            self._opened += 1
            self._pump(c)
            if self._stalled:
                return

    def _pump(self, c: int) -> None:
        """Send what destination ``c`` may have in flight: repeats first."""
        send, flight = self._batch.transport.send, self._flight
        while self._out[c] < self._width[c] and len(flight) < self._limits.total:
            again = self._again.get(c)
            if again:
                row = again[0]
                base = self._bases[self._tries[row]]
                self._batch.restamp(row, base)
            elif self._next[c] < self._end[c]:
                row, base = self._next[c], self._bases[0]
            else:
                return
            try:
                send(self._batch.views[row])
            except BlockingIOError:
                self._stalled.append(c)
                return
            if again:
                again.pop(0)
                self.counts["retried"] += 1
            else:
                self._next[c] = row + 1
            flight[base | row] = self._now
            self._out[c] += 1

    def _answered(self, c: int) -> None:
        """An answer off the fast path: the destination's last requests, or one that was in trouble."""
        self._out[c] -= 1
        if c in self._troubled:
            self._health.answered(self._batch.keys[c])
            self._probing.discard(c)
            if c in self._dead:
                if self._strikes[c] < _MAX_STRIKES:
                    self._revive(c)
            elif not self._again.get(c):
                self._width[c] = self._limits.per_destination
                self._troubled.discard(c)
        self._pump(c)

    def _revive(self, c: int) -> None:
        """It was given up and answers after all (a late one of its window): go on where it stopped."""
        self._dead.discard(c)
        self._end[c] = self._batch.ends[c]
        for row in range(self._batch.starts[c], self._end[c]):
            if self.fate.get(row) is Reply.SKIPPED:
                del self.fate[row]
                self.counts["skipped"] -= 1
                if row < self._next[c]:
                    self._again.setdefault(c, []).append(row)

    def _timed_out(self, row: int) -> None:
        c = self._batch.owner[row]
        self._out[c] -= 1
        self._strikes[c] += 1
        self._troubled.add(c)
        self._width[c] = 1
        tries = self._tries[row] = self._tries.get(row, 0) + 1
        last = tries > self._limits.retries or self._strikes[c] >= _MAX_STRIKES
        if last or c in self._probing or c in self._dead:
            self.fate[row] = Reply.TIMEOUT
            self.counts["timeouts"] += 1
            if c not in self._dead:
                self._give_up(c)
        else:
            self._again.setdefault(c, []).append(row)
        self._pump(c)

    def _give_up(self, c: int) -> None:
        self._dead.add(c)
        self._probing.discard(c)
        self._drop_rest(c)
        if self._demote:
            self._health.failed(self._batch.keys[c])

    def _drop_rest(self, c: int) -> None:
        for row in (*range(self._next[c], self._end[c]), *self._again.pop(c, ())):
            self.fate[row] = Reply.SKIPPED
            self.counts["skipped"] += 1
        self._end[c] = self._next[c]

    def _short(self, frame: bytes) -> None:
        """A request that came back without an answer: the kernel returns its header only."""
        transport = self._batch.transport
        at = transport.mad_at + TID_LOW_AT
        tid = int.from_bytes(frame[at : at + 4], "big")
        if len(frame) < at + 4 or self._flight.pop(tid, None) is None:
            self.counts["late"] += 1
            return
        if not any(frame[transport.status_at : transport.status_at + 4]):
            self.counts["short"] += 1
        self._timed_out(tid & INDEX_MASK)

    def _expire(self, cutoff: float) -> None:
        """Requests nobody reports on: lost by the kernel's error paths, or on a transport that keeps no time."""
        for tid, sent in list(self._flight.items()):
            if sent > cutoff:
                return
            del self._flight[tid]
            self.counts["expired"] += 1
            self._timed_out(tid & INDEX_MASK)

    def _abandon(self) -> None:
        """The deadline: what is in flight counts as unanswered, the rest as not asked."""
        self.counts["deadline"] += 1
        for tid in self._flight:
            self.fate[tid & INDEX_MASK] = Reply.TIMEOUT
            self.counts["timeouts"] += 1
        self._flight.clear()
        self._stalled.clear()
        self._opened = len(self._order)
        for c in range(len(self._batch.keys)):
            self._drop_rest(c)

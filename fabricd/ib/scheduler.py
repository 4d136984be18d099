"""Requests as they come: windows per destination and in all, time-outs, one retry, late answers told from current ones.

For discovery, probes and typed Gets, where an answer decides the next question. Thousands of requests known in advance (a sweep)
go through ``ib/batch.py``, which does the same on arrays.
"""

from __future__ import annotations

import time
from collections import Counter, deque
from collections.abc import Callable, Hashable
from dataclasses import dataclass, field

from fabricd.ib.limits import INDEX_MASK, Limits, TidSpace
from fabricd.ib.mad import GET_RESP, METHOD_AT, Reply, classify, set_tid, status_of, tid_low
from fabricd.ib.transport import Address, Transport, device_error

_POLL_MS = 10
_GRACE_S = 0.1


@dataclass(slots=True)
class Request:
    """``mad``: 256 bytes, built by ``ib/mad.py``. ``destination``: whose window it counts in (a GUID, a LID, a route)."""

    mad: bytearray
    address: Address
    destination: Hashable
    retries: int | None = None  # None: as the limits say


@dataclass(frozen=True, slots=True)
class Answer:
    """``mad`` is the 256-byte answer, None when there was none (``reply`` TIMEOUT, SKIPPED or SEND_FAILED)."""

    request: Request
    reply: Reply
    mad: bytes | None

    @property
    def ok(self) -> bool:
        return self.reply is Reply.OK

    @property
    def data(self) -> bytes:
        """The attribute's data from byte 64 on; raises ValueError when there was no answer."""
        if self.mad is None:
            raise ValueError("no answer")
        return self.mad[64:]


Done = Callable[[Answer], None]


@dataclass(slots=True)
class _Flight:
    request: Request
    done: Done
    tries: int = 0
    busy: int = 0
    sent_at: float = 0.0


@dataclass(slots=True)
class _Lane:
    """The queue of one destination."""

    waiting: deque[_Flight] = field(default_factory=deque)
    out: int = 0
    silent: bool = False
    listed: bool = False


class Scheduler:
    """Submit requests, then ``run``; a ``done`` callback may submit more. Not thread-safe.

    A destination whose request stayed unanswered after the retries is *silent*: what waits for it is answered SKIPPED, until
    ``forgive`` or an answer. ``counts`` has: sent, answered, retried, timeouts, late, short, skipped, busy.
    """

    def __init__(
        self,
        transport: Transport,
        limits: Limits | None = None,
        tids: TidSpace | None = None,
        *,
        patient: bool = False,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.transport = transport
        self.limits = limits or Limits()
        self.counts: Counter[str] = Counter()
        self._tids = tids or TidSpace(clock)
        self._patient = patient  # never give up on a destination: each of its requests is tried
        self._clock = clock
        self._lanes: dict[Hashable, _Lane] = {}
        self._ready: deque[Hashable] = deque()
        self._flights: dict[int, _Flight] = {}  # by transaction id, oldest first
        self._base = self._index = 0
        self._ours_until = -1.0
        self._frame = memoryview(bytearray(transport.size))
        self._stop_at: float | None = None

    def submit(self, request: Request, done: Done) -> None:
        """Queue a request; ``done`` is called once, from ``run``."""
        lane = self._lanes.get(request.destination)
        if lane is None:
            lane = self._lanes[request.destination] = _Lane()
        lane.waiting.append(_Flight(request, done))
        self._list(request.destination, lane)

    def forgive(self) -> None:
        """Ask silent destinations again from now on, and forget idle ones."""
        self._lanes = {key: lane for key, lane in self._lanes.items() if lane.waiting or lane.out}
        for lane in self._lanes.values():
            lane.silent = False

    def get(self, request: Request) -> Answer:
        """One request, now; runs everything else that is queued as well."""
        answers: list[Answer] = []
        self.submit(request, answers.append)
        self.run()
        return answers[0]

    def run(self, deadline_s: float | None = None) -> None:
        """Until every request is answered. What is left after ``deadline_s`` seconds is answered TIMEOUT or SKIPPED.

        Raises DeviceGone or TransportError.
        """
        started = self._clock()
        try:
            while True:
                if deadline_s is not None and self._clock() - started > deadline_s:
                    self._abandon()
                self._fill()
                if self._flights:
                    # While answers wait to be read, the oldest request may well be among them: only then is it overdue.
                    if not self._receive():
                        self._watch()
                elif not self._ready:
                    return
                else:
                    self.transport.poll(1)  # the transport would not take anything: let it breathe
        except OSError as error:
            raise device_error(error) from None

    def _list(self, key: Hashable, lane: _Lane) -> None:
        if not lane.listed and lane.waiting:
            lane.listed = True
            self._ready.append(key)

    def _fill(self) -> None:
        while self._ready and len(self._flights) < self.limits.total:
            key = self._ready.popleft()
            lane = self._lanes[key]
            lane.listed = False
            if lane.silent and not self._patient:
                self._skip(lane)
                continue
            if lane.out >= self.limits.per_destination or not lane.waiting:
                continue  # it is listed again when one of its answers comes
            flight = lane.waiting.popleft()
            try:
                self._send(flight)
            except BlockingIOError:
                lane.waiting.appendleft(flight)
                self._list(key, lane)
                return
            lane.out += 1
            self._list(key, lane)

    def _send(self, flight: _Flight) -> None:
        tid = self._next_tid()
        transport, frame = self.transport, self._frame
        transport.address(frame, flight.request.address, self.limits.timeout_ms)
        frame[transport.mad_at :] = flight.request.mad
        set_tid(frame[transport.mad_at :], tid)
        transport.send(frame)
        flight.tries += 1
        flight.sent_at = self._clock()
        self._flights[tid] = flight
        self.counts["sent"] += 1

    def _next_tid(self) -> int:
        """A generation left alone for long belongs to someone else by now."""
        now, horizon = self._clock(), self.limits.horizon_s
        if self._index > INDEX_MASK or now >= self._ours_until:
            self._base, self._index = self._tids.take(horizon), 0
        self._tids.used(self._base, horizon)
        self._ours_until = now + horizon
        self._index += 1
        return self._base | (self._index - 1)

    def _receive(self) -> bool:
        """Take what is there; False when nothing was."""
        transport = self.transport
        if not transport.poll(_POLL_MS):
            return False
        while True:
            try:
                frame = transport.recv()
            except BlockingIOError:
                return True
            self._take(frame)
            if not transport.drains:
                return True

    def _take(self, frame: bytes) -> None:
        at = self.transport.mad_at
        if len(frame) < at + 16:
            self.counts["short"] += 1
            return
        tid = tid_low(frame[at : at + 24])
        flight = self._flights.pop(tid, None)
        if flight is None:
            self.counts["late"] += 1
            return
        failed = any(frame[self.transport.status_at : self.transport.status_at + 4])
        if failed or len(frame) != self.transport.size or frame[at + METHOD_AT] != GET_RESP:
            self._timed_out(flight)
            return
        self._answered(flight, frame[at:])

    def _answered(self, flight: _Flight, mad: bytes) -> None:
        lane = self._lanes[flight.request.destination]
        lane.out -= 1
        lane.silent = False
        reply = classify(status_of(mad))
        if reply is Reply.BUSY and flight.busy < 1:
            self.counts["busy"] += 1
            flight.busy += 1
            lane.waiting.append(flight)
        else:
            self.counts["answered"] += 1
            flight.done(Answer(flight.request, reply, mad))
        self._list(flight.request.destination, lane)

    def _timed_out(self, flight: _Flight) -> None:
        lane = self._lanes[flight.request.destination]
        lane.out -= 1
        retries = self.limits.retries if flight.request.retries is None else flight.request.retries
        if flight.tries <= retries and not lane.silent:
            self.counts["retried"] += 1
            lane.waiting.appendleft(flight)
        else:
            self.counts["timeouts"] += 1
            lane.silent = True
            flight.done(Answer(flight.request, Reply.TIMEOUT, None))
        self._list(flight.request.destination, lane)

    def _skip(self, lane: _Lane) -> None:
        while lane.waiting:
            flight = lane.waiting.popleft()
            self.counts["skipped"] += 1
            flight.done(Answer(flight.request, Reply.SKIPPED, None))

    def _watch(self) -> None:
        """Requests nobody reports on: dropped by the kernel's error paths, or by a transport that keeps no time."""
        limit = self.limits.timeout_ms / 1000 + (_GRACE_S if self.transport.reports_timeouts else 0.0)
        now = self._clock()
        while self._flights:
            tid, flight = next(iter(self._flights.items()))
            if now - flight.sent_at < limit:
                return
            del self._flights[tid]
            self._timed_out(flight)

    def _abandon(self) -> None:
        for tid in list(self._flights):
            flight = self._flights.pop(tid)
            flight.tries = 1 << 30
            self._timed_out(flight)
        for lane in list(self._lanes.values()):
            self._skip(lane)

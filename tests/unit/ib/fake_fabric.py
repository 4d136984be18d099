"""A transport with time of its own: real time-outs, late, doubled and lost answers, dead switches, in virtual seconds.

It also keeps watch: more in flight than allowed, or a transaction id used twice while outstanding, is an AssertionError.
"""

from __future__ import annotations

import errno
import heapq
import itertools
import struct
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field

from fabricd.ib.mad import GET_RESP, MAD_SIZE, METHOD_AT, STATUS_AT, tid_low
from fabricd.ib.transport import Address, get_only

RTT = 0.0002


class FakeClock:
    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


@dataclass
class Fate:
    """What becomes of one request: when it is answered (empty: never), and with which status."""

    answers: tuple[float, ...] = (RTT,)  # delays in seconds; several: doubled
    status: int = 0


LOST = Fate(())
Agent = Callable[[int, bytes], bytes | None]  # (LID, request) -> data bytes from 64 on; None: silent
Plan = Callable[[int, int, int, int], Fate]  # (LID, attribute, port, how often this was asked before) -> fate


@dataclass
class FakeFabric:
    """``reports``: a request without an answer comes back short with status 110, as from the kernel; else nothing comes."""

    agent: Agent
    plan: Plan = lambda lid, attribute, port, again: Fate()
    clock: FakeClock = field(default_factory=FakeClock)
    reports: bool = True
    per_destination: int = 4
    total: int = 128
    block_every: int = 0  # every so many sends the transport would block

    size = 8 + MAD_SIZE
    mad_at = 8
    status_at = 4

    def __post_init__(self) -> None:
        self.drains = not self.reports
        self.reports_timeouts = self.reports
        self.events: list[tuple[float, int, int, bytes]] = []  # (when, order, tid, frame)
        self.outstanding: dict[int, tuple[int, float]] = {}  # tid -> (LID, until)
        self.asked: Counter[tuple[int, int, int]] = Counter()
        self.sent: list[tuple[float, int, int, int]] = []  # (when, LID, attribute, port)
        self.gone = False
        self._order = itertools.count()
        self._sends = 0
        self._guarded = get_only(self._send, self.mad_at)

    @property
    def send(self) -> Callable[[memoryview], None]:
        return self._guarded

    @property
    def recv(self) -> Callable[[], bytes]:
        return self._recv

    @property
    def poll(self) -> Callable[[float], object]:
        return self._poll

    def address(self, frame: memoryview, to: Address, timeout_ms: int) -> None:
        struct.pack_into(">HHI", frame, 0, to.lid, timeout_ms, 0)

    def close(self) -> None:
        self.gone = True

    def _send(self, frame: memoryview) -> None:
        if self.gone:
            raise OSError(errno.ENODEV, "gone")
        self._sends += 1
        if self.block_every and self._sends % self.block_every == 0:
            raise BlockingIOError(errno.EAGAIN, "full")
        lid, timeout_ms, _ = struct.unpack_from(">HHI", frame, 0)
        mad = bytes(frame[self.mad_at :])
        tid, attribute, port = tid_low(mad), int.from_bytes(mad[16:18], "big"), mad[65]
        now, until = self.clock.now, self.clock.now + timeout_ms / 1000
        self.outstanding = {t: (d, u) for t, (d, u) in self.outstanding.items() if u > now}
        assert tid not in self.outstanding, f"transaction id {tid:#x} used twice"
        self.outstanding[tid] = (lid, until)
        busy = sum(1 for d, _ in self.outstanding.values() if d == lid)
        assert busy <= self.per_destination, f"{busy} in flight to LID {lid}"
        assert len(self.outstanding) <= self.total, f"{len(self.outstanding)} in flight"
        again = self.asked[lid, attribute, port]
        self.asked[lid, attribute, port] += 1
        self.sent.append((now, lid, attribute, port))
        fate = self.plan(lid, attribute, port, again)
        data = self.agent(lid, mad)
        if data is None:
            fate = LOST
        for delay in fate.answers:
            reply = bytearray(mad[:64] + (data or b"").ljust(192, b"\0"))
            reply[METHOD_AT] = GET_RESP
            struct.pack_into(">H", reply, STATUS_AT, fate.status)
            self._push(now + delay, tid, struct.pack(">HHI", lid, 0, 0) + bytes(reply))
        if self.reports:
            self._push(until, tid, struct.pack(">HHI", lid, 0, 110) + mad[:24])

    def _push(self, when: float, tid: int, frame: bytes) -> None:
        heapq.heappush(self.events, (when, next(self._order), tid, frame))

    def _drop_stale(self) -> None:
        """The kernel hands out nothing for a transaction that is over."""
        while self.reports and self.events and self.events[0][2] not in self.outstanding:
            heapq.heappop(self.events)

    def _poll(self, timeout_ms: float) -> bool:
        self._drop_stale()
        if self.gone or (self.events and self.events[0][0] <= self.clock.now):
            return True
        until = self.clock.now + timeout_ms / 1000
        if self.events and self.events[0][0] <= until:
            self.clock.now = self.events[0][0]
            return True
        self.clock.now = until
        return False

    def _recv(self) -> bytes:
        if self.gone:
            raise OSError(errno.EIO, "gone")
        self._drop_stale()
        if not self.events or self.events[0][0] > self.clock.now:
            raise BlockingIOError(errno.EAGAIN, "nothing there")
        _, _, tid, frame = heapq.heappop(self.events)
        self.outstanding.pop(tid, None)
        return frame


def marked(lid: int, mad: bytes) -> bytes:
    """An agent whose every answer tells whose it is: PortSelect, then LID, attribute and port as the first counter."""
    return struct.pack(">BBH4xQ", 0, mad[65], 0, mark(lid, int.from_bytes(mad[16:18], "big"), mad[65]))


def mark(lid: int, attribute: int, port: int) -> int:
    return lid << 32 | attribute << 16 | port

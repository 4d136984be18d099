"""The sampling mechanism of a port: count some counters over an interval of ticks."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from fabricd.twin.face import Counters
from fabricd.twin.mad.wire import get, put

TICK_BYTES = 8  # PortXmitWait counts each 8 bytes of port time (Quantum), shown as PortSamplesControl.Tick 7
SAMPLE_DONE, SAMPLE_WAITING, SAMPLE_RUNNING = 0, 1, 2
COUNTERS = 15
Sampled = Callable[[Counters, int, int], int]


@dataclass(slots=True)
class Sampling:
    """One run of the sampling mechanism: ``result`` holds the differences over the interval when it is done."""

    tag: int
    start_ticks: int
    interval_ticks: int
    selectors: list[int]
    begins_ns: float
    ends_ns: float
    first: list[int]
    result: list[int]
    status: int = SAMPLE_WAITING

    @classmethod
    def start(cls, data: bytes, counters: Counters, row: int, tick_ns: float, sampled: Sampled) -> Sampling:
        start, interval = get(data, 28, 4), get(data, 32, 4)
        selectors = [get(data, 38 + 2 * i, 2) for i in range(COUNTERS)]
        begins = counters.clock_ns + start * tick_ns
        run = cls(get(data, 36, 2), start, interval, selectors, begins, begins + interval * tick_ns, [], [0] * COUNTERS)
        run.advance(counters, row, sampled)
        return run

    def advance(self, counters: Counters, row: int, sampled: Sampled) -> None:
        if self.status == SAMPLE_WAITING and counters.clock_ns >= self.begins_ns:
            self.first = [sampled(counters, selector, row) for selector in self.selectors]
            self.status = SAMPLE_RUNNING
        if self.status == SAMPLE_RUNNING and counters.clock_ns >= self.ends_ns:
            now = [sampled(counters, selector, row) for selector in self.selectors]
            self.result = [b - a for a, b in zip(self.first, now, strict=True)]
            self.status = SAMPLE_DONE


def samples_control(select: int, run: Sampling | None) -> bytes:
    out = bytearray(72)
    out[1] = select
    out[2] = TICK_BYTES - 1
    out[3] = 2  # counters are 32 bits wide
    # every counter can be programmed (mask 1 each: PortXmitData and its kin): CounterMask0, 1 to 9 and 10 to 14
    put(out, 4, 4, 1 << 27 | sum(1 << 3 * i for i in range(9)))
    put(out, 8, 2, sum(1 << 3 * i for i in range(5)))
    out[10] = 1  # one sampling mechanism
    put(out, 12, 8, (1 << 5) - 1)  # optional counters: the five that can be selected
    if run is not None:
        out[11] = run.status
        put(out, 28, 4, run.start_ticks)
        put(out, 32, 4, run.interval_ticks)
        put(out, 36, 2, run.tag)
        for index, selector in enumerate(run.selectors):
            put(out, 38 + 2 * index, 2, selector)
    return bytes(out)

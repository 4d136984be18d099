"""Requests known in advance, by the ten thousand, as one array: built once, sent every sweep, answered as one array.

The requests of one destination (a switch) lie together and are asked in order; ``ib/batch_run.py`` is one pass over them.
"""

from __future__ import annotations

import struct
import time
from collections import Counter
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import cast

import numpy as np
import numpy.typing as npt

from fabricd.ib.batch_run import BatchRun
from fabricd.ib.health import Health
from fabricd.ib.limits import MAX_BATCH, Limits, TidSpace
from fabricd.ib.mad import (
    ATTRIBUTE_AT,
    GET_RESP,
    GMP_DATA_AT,
    MAD_SIZE,
    METHOD_AT,
    STATUS_AT,
    TID_LOW_AT,
    Reply,
    classify,
)
from fabricd.ib.transport import Address, Transport, device_error

_REPLY_OF_STATUS = np.array([classify(status) for status in range(1 << 16)], np.uint8)


@dataclass(frozen=True, slots=True)
class BatchResult:
    """``mads``: (n, 256) bytes, rows without an answer are zero. ``reply``: (n,) of mad.Reply. ``when``: (n,) seconds on the run's
    clock at which the answer was taken, 0 without one. ``counts``: what went wrong."""

    mads: npt.NDArray[np.uint8]
    reply: npt.NDArray[np.uint8]
    when: npt.NDArray[np.float64]
    counts: Counter[str]
    seconds: float


class Batch:
    """Prepared requests. ``groups``: per destination its key, address and MADs (256 bytes each), asked in this order.

    Raises ValueError on more than 2**20 requests.
    """

    def __init__(
        self,
        transport: Transport,
        groups: Sequence[tuple[Hashable, Address, Sequence[bytes | bytearray]]],
        limits: Limits,
    ) -> None:
        self.transport = transport
        self.limits = limits
        groups = [group for group in groups if group[2]]
        size, at = transport.size, transport.mad_at
        frames = np.zeros((sum(len(mads) for _, _, mads in groups), size), np.uint8)
        header = memoryview(bytearray(at))
        row = 0
        for _, address, mads in groups:
            transport.address(header, address, limits.timeout_ms)
            frames[row : row + len(mads), :at] = np.frombuffer(header, np.uint8)
            frames[row : row + len(mads), at:] = np.frombuffer(b"".join(mads), np.uint8).reshape(-1, MAD_SIZE)
            row += len(mads)
        self._lay_out([key for key, _, _ in groups], [len(mads) for _, _, mads in groups], frames)

    def _lay_out(self, keys: list[Hashable], counts: list[int], frames: npt.NDArray[np.uint8]) -> None:
        if len(frames) > MAX_BATCH:
            raise ValueError(f"{len(frames)} requests in one batch: at most {MAX_BATCH}")
        self.keys = keys
        self.ends: list[int] = list(accumulate(counts))
        self.starts: list[int] = [end - count for end, count in zip(self.ends, counts, strict=True)]
        self.owner: list[int] = [c for c, count in enumerate(counts) for _ in range(count)]
        self.frames = frames
        size = self.transport.size
        self._flat = frames.data.cast("B") if len(frames) else memoryview(bytearray())
        self.views = [self._flat[i * size : (i + 1) * size] for i in range(len(frames))]
        self._index = np.arange(len(frames), dtype=np.uint32)

    def __len__(self) -> int:
        return len(self.views)

    def asked(self, row: int) -> tuple[int, int]:
        """(attribute, port select) of a performance management request."""
        mad = self.views[row][self.transport.mad_at :]
        return int.from_bytes(mad[ATTRIBUTE_AT : ATTRIBUTE_AT + 2], "big"), mad[GMP_DATA_AT + 1]

    def subset(self, rows: Sequence[int]) -> Batch:
        """The requests ``rows`` (ascending) as a batch of their own."""
        part = Batch(self.transport, (), self.limits)
        owners = [self.owner[row] for row in rows]
        kept = list(dict.fromkeys(owners))
        part._lay_out([self.keys[c] for c in kept], [owners.count(c) for c in kept], self.frames[list(rows)])
        return part

    def stamp(self, base: int) -> None:
        """Write the transaction ids ``base`` | row into all requests."""
        column = self.transport.mad_at + TID_LOW_AT
        ids = (self._index | np.uint32(base)).astype(">u4")
        self.frames[:, column : column + 4] = ids.view(np.uint8).reshape(-1, 4)

    def restamp(self, row: int, base: int) -> None:
        struct.pack_into(">I", self._flat, row * self.transport.size + self.transport.mad_at + TID_LOW_AT, base | row)

    def run(
        self,
        health: Health,
        tids: TidSpace,
        *,
        probe_silent: bool = True,
        demote: bool = True,
        deadline_s: float = 10.0,
        progress: Callable[[int], None] | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> BatchResult:
        """Send everything once and collect. ``probe_silent``: ask silent destinations one request, else skip them.

        ``demote``: destinations that stay silent are remembered in ``health``. Ends within ``deadline_s`` whatever happens.
        ``progress`` is called ten times a second with the number of requests sent. Raises DeviceGone or TransportError.
        """
        started = clock()
        run = BatchRun(self, health, tids, probe_silent=probe_silent, demote=demote, clock=clock)
        try:
            run.loop(started + deadline_s, progress)
        except OSError as error:
            raise device_error(error) from None
        finally:
            run.close()
        return self._result(run, clock() - started)

    def _result(self, run: BatchRun, seconds: float) -> BatchResult:
        size, at = self.transport.size, self.transport.mad_at
        blank = bytes(size)
        missing = [row for row, frame in enumerate(run.answers) if frame is None] if None in run.answers else []
        for row in missing:
            run.answers[row] = blank
        joined = b"".join(cast("list[bytes]", run.answers))
        received = np.frombuffer(joined, np.uint8).reshape(len(self), size)
        mads = received[:, at:]
        status = mads[:, STATUS_AT].astype(np.uint16) << 8 | mads[:, STATUS_AT + 1]
        reply = _REPLY_OF_STATUS[status]
        asked = self.frames[:, at:]
        # An answer is one only if it says so, and is about what was asked: class and attribute.
        strange = mads[:, METHOD_AT] != GET_RESP
        for column in (1, ATTRIBUTE_AT, ATTRIBUTE_AT + 1):
            strange |= mads[:, column] != asked[:, column]
        if missing:
            reply[missing] = [run.fate.get(row, Reply.SKIPPED) for row in missing]
            strange[missing] = False
        if strange.any():
            run.counts["strange"] += int(strange.sum())
            reply[strange] = Reply.OTHER
        return BatchResult(mads, reply, np.array(run.when, np.float64), run.counts, seconds)

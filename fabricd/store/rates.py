"""How much a counter moved between two readings, and how sure that is. Pure array arithmetic.

All arrays of a call have the shape (rows, columns) of a stream. ``span`` is the time in ns over which ``delta`` was counted, 0 where
the movement is unknown: first reading, after a reset, saturated, missing, or across an epoch (driver reload, firmware, reboot).
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from fabricd.model.sample import Flag

U64 = NDArray[np.uint64]
U8 = NDArray[np.uint8]
I64 = NDArray[np.int64]
Mask = NDArray[np.bool_]

MAX_WRAP_SPAN_NS = 60_000_000_000  # longer than this a narrow counter may have wrapped more than once
_VALID, _SATURATED, _STALE = np.uint8(Flag.VALID), np.uint8(Flag.SATURATED), np.uint8(Flag.STALE)
_RESET, _WRAPPED = np.uint8(Flag.RESET), np.uint8(Flag.WRAPPED)


class Rules(NamedTuple):
    """Per column, shape (columns,): does it count, and modulo what (0: it does not wrap)."""

    counts: Mask
    modulus: U64


class State(NamedTuple):
    """Views of a stream's cells, changed in place. ``since``: monotonic ns of the last fresh reading, 0 = none."""

    value: U64
    flags: U8
    delta: U64
    span: I64
    since: I64


def step(state: State, value: U64, flags: U8, read_at: I64, rules: Rules) -> int:
    """Take one frame. ``read_at`` (rows, 1) monotonic ns of each row's reading. Set ``since`` to 0 first where an epoch begins.

    Returns how many counters were reset by someone else.
    """
    valid = (flags & _VALID) != 0
    fresh = valid & ((flags & _STALE) == 0)
    full = (flags & _SATURATED) != 0
    was_full = (state.flags & _SATURATED) != 0
    span = read_at - state.since
    comparable = fresh & (state.since != 0)
    less = comparable & (value < state.value) & rules.counts
    wrapped = less & (rules.modulus != 0)
    reset = less & ~wrapped
    delta = value - state.value
    delta[wrapped] += np.broadcast_to(rules.modulus, delta.shape)[wrapped]
    known = comparable & rules.counts & ~reset & ~full & ~was_full & (span > 0)
    known &= ~wrapped | (span <= MAX_WRAP_SPAN_NS)
    np.copyto(state.delta, np.where(known, delta, 0))
    np.copyto(state.span, np.where(known, span, 0))
    np.copyto(state.value, value, where=valid)
    np.copyto(state.since, read_at, where=fresh)
    np.copyto(state.flags, flags | reset * _RESET | wrapped * _WRAPPED)
    return int(np.count_nonzero(reset))

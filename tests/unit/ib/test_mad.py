"""Layout of requests and the meaning of status words."""

from __future__ import annotations

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fabricd.ib.mad import MAD_SIZE, Pma, Reply, Smp, classify, pma_get, set_tid, smp_get, status_of, tid_low


def test_performance_get() -> None:
    mad = pma_get(Pma.PORT_COUNTERS_EXTENDED, 7)
    assert len(mad) == MAD_SIZE
    assert mad[:4] == bytes((1, 4, 1, 1)) and mad[16:18] == b"\x00\x1d"
    assert mad[64:68] == bytes((0, 7, 0xFF, 0xFF))
    assert not any(pma_get(Pma.CLASS_PORT_INFO, 0)[24:])


def test_directed_route() -> None:
    mad = smp_get(Smp.PORT_INFO, 5, path=(1, 20, 3), m_key=0x1122334455667788)
    assert mad[:4] == bytes((1, 0x81, 1, 1)) and mad[6:8] == bytes((0, 3))
    assert struct.unpack_from(">HxxI", mad, 16) == (0x15, 5)
    assert mad[24:36] == bytes.fromhex("1122334455667788ffffffff")
    assert mad[128:133] == bytes((0, 1, 20, 3, 0))
    with pytest.raises(ValueError, match="64 hops"):
        smp_get(Smp.NODE_INFO, path=[1] * 64)
    with pytest.raises(ValueError, match="not a directed route"):
        smp_get(Smp.NODE_INFO, path=[255])


@pytest.mark.parametrize(
    ("status", "reply"),
    [
        (0, Reply.OK),
        (0x8000, Reply.OK),  # a directed route's direction bit
        (1, Reply.BUSY),
        (2, Reply.REDIRECT),
        (4, Reply.BAD_VERSION),
        (8, Reply.UNSUPPORTED),
        (12, Reply.UNSUPPORTED),
        (28, Reply.INVALID),
        (0x0100, Reply.OTHER),
    ],
)
def test_status(status: int, reply: Reply) -> None:
    assert classify(status) is reply


@given(st.integers(0, 2**32 - 1), st.integers(0, 2**16 - 1))
def test_fields(tid: int, status: int) -> None:
    mad = pma_get(Pma.PORT_COUNTERS, 1)
    set_tid(mad, tid)
    mad[4:6] = status.to_bytes(2, "big")
    assert tid_low(mad) == tid and status_of(mad) == status
    assert isinstance(classify(status), Reply)

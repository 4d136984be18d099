"""Every counter of every attribute is found where it lies, whatever stands beside it."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fabricd.ib.mad import Pma
from fabricd.sources.pma_layout import LAYOUT, decode, definitions
from tests.unit.sources.fake_agents import Switch


@pytest.mark.parametrize("attribute", sorted(LAYOUT))
def test_the_catalogue_knows_every_counter(attribute: int) -> None:
    for counter, definition in zip(LAYOUT[attribute], definitions(attribute), strict=True):
        if attribute == Pma.OP_RCV_COUNTERS:
            continue  # read by nobody but typed Gets
        assert definition.known, counter.raw
        assert definition.width == counter.bits and definition.sticky, counter.raw
        assert definition.scale == (4 if "Data" in counter.raw or counter.raw.startswith(("XmtData", "RcvData")) else 1)


@settings(max_examples=60, deadline=None)
@given(attribute=st.sampled_from(sorted(LAYOUT)), data=st.data())
def test_round_trip(attribute: int, data: st.DataObject) -> None:
    layout = LAYOUT[attribute]
    ports = data.draw(st.integers(1, 4))
    wanted = [[data.draw(st.integers(0, 2**c.bits - 1)) for c in layout] for _ in range(ports)]
    switch = Switch(has={attribute})
    mads = bytearray()
    for port, row in enumerate(wanted, 1):
        switch.set(attribute, port, **dict(zip((c.raw for c in layout), row, strict=True)))
        request = bytearray(256)
        request[16:18], request[65] = attribute.to_bytes(2, "big"), port
        answer = switch.answer(bytes(request))
        assert answer is not None
        mads += bytes(64) + answer
    decoded = decode(attribute, np.frombuffer(bytes(mads), np.uint8).reshape(ports, 256))
    assert decoded.tolist() == wanted


def test_two_bit_counters_begin_at_the_top_of_the_byte() -> None:
    mad = np.zeros((1, 256), np.uint8)
    mad[0, 64 + 4] = 0b11_10_01_00
    assert decode(Pma.VL_XMIT_FLOW_CTL_ERRORS, mad)[0, :5].tolist() == [3, 2, 1, 0, 0]

"""Performance attributes byte by byte, against the offsets of the standard written down here a second time."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fabricd.twin.face import Counters
from fabricd.twin.mad.pma import Pma
from tests.unit.twin.static_fabric import StaticFabric, leaf_spine

GET, SET = 1, 2
OK, UNSUPPORTED, INVALID = 0, 0x0C, 0x1C
SWITCH_PORT = 5


class Asked:
    """One switch (and one adapter) of a still fabric, asked as MADs ask."""

    def __init__(self) -> None:
        self.fabric = StaticFabric(leaf_spine(lanes=4))
        self.pma = Pma(self.fabric.plan, self.fabric.read)
        self.switch = self.fabric.plan.switches[0]
        self.adapter = self.fabric.plan.adapters[0]
        self.row = self.fabric.plan.row(self.switch, SWITCH_PORT)

    @property
    def counters(self) -> Counters:
        self.fabric.touch()
        return self.fabric.counters

    def ask(
        self, attribute: int, port: int = SWITCH_PORT, method: int = GET, data: bytes = b"", wide: bool = True
    ) -> tuple[int, bytes]:
        body = bytearray(192)
        body[: len(data)] = data
        body[1] = port
        status, answer = self.pma.answer(method, attribute, bytes(body), self.switch, 0, wide)
        return status, answer or b""

    def ask_adapter(self, attribute: int, port: int = 1) -> tuple[int, bytes]:
        status, answer = self.pma.answer(GET, attribute, bytes([0, port]) + bytes(190), self.adapter, 1, True)
        return status, answer or b""


def number(data: bytes, offset: int, size: int) -> int:
    return int.from_bytes(data[offset : offset + size], "big")


def test_class_port_info_tells_switches_and_adapters_apart() -> None:
    asked = Asked()
    _, switch = asked.ask(1)
    assert number(switch, 2, 2) == 0x5300 and number(switch, 4, 4) >> 5 == 0x2
    _, cut = asked.ask(1, wide=False)
    assert number(cut, 4, 4) >> 5 == 0
    _, adapter = asked.ask_adapter(1)
    assert number(adapter, 2, 2) == 0x5A00 and number(adapter, 4, 4) >> 5 == 0


@given(
    sent=st.integers(0, 2**62), received=st.integers(0, 2**62), drops=st.integers(0, 2**40), wait=st.integers(0, 2**50),
    errors=st.integers(0, 2**40), downed=st.integers(0, 2**20),
)  # fmt: skip
def test_narrow_counters_stick_and_wide_ones_do_not(
    sent: int, received: int, drops: int, wait: int, errors: int, downed: int
) -> None:
    asked = Asked()
    counters, row = asked.counters, asked.row
    counters.tx_bytes[row, 1], counters.rx_bytes[row, 0] = sent, received
    counters.drops[row, 2], counters.port_wait_ns[row] = drops, wait
    counters.symbol_errors[row], counters.link_downed[row] = errors, downed
    ticks = int(np.float64(wait) * (400 / 64))
    _, wide = asked.ask(0x1D)
    assert wide[1] == SWITCH_PORT
    for offset, value in ((8, sent // 4), (16, received // 4), (72, errors), (88, downed), (120, drops), (168, ticks)):
        assert number(wide, offset, 8) == value
    _, narrow = asked.ask(0x12)
    for offset, size, value in (
        (4, 2, errors),
        (7, 1, downed),
        (14, 2, drops),
        (24, 4, sent // 4),
        (28, 4, received // 4),
        (40, 4, ticks),
    ):
        assert number(narrow, offset, size) == min(value, 256**size - 1)


def test_adapters_have_no_64_bit_errors() -> None:
    asked = Asked()
    row = asked.adapter.first_row
    asked.counters.symbol_errors[row] = asked.counters.tx_packets[row, 0] = 7
    _, wide = asked.ask_adapter(0x1D)
    assert number(wide, 24, 8) == 7
    assert wide[72:184] == bytes(112)
    _, narrow = asked.ask_adapter(0x12)
    assert number(narrow, 4, 2) == 7


@pytest.mark.parametrize(
    ("attribute", "name", "size", "divisor"),
    [(0x36, "sl_tx_bytes", 4, 4), (0x37, "sl_rx_bytes", 4, 4), (0x32, "sl_fecn", 4, 1), (0x33, "sl_becn", 4, 1),
     (0x19, "rx_packets", 2, 1), (0x1A, "rx_bytes", 4, 4), (0x30, "marked", 2, 1)],
)  # fmt: skip
def test_per_level_and_lane_arrays(attribute: int, name: str, size: int, divisor: int) -> None:
    asked = Asked()
    array = getattr(asked.counters, name)
    for index in range(array.shape[1]):
        array[asked.row, index] = 1000 * (index + 1)
    _, data = asked.ask(attribute)
    shown = [number(data, 4 + size * index, size) for index in range(16)]
    assert shown == [1000 * (i + 1) // divisor for i in range(array.shape[1])] + [0] * (16 - array.shape[1])


def test_waits_by_lane_saturate_at_16_bits_and_times_congested_at_32() -> None:
    asked = Asked()
    asked.counters.wait_ns[asked.row] = [10, 10**9, 0, 16]
    asked.counters.lane_congested_ns[asked.row] = [0, 16, 10**12, 0]
    asked.counters.congested_ns[asked.row] = 32
    _, waits = asked.ask(0x1C)
    assert [number(waits, 4 + 2 * v, 2) for v in range(5)] == [62, 0xFFFF, 0, 100, 0]
    _, times = asked.ask(0x35)
    assert [number(times, 4 + 4 * v, 4) for v in range(4)] == [0, 100, 0xFFFFFFFF, 0]
    assert number(asked.ask(0x34)[1], 4, 4) == 200


def test_sums_over_levels_and_details() -> None:
    asked = Asked()
    asked.counters.sl_fecn[asked.row, 3], asked.counters.sl_fecn[asked.row, 9] = 5, 6
    asked.counters.sl_becn[asked.row, 0] = 4
    asked.counters.hoq_discards[asked.row], asked.counters.rcv_errors[asked.row] = 3, 2
    _, marks = asked.ask(0x31)
    assert (number(marks, 4, 4), number(marks, 8, 4)) == (11, 4)
    assert number(asked.ask(0x16)[1], 10, 2) == 3
    assert number(asked.ask(0x15)[1], 4, 2) == 2


def test_unknown_ports_and_attributes() -> None:
    asked = Asked()
    assert asked.ask(0x1D, port=17)[0] == INVALID
    assert asked.ask(0x1D, port=0)[0] == OK
    assert asked.ask(0x99)[0] == UNSUPPORTED
    assert asked.ask_adapter(0x30)[0] == UNSUPPORTED
    assert asked.ask_adapter(0x1D, port=2)[0] == INVALID


@given(st.lists(st.integers(0, 2**31), min_size=16, max_size=16))
def test_all_ports_are_summed(values: list[int]) -> None:
    asked = Asked()
    first = asked.switch.first_row
    asked.counters.tx_packets[first : first + 16, 0] = values
    _, wide = asked.ask(0x1D, port=255)
    assert wide[1] == 255 and number(wide, 24, 8) == sum(values)
    _, narrow = asked.ask(0x12, port=255)
    assert number(narrow, 32, 4) == min(sum(values), 0xFFFFFFFF)


def test_a_set_writes_the_selected_counters_and_they_count_on() -> None:
    asked = Asked()
    asked.counters.tx_packets[asked.row, 0] = 10**12
    asked.counters.rx_packets[asked.row, 0] = 50
    # PortCounters: bit 14 selects PortXmitPkts
    asked.ask(0x12, method=SET, data=bytes([0, 0, 0x40, 0x00]))
    _, narrow = asked.ask(0x12)
    assert (number(narrow, 32, 4), number(narrow, 36, 4)) == (0, 50)
    asked.counters.tx_packets[asked.row, 0] += 7
    assert number(asked.ask(0x12)[1], 32, 4) == 7
    assert number(asked.ask(0x1D)[1], 24, 8) == 10**12 + 7  # the other attribute's counters are others


def test_sampling_counts_over_its_interval() -> None:
    asked = Asked()
    control = bytearray(192)
    control[1] = SWITCH_PORT
    control[28:32] = (0).to_bytes(4, "big")
    control[32:36] = (6250).to_bytes(4, "big")  # ticks of 0.16 ns: 1000 ns
    control[36:38] = b"\x12\x34"
    control[38:40], control[40:42] = b"\x00\x03", b"\x00\x05"  # packets sent, wait
    status, shown = asked.ask(0x10, method=SET, data=bytes(control))
    assert (status, shown[2], shown[11]) == (OK, 7, 2)
    asked.counters.tx_packets[asked.row, 0] += 9
    asked.counters.port_wait_ns[asked.row] += 160
    asked.counters.clock_ns += 2000
    _, result = asked.ask(0x11)
    assert result[0:2] == b"\x12\x34" and result[3] == 0
    assert (number(result, 4, 4), number(result, 8, 4)) == (9, 1000)

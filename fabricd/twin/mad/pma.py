"""Performance management attributes: layouts, widths, stickiness and capability, encoded for all ports at once.

An attribute is encoded into one byte image of all rows when it is first asked for after a new reading; a Get then
only slices. Counters stick at all-ones until a Set writes them, which is what subtracting a base from the model's
endless counters and cutting at the field's width gives.

Layouts after IBTA volume 1 chapter 16 and annex A10 as libibmad decodes them (offsets from MAD byte 64).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fabricd.twin.face import U64, Counters, Plan, PlanNode
from fabricd.twin.mad.sampling import TICK_BYTES, Sampling, samples_control
from fabricd.twin.mad.wire import BAD_METHOD, GET, INVALID_VALUE, OK, SET, UNSUPPORTED, get, put

IMAGE = 192
ALL_PORTS = 255
CLASS_PORT_INFO, SAMPLES_CONTROL, SAMPLES_RESULT = 0x01, 0x10, 0x11
# ClassPortInfo capability bits
ALL_PORT_SELECT, EXTENDED_WIDTH, SAMPLES_ONLY, XMIT_WAIT = 1 << 8, 1 << 9, 1 << 11, 1 << 12
MORE_64_BIT = 1 << 1  # CapabilityMask2: error counters in PortCountersExtended
SWITCH_MASKS = (ALL_PORT_SELECT | EXTENDED_WIDTH | XMIT_WAIT | 1 << 14, MORE_64_BIT)
ADAPTER_MASKS = (EXTENDED_WIDTH | SAMPLES_ONLY | XMIT_WAIT | 1 << 14, 0)
RESPONSE_TIME = 18
FLOW_PERIOD_SYMBOLS = 65536  # a lane's flow-control packet goes out at least this often

Values = Callable[[Counters], U64]  # -> [rows]


@dataclass(frozen=True, slots=True)
class Field:
    """One counter of an attribute: ``bits`` wide at bit ``shift`` (from the left) after ``offset`` bytes.

    ``select`` is its bit in CounterSelect (or, with ``second``, in CounterSelect2); ``extra`` fields exist only on nodes
    with 64-bit error counters.
    """

    offset: int
    bits: int
    values: Values
    select: int
    second: bool = False
    shift: int = 0
    extra: bool = False


@dataclass(frozen=True, slots=True)
class Attribute:
    fields: tuple[Field, ...]
    select2: tuple[int, int] = (0, 0)  # offset and size of CounterSelect2
    switches_only: bool = False
    adapters_only: bool = False


def nothing(counters: Counters) -> U64:
    """A counter that never moves in the model."""
    return np.zeros(len(counters.up), np.uint64)


def by_port(name: str) -> Values:
    def values(counters: Counters) -> U64:
        array: U64 = getattr(counters, name)
        return array

    return values


def total(name: str, divisor: int = 1) -> Values:
    """Sum over the lanes (or levels)."""
    return lambda counters: np.asarray(getattr(counters, name).sum(axis=1, dtype=np.uint64) // np.uint64(divisor))


def column(name: str, index: int, divisor: int = 1) -> Values:
    """One lane or level; zero for those the model does not have."""

    def values(counters: Counters) -> U64:
        array: U64 = getattr(counters, name)
        return array[:, index] // np.uint64(divisor) if index < array.shape[1] else nothing(counters)

    return values


class Pma:
    """The performance agents of all nodes of one plan."""

    def __init__(self, plan: Plan, read: Callable[[], Counters]) -> None:
        self._plan = plan
        self._read = read
        self._ticks_per_ns = plan.row_gbps / 8.0 / TICK_BYTES
        self._attributes = self._layouts()
        self._images: dict[int, tuple[int, bytes]] = {}
        self._bases: dict[tuple[int, int], U64] = {}
        self._samples: dict[int, Sampling] = {}

    # -- what a MAD asks -----------------------------------------------------------------------------------------

    def answer(
        self, method: int, attribute: int, data: bytes, node: PlanNode, own_port: int, wide: bool
    ) -> tuple[int, bytes | None]:
        """Answer one Get or Set: (MAD status, attribute bytes or None).

        ``own_port`` is the adapter port it came in through; ``wide`` whether switches offer 64-bit error counters.
        """
        if method not in (GET, SET):
            return BAD_METHOD, None
        is_switch, first_row, ports = node.kind == "switch", node.first_row, node.ports
        if attribute == CLASS_PORT_INFO:
            return OK, _class_port_info(is_switch, wide)
        select = data[1]
        if select == ALL_PORTS:
            if not is_switch:
                return INVALID_VALUE, None
        elif select > ports or (not is_switch and select != own_port):
            return INVALID_VALUE, None
        if attribute in (SAMPLES_CONTROL, SAMPLES_RESULT):
            return self._sampling(method, attribute, data, first_row, select)
        layout = self._attributes.get(attribute)
        if layout is None or (layout.switches_only and not is_switch) or (layout.adapters_only and is_switch):
            return UNSUPPORTED, None
        if select == 0:  # a switch's management port counts nothing here
            return OK, _empty(data)
        if method == SET:
            self._write(attribute, layout, data, first_row, ports)
        if select == ALL_PORTS:
            return OK, self._sum(attribute, layout, data, first_row, ports)
        start = (first_row + select - 1) * IMAGE
        out = bytearray(self._image(attribute, layout)[start : start + IMAGE])
        if not is_switch:
            for field in layout.fields:
                if field.extra:
                    out[field.offset : field.offset + 8] = bytes(8)
        out[1:4] = data[1:4]
        return OK, bytes(out)

    def observe(self, counters: Counters) -> None:
        """A new reading was published: finish the sampling runs whose time is over."""
        for row, run in self._samples.items():
            run.advance(counters, row, self._sampled)

    def reset(self, node: PlanNode) -> None:
        """Every counter of a node starts again from zero."""
        counters = self._read()
        rows = slice(node.first_row, node.first_row + node.ports)
        for attribute, layout in self._attributes.items():
            for index, field in enumerate(layout.fields):
                base = self._bases.setdefault((attribute, index), np.zeros(self._plan.rows, np.uint64))
                base[rows] = field.values(counters)[rows]
        self._images.clear()

    # -- images --------------------------------------------------------------------------------------------------

    def _image(self, attribute: int, layout: Attribute) -> bytes:
        counters = self._read()
        held = self._images.get(attribute)
        if held is not None and held[0] == counters.tick:
            return held[1]
        values = [self._current(attribute, index, field, counters) for index, field in enumerate(layout.fields)]
        image = _encode(layout, values, self._plan.rows).tobytes()
        self._images[attribute] = (counters.tick, image)
        return image

    def _current(self, attribute: int, index: int, field: Field, counters: Counters) -> U64:
        values = field.values(counters)
        base = self._bases.get((attribute, index))
        return values if base is None else values - base

    def _sum(self, attribute: int, layout: Attribute, data: bytes, first_row: int, ports: int) -> bytes:
        counters = self._read()
        rows = slice(first_row, first_row + ports)
        values = [
            np.array([self._current(attribute, index, field, counters)[rows].sum(dtype=np.uint64)])
            for index, field in enumerate(layout.fields)
        ]
        out = bytearray(_encode(layout, values, 1).tobytes())
        out[1:4] = data[1:4]
        return bytes(out)

    def _write(self, attribute: int, layout: Attribute, data: bytes, first_row: int, ports: int) -> None:
        """Set the selected counters to the values in ``data`` (clearing tools send zeros)."""
        counters = self._read()
        select, second = get(data, 2, 2), get(data, layout.select2[0], layout.select2[1]) if layout.select2[1] else 0
        rows = (
            slice(first_row, first_row + ports)
            if data[1] == ALL_PORTS
            else slice(first_row + data[1] - 1, first_row + data[1])
        )
        for index, field in enumerate(layout.fields):
            if not (second if field.second else select) >> field.select & 1:
                continue
            written = _read_field(data, field)
            base = self._bases.setdefault((attribute, index), np.zeros(self._plan.rows, np.uint64))
            # Modulo 2^64: the counter then shows ``written`` plus what comes from now on.
            base[rows] = field.values(counters)[rows] - np.uint64(written)
        self._images.pop(attribute, None)

    # -- sampling ------------------------------------------------------------------------------------------------

    def _sampled(self, counters: Counters, selector: int, row: int) -> int:
        values = _SAMPLED.get(selector)
        if values is not None:
            return int(values(counters)[row])
        return int(self._wait_ticks(counters.port_wait_ns)[row]) if selector == SELECT_XMIT_WAIT else 0

    def _sampling(
        self, method: int, attribute: int, data: bytes, first_row: int, select: int
    ) -> tuple[int, bytes | None]:
        if select in (0, ALL_PORTS):
            return INVALID_VALUE, None
        row = first_row + select - 1
        run = self._samples.get(row)
        counters = self._read()
        if attribute == SAMPLES_CONTROL:
            if method == SET:
                tick_ns = 1.0 / float(self._ticks_per_ns[row])
                run = self._samples[row] = Sampling.start(data, counters, row, tick_ns, self._sampled)
            return OK, samples_control(select, run)
        if method == SET:
            return BAD_METHOD, None
        out = bytearray(64)
        if run is not None:
            run.advance(counters, row, self._sampled)
            put(out, 0, 2, run.tag)
            out[3] = run.status
            for index, value in enumerate(run.result):
                put(out, 4 + 4 * index, 4, min(value, 0xFFFFFFFF))
        return OK, bytes(out)

    # -- layouts -------------------------------------------------------------------------------------------------

    def _wait_ticks(self, wait_ns: U64) -> U64:
        return (wait_ns * self._ticks_per_ns).astype(np.uint64)

    def _ticks(self, name: str, lane: int | None = None) -> Values:
        def values(counters: Counters) -> U64:
            array: U64 = getattr(counters, name)
            if lane is None:
                return self._wait_ticks(array)
            return self._wait_ticks(array[:, lane]) if lane < array.shape[1] else nothing(counters)

        return values

    def _flow_packets(self, counters: Counters) -> U64:
        """Flow-control packets at the least rate the standard asks for (the model has no single credits)."""
        symbols = counters.clock_ns * self._plan.row_gbps / 8.0 / 4.0  # 4 lanes, a symbol each
        return (symbols / FLOW_PERIOD_SYMBOLS).astype(np.uint64) * np.uint64(self._plan.lanes)

    def _layouts(self) -> dict[int, Attribute]:
        words = 4
        wait = self._ticks("port_wait_ns")
        drops = total("drops")
        counted = {  # field of PortCounters and its 64-bit twin
            "symbol": by_port("symbol_errors"), "recovered": by_port("link_recovered"), "downed": by_port("link_downed"),
            "rcv": by_port("rcv_errors"), "none": nothing, "drops": drops, "wait": wait,
        }  # fmt: skip
        data = (total("tx_bytes", words), total("rx_bytes", words), total("tx_packets"), total("rx_packets"))
        return {
            0x12: Attribute(_port_counters(counted, data), select2=(18, 1)),
            0x15: Attribute(tuple(Field(4 + 2 * i, 16, counted["rcv"] if i == 0 else nothing, i) for i in range(6))),
            0x16: Attribute(
                tuple(Field(4 + 2 * i, 16, by_port("hoq_discards") if i == 3 else nothing, i) for i in range(4)),
                switches_only=True,
            ),
            0x17: Attribute((Field(4, 32, total("rx_packets"), 0), Field(8, 32, total("rx_bytes", words), 1))),
            0x18: Attribute((Field(4, 32, self._flow_packets, 0), Field(8, 32, self._flow_packets, 1))),
            0x19: Attribute(tuple(Field(4 + 2 * v, 16, column("rx_packets", v), v) for v in range(16))),
            0x1A: Attribute(tuple(Field(4 + 4 * v, 32, column("rx_bytes", v, words), v) for v in range(16))),
            0x1B: Attribute(tuple(Field(4 + v // 4, 2, nothing, v, shift=2 * (v % 4)) for v in range(16))),
            0x1C: Attribute(tuple(Field(4 + 2 * v, 16, self._ticks("wait_ns", v), v) for v in range(16))),
            0x1D: Attribute(_extended(counted, data), select2=(4, 4)),
            0x1F: Attribute((*_fec_lanes(), Field(144, 32, counted["symbol"], 18))),
            0x30: Attribute(tuple(Field(4 + 2 * v, 16, column("marked", v), v) for v in range(16)), switches_only=True),
            0x31: Attribute((Field(4, 32, total("sl_fecn"), 0), Field(8, 32, total("sl_becn"), 1))),
            0x32: Attribute(tuple(Field(4 + 4 * s, 32, column("sl_fecn", s), s) for s in range(16))),
            0x33: Attribute(tuple(Field(4 + 4 * s, 32, column("sl_becn", s), s) for s in range(16))),
            0x34: Attribute((Field(4, 32, self._ticks("congested_ns"), 0),)),
            0x35: Attribute(tuple(Field(4 + 4 * v, 32, self._lane_congested(v), v) for v in range(15))),
            0x36: Attribute(tuple(Field(4 + 4 * s, 32, column("sl_tx_bytes", s, words), s) for s in range(16))),
            0x37: Attribute(tuple(Field(4 + 4 * s, 32, column("sl_rx_bytes", s, words), s) for s in range(16))),
        }

    def _lane_congested(self, lane: int) -> Values:
        return self._ticks("lane_congested_ns", lane)


def _port_counters(counted: dict[str, Values], data: tuple[Values, Values, Values, Values]) -> tuple[Field, ...]:
    none = counted["none"]
    narrow = (
        Field(4, 16, counted["symbol"], 0), Field(6, 8, counted["recovered"], 1), Field(7, 8, counted["downed"], 2),
        Field(8, 16, counted["rcv"], 3), Field(10, 16, none, 4), Field(12, 16, none, 5),
        Field(14, 16, counted["drops"], 6), Field(16, 8, none, 7), Field(17, 8, none, 8),
        Field(19, 4, none, 9), Field(19, 4, none, 10, shift=4), Field(20, 16, none, 1, second=True),
        Field(22, 16, none, 11),
    )  # fmt: skip
    words = tuple(Field(24 + 4 * i, 32, values, 12 + i) for i, values in enumerate(data))
    return (*narrow, *words, Field(40, 32, counted["wait"], 0, second=True))


def _extended(counted: dict[str, Values], data: tuple[Values, Values, Values, Values]) -> tuple[Field, ...]:
    none = counted["none"]
    sent, received = data[2], data[3]
    basic = tuple(Field(8 + 8 * i, 64, v, i) for i, v in enumerate((*data, sent, received, none, none)))
    errors = (
        counted["symbol"], counted["recovered"], counted["downed"], counted["rcv"], none, none, counted["drops"],
        none, none, none, none, none, counted["wait"], none,
    )  # fmt: skip
    return basic + tuple(Field(72 + 8 * i, 64, values, i, second=True, extra=True) for i, values in enumerate(errors))


def _fec_lanes() -> tuple[Field, ...]:
    return tuple(Field(44 + 4 * lane, 32, nothing, 2 + lane) for lane in range(12))


def _encode(layout: Attribute, values: list[U64], rows: int) -> NDArray[np.uint8]:
    image = np.zeros((rows, IMAGE), np.uint8)
    for field, column_values in zip(layout.fields, values, strict=True):
        cut = column_values if field.bits == 64 else np.minimum(column_values, np.uint64((1 << field.bits) - 1))
        if field.bits < 8:
            image[:, field.offset] |= (cut << np.uint64(8 - field.bits - field.shift)).astype(np.uint8)
        else:
            size = field.bits // 8
            image[:, field.offset : field.offset + size] = (
                np.ascontiguousarray(cut).astype(">u8").view(np.uint8).reshape(rows, 8)[:, 8 - size :]
            )
    return image


def _read_field(data: bytes, field: Field) -> int:
    if field.bits < 8:
        return data[field.offset] >> (8 - field.bits - field.shift) & ((1 << field.bits) - 1)
    return get(data, field.offset, field.bits // 8)


def _empty(data: bytes) -> bytes:
    out = bytearray(IMAGE)
    out[1:4] = data[1:4]
    return bytes(out)


def _class_port_info(is_switch: bool, wide: bool) -> bytes:
    mask, mask2 = SWITCH_MASKS if is_switch else ADAPTER_MASKS
    if not wide:
        mask2 &= ~MORE_64_BIT
    out = bytearray(72)
    out[0] = out[1] = 1
    put(out, 2, 2, mask)
    put(out, 4, 4, mask2 << 5 | RESPONSE_TIME)
    return bytes(out)


SELECT_XMIT_WAIT = 5
_SAMPLED: dict[int, Values] = {
    1: total("tx_bytes", 4), 2: total("rx_bytes", 4), 3: total("tx_packets"), 4: total("rx_packets"),
}  # fmt: skip

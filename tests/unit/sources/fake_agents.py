"""Performance management agents for the fake transport: switches whose counters a test sets byte by byte."""

from __future__ import annotations

import struct
from dataclasses import dataclass, field

from fabricd.ib.mad import Pma
from fabricd.sources.pma_layout import LAYOUT

EXTENDED, XMIT_WAIT, QP1 = 1 << 9, 1 << 12, 1 << 15


@dataclass
class Switch:
    """``counters``: (attribute, port) -> raw name -> value. ``has``: attributes it answers; the rest it keeps silent about."""

    mask: int = EXTENDED | XMIT_WAIT
    mask2: int = 0
    has: set[int] = field(
        default_factory=lambda: {
            int(a)
            for a in (
                Pma.CLASS_PORT_INFO,
                Pma.PORT_COUNTERS,
                Pma.PORT_COUNTERS_EXTENDED,
                Pma.RCV_ERROR_DETAILS,
                Pma.XMIT_DISCARD_DETAILS,
            )
        }
    )
    counters: dict[tuple[int, int], dict[str, int]] = field(default_factory=dict)
    tick: int = 7
    redirect: tuple[int, int, int] | None = None  # LID, QP, Q_Key
    key: int = 0  # answers only requests that carry it
    dead: bool = False

    def set(self, attribute: int, port: int, **values: int) -> None:
        self.counters.setdefault((int(attribute), port), {}).update(values)

    def class_port_info(self) -> bytes:
        lid, qp, qkey = self.redirect or (0, 0, 0)
        return struct.pack(">BBHI16xIHHII", 1, 1, self.mask, self.mask2 << 5 | 0x12, 3 << 20, lid, 0xFFFF, qp, qkey)

    def answer(self, mad: bytes) -> bytes | None:
        attribute, port = int.from_bytes(mad[16:18], "big"), mad[65]
        if self.dead or attribute not in self.has or int.from_bytes(mad[24:32], "big") != self.key:
            return None
        if attribute == Pma.CLASS_PORT_INFO:
            return self.class_port_info()
        data = bytearray(192)
        data[1] = port
        if attribute == Pma.SAMPLES_CONTROL:
            data[2] = self.tick
            return bytes(data)
        whole = 0
        for counter in LAYOUT[attribute]:
            value = self.counters.get((attribute, port), {}).get(counter.raw, 0)
            whole |= value << (192 * 8 - counter.bit - counter.bits)
        body = bytearray(whole.to_bytes(192, "big"))
        body[1] = port
        return bytes(body)


@dataclass
class Agents:
    """By LID."""

    at: dict[int, Switch] = field(default_factory=dict)

    def __call__(self, lid: int, mad: bytes) -> bytes | None:
        switch = self.at.get(lid)
        return None if switch is None else switch.answer(mad)

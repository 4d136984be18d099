"""Congestion control class 0x21 (IBTA annex A10): registers a manager writes and what they mean for the model."""

from __future__ import annotations

from typing import Protocol

from fabricd.twin.face import SERVICE_LEVELS, SourceControl
from fabricd.twin.mad.subnet import SWITCH, Node
from fabricd.twin.mad.wire import BAD_METHOD, GET, INVALID_VALUE, OK, SET, UNSUPPORTED, get, put

CLASS_PORT_INFO, CONGESTION_INFO, KEY_INFO, CONGESTION_LOG = 0x01, 0x11, 0x12, 0x13
SWITCH_SETTING, SWITCH_PORT_SETTING, ADAPTER_SETTING, CONTROL_TABLE, TIMESTAMP = 0x14, 0x15, 0x16, 0x17, 0x18
TABLE_BLOCKS, BLOCK_ENTRIES = 2, 64
SIZE = 192
TIMER_US = 1.024


class Sink(Protocol):
    """Where a written setting goes."""

    def threshold(self, node: Node, threshold: int, marking_rate: int) -> None: ...
    def source_control(self, node: Node, level: int, control: SourceControl) -> None: ...


class Agent:
    """The congestion control agent of every node."""

    def __init__(self, sink: Sink) -> None:
        self._sink = sink

    def answer(self, node: Node, method: int, attribute: int, modifier: int, data: bytes) -> tuple[int, bytes | None]:
        """Answer one Get or Set: (MAD status, attribute bytes or None)."""
        if method not in (GET, SET):
            return BAD_METHOD, None
        if attribute in (CLASS_PORT_INFO, CONGESTION_INFO):
            if method == SET:
                return BAD_METHOD, None
            return OK, _class_port_info() if attribute == CLASS_PORT_INFO else _congestion_info(node)
        if attribute not in (KEY_INFO, CONGESTION_LOG, TIMESTAMP, *(_SWITCH if node.type == SWITCH else _ADAPTER)):
            return UNSUPPORTED, None
        if attribute == CONTROL_TABLE and modifier >= TABLE_BLOCKS:
            return INVALID_VALUE, None
        key = attribute << 8 | modifier & 0xFF
        if method == SET:
            if attribute in (CONGESTION_LOG, TIMESTAMP):
                return BAD_METHOD, None
            node.congestion[key] = bytes(data[:SIZE])
            self._apply(node, attribute)
        return OK, node.congestion.get(key, bytes(SIZE))

    def _apply(self, node: Node, attribute: int) -> None:
        if attribute == SWITCH_SETTING:
            setting = node.congestion[SWITCH_SETTING << 8]
            self._sink.threshold(node, setting[68] >> 4, get(setting, 74, 2))
        elif attribute in (ADAPTER_SETTING, CONTROL_TABLE):
            setting = node.congestion.get(ADAPTER_SETTING << 8, bytes(SIZE))
            blocks = [node.congestion.get(CONTROL_TABLE << 8 | block, bytes(SIZE)) for block in range(TABLE_BLOCKS)]
            for level in range(SERVICE_LEVELS):
                self._sink.source_control(node, level, source_control(setting, blocks, level))


_SWITCH = (SWITCH_SETTING, SWITCH_PORT_SETTING)
_ADAPTER = (ADAPTER_SETTING, CONTROL_TABLE)


def source_control(setting: bytes, blocks: list[bytes], level: int) -> SourceControl:
    """What a source does with marks on one service level, from CACongestionSetting and the congestion control table."""
    start = 4 + 8 * level
    named = get(setting, 2, 2) >> level & 1
    increase = setting[start + 2]
    return SourceControl(
        enabled=bool(named and increase),
        increase=increase,
        timer_us=get(setting, start, 2) * TIMER_US,
        limit=get(blocks[0], 0, 2),
        minimum=setting[start + 4],
        table=tuple(entry_delay(get(block, 4 + 2 * i, 2)) for block in blocks for i in range(BLOCK_ENTRIES)),
    )


def entry_delay(entry: int) -> float:
    """A table entry's inter-packet delay in packet times: a 14-bit multiplier shifted right by 2 bits' worth."""
    return (entry & 0x3FFF) / (1 << (entry >> 14))


def _class_port_info() -> bytes:
    out = bytearray(72)
    out[0], out[1] = 1, 2
    put(out, 4, 4, 18)
    return bytes(out)


def _congestion_info(node: Node) -> bytes:
    out = bytearray(32)
    if node.type != SWITCH:
        out[2] = TABLE_BLOCKS
    return bytes(out)

"""AgentX (RFC 2741): the protocol between snmpd and a sub-agent. Packets in network byte order."""

from __future__ import annotations

import struct
from enum import IntEnum

HEADER = struct.Struct(">BBBxIIII")  # version, type, flags, session, transaction, packet, payload length
NETWORK_ORDER, OTHER_CONTEXT = 0x10, 0x08
Oid = tuple[int, ...]
Value = int | bytes | Oid | None


class Kind(IntEnum):
    """Packet types."""

    OPEN = 1
    CLOSE = 2
    REGISTER = 3
    GET = 5
    GET_NEXT = 6
    GET_BULK = 7
    TEST_SET = 8
    COMMIT_SET = 9
    UNDO_SET = 10
    CLEANUP_SET = 11
    PING = 13
    RESPONSE = 18


class Type(IntEnum):
    """Types of values, and the three answers that are none."""

    INTEGER = 2
    OCTETS = 4
    NULL = 5
    OBJECT_ID = 6
    IP_ADDRESS = 64
    COUNTER32 = 65
    GAUGE32 = 66
    TIME_TICKS = 67
    OPAQUE = 68
    COUNTER64 = 70
    NO_SUCH_OBJECT = 128
    NO_SUCH_INSTANCE = 129
    END_OF_VIEW = 130


class Error(IntEnum):
    """Error statuses of a response."""

    NONE = 0
    GENERAL = 5
    WRONG_TYPE = 7
    WRONG_LENGTH = 8
    WRONG_VALUE = 10
    INCONSISTENT = 12
    NOT_WRITABLE = 17


def encode_oid(oid: Oid, include: bool = False) -> bytes:
    """An object identifier, with the short form below 1.3.6.1."""
    prefix = 0
    if len(oid) > 4 and oid[:4] == (1, 3, 6, 1) and 0 < oid[4] < 256:
        prefix, oid = oid[4], oid[5:]
    return struct.pack(f">BBBx{len(oid)}I", len(oid), prefix, include, *oid)


def encode_octets(data: bytes) -> bytes:
    return struct.pack(">I", len(data)) + data + bytes(-len(data) % 4)


def encode_value(kind: int, value: Value) -> bytes:
    """The data part of a variable binding."""
    if isinstance(value, bytes):
        return encode_octets(value)
    if isinstance(value, tuple):
        return encode_oid(value)
    if value is None:
        return b""
    if kind == Type.COUNTER64:
        return struct.pack(">Q", value & 0xFFFFFFFFFFFFFFFF)
    return struct.pack(">i" if kind == Type.INTEGER else ">I", value if kind == Type.INTEGER else value & 0xFFFFFFFF)


def packet(kind: Kind, session: int, transaction: int, number: int, payload: bytes) -> bytes:
    return HEADER.pack(1, kind, NETWORK_ORDER, session, transaction, number, len(payload)) + payload


def response(session: int, transaction: int, number: int, error: int, index: int, bindings: bytes) -> bytes:
    return packet(Kind.RESPONSE, session, transaction, number, struct.pack(">IHH", 0, error, index) + bindings)


class Reader:
    """Takes a payload apart. Raises struct.error or IndexError when it is too short."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._at = 0

    @property
    def more(self) -> bool:
        return self._at < len(self._data)

    def number(self, form: str) -> int:
        (value,) = struct.unpack_from(form, self._data, self._at)
        self._at += struct.calcsize(form)
        return int(value)

    def oid(self) -> tuple[Oid, bool]:
        """The identifier and whether it is included in a search."""
        count, prefix, include = self._data[self._at], self._data[self._at + 1], self._data[self._at + 2]
        parts = struct.unpack_from(f">{count}I", self._data, self._at + 4)
        self._at += 4 + 4 * count
        return ((1, 3, 6, 1, prefix, *parts) if prefix else tuple(parts)), bool(include)

    def octets(self) -> bytes:
        length = self.number(">I")
        data = self._data[self._at : self._at + length]
        self._at += length + -length % 4
        return data

    def ranges(self) -> list[tuple[Oid, bool, Oid]]:
        """Search ranges: (start, start included, end or empty)."""
        found = []
        while self.more:
            start, include = self.oid()
            end, _ = self.oid()
            found.append((start, include, end))
        return found

    def bindings(self) -> list[tuple[Oid, int, Value]]:
        """Variable bindings of a set."""
        found: list[tuple[Oid, int, Value]] = []
        while self.more:
            kind = self.number(">H")
            self._at += 2
            oid, _ = self.oid()
            value: Value = None
            if kind == Type.INTEGER:
                value = self.number(">i")
            elif kind in (Type.COUNTER32, Type.GAUGE32, Type.TIME_TICKS):
                value = self.number(">I")
            elif kind == Type.COUNTER64:
                value = self.number(">Q")
            elif kind in (Type.OCTETS, Type.IP_ADDRESS, Type.OPAQUE):
                value = self.octets()
            elif kind == Type.OBJECT_ID:
                value = self.oid()[0]
            found.append((oid, kind, value))
        return found

"""Management datagrams (MADs): the common header, subnet management and performance management Gets, status words.

Every MAD is 256 bytes, all fields big-endian. Source: InfiniBand Architecture Specification volume 1, chapters 13, 14 and 16,
as laid out by rdma-core's ``libibmad/fields.c``. fabricd only ever builds Gets.

Common header: base version u8, class u8, class version u8, method u8, status u16, class specific u16, transaction id u64,
attribute id u16, reserved u16, attribute modifier u32. The kernel (and ibsim) overwrite the upper half of the transaction
id, so only its lower 32 bits belong to the sender.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from enum import IntEnum

MAD_SIZE = 256
METHOD_AT = 3
STATUS_AT = 4
TID_LOW_AT = 12
ATTRIBUTE_AT = 16
MODIFIER_AT = 20
GMP_DATA_AT = 64  # performance management: after 40 reserved bytes
SMP_DATA_AT = 64
SMP_DATA_SIZE = 64
PMA_DATA_SIZE = 192

GET = 0x01
GET_RESP = 0x81

CLASS_SMP = 0x01  # LID-routed subnet management
CLASS_PMA = 0x04
CLASS_SMP_DIRECTED = 0x81

QP_SMP = 0
QP_GMP = 1
QKEY_GMP = 0x80010000  # the well-known Q_Key of QP1
PERMISSIVE_LID = 0xFFFF
MAX_HOPS = 63

_HEADER = struct.Struct(">BBBBHBBIIHHI")
_DIRECTED = struct.Struct(">QHH")


class Smp(IntEnum):
    """Attribute ids of the subnet management class."""

    NODE_DESCRIPTION = 0x10
    NODE_INFO = 0x11
    SWITCH_INFO = 0x12
    GUID_INFO = 0x14
    PORT_INFO = 0x15
    PKEY_TABLE = 0x16
    SL_TO_VL = 0x17
    VL_ARBITRATION = 0x18
    LINEAR_FORWARDING = 0x19
    RANDOM_FORWARDING = 0x1A
    MULTICAST_FORWARDING = 0x1B
    SM_INFO = 0x20
    MLNX_EXT_PORT_INFO = 0xFF90


class Pma(IntEnum):
    """Attribute ids of the performance management class."""

    CLASS_PORT_INFO = 0x01
    SAMPLES_CONTROL = 0x10
    PORT_COUNTERS = 0x12
    RCV_ERROR_DETAILS = 0x15
    XMIT_DISCARD_DETAILS = 0x16
    OP_RCV_COUNTERS = 0x17
    FLOW_CTL_COUNTERS = 0x18
    VL_OP_PACKETS = 0x19
    VL_OP_DATA = 0x1A
    VL_XMIT_FLOW_CTL_ERRORS = 0x1B
    VL_XMIT_WAIT = 0x1C
    PORT_COUNTERS_EXTENDED = 0x1D
    EXTENDED_SPEEDS = 0x1F
    SW_VL_CONGESTION = 0x30
    RCV_CON_CTRL = 0x31
    SL_RCV_FECN = 0x32
    SL_RCV_BECN = 0x33
    XMIT_CON_CTRL = 0x34
    VL_XMIT_TIME_CONG = 0x35
    XMIT_DATA_SL = 0x36
    RCV_DATA_SL = 0x37


class Reply(IntEnum):
    """What a MAD's status word (or the lack of an answer) means; see :func:`classify`."""

    OK = 0
    BUSY = 1
    REDIRECT = 2
    BAD_VERSION = 3
    UNSUPPORTED = 4  # method or attribute not there on this device
    INVALID = 5  # a field or the modifier is out of range, such as a port past the last one
    TIMEOUT = 6  # silence: refused, keyed, filtered, lost or dead; never by itself "gone"
    SKIPPED = 7  # not asked, because its destination did not answer an earlier request
    OTHER = 8  # class-specific status
    SEND_FAILED = 9


_CODES = {0: Reply.OK, 1: Reply.BAD_VERSION, 2: Reply.UNSUPPORTED, 3: Reply.UNSUPPORTED, 7: Reply.INVALID}


def classify(status: int) -> Reply:
    """The meaning of a MAD's 16-bit status. A directed-route answer carries the direction in bit 15: it is ignored here."""
    status &= 0x7FFF
    if status & 1:
        return Reply.BUSY
    if status & 2:
        return Reply.REDIRECT
    code = status >> 2 & 7
    if code:
        return _CODES.get(code, Reply.OTHER)
    return Reply.OTHER if status else Reply.OK


def pma_get(attribute: int, port: int, *, modifier: int = 0, counter_select: int = 0xFFFF) -> bytearray:
    """A Get of a performance attribute. ``port`` 0-255 (255 asks for the sum of all ports, where supported).

    The counter select bits matter to Sets only; agents expect them to be there.
    """
    mad = bytearray(MAD_SIZE)
    _HEADER.pack_into(mad, 0, 1, CLASS_PMA, 1, GET, 0, 0, 0, 0, 0, attribute, 0, modifier)
    if attribute != Pma.CLASS_PORT_INFO:
        struct.pack_into(">BBH", mad, GMP_DATA_AT, 0, port, counter_select)
    return mad


def smp_get(
    attribute: int,
    modifier: int = 0,
    *,
    path: Sequence[int] | None = None,
    m_key: int = 0,
    drslid: int = PERMISSIVE_LID,
) -> bytearray:
    """A Get of a subnet management attribute: LID-routed when ``path`` is None, else directed along the egress ports ``path``.

    ``path`` is empty for the local port. Raises ValueError on more than 63 hops or a port outside 1-254.
    """
    mad = bytearray(MAD_SIZE)
    if path is None:
        _HEADER.pack_into(mad, 0, 1, CLASS_SMP, 1, GET, 0, 0, 0, 0, 0, attribute, 0, modifier)
        struct.pack_into(">Q", mad, 24, m_key)
        return mad
    hops = len(path)
    if hops > MAX_HOPS:
        raise ValueError(f"{hops} hops, a directed route has at most {MAX_HOPS}")
    if any(not 1 <= port <= 254 for port in path):
        raise ValueError(f"not a directed route: {list(path)}")
    _HEADER.pack_into(mad, 0, 1, CLASS_SMP_DIRECTED, 1, GET, 0, 0, hops, 0, 0, attribute, 0, modifier)
    _DIRECTED.pack_into(mad, 24, m_key, drslid, PERMISSIVE_LID)
    mad[129 : 129 + hops] = bytes(path)  # initial path: entry 0 is not used
    return mad


def tid_low(mad: bytes | bytearray | memoryview) -> int:
    """The lower 32 bits of the transaction id."""
    return int.from_bytes(mad[TID_LOW_AT : TID_LOW_AT + 4], "big")


def set_tid(mad: bytearray | memoryview, tid: int) -> None:
    """Write the lower 32 bits of the transaction id."""
    mad[TID_LOW_AT : TID_LOW_AT + 4] = tid.to_bytes(4, "big")


def status_of(mad: bytes | bytearray | memoryview) -> int:
    return int.from_bytes(mad[STATUS_AT : STATUS_AT + 2], "big")

"""Bytes on the simulator's sockets and in a MAD's header: this face's own layouts.

Socket protocol of libumad2sim (Debian's ibsim-utils): datagrams on abstract UNIX sockets whose names begin and end
with a NUL byte. Control messages are 80 bytes in host order, MAD messages 288 bytes, of which the last 256 are the MAD.
"""

from __future__ import annotations

import struct
from enum import IntEnum

CONTROL = struct.Struct("=IIII64s")  # magic, client id, type, length, data
CLIENT = struct.Struct("=III32s")  # id (pid in, index out), queue pair, is an SM, node id
PORT_STATE = struct.Struct("=HBx")  # LID, port state
VENDOR = struct.Struct("=IIIxxxxQ")  # vendor, part, hardware version, firmware version
ENVELOPE = struct.Struct("=IIIIIxxxx8s")  # destination LID, source LID, destination QP, source QP, status, length
MAGIC = 0xDEADBEEF
ENVELOPE_SIZE = ENVELOPE.size  # 32
MAD_SIZE = 256
DATAGRAM_SIZE = ENVELOPE_SIZE + MAD_SIZE
LENGTH = MAD_SIZE.to_bytes(8, "big")  # the only field of the envelope that is 64 bits wide, network order
TIMED_OUT = (110).to_bytes(4, "big")  # ETIMEDOUT, network order, in the envelope's status


class Control(IntEnum):
    """Types of control messages."""

    ERROR = 0
    CONNECT = 1
    DISCONNECT = 2
    GET_PORT = 3
    GET_VENDOR = 4
    GET_GID = 5
    GET_GUID = 6
    GET_NODEINFO = 7
    GET_PORTINFO = 8
    SET_ISSM = 9
    GET_PKEYS = 10


# Management classes
SUBNET_LID, SUBNET_DIRECTED, SUBNET_ADMIN, PERFORMANCE, CONGESTION = 0x01, 0x81, 0x03, 0x04, 0x21
# Methods
GET, SET, SEND, TRAP, REPORT, TRAP_REPRESS, GET_RESPONSE = 0x01, 0x02, 0x03, 0x05, 0x06, 0x07, 0x81
# Status of a response
OK, BAD_METHOD, UNSUPPORTED, INVALID_VALUE = 0x0000, 0x0008, 0x000C, 0x001C
DIRECTION = 0x8000  # directed-route responses carry the direction in the status word
DATA = 64  # offset of the attribute in SMP, PMA and CC datagrams
PATH_OUT, PATH_BACK = 128, 192  # offsets of a directed route's two paths


def put(buffer: bytearray, offset: int, size: int, value: int) -> None:
    """Write ``value`` big-endian."""
    buffer[offset : offset + size] = value.to_bytes(size, "big")


def get(buffer: bytes | bytearray | memoryview, offset: int, size: int) -> int:
    """Read a big-endian number."""
    return int.from_bytes(buffer[offset : offset + size], "big")


def socket_name(base: str, suffix: str) -> bytes:
    """The abstract address ``base:suffix`` as the library writes it."""
    return f"\0{base}:{suffix}\0".encode()

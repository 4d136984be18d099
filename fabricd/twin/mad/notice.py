"""Traps an agent sends to the subnet manager, as whole MADs."""

from __future__ import annotations

from fabricd.twin.mad.subnet import Node
from fabricd.twin.mad.wire import DATA, MAD_SIZE, SUBNET_LID, TRAP, put

NOTICE = 0x02
URGENT, INFORMATIONAL = 1, 4
LINK_STATE_CHANGED, LOCAL_CHANGE = 128, 144


def _notice(node: Node, lid: int, number: int, kind: int, transaction: int) -> bytearray:
    mad = bytearray(MAD_SIZE)
    mad[0:4] = bytes((1, SUBNET_LID, 1, TRAP))
    put(mad, 8, 8, transaction)
    put(mad, 16, 2, NOTICE)
    mad[DATA] = 0x80 | kind  # generic
    put(mad, DATA + 1, 3, node.type)
    put(mad, DATA + 4, 2, number)
    put(mad, DATA + 6, 2, lid)
    return mad


def link_state_changed(switch: Node, transaction: int) -> bytes:
    """Trap 128: the state of at least one port of this switch changed."""
    lid = switch.ports[0].lid
    mad = _notice(switch, lid, LINK_STATE_CHANGED, URGENT, transaction)
    put(mad, DATA + 10, 2, lid)
    return bytes(mad)


def link_width_changed(node: Node, lid: int, transaction: int) -> bytes:
    """Trap 144 with local changes: a link of this node trained at another width or speed than it is enabled for."""
    mad = _notice(node, lid, LOCAL_CHANGE, INFORMATIONAL, transaction)
    put(mad, DATA + 12, 2, lid)
    mad[DATA + 15] = 1  # the change flags are valid
    put(mad, DATA + 20, 2, 1 << 1)  # LinkWidthEnabled and speed changes
    return bytes(mad)

"""The ``lfts_file`` of opensm's ``file`` routing engine: forwarding tables of *all* switches, with what fabricd moved as comments.

Three things about that engine: a switch that is not in the file loses its whole table; an empty file costs all of them; with no file
at all the next engine of ``routing_engine`` takes over and keeps the entries it finds. So fabricd writes every switch or nothing, and
when the last move is taken back the file goes away and opensm heals by itself again.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from fabricd.devices.base import DeviceError
from fabricd.ib.smp import NO_EGRESS

_MARK = "# fabricd: forwarding tables written by fabricd; moved entries are listed first\n"
_MOVE = re.compile(r"^# fabricd: (0x[0-9a-f]{16}) lid (\d+) moved from (\d+) to (\d+)$", re.M)

Tables = dict[int, dict[int, int]]  # switch GUID -> LID -> egress port
Moves = dict[tuple[int, int], tuple[int, int]]  # (switch GUID, LID) -> (port before, port now)


def read_moves(text: str | None) -> Moves:
    """What fabricd moved, by its comments. Raises DeviceError for a file somebody else wrote."""
    if text is None:
        return {}
    if not text.startswith(_MARK):
        raise DeviceError("the lfts_file was written by somebody else: fabricd does not touch it")
    return {(int(m[1], 16), int(m[2])): (int(m[3]), int(m[4])) for m in _MOVE.finditer(text)}


def move(moves: Moves, guid: int, entries: Mapping[int, tuple[int, int]]) -> Moves:
    """``moves`` after these entries (LID -> (port it has, port it shall have)). An entry back at its first port is none."""
    out = dict(moves)
    for lid, (before, after) in entries.items():
        first = out.pop((guid, lid), (before, after))[0]
        if after != first:
            out[guid, lid] = first, after
    return out


def render(tables: Tables, lids: Mapping[int, int], moves: Moves) -> str:
    """The file. ``lids``: GUID -> LID of the switches."""
    if not tables:
        raise DeviceError("no forwarding tables were read: an empty lfts_file would take every route away")
    parts = [_MARK]
    for (guid, lid), (before, after) in sorted(moves.items()):
        parts.append(f"# fabricd: 0x{guid:016x} lid {lid} moved from {before} to {after}\n")
    for guid, table in sorted(tables.items()):
        if not table:
            raise DeviceError(f"switch 0x{guid:016x} has no forwarding table: it cannot be written")
        parts.append(f"Unicast lids [0x0-0x{max(table):x}] of switch Lid {lids[guid]} guid 0x{guid:016x} (fabricd):\n")
        parts += [f"0x{lid:04x} {port:03d}\n" for lid, port in sorted(table.items()) if port != NO_EGRESS]
    return "".join(parts)

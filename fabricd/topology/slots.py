"""Slots: the place a device sits in, which outlives the device. History is kept by slot, so that it follows a swapped HCA or switch.

An adapter's slot is the switch port it is cabled to, and its host with the PCI address (or the adapter's number); a switch's slot is
its set of neighbours. Which device succeeded which is found by ``diff.find_replaced``; the book remembers it.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from fabricd.model.ident import format_guid, parse_guid
from fabricd.model.topology import PortRef, Topology


@dataclass(frozen=True, slots=True)
class Stay:
    """A device in a slot, from ``since`` to ``until`` (seconds since 1970; None = still there)."""

    guid: int
    since: float
    until: float | None = None


@dataclass(slots=True)
class SlotBook:
    """``slot_of``: GUID -> slot number, of present and past devices; ``stays``: slot -> its devices, oldest first."""

    slot_of: dict[int, int] = field(default_factory=dict)
    stays: dict[int, list[Stay]] = field(default_factory=dict)

    def see(self, guids: set[int], now: float) -> None:
        """Devices present: those not known yet get slots of their own."""
        for guid in sorted(guids):
            if guid not in self.slot_of:
                slot = len(self.stays)
                self.slot_of[guid] = slot
                self.stays[slot] = [Stay(guid, now)]

    def replace(self, old: int, new: int, now: float) -> None:
        """``new`` sits where ``old`` sat. A device that came from another slot (a spare moved over) leaves that one."""
        self.see({old}, now)
        slot, came_from = self.slot_of[old], self.slot_of.get(new)
        if came_from == slot and self.present(slot) == new:
            return
        self._close(slot, now)
        if came_from is not None and self.present(came_from) == new:
            self._close(came_from, now)
        self.slot_of[new] = slot
        self.stays[slot].append(Stay(new, now))

    def _close(self, slot: int, now: float) -> None:
        last = self.stays[slot][-1]
        if last.until is None:
            self.stays[slot][-1] = Stay(last.guid, last.since, now)

    def present(self, slot: int) -> int | None:
        """The device in a slot now."""
        last = self.stays[slot][-1]
        return last.guid if last.until is None else None

    def predecessors(self, guid: int) -> list[int]:
        """GUIDs that were in this device's slot before it, newest first: whose history is its history."""
        slot = self.slot_of.get(guid)
        if slot is None:
            return []
        out: list[int] = []
        for stay in reversed(self.stays[slot]):
            if stay.guid != guid and stay.guid not in out:
                out.append(stay.guid)
        return out

    def to_json(self) -> list[list[list[Any]]]:
        return [[[format_guid(s.guid), s.since, s.until] for s in self.stays[slot]] for slot in sorted(self.stays)]

    @classmethod
    def from_json(cls, rows: Any) -> SlotBook:
        """Raises ValueError or TypeError when it is not what :meth:`to_json` wrote."""
        book = cls()
        for slot, stays in enumerate(rows):
            if not stays:
                raise ValueError(f"slot {slot} is empty")
            book.stays[slot] = [Stay(parse_guid(g), float(a), None if b is None else float(b)) for g, a, b in stays]
        ended = [(stay, slot) for slot, stays in book.stays.items() for stay in stays]
        ended.sort(key=lambda pair: float("inf") if pair[0].until is None else pair[0].until)
        book.slot_of = {
            stay.guid: slot for stay, slot in ended
        }  # a device that moved belongs to the slot it was in last
        return book


def remember(gone: Topology, before: Topology, now: Topology) -> Topology:
    """Devices of ``gone`` and ``before`` that are not there ``now``, with the links they had and the devices at the other ends.

    A link is forgotten when its far port has another device on it now, a device when none of its links is left.
    """
    used = {ref for link in now.links for ref in (link.a, link.b)}
    known = {**gone.nodes, **before.nodes, **now.nodes}
    out = Topology()
    kept: set[tuple[PortRef, PortRef]] = set()
    for link in [*before.links, *gone.links]:
        absent = [guid for guid, _ in (link.a, link.b) if guid not in now.nodes]
        if not absent or link.a in used or link.b in used or not {link.a[0], link.b[0]} <= known.keys():
            continue
        if (link.a, link.b) not in kept:
            kept.add((link.a, link.b))
            out.links.append(link)
            out.nodes.update({guid: known[guid] for guid, _ in (link.a, link.b)})
    return out

"""Whether the fabric's ports hold what a ``qos_`` option says, by their own tables."""

from __future__ import annotations

import re
from collections.abc import Iterator

from fabricd.devices.base import DeviceError
from fabricd.devices.opensm.conf import get_option
from fabricd.devices.opensm.options import QOS_CLASSES
from fabricd.devices.opensm.plane import Plane

SWITCHES, PORTS_EACH, ADAPTERS = 4, 2, 4  # looked at; spread over the list
DROP = 15  # SL2VL: packets of this service level are dropped
# What opensm takes where the file says nothing (osm_subnet.c).
DEFAULTS = {
    "high_limit": "0",
    "vlarb_high": "0:4,1:0,2:0,3:0,4:0,5:0,6:0,7:0,8:0,9:0,10:0,11:0,12:0,13:0,14:0",
    "vlarb_low": "0:0,1:4,2:4,3:4,4:4,5:4,6:4,7:4,8:4,9:4,10:4,11:4,12:4,13:4,14:4",
    "sl2vl": "0,1,2,3,4,5,6,7,8,9,10,11,12,13,14,7",
}


class Qos:
    """One look: the plane and opensm.conf as it stands."""

    def __init__(self, plane: Plane, conf: str) -> None:
        self._plane, self._conf = plane, conf

    def seen(self, key: str, value: str | None) -> str | None:
        """``value`` when every port looked at agrees, else what the first that does not agree holds.

        Options no port's table shows (``max_vls``, router ports) are taken as the file has them.
        """
        kind, field = _split(key)
        if field not in DEFAULTS or (get_option(self._conf, "qos") or "FALSE").upper() != "TRUE":
            return value
        wanted = self._governing(kind, field) if value is None else value
        for lid, port in self._ports(kind, field):
            held = self._held(field, lid, port)
            if not self._agrees(field, wanted, held, lid, port):
                return _short(held)
        return value

    def _governing(self, kind: str, field: str) -> str:
        """What rules ports of a kind: their own option, the general one, opensm's default."""
        own = get_option(self._conf, f"qos_{kind}{field}") if kind else None
        return own or get_option(self._conf, f"qos_{field}") or DEFAULTS[field]

    def _ports(self, kind: str, field: str) -> Iterator[tuple[int, int]]:
        """Ports an option rules: those of its kind; the general one rules the kinds that have none of their own."""
        if kind == "swe_" or (not kind and get_option(self._conf, f"qos_swe_{field}") is None):
            for guid in _spread(list(self._plane.switches()), SWITCHES):
                yield from self._plane.active_ports(guid, PORTS_EACH)
        elif kind == "ca_" or (not kind and get_option(self._conf, f"qos_ca_{field}") is None):
            for guid in _spread(list(self._plane.adapters()), ADAPTERS):
                yield from self._plane.active_ports(guid, 1)

    def _held(self, field: str, lid: int, port: int) -> str:
        if field == "high_limit":
            return str(self._plane.high_limit(lid, port))
        if field == "sl2vl":
            return ",".join(map(str, self._plane.sl_to_vl(lid, port)))
        return ",".join(
            f"{lane}:{weight}" for lane, weight in self._plane.arbitration(lid, port, field == "vlarb_high")
        )

    def _agrees(self, field: str, wanted: str, held: str, lid: int, port: int) -> bool:
        """opensm folds lanes a port does not have onto those it has, and cuts a list at the port's cap."""
        lanes = self._plane.data_lanes(lid, port)
        mask = 0xF if lanes == 15 else lanes - 1
        try:
            if field == "high_limit":
                return int(wanted, 0) == int(held)
            if field == "sl2vl":
                pairs = zip(map(int, wanted.split(",")), map(int, held.split(",")), strict=True)
                return all(has in (want, want & mask if want != DROP else DROP) for want, has in pairs)
            want_entries, has_entries = _entries(wanted), _entries(held)
        except ValueError:
            raise DeviceError(f"{wanted!r} is not a value of {field}") from None
        cap = len(has_entries)
        return len(_used(want_entries[:cap])) == len(_used(has_entries)) and all(
            has[1] == want[1] and has[0] in (want[0], want[0] & mask)
            for want, has in zip(_used(want_entries[:cap]), _used(has_entries), strict=True)
        )


def _split(key: str) -> tuple[str, str]:
    rest = key.removeprefix("qos_")
    for kind in QOS_CLASSES:
        if kind and rest.startswith(kind):
            return kind, rest.removeprefix(kind)
    return "", rest


def _entries(text: str) -> list[tuple[int, int]]:
    return [(int(lane), int(weight, 0)) for lane, weight in (entry.split(":") for entry in text.split(",") if entry)]


def _used(entries: list[tuple[int, int]]) -> list[tuple[int, int]]:
    """Entries that count: those of weight 0 are skipped by the arbiter."""
    return [entry for entry in entries if entry[1]]


def _short(held: str) -> str:
    """A table without the unused entries at its end."""
    return re.sub(r"(?:,\d+:0)+$", "", held)


def _spread(items: list[int], most: int) -> list[int]:
    return items[:: max(1, len(items) // most)][:most]

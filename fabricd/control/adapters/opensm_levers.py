"""OpenSM's levers: how each is read from its file, what a change writes, which sweep it needs, and what the fabric then shows."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import Any, Protocol

from fabricd.control.adapters.base import AdapterError, Unreachable
from fabricd.control.adapters.opensm_qos import Qos
from fabricd.control.levers import routes_lids
from fabricd.devices.opensm import options, partitions, qos_policy, tables, weights
from fabricd.devices.opensm.conf import get_option, set_option
from fabricd.devices.opensm.host import Host
from fabricd.devices.opensm.plane import Plane
from fabricd.devices.opensm.sweep import How
from fabricd.errors import UsageError
from fabricd.model.action import Lever
from fabricd.model.ident import format_guid, parse_guid

POLICY_FILE, PARTITION_FILE = (
    "/etc/opensm/qos-policy.conf",
    "/etc/opensm/partitions.conf",
)  # opensm's own defaults on Debian
WEIGHING_ENGINES = ("minhop", "dor", None)
_TABLES_FRESH_S = 2.0


@dataclass(frozen=True, slots=True)
class Edit:
    """A file's new text (None: the file goes) and the sweep that makes opensm take it."""

    path: str
    before: str | None
    after: str | None
    how: How


@dataclass(slots=True)
class Desk:
    """What levers work with. ``plane`` None: no way to ask the devices, so only files and log vouch for a change."""

    host: Host
    conf: str
    plane: Plane | None
    has_console: bool
    can_hangup: bool

    def text(self) -> str:
        text = self.host.read(self.conf)
        if text is None:
            raise Unreachable(f"{self.conf}: not there")
        return text

    def named(self, option: str, default: str = "") -> str:
        """The path of a file that opensm.conf names. Raises AdapterError when it names none."""
        path = get_option(self.text(), option) or default
        if not path:
            raise AdapterError(f"opensm.conf sets no {option}; it can be set only before opensm starts")
        return path

    def qos_on(self) -> bool:
        return (get_option(self.text(), "qos") or "FALSE").upper() == "TRUE"


class Handler(Protocol):
    """One kind of lever. ``why_not``: empty when it can be written here."""

    def why_not(self) -> str: ...
    def read(self, lever: Lever) -> Any: ...
    def edits(self, lever: Lever, new: Any) -> list[Edit]: ...
    def device(self, lever: Lever) -> Any: ...


@dataclass(slots=True)
class Option:
    """A line of opensm.conf. opensm resets the ``qos_`` options that are gone from the file and keeps all others."""

    desk: Desk

    def why_not(self) -> str:
        return (
            ""
            if self.desk.can_hangup
            else "no process id file of opensm is configured, and SIGHUP is what reads options"
        )

    def read(self, lever: Lever) -> str | None:
        if options.kind_of_option(lever.key) == "secret":
            raise AdapterError(f"option {lever.key} is a key: fabricd neither reads nor writes it")
        value = get_option(self.desk.text(), lever.key)
        if value is None and not lever.key.startswith("qos_") and self.desk.has_console:
            value = get_option(self.desk.host.console("dump_conf"), lever.key)
        return value

    def edits(self, lever: Lever, new: Any) -> list[Edit]:
        text = self.desk.text()
        kind = options.kind_of_option(lever.key)
        if kind == "restart":
            raise AdapterError(f"option {lever.key} takes effect only when opensm is restarted")
        if kind in ("unknown", "secret"):
            raise AdapterError(f"option {lever.key} is not one opensm takes over while it runs")
        if kind == "nvidia" and get_option(text, lever.key) is None:
            raise AdapterError(
                f"opensm.conf has no {lever.key}: this is not NVIDIA's subnet manager, or it does not use it"
            )
        if new is None and not lever.key.startswith("qos_"):
            raise AdapterError(
                f"option {lever.key}: opensm keeps its value when the line goes; give the value it shall have"
            )
        if new is not None and not isinstance(new, str):
            raise AdapterError(f"option {lever.key}: {new!r} is not a text")
        return [Edit(self.desk.conf, text, set_option(text, lever.key, new), "hangup")]

    def device(self, lever: Lever) -> Any:
        text = self.desk.text()
        value = get_option(text, lever.key)
        if lever.key.startswith("qos_") and self.desk.plane is not None:
            return Qos(self.desk.plane, text).seen(lever.key, value)
        if self.desk.has_console:
            running = get_option(self.desk.host.console("dump_conf"), lever.key)
            if value is None or (running is not None and not same_option(running, value)):
                return running
        return value


def same_option(a: str, b: str) -> bool:
    """opensm prints numbers and truth values its own way."""
    try:
        return int(a, 0) == int(b, 0)
    except ValueError:
        return a.casefold() == b.casefold()


@dataclass(slots=True)
class HopWeight:
    """A weight makes the SM avoid an egress, all or nothing; taking it away needs ``reroute``, for SIGHUP keeps what it finds."""

    desk: Desk
    _gone: dict[Lever, tuple[int, int]] = field(
        default_factory=dict
    )  # lever -> (weight taken away, destinations before it)

    def why_not(self) -> str:
        conf = self.desk.text()
        engine = (get_option(conf, "routing_engine") or "minhop").split(",")[0].strip()
        if engine not in WEIGHING_ENGINES:
            return f"routing engine {engine} takes no notice of hop weights"
        if not get_option(conf, "hop_weights_file"):
            return "opensm.conf sets no hop_weights_file; it can be set only before opensm starts"
        return (
            ""
            if self.desk.has_console
            else "no console of opensm is configured, and only its reroute takes a weight back"
        )

    def _place(self, lever: Lever) -> tuple[int, int]:
        try:
            guid, port = lever.key.split()
            return parse_guid(guid), int(port)
        except ValueError:
            raise AdapterError(f"hop_weight: key {lever.key!r} is not '<switch guid> <port>'") from None

    def _file(self) -> tuple[str, str]:
        path = self.desk.named("hop_weights_file")
        return path, self.desk.host.read(path) or ""

    def read(self, lever: Lever) -> int | None:
        found = weights.get_weight(self._file()[1], *self._place(lever))
        return None if found is None else found.weight

    def _carries(self, guid: int, port: int) -> int | None:
        if self.desk.plane is None:
            return None
        return sum(egress == port for egress in self.desk.plane.table(guid).values())

    def edits(self, lever: Lever, new: Any) -> list[Edit]:
        if why := self.why_not():
            raise AdapterError(why)
        guid, port = self._place(lever)
        path, text = self._file()
        before = weights.get_weight(text, guid, port)
        if new is None:
            if before is not None:
                self._gone[lever] = before.weight, before.carried or 0
            return [Edit(path, text, weights.set_weight(text, guid, port, None), "reroute")]
        if not isinstance(new, int) or isinstance(new, bool) or new < 2:
            raise AdapterError(f"hop_weight: {new!r} is not an integer of 2 or more")
        self._gone.pop(lever, None)
        carried = before.carried if before is not None else self._carries(guid, port)
        cached = (get_option(self.desk.text(), "use_ucast_cache") or "FALSE").upper() == "TRUE"
        how: How = "reroute" if before is not None or cached or not self.desk.can_hangup else "hangup"
        return [Edit(path, text, weights.set_weight(text, guid, port, weights.Weight(new, carried)), how)]

    def device(self, lever: Lever) -> int | None:
        """The weight when fewer destinations leave by the port than before it, by the switch's own table."""
        guid, port = self._place(lever)
        found = weights.get_weight(self._file()[1], guid, port)
        carries = self._carries(guid, port)
        if found is None:
            weight, before = self._gone.get(lever, (None, 0))
            return weight if before and carries == 0 else None
        if found.carried and carries is not None and carries >= found.carried:
            return None
        return found.weight


@dataclass(slots=True)
class Routes:
    """Entries of forwarding tables, by the ``file`` engine; the tables of the switches themselves are what is read."""

    desk: Desk
    _dump: tuple[float, tables.Tables, dict[int, int]] | None = None

    def why_not(self) -> str:
        engines = [name.strip() for name in (get_option(self.desk.text(), "routing_engine") or "").split(",")]
        if self.desk.plane is None:
            return "forwarding tables cannot be read: no collector socket is configured"
        if engines[0] != "file" or len(engines) < 2:
            return "routing_engine must be 'file' and another one for when no file is there, such as file,minhop"
        if not get_option(self.desk.text(), "lfts_file"):
            return "opensm.conf sets no lfts_file; it can be set only before opensm starts"
        if not self.desk.can_hangup and not self.desk.has_console:
            return "neither a process id file nor a console of opensm is configured"
        return ""

    def _plane(self) -> Plane:
        if self.desk.plane is None:
            raise AdapterError("forwarding tables cannot be read: no collector socket is configured")
        return self.desk.plane

    def _place(self, lever: Lever) -> tuple[int, list[int]]:
        try:
            return parse_guid(lever.device), routes_lids(lever.key)
        except (ValueError, UsageError) as error:
            raise AdapterError(f"routes: {error}") from None

    def read(self, lever: Lever) -> dict[str, int | None]:
        guid, lids = self._place(lever)
        return {str(lid): port for lid, port in self._plane().entries(guid, lids).items()}

    device = read

    def _tables(self) -> tuple[tables.Tables, dict[int, int]]:
        now = time.monotonic()
        if self._dump is None or now - self._dump[0] > _TABLES_FRESH_S:
            self._dump = (now, *self._plane().tables())
        return self._dump[1], self._dump[2]

    def edits(self, lever: Lever, new: Any) -> list[Edit]:
        if why := self.why_not():
            raise AdapterError(why)
        guid, lids = self._place(lever)
        if not isinstance(new, dict) or sorted(new) != sorted(map(str, lids)):
            raise AdapterError(f"routes: {new!r} is not an egress port for each of {lever.key}")
        path = self.desk.named("lfts_file")
        text = self.desk.host.read(path)
        moves = tables.read_moves(text)
        now = self._plane().entries(guid, lids)
        active = {port for _, port in self._plane().active_ports(guid, 255)} | {0}
        for lid in lids:
            if now[lid] is None or new[str(lid)] not in active:
                raise AdapterError(
                    f"routes: LID {lid}: port {new[str(lid)]} of {format_guid(guid)} is not active, or the LID unknown"
                )
        dumped, where = self._tables()
        present = {switch: dict(table) for switch, table in dumped.items()}
        present[guid] |= {lid: int(new[str(lid)]) for lid in lids}
        after = tables.move(moves, guid, {lid: (int(now[lid] or 0), int(new[str(lid)])) for lid in lids})
        self._dump = None
        how: How = "hangup" if self.desk.can_hangup else "reroute"
        out = [Edit(path, text, tables.render(present, where, after), how)]
        if not after:  # nothing of ours is left: opensm's own engine takes over from the tables as they then are
            out.append(Edit(path, out[0].after, None, how))
        return out


@dataclass(slots=True)
class QosPolicy:
    """A rule from paths to a service level. Only the SM knows it; what it did not say against the file is in force."""

    desk: Desk

    def why_not(self) -> str:
        if not self.desk.qos_on():
            return "qos is FALSE in opensm.conf: rules have no effect"
        return (
            ""
            if self.desk.can_hangup or self.desk.has_console
            else "neither a process id file nor a console is configured"
        )

    def _file(self) -> tuple[str, str]:
        path = self.desk.named("qos_policy_file", POLICY_FILE)
        return path, self.desk.host.read(path) or ""

    def read(self, lever: Lever) -> dict[str, Any] | None:
        return qos_policy.get_rule(self._file()[1], lever.key)

    device = read

    def edits(self, lever: Lever, new: Any) -> list[Edit]:
        if why := self.why_not():
            raise AdapterError(why)
        if new is not None and not isinstance(new, dict):
            raise AdapterError(f"qos_policy: {new!r} is not a rule")
        path, text = self._file()
        return [
            Edit(path, text, qos_policy.set_rule(text, lever.key, new), "hangup" if self.desk.can_hangup else "reroute")
        ]


@dataclass(slots=True)
class Partition:
    """A partition's definition; that its P_Key came or went is seen in the adapters' tables."""

    desk: Desk

    def why_not(self) -> str:
        return (
            ""
            if self.desk.can_hangup
            else "no process id file of opensm is configured, and SIGHUP is what reads partitions"
        )

    def _file(self) -> tuple[str, str]:
        path = self.desk.named("partition_config_file", PARTITION_FILE)
        return path, self.desk.host.read(path) or ""

    def _pkey(self, lever: Lever) -> int:
        try:
            pkey = int(lever.key, 16)
        except ValueError:
            pkey = 0
        if not pkey & 0x7FFF:
            raise AdapterError(f"partition: key {lever.key!r} is not a P_Key")
        return pkey

    def read(self, lever: Lever) -> str | None:
        return partitions.get_partition(self._file()[1], self._pkey(lever))

    def edits(self, lever: Lever, new: Any) -> list[Edit]:
        if new is not None and not isinstance(new, str):
            raise AdapterError(f"partition: {new!r} is not a definition")
        path, text = self._file()
        return [Edit(path, text, partitions.set_partition(text, self._pkey(lever), new), "hangup")]

    def device(self, lever: Lever) -> str | None:
        definition, pkey = self.read(lever), self._pkey(lever) & 0x7FFF
        if self.desk.plane is None:
            return definition
        there = any(pkey == key & 0x7FFF for lid in self._members(definition) for key in self.desk.plane.pkeys(lid))
        if there:
            return definition if definition is not None else f"{pkey:#06x} is still in the adapters' tables"
        return None

    def _members(self, definition: str | None) -> list[int]:
        """LIDs to look at: some members, or any adapters where all are members or nobody knows."""
        assert self.desk.plane is not None
        every = self.desk.plane.adapters()
        named = [
            int(word.split("=")[0].strip(), 16)
            for word in (definition or "").partition(":")[2].split(",")
            if "0x" in word
        ]
        lids = [every[guid] for guid in named if guid in every] or list(every.values())
        return lids[:: max(1, len(lids) // _SAMPLED)][:_SAMPLED]


_SAMPLED = 4


def handlers(desk: Desk) -> dict[str, Handler]:
    """By the name of the lever."""
    return {
        "option": Option(desk),
        "hop_weight": HopWeight(desk),
        "routes": Routes(desk),
        "qos_policy": QosPolicy(desk),
        "partition": Partition(desk),
    }

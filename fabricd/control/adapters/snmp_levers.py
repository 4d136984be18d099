"""The levers of a switch by SNMP: how each is read, and the objects of the one PDU that changes it."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Protocol

from fabricd.control.adapters.base import AdapterError
from fabricd.devices.snmp.client import SnmpClient
from fabricd.devices.snmp.profile import Object, Profile, Write
from fabricd.model.action import Lever

IF_NAME, IF_INDEX = "1.3.6.1.2.1.31.1.1.1.1", "1.3.6.1.2.1.2.2.1.1"
PRIORITIES = 8
Writes = list[tuple[str, str, int]]


class Handler(Protocol):
    """One kind of lever of one switch."""

    def read(self, lever: Lever) -> Any: ...
    def writes(self, lever: Lever, new: Any) -> Writes: ...


@dataclass(slots=True)
class Ports:
    """Port numbers of the topology to interface indices of the agent, as the profile says."""

    client: SnmpClient
    profile: Profile
    _index: dict[int, int] = field(default_factory=dict)

    def index(self, port: int) -> int:
        if self.profile.ports == "ifindex":
            return port
        if (
            port not in self._index
        ):  # interfaces are renumbered by a restart of some agents, so an unknown one is looked for
            self._index = self._read()
        found = self._index.get(port)
        if found is None:
            raise AdapterError(f"{self.client.target.name} has no interface {self._pattern(port)}")
        return found

    def any(self) -> int | None:
        """Some port, for a trial."""
        if self.profile.ports == "ifindex":
            rows = self.client.walk(IF_INDEX)
            return rows[0][0][-1] if rows else None
        self._index = self._read()
        return min(self._index, default=None)

    def _pattern(self, port: object) -> str:
        return self.profile.ports.removeprefix("name:").replace("{port}", str(port))

    def _read(self) -> dict[int, int]:
        pattern = re.compile(re.escape(self._pattern("\0")).replace(re.escape("\0"), r"(\d+)"))
        out = {}
        for index, name in self.client.walk(IF_NAME):
            match = pattern.fullmatch(name.decode("utf-8", "replace")) if isinstance(name, bytes) else None
            if match:
                out[int(match[1])] = index[-1]
        return out


@dataclass(slots=True)
class _Base:
    client: SnmpClient
    write: Write
    ports: Ports

    def _port(self, text: str, lever: Lever) -> int:
        if not text.isascii() or not text.isdigit():
            raise AdapterError(f"{lever.name}: key {lever.key!r}: a port number is expected")
        return self.ports.index(int(text))

    def _integers(self, oids: list[str], lever: Lever) -> list[int]:
        values = self.client.get(oids)
        for oid, value in zip(oids, values, strict=True):
            if not isinstance(value, int):
                raise AdapterError(f"{lever.device}: {lever.name} {lever.key}: the agent has no object {oid}")
        return [int(value) for value in values if isinstance(value, int)]

    @property
    def _value(self) -> Object:
        assert self.write.value is not None  # the profile's check
        return self.write.value

    def _each(self, port: int) -> list[str]:
        return [self._value.at(port, priority) for priority in range(PRIORITIES)]


class Pfc(_Base):
    """Eight booleans; only what differs is set."""

    def read(self, lever: Lever) -> list[bool]:
        return [value == self.write.on for value in self._integers(self._each(self._port(lever.key, lever)), lever)]

    def writes(self, lever: Lever, new: Any) -> Writes:
        if not isinstance(new, list) or len(new) != PRIORITIES or not all(isinstance(on, bool) for on in new):
            raise AdapterError(f"pfc: {new!r} is not eight booleans")
        now = self.read(lever)
        oids = self._each(self._port(lever.key, lever))
        changed = [priority for priority in range(PRIORITIES) if now[priority] != new[priority]] or [0]
        return [(oids[p], self._value.type, self.write.on if new[p] else self.write.off) for p in changed]


class Ets(_Base):
    """Eight shares; all of them go into one PDU, since agents judge the sum."""

    def read(self, lever: Lever) -> list[int]:
        port = self._port(lever.key, lever)
        if self.write.class_of:
            where = Object(self.write.class_of, "gauge")
            classes = self._integers([where.at(port, priority) for priority in range(PRIORITIES)], lever)
            if classes != list(range(PRIORITIES)):
                raise AdapterError(
                    f"{lever.device}: port {lever.key}: priorities share traffic classes ({classes}): shares are not theirs"
                )
        return self._integers(self._each(port), lever)

    def writes(self, lever: Lever, new: Any) -> Writes:
        legal = isinstance(new, list) and len(new) == PRIORITIES
        if not legal or not all(
            isinstance(share, int) and not isinstance(share, bool) and 0 <= share <= 100 for share in new
        ):
            raise AdapterError(f"ets: {new!r} is not eight shares in percent")
        total = sum(new)
        if total > 100 or (self.write.exact and total != 100):
            raise AdapterError(f"ets: the shares sum to {total}, not to 100")
        oids = self._each(self._port(lever.key, lever))
        return [(oid, self._value.type, share) for oid, share in zip(oids, new, strict=True)]


class Ecn(_Base):
    """Marking thresholds of one queue, in percent of the packet memory; the three go into one PDU."""

    def _objects(self, lever: Lever) -> dict[str, tuple[str, str]]:
        port, _, priority = lever.key.partition(" ")
        if not priority.isdigit() or int(priority) >= PRIORITIES:
            raise AdapterError(f"ecn: key {lever.key!r} is not '<port number> <priority>'")
        index = self._port(port, lever)
        out: dict[str, tuple[str, str]] = {}
        for name in ("kmin", "kmax", "pmax"):
            found: Object = getattr(self.write, name)
            out[name] = found.at(index, int(priority)), found.type
        return out

    def read(self, lever: Lever) -> dict[str, int]:
        objects = self._objects(lever)
        return dict(zip(objects, self._integers([oid for oid, _ in objects.values()], lever), strict=True))

    def writes(self, lever: Lever, new: Any) -> Writes:
        objects = self._objects(lever)
        if not isinstance(new, dict) or set(new) != set(objects):
            raise AdapterError(f"ecn: {new!r} is not kmin, kmax and pmax")
        if not all(isinstance(v, int) and not isinstance(v, bool) and 0 <= v <= 100 for v in new.values()):
            raise AdapterError(f"ecn: {new!r}: percentages are whole numbers of 0 to 100")
        if new["kmin"] > new["kmax"]:
            raise AdapterError(f"ecn: kmin {new['kmin']} is above kmax {new['kmax']}")
        return [(oid, kind, new[name]) for name, (oid, kind) in objects.items()]


class PortAdmin(_Base):
    def read(self, lever: Lever) -> str:
        (value,) = self._integers([self._value.at(self._port(lever.key, lever))], lever)
        return "up" if value == self.write.up else "down"

    def writes(self, lever: Lever, new: Any) -> Writes:
        if new not in ("up", "down"):
            raise AdapterError(f"port_admin: {new!r} is neither up nor down")
        value = self.write.up if new == "up" else self.write.down
        return [(self._value.at(self._port(lever.key, lever)), self._value.type, value)]


_KINDS: dict[str, Callable[[SnmpClient, Write, Ports], Handler]] = {
    "pfc": Pfc,
    "ets": Ets,
    "ecn": Ecn,
    "port_admin": PortAdmin,
}


def handlers(client: SnmpClient, profile: Profile, ports: Ports) -> dict[str, Handler]:
    """By the name of the lever, for those the profile lists."""
    return {lever: _KINDS[lever](client, write, ports) for lever, write in profile.write.items()}

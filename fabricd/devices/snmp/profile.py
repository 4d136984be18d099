"""Device profiles: which objects an agent has to read, and which levers it lets us write, by OID only. One TOML file a family.

What is not listed under ``write`` is not written. Values between ``{}`` are the port's ifIndex and the priority.
"""

from __future__ import annotations

import re
import tomllib
from functools import lru_cache
from pathlib import Path
from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from fabricd.errors import UsageError
from fabricd.model.catalogue import CounterDef, lookup

DIRECTORY = Path(__file__).parent.parent / "profiles"
LEVERS = ("pfc", "ets", "ecn", "port_admin")
PLACEHOLDERS = {"pfc": 2, "ets": 2, "ecn": 2, "port_admin": 1}
_OID = re.compile(r"\d+(?:\.(?:\d+|\{port\}|\{priority\}))+")


class Object(msgspec.Struct, forbid_unknown_fields=True, frozen=True):
    """A writable object: its OID with places, and the type a SET must have."""

    oid: str
    type: Literal["integer", "gauge"]

    def at(self, port: int, priority: int = 0) -> str:
        return self.oid.replace("{port}", str(port)).replace("{priority}", str(priority))


class Write(msgspec.Struct, forbid_unknown_fields=True, frozen=True, kw_only=True):
    """How a lever is written. ``on``/``off`` for pfc, ``up``/``down`` for port_admin, the three objects for ecn.

    ``exact``: shares must sum to 100. ``class_of``: where the traffic class of a priority is read; the shares are the classes'.
    """

    value: Object | None = None
    kmin: Object | None = None
    kmax: Object | None = None
    pmax: Object | None = None
    on: int = 1
    off: int = 2
    up: int = 1
    down: int = 2
    exact: bool = True
    class_of: str = ""

    def objects(self) -> list[Object]:
        return [found for found in (self.value, self.kmin, self.kmax, self.pmax) if found is not None]


class Read(msgspec.Struct, forbid_unknown_fields=True, frozen=True):
    """A column of counters. ``index``: what follows the OID; further parts (an Arista packet type) are added up."""

    object: str
    oid: str
    index: Literal["port", "port.priority"]

    @property
    def definition(self) -> CounterDef:
        return lookup("switch", "snmp", self.object)


class NoWrites(msgspec.Struct, forbid_unknown_fields=True, frozen=True):
    why: str


class Profile(msgspec.Struct, forbid_unknown_fields=True, frozen=True, kw_only=True):
    """``ports``: ``ifindex`` when the topology's port numbers are the interfaces' indices, or ``name:`` and a pattern of ifName.

    ``refresh_s``: how long the agent's own data may be old. ``without``: levers of an included profile it does not have.
    """

    title: str
    source: str
    include: list[str] = []
    without: list[str] = []
    ports: str = "ifindex"
    refresh_s: Annotated[float, Meta(ge=0)] = 0.0
    read: list[Read] = []
    write: dict[str, Write] = {}
    no_writes: NoWrites | None = None

    def why_not(self, lever: str) -> str:
        """Empty when the profile lists the lever."""
        if lever in self.write:
            return ""
        return self.no_writes.why if self.no_writes is not None else f"{self.title}: no object for {lever} is known"


def names(directory: Path = DIRECTORY) -> list[str]:
    return sorted(path.stem for path in directory.glob("*.toml"))


@lru_cache(maxsize=64)
def load_profile(name: str, directory: Path = DIRECTORY) -> Profile:
    """A profile with what it includes. ``name``: one of ours, or the path of a TOML file. Raises UsageError naming the file."""
    path = Path(name) if name.endswith(".toml") else directory / f"{name}.toml"
    if not name.endswith(".toml") and name not in names(directory):
        raise UsageError(f"SNMP profile {name!r}: there are {', '.join(names(directory))}, or the path of a .toml file")
    try:
        profile = msgspec.convert(tomllib.loads(path.read_text(encoding="utf-8")), Profile)
    except OSError as error:
        raise UsageError(f"{path}: {error.strerror}") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError, msgspec.ValidationError) as error:
        raise UsageError(f"{path}: {error}") from None
    _check(profile, path)
    reads, writes = list(profile.read), dict(profile.write)
    for other in profile.include:
        base = load_profile(other, directory)
        reads = [*base.read, *reads]
        writes = {**base.write, **writes}
    writes = {lever: write for lever, write in writes.items() if lever not in profile.without}
    return msgspec.structs.replace(profile, read=reads, write=writes)


def _check(profile: Profile, path: Path) -> None:
    for read in profile.read:
        if not re.fullmatch(r"\d+(?:\.\d+)+", read.oid):
            raise UsageError(f"{path}: {read.object}: {read.oid!r} is no numeric OID")
        if not read.definition.known:
            raise UsageError(f"{path}: {read.object}: no such object in the counter catalogue")
    for lever, write in profile.write.items():
        wanted = ("kmin", "kmax", "pmax") if lever == "ecn" else ("value",)
        if lever not in LEVERS:
            raise UsageError(f"{path}: write.{lever}: levers are {', '.join(LEVERS)}")
        if any(getattr(write, name) is None for name in wanted):
            raise UsageError(f"{path}: write.{lever} needs {', '.join(wanted)}")
        for found in write.objects():
            if not _OID.fullmatch(found.oid) or found.oid.count("{") != PLACEHOLDERS[lever]:
                raise UsageError(f"{path}: write.{lever}: {found.oid!r} is no OID with a place for each index")
    if profile.ports != "ifindex" and not (profile.ports.startswith("name:") and "{port}" in profile.ports):
        raise UsageError(f"{path}: ports = {profile.ports!r}: ifindex, or name: and a pattern with {{port}}")

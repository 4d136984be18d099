"""``partitions.conf``: definitions ``name=pkey, flags : members ;``, found by P_Key and replaced one at a time.

A definition opensm cannot parse costs every partition, not only its own: it then falls back to the default configuration. So what is
written is checked word by word first, and only forms known to be understood are let through.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from fabricd.devices.base import DeviceError

MTUS, RATES, LIFETIMES = range(1, 6), range(2, 25), range(64)  # codes, as in PathRecord
_NAME = re.compile(r"[A-Za-z0-9_.-]{1,63}")
_MEMBER = re.compile(r"(?:0x[0-9a-fA-F]{1,16}|ALL|ALL_CAS|ALL_SWITCHES|ALL_ROUTERS|SELF)(?:=(?:full|limited|both))?")
_BOUNDS = {"mtu": MTUS, "rate": RATES, "sl": range(16), "packet_life": LIFETIMES, "scope": range(16)}


@dataclass(frozen=True, slots=True)
class Definition:
    """``text``: without semicolon and comments, blanks made single. ``start`` and ``end``: its place in the file, ``;`` included."""

    pkey: int
    text: str
    start: int
    end: int


def parse(text: str) -> list[Definition]:
    """Every definition that names a P_Key; the default partition by its names too."""
    blank = re.sub(r"#[^\n]*", lambda match: " " * len(match[0]), text)
    out, at = [], 0
    while (end := blank.find(";", at)) >= 0:
        body = blank[at:end]
        start = at + len(body) - len(body.lstrip())
        words = " ".join(body.split())
        pkey = _pkey(words)
        if pkey is not None:
            out.append(Definition(pkey, words, start, end + 1))
        at = end + 1
    return out


def _pkey(definition: str) -> int | None:
    head = definition.split(":", 1)[0].split(",", 1)[0]
    name, equals, number = (part.strip() for part in head.partition("="))
    if not equals:
        return 0x7FFF if name == "Default" else None
    try:
        return int(number, 0) & 0x7FFF
    except ValueError:
        return None


def get_partition(text: str, pkey: int) -> str | None:
    """The definition of a P_Key, of several lines the last."""
    found = [definition.text for definition in parse(text) if definition.pkey == pkey & 0x7FFF]
    return found[-1] if found else None


def set_partition(text: str, pkey: int, definition: str | None) -> str:
    """The file with the definition replaced, added or removed. Raises DeviceError for one opensm would stumble over."""
    if definition is not None:
        check(definition, pkey)
    mine = [found for found in parse(text) if found.pkey == pkey & 0x7FFF]
    if len(mine) > 1:
        raise DeviceError(f"partition {pkey:#06x} is defined {len(mine)} times: only one definition can be replaced")
    if mine:
        fresh = "" if definition is None else f"{definition} ;"
        out = text[: mine[0].start] + fresh + text[mine[0].end :]
        return out if definition is not None else re.sub(r"\n[ \t]*\n(?=[^\n]*$|\n)", "\n", out)
    if definition is None:
        return text
    return f"{text}{'' if not text or text.endswith(chr(10)) else chr(10)}{definition} ;\n"


def check(definition: str, pkey: int) -> None:
    """Raises DeviceError for anything but ``name=0x…, ipoib, sl=…, rate=…, mtu=… : member=full, …`` with this P_Key."""

    def refuse(why: str) -> DeviceError:
        return DeviceError(f"partition {pkey:#06x}: {why}")

    if definition != " ".join(definition.split()) or any(char in definition for char in ";#\n"):
        raise refuse("a definition is one line without its semicolon, blanks single")
    head, colon, members = definition.partition(":")
    name, *flags = (part.strip() for part in head.split(","))
    label, _, _ = name.partition("=")
    if not _NAME.fullmatch(label.strip()) or _pkey(definition) != pkey & 0x7FFF:
        raise refuse(f"{name!r} does not name it")
    for flag in flags:
        word, equals, value = (part.strip() for part in flag.partition("="))
        bounds = _BOUNDS.get(word)
        if bounds is not None:
            if not value.isascii() or not value.isdigit() or int(value) not in bounds:
                raise refuse(f"{flag!r}: {bounds.start} to {bounds.stop - 1}")
        elif not (word in ("ipoib", "indx0") and not equals) and flag not in ("defmember=full", "defmember=limited"):
            raise refuse(f"unknown flag {flag!r}")
    if not colon:
        raise refuse("no members")
    for member in members.split(","):
        if not _MEMBER.fullmatch(member.strip()):
            raise refuse(f"member {member.strip()!r}")

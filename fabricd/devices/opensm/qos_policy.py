"""Rules of fabricd in ``qos-policy.conf``: who talks to whom gets which service level.

The file has sections for port groups, levels and match rules, and the first rule that matches a path wins. Each of fabricd's rules
is a level, up to two groups and one match rule that carry its name; its match rule goes before everybody else's. What others wrote
stays as it is. opensm takes a file only when it has a level named DEFAULT, so one is added where there is none.
"""

from __future__ import annotations

import re
from typing import Any

from fabricd.devices.base import DeviceError
from fabricd.model.ident import format_guid, parse_guid

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9-]{0,40}")
_SECTIONS = (
    ("port-groups", "end-port-groups"),
    ("qos-levels", "end-qos-levels"),
    ("qos-match-rules", "end-qos-match-rules"),
)
_BLOCKS = {"port-groups": "port-group", "qos-levels": "qos-level", "qos-match-rules": "qos-match-rule"}
_MOST_GUIDS = 2000


def get_rule(text: str, name: str) -> dict[str, Any] | None:
    """``{"sl", "source", "destination"}`` of a rule of ours; None when it is not there. Raises DeviceError when it was edited."""
    level = _block(text, "qos-levels", name)
    if level is None:
        return None
    sl = _fields(level).get("sl", [""])[0]
    rule = _block(text, "qos-match-rules", name)
    if rule is None or not sl.isdigit():
        raise DeviceError(f"qos policy: rule {name} is there only in part: somebody edited it")
    fields = _fields(rule)
    out: dict[str, Any] = {"sl": int(sl)}
    for side in ("source", "destination"):
        group = _block(text, "port-groups", f"{name}-{side}") if side in fields else None
        if side in fields and group is None:
            raise DeviceError(f"qos policy: rule {name} names a group that is not there")
        out[side] = _guids(group) if group is not None else []
    return out


def set_rule(text: str, name: str, value: dict[str, Any] | None) -> str:
    """The file with the rule replaced or removed. Raises DeviceError for a name or value that cannot stand in it."""
    if not _NAME.fullmatch(name):
        raise DeviceError(f"qos policy: {name!r}: letters, digits and hyphens")
    for section in _BLOCKS:
        text = _without(text, section, name)
    if value is None:
        return _without_empty(text)
    sl, groups = _checked(name, value)
    for section, _ in _SECTIONS:
        text = _with_section(text, section)
    if _block(text, "qos-levels", "DEFAULT") is None and _block(text, "qos-levels", "default") is None:
        text = _insert(text, "qos-levels", ["name: DEFAULT", "sl: 0"])
    text = _insert(text, "qos-levels", [f"name: {name}", f"sl: {sl}"])
    match = [f"use: {name}"]
    for side, guids in groups.items():
        if guids:
            listed = ", ".join(format_guid(guid) for guid in guids)
            text = _insert(text, "port-groups", [f"name: {name}-{side}", f"port-guid: {listed}"])
            match.append(f"{side}: {name}-{side}")
    return _without_empty(_insert(text, "qos-match-rules", [*match, f"qos-level-name: {name}"]))


def _checked(name: str, value: dict[str, Any]) -> tuple[int, dict[str, list[int]]]:
    sl = value.get("sl")
    if (
        not isinstance(sl, int)
        or isinstance(sl, bool)
        or not 0 <= sl <= 15
        or set(value) - {"sl", "source", "destination"}
    ):
        raise DeviceError(f"qos policy: rule {name}: {value!r} is not a service level with source and destination")
    groups: dict[str, list[int]] = {}
    for side in ("source", "destination"):
        listed = value.get(side, [])
        try:
            groups[side] = [parse_guid(text) for text in listed]
        except (ValueError, AttributeError, TypeError):
            raise DeviceError(f"qos policy: rule {name}: {side} is not a list of port GUIDs") from None
        if len(groups[side]) > _MOST_GUIDS:
            raise DeviceError(f"qos policy: rule {name}: {len(groups[side])} ports, at most {_MOST_GUIDS}")
    if not any(groups.values()):
        raise DeviceError(f"qos policy: rule {name} would match every path")
    return sl, groups


# ---------------------------------------------------------------- the file's grammar


def _span(text: str, section: str) -> tuple[int, int] | None:
    """Where a section's inside begins and ends."""
    start = re.search(rf"^[ \t]*{section}[ \t]*(?:#[^\n]*)?\n", text, re.M)
    end = re.search(rf"^[ \t]*end-{section}\b", text, re.M)
    if start is None and end is None:
        return None
    if start is None or end is None or end.start() < start.end():
        raise DeviceError(f"qos policy: section {section} is not closed")
    return start.end(), end.start()


def _blocks(text: str, section: str) -> list[tuple[int, int, str]]:
    span = _span(text, section)
    if span is None:
        return []
    word = _BLOCKS[section]
    found = re.finditer(
        rf"^[ \t]*{word}[ \t]*(?:#[^\n]*)?\n(.*?)^[ \t]*end-{word}\b[^\n]*\n?", text[span[0] : span[1]], re.M | re.S
    )
    return [(span[0] + match.start(), span[0] + match.end(), match[1]) for match in found]


def _fields(body: str) -> dict[str, list[str]]:
    out: dict[str, list[str]] = {}
    for line in body.splitlines():
        word, colon, value = line.split("#", 1)[0].partition(":")
        if colon:
            out.setdefault(word.strip(), []).append(value.strip())
    return out


def _names(section: str, body: str) -> set[str]:
    fields = _fields(body)
    return {*fields.get("name", []), *(fields.get("qos-level-name", []) if section == "qos-match-rules" else [])}


def _block(text: str, section: str, name: str) -> str | None:
    for _, _, body in _blocks(text, section):
        if name in _names(section, body):
            return body
    return None


def _guids(body: str) -> list[str]:
    listed = ",".join(_fields(body).get("port-guid", []))
    return [format_guid(parse_guid(part)) for part in listed.split(",") if part.strip()]


def _without(text: str, section: str, name: str) -> str:
    mine = {name, f"{name}-source", f"{name}-destination"}
    for start, end, body in reversed(_blocks(text, section)):
        if _names(section, body) & mine:
            text = text[:start] + text[end:]
    return text


def _without_empty(text: str) -> str:
    """opensm refuses a section with nothing in it."""
    for section, _ in _SECTIONS:
        text = re.sub(rf"^[ \t]*{section}[ \t]*\n\s*end-{section}[ \t]*\n?", "", text, flags=re.M)
    return text


def _with_section(text: str, section: str) -> str:
    """The text with an (empty) section at its place: groups before levels before rules."""
    if _span(text, section) is not None:
        return text
    fresh = f"{section}\nend-{section}\n"
    order = [name for name, _ in _SECTIONS]
    for later in order[order.index(section) + 1 :]:
        if _span(text, later) is not None:
            at = re.search(rf"^[ \t]*{later}\b", text, re.M)
            assert at is not None
            return text[: at.start()] + fresh + text[at.start() :]
    return f"{text}{'' if not text or text.endswith(chr(10)) else chr(10)}{fresh}"


def _insert(text: str, section: str, lines: list[str]) -> str:
    """A block as the first of its section."""
    span = _span(text, section)
    assert span is not None
    word = _BLOCKS[section]
    block = "".join(f"        {line}\n" for line in lines)
    return f"{text[: span[0]]}    {word}\n{block}    end-{word}\n{text[span[0] :]}"

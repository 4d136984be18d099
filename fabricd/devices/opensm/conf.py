"""``opensm.conf`` as text: one option read or replaced, everything else kept byte for byte."""

from __future__ import annotations

import re

from fabricd.devices.base import DeviceError

NULL = "(null)"  # how opensm writes an unset text
_VALUE = re.compile(r"[\x21-\x7e]+(?: [\x21-\x7e]+)*")


def get_option(text: str, key: str) -> str | None:
    """An option's value; None where it is not set (or set to ``(null)``). The last line of a name counts, as in opensm."""
    found = None
    for line in text.splitlines():
        value = _value(line, key)
        if value is not None:
            found = value
    return None if found == NULL else found


def set_option(text: str, key: str, value: str | None) -> str:
    """The text with the option set, or without it (None). Raises DeviceError for a value that cannot stand on a line."""
    if value is not None and (not _VALUE.fullmatch(value) or value.startswith("#")):
        raise DeviceError(f"{key}: {value!r} is no value of an option")
    lines = text.splitlines(keepends=True)
    places = [at for at, line in enumerate(lines) if _value(line, key) is not None]
    fresh = [] if value is None else [f"{key} {value}\n"]
    if not places:
        if lines and not lines[-1].endswith("\n"):
            lines[-1] += "\n"
        return "".join([*lines, *fresh])
    last = places[-1]
    kept = [line for at, line in enumerate(lines[:last]) if at not in places]
    return "".join([*kept, *fresh, *lines[last + 1 :]])


def _value(line: str, key: str) -> str | None:
    """The value when the line sets this option."""
    words = line.split("#", 1)[0].split()
    name = key.split()
    if len(words) <= len(name) or words[: len(name)] != name:
        return None
    return " ".join(words[len(name) :])

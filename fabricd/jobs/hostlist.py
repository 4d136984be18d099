"""Slurm host list expressions: ``gpu[001-004,007],login1`` to names and back.

Grammar: comma-separated names, each with any number of ``[…]`` groups of numbers and ranges; leading zeros are kept
(Slurm's ``scontrol show hostnames`` and ``show hostlist``).
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from itertools import groupby, product

MAX_HOSTS = 1_000_000
_NAME = re.compile(r"[A-Za-z0-9._\-]*")
_TAIL = re.compile(r"^(.*?)(\d+)$")


class HostlistError(ValueError):
    """Not a host list expression: the message names the part."""


def expand(expression: str) -> list[str]:
    """Every host of an expression, in its order. Raises HostlistError on bad syntax or more than MAX_HOSTS names."""
    hosts: list[str] = []
    for part in _split(expression):
        hosts += _expand_part(part)
        if len(hosts) > MAX_HOSTS:
            raise HostlistError(f"more than {MAX_HOSTS} hosts")
    return hosts


def _split(expression: str) -> list[str]:
    """At commas outside brackets."""
    parts: list[str] = []
    depth, start = 0, 0
    for i, c in enumerate(expression):
        if c == "[":
            depth += 1
        elif c == "]":
            depth -= 1
        elif c == "," and depth == 0:
            parts.append(expression[start:i])
            start = i + 1
        if depth not in (0, 1):
            raise HostlistError(f"unbalanced brackets in {expression[:80]!r}")
    if depth:
        raise HostlistError(f"unbalanced brackets in {expression[:80]!r}")
    parts.append(expression[start:])
    return [part.strip() for part in parts if part.strip()]


def _expand_part(part: str) -> list[str]:
    pieces = re.split(r"\[([^\]]*)\]", part)  # literal, group, literal, group, …, literal
    choices: list[list[str]] = []
    count = 1
    for i, piece in enumerate(pieces):
        if i % 2 == 0:
            if not _NAME.fullmatch(piece):
                raise HostlistError(f"not a host name: {part[:80]!r}")
            choices.append([piece])
        else:
            choices.append(_expand_group(piece, part))
            count *= len(choices[-1])
            if count > MAX_HOSTS:
                raise HostlistError(f"more than {MAX_HOSTS} hosts in {part[:80]!r}")
    return ["".join(choice) for choice in product(*choices)]


def _expand_group(group: str, part: str) -> list[str]:
    numbers: list[str] = []
    for item in group.split(","):
        low, dash, high = item.strip().partition("-")
        if not low.isascii() or not low.isdigit() or (dash and not (high.isascii() and high.isdigit())):
            raise HostlistError(f"not a number or range: {item!r} in {part[:80]!r}")
        if len(low) > 18 or len(high) > 18:
            raise HostlistError(f"number too long: {item!r} in {part[:80]!r}")
        first, last = int(low), int(high or low)
        if last < first or last - first >= MAX_HOSTS:
            raise HostlistError(f"bad range: {item!r} in {part[:80]!r}")
        numbers += [f"{n:0{len(low)}d}" for n in range(first, last + 1)]
    return numbers


def compress(hosts: Iterable[str]) -> str:
    """The shortest usual expression of the hosts, sorted: runs of numbers of one width become ranges."""
    plain: set[str] = set()
    texts: dict[str, set[str]] = {}
    for host in hosts:
        match = _TAIL.match(host)
        if match and len(match[2]) <= 18:
            texts.setdefault(match[1], set()).add(match[2])
        else:
            plain.add(host)
    numbered: dict[tuple[str, int], set[int]] = {}
    for prefix, digits in texts.items():
        # A width with a leading zero anywhere is a padded one: all numbers of it go together. The rest is not padded.
        padded = {len(text) for text in digits if text[0] == "0" and len(text) > 1}
        for text in digits:
            numbered.setdefault((prefix, len(text) if len(text) in padded else 1), set()).add(int(text))
    out = [(name, name) for name in plain]
    for (prefix, width), numbers in numbered.items():
        runs: list[str] = []
        for _, run in groupby(enumerate(sorted(numbers)), lambda pair: pair[1] - pair[0]):
            members = [number for _, number in run]
            first = f"{members[0]:0{width}d}"
            runs.append(first if len(members) == 1 else f"{first}-{members[-1]:0{width}d}")
        single = len(runs) == 1 and "-" not in runs[0]
        text = prefix + (runs[0] if single else f"[{','.join(runs)}]")
        out.append((f"{prefix}{min(numbers):0{width}d}", text))
    return ",".join(text for _, text in sorted(out))

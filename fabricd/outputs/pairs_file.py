"""Who talks to whom, from a file: CSV lines ``src,dst,prio`` (with or without a header), JSON lines, or one JSON array."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from fabricd.errors import BAD_DOCUMENT, FabricdError, UsageError
from fabricd.model.rejects import Rejects
from fabricd.model.verdict import NodeId

NamedPair = tuple[NodeId, NodeId, int | None]


def read_pairs(path: Path, rejects: Rejects) -> list[NamedPair]:
    """Bad lines are counted (``pair_line``). Raises FabricdError when the file cannot be read, UsageError when no line is a pair."""
    try:
        text = path.read_text()
    except OSError as error:
        raise FabricdError(f"{path}: {error.strerror}") from None
    except UnicodeDecodeError:
        raise UsageError(f"--pairs {path}: not a text file") from None
    out: list[NamedPair] = []
    for number, entry in _entries(text):
        pair = _pair(entry)
        if pair is None:
            if not (number == 1 and isinstance(entry, list)):
                rejects.add("pair_line", entry, f"{path.name}:{number}")
            continue
        out.append(pair)
    if not out and text.strip():
        raise UsageError(f"--pairs {path}: no line with src,dst,prio")
    return out


def _entries(text: str) -> Iterator[tuple[int, Any]]:
    if text.lstrip().startswith("["):
        try:
            document = json.loads(text)
        except BAD_DOCUMENT:
            document = None
        if isinstance(document, list) and not all(isinstance(cell, (int, str)) for cell in document):
            yield from enumerate(document, start=1)
            return
    for number, line in enumerate(text.splitlines(), start=1):
        line = line.strip()
        if not line or line.startswith("#"):
            continue
        if line[0] in "{[":
            try:
                yield number, json.loads(line)
            except BAD_DOCUMENT:
                yield number, line
        else:
            yield number, [cell.strip() for cell in line.split(",")]


def _pair(entry: Any) -> NamedPair | None:
    if isinstance(entry, dict):
        entry = [entry.get("src"), entry.get("dst"), entry.get("prio")]
    if not isinstance(entry, list) or not 2 <= len(entry) <= 3:
        return None
    source, destination = entry[:2]
    if not all(isinstance(end, (int, str)) and str(end).strip() for end in (source, destination)):
        return None
    prio = entry[2] if len(entry) == 3 else None
    if prio in (None, ""):
        return source, destination, None
    try:
        return source, destination, int(prio)
    except (TypeError, ValueError):
        return None

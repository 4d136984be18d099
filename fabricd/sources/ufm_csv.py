"""UFM telemetry as CSV: a row a port and instant, columns named as the release names them.

What ``/csv/metrics`` of UFM Telemetry answers, one answer after the other (each with its header line) or one file of many instants.
Columns are found by name. A bad line costs itself.
"""

from __future__ import annotations

import csv
import gzip
import re
import zlib
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path

from fabricd.errors import FabricdError, UsageError
from fabricd.model.catalogue import CounterDef
from fabricd.model.ident import parse_guid
from fabricd.model.series import Collected, History, Owner
from fabricd.sources.pm_columns import counter_column, reading

_TIME = (
    "timestamp",
    "time",
    "timestampus",
    "timestampms",
    "timestampns",
    "timestamps",
    "date",
    "datetime",
    "sampletime",
)
_NODE = ("nodeguid", "systemguid", "guid")
_PORT_GUID = ("portguid",)
_PORT = ("portnum", "portnumber", "port")
_BOTH = ("sourceid", "portid", "portname", "name")  # GUID and port in one: 0xb83fd2030080302e_31
_KEY = re.compile(r"^(?:0x)?([0-9A-Fa-f]{1,16})[_/:](\d{1,4})$")
_PORT_MAX = 4096


@dataclass(slots=True)
class _Header:
    """Where things are in a row."""

    time: int
    node: int = -1
    port_guid: int = -1
    port: int = -1
    both: int = -1
    counters: list[tuple[int, CounterDef]] = field(default_factory=list)
    width: int = 0


def read(path: Path) -> History:
    """A file, or all ``*.csv`` and ``*.csv.gz`` of a directory.

    Raises FabricdError when it cannot be read or holds no counter of a port, UsageError when its header is none of UFM's.
    """
    try:
        files = sorted([*path.glob("*.csv"), *path.glob("*.csv.gz")]) if path.is_dir() else [path]
    except OSError as error:
        raise FabricdError(f"{path}: {error.strerror}") from None
    if not files:
        raise FabricdError(f"{path}: no *.csv file there")
    history, collected = History(), Collected()
    for file in files:
        _read_lines(_lines(file), file.name, history, collected)
    history.series = collected.series()
    history.notes.append("waits by priority or virtual lane: UFM telemetry keeps whole ports")
    if not history.series:
        raise FabricdError(f"{path}: no row with a counter of a port")
    return history


def _lines(path: Path) -> Iterator[str]:
    opener = gzip.open if path.suffix == ".gz" else open
    try:
        with opener(path, "rt", encoding="utf-8-sig", errors="replace", newline="") as file:
            yield from file
    except OSError as error:
        raise FabricdError(f"{path}: {error.strerror or error}") from None
    except (EOFError, zlib.error) as error:
        raise FabricdError(f"{path}: {error}") from None


def _read_lines(lines: Iterator[str], where: str, history: History, collected: Collected) -> None:
    header: _Header | None = None
    delimiter = ","
    for number, line in enumerate(lines, 1):
        text = line.strip("\r\n\0 ")
        if not text or text.startswith("#"):
            continue
        if header is None:
            delimiter = max(",;\t|", key=text.count)
        try:
            cells = next(csv.reader([text], delimiter=delimiter))
        except csv.Error as error:
            history.rejects.add("csv_line", error, f"{where}:{number}")
            continue
        found = _header(cells)
        if found is not None:
            header = found
        elif header is None:
            raise UsageError(f"ufm-csv:{where}: line {number} is no header with a time, a port and counters")
        elif len(cells) != header.width:
            history.rejects.add("csv_line", text, f"{where}:{number}")
        else:
            _row(cells, header, history, collected, f"{where}:{number}")


def _header(cells: list[str]) -> _Header | None:
    """The meaning of a header line; None when the line is none."""
    plain = [re.sub(r"[^a-z]", "", cell.lower()) for cell in cells]

    def at(names: tuple[str, ...]) -> int:
        return next((plain.index(name) for name in names if name in plain), -1)

    out = _Header(at(_TIME), at(_NODE), at(_PORT_GUID), at(_PORT), at(_BOTH), width=len(cells))
    named = [(i, counter_column(cell)) for i, cell in enumerate(cells)]
    best: dict[str, tuple[bool, int, CounterDef]] = {}
    for i, column in named:
        if column is not None and (
            column.counter.name not in best or (column.wide and not best[column.counter.name][0])
        ):
            best[column.counter.name] = column.wide, i, column.counter
    out.counters = [(i, counter) for _, i, counter in best.values()]
    located = (max(out.node, out.port_guid) >= 0 and out.port >= 0) or out.both >= 0
    return out if out.time >= 0 and located and out.counters else None


def _row(cells: list[str], header: _Header, history: History, collected: Collected, where: str) -> None:
    try:
        owner, t_ns = _owner(cells, header), instant_ns(cells[header.time])
    except (ValueError, OverflowError) as error:
        history.rejects.add("csv_key", error, where)
        return
    for i, counter in header.counters:
        try:
            value = reading(cells[i], counter)
        except (ValueError, OverflowError) as error:
            history.rejects.add("csv_number", error, where)
            continue
        if value is not None:
            collected.add(owner, counter.name, None, t_ns, float(value))


def _owner(cells: list[str], header: _Header) -> Owner:
    for column in (header.node, header.port_guid):
        if column >= 0 and header.port >= 0 and cells[column].strip():
            guid, port = parse_guid(cells[column]), int(cells[header.port])
            break
    else:
        match = _KEY.match(cells[header.both].strip()) if header.both >= 0 else None
        if match is None:
            raise ValueError("no port named")
        guid, port = int(match[1], 16), int(match[2])
    if not guid or not 0 < port <= _PORT_MAX:
        raise ValueError(f"not a port: {guid:x} {port}")
    return Owner(guid, port)


def instant_ns(text: str) -> int:
    """Wall clock ns of microseconds (UFM's), or of seconds, ms or ns since 1970, told apart by size; or of a date and time, UTC
    where no zone is given. Raises ValueError."""
    text = text.strip().strip('"')
    try:
        number = float(text)
    except ValueError:
        at = datetime.fromisoformat(text)
        return round((at if at.tzinfo else at.replace(tzinfo=UTC)).timestamp() * 1e6) * 1000
    if not 1e6 <= number < 9.2e18:  # not a number, no time after 1970, or beyond 64 bits of ns
        raise ValueError(f"not a time: {text[:40]!r}")
    for limit, factor in ((1e11, 1_000_000_000), (1e14, 1_000_000), (1e17, 1000)):
        if number < limit:
            return int(text) * factor if text.isdecimal() else round(number * factor)
    return int(number)

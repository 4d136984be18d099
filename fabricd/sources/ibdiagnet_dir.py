"""Counters out of ibdiagnet output directories: each run is one reading of every port.

A run leaves ``ibdiagnet2.db_csv``, a file of sections; ``PM_INFO`` holds the port counters. Columns are found by name: they move
between releases (``PortXmitWait``, ``PortXmitWaitExt``; ``PortXmitDataExtended`` beside the 32-bit ``PortXmitData``).
"""

from __future__ import annotations

import csv
import re
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path
from typing import NamedTuple

from fabricd.errors import FabricdError
from fabricd.model.ident import parse_guid
from fabricd.model.rejects import Rejects
from fabricd.model.series import Collected, History, Owner
from fabricd.sources.pm_columns import Column, counter_column, reading

_STAMP = re.compile(
    r"^#\s*(?:Running timestamp|File created at|Timestamp)\s*:\s*(\S+ \S+)(?:\s+\w+)?(?:\s+([+-]\d{4}))?"
)
_PORTS = ("PortNumber", "PortNum")
_NODES = ("NodeGUID", "NodeGuid")


class Run(NamedTuple):
    """One run of ibdiagnet: its directory, its ``db_csv``, and when it ran (wall clock ns)."""

    directory: Path
    db_csv: Path
    t_ns: int


def runs(directory: Path) -> list[Run]:
    """The runs in a directory or below it (two levels), by time. Raises FabricdError when there is none."""
    try:
        found = sorted({*directory.glob("*.db_csv"), *directory.glob("*/*.db_csv"), *directory.glob("*/*/*.db_csv")})
        out = [Run(path.parent, path, _time_of(path)) for path in found]
    except OSError as error:
        raise FabricdError(f"{error.filename or directory}: {error.strerror}") from None
    if not out:
        raise FabricdError(f"{directory}: no ibdiagnet2.db_csv there or below")
    return sorted(out, key=lambda run: (run.t_ns, str(run.db_csv)))


def _time_of(path: Path) -> int:
    """When the run began, as the head of its file says; else when the file was written."""
    with path.open(encoding="utf-8", errors="replace") as file:
        for _ in range(20):
            match = _STAMP.match(file.readline(1000))
            if match:
                try:
                    at = datetime.strptime(f"{match[1]} {match[2] or '+0000'}", "%Y-%m-%d %H:%M:%S %z")
                except ValueError:
                    continue
                return int(at.timestamp()) * 1_000_000_000
    return path.stat().st_mtime_ns


def read(found: list[Run]) -> History:
    """The counters of all runs. Raises FabricdError when a file cannot be read, or no run has counters."""
    history, collected = History(), Collected()
    for run in found:
        try:
            text = run.db_csv.read_bytes().decode("utf-8", "replace")
        except OSError as error:
            raise FabricdError(f"{run.db_csv}: {error.strerror}") from None
        take(text, run.t_ns, f"{run.directory.name}/{run.db_csv.name}", history.rejects, collected)
    history.series = collected.series()
    history.notes.append("waits by priority or virtual lane: ibdiagnet's table of counters has whole ports")
    if not history.series:
        raise FabricdError(
            f"{found[0].db_csv}: no section PM_INFO with counters of ports (run ibdiagnet with --pm_get_all)"
        )
    return history


def take(text: str, t_ns: int, where: str, rejects: Rejects, collected: Collected) -> None:
    """The section PM_INFO of one run. Of a counter's 32-bit and 64-bit columns the latter is read."""
    known: dict[str, Column | None] = {}
    for _, row, place in read_sections(text, {"PM_INFO"}, rejects, where):
        try:
            guid = parse_guid(next(row[name] for name in _NODES if name in row))
            port = int(next(row[name] for name in _PORTS if name in row))
        except (StopIteration, ValueError) as error:
            rejects.add("pm_info_row", error or "no node or port", place)
            continue
        if not guid or not 0 < port < 255:
            rejects.add("pm_info_row", f"port {port}", place)
            continue
        owner = Owner(guid, port)
        taken: dict[str, bool] = {}
        for name, cell in row.items():
            if name not in known:
                known[name] = counter_column(name)
            column = known[name]
            if column is None or taken.get(column.counter.name):
                continue
            try:
                value = reading(cell, column.counter)
            except (ValueError, OverflowError) as error:
                rejects.add("pm_info_number", error, place)
                continue
            if value is not None:
                taken[column.counter.name] = column.wide
                collected.add(owner, column.counter.name, None, t_ns, float(value))


def read_sections(
    text: str, wanted: set[str], rejects: Rejects, where: str
) -> Iterator[tuple[str, dict[str, str], str]]:
    """(section, row by column name, place) of the wanted sections of a ``db_csv``."""
    section, header = "", list[str]()
    for number, line in enumerate(text.splitlines(), 1):
        mark = line.strip()
        if mark.startswith("START_") and "," not in mark:
            section, header = mark.removeprefix("START_"), []
        elif mark.startswith("END_") and "," not in mark:
            section = ""
        elif section in wanted and mark:
            try:
                cells = [cell.strip().strip('"') for cell in next(csv.reader([line]))]
            except csv.Error as error:
                rejects.add("csv_row", error, f"{where}:{number}")
                continue
            if not header:
                header = cells
            elif len(cells) < len(header):
                rejects.add("short_row", line, f"{where}:{number}")
            else:
                yield section, dict(zip(header, cells, strict=False)), f"{where}:{number}"

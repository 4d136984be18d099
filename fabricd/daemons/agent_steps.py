"""Extra readings of sent bytes at random moments between the regular ones, so that step times of jobs can be told from aliases.

Regular polling cannot tell a step of 2 s from one of 4 s; polling with jitter can (see jobs/steps.py). Only one file a port
is read, and a frame of its own carries it.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable

from fabricd.daemons.agent_rows import PlannedRow
from fabricd.model.catalogue import CounterDef, scaled
from fabricd.model.frame import Column, Schema
from fabricd.model.sample import Flag
from fabricd.sources.counter_files import CounterFiles
from fabricd.sources.files import Files

SENT = "port_transmit_data_bytes"
BETWEEN = "port_transmit_data_bytes_between"
STREAM = 0xFFFF  # never taken by the regular streams, which count from 0
SHORTEST, LONGEST = 0.5, 1.5  # gaps between readings, in intervals: mean 1, standard deviation 0.29

_SIZE = 32
_COLUMNS = (Column(name=BETWEEN, unit="bytes", kind="sample"),)


class StepSampler:
    """The ports of some rows whose sent bytes are one plain file. Read-only; a file that fails is left out until the next layout."""

    def __init__(self, rows: Iterable[PlannedRow], files: Files) -> None:
        self._files = files
        self._open: list[tuple[int, CounterDef]] = []
        self.rows: list[PlannedRow] = []
        for planned in rows:
            found = _sent_file(planned)
            if found is None:
                continue
            path, definition = found
            try:
                fd = files.open(path)
            except OSError:
                continue
            self._open.append((fd, definition))
            self.rows.append(planned)

    def schema(self, node: str, fabric: str, boot: int) -> Schema:
        rows = tuple(planned.row for planned in self.rows)
        return Schema(node=node, fabric=fabric, stream=STREAM, boot=boot, rows=rows, columns=_COLUMNS)

    def read(self) -> tuple[array[int], bytearray]:
        """(values, flags), one cell a port."""
        values, flags = array("Q", bytes(8 * len(self._open))), bytearray(len(self._open))
        for cell, (fd, definition) in enumerate(self._open):
            try:
                text = self._files.pread(fd, _SIZE, 0).strip()
            except OSError:
                continue
            if text.isdigit() and (raw := int(text)) < definition.limit:
                values[cell], flags[cell] = scaled(definition, raw), int(Flag.VALID)
        return values, flags

    def close(self) -> None:
        for fd, _ in self._open:
            self._files.close(fd)
        self._open.clear()


def _sent_file(planned: PlannedRow) -> tuple[str, CounterDef] | None:
    for group in planned.groups:
        if isinstance(group, CounterFiles):
            for definition in group.columns:
                if definition.name == SENT and definition.observable:
                    return f"{group.directory}/{definition.raw}", definition
    return None

"""The sweep by spawning perfquery, switch by switch: for where the umad device may not be opened but the tool may be run.

The command never has a reset option. One run reads all ports of a switch; perfquery ends at the first port that fails, so the rest is
asked in another run. A hundred times slower than ``sources/pma``: fit for small fabrics and long intervals.
"""

from __future__ import annotations

import subprocess
import time
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field

import numpy as np

from fabricd.errors import FabricdError
from fabricd.ib.limits import Limits
from fabricd.ib.mad import Pma, Reply
from fabricd.model.ident import format_guid
from fabricd.model.rejects import Rejects
from fabricd.model.sample import Flag
from fabricd.sources.perfquery_text import Block, parse_perfquery
from fabricd.sources.pma_device import ASSUMED, Capability, DeviceTraits, Width
from fabricd.sources.pma_layout import LAYOUT, U8, U64
from fabricd.sources.pma_memory import Memory
from fabricd.sources.pma_reading import COLUMNS, PortTable, Sweep, cells, hidden_columns
from fabricd.sources.pma_targets import Target
from fabricd.sources.sweeper import Progress

_AT_ONCE = 4  # processes
_MAX_RUNS = 8  # of one switch and attribute in one sweep
_EXT, _PC = Pma.PORT_COUNTERS_EXTENDED, Pma.PORT_COUNTERS


@dataclass(slots=True)
class _Reading:
    """What one switch gave: blocks by (attribute, port), and when they were read."""

    blocks: dict[tuple[Pma, int], Block] = field(default_factory=dict)
    when: float = 0.0
    rejects: Rejects = field(default_factory=Rejects)

    @property
    def capability(self) -> Capability:
        return next((block.capability for block in self.blocks.values()), ASSUMED)


class PerfquerySweeper:
    """Gives the same ``Sweep`` as ``PmaSweeper``. ``command``: how perfquery is called, with a prefix such as sudo before it.

    Raises FabricdError from ``prepare`` when the command cannot be started at all.
    """

    def __init__(
        self,
        targets: Iterable[Target],
        command: Sequence[str] = ("perfquery",),
        *,
        timeout: float = 5.0,
        errors: bool = True,
    ) -> None:
        self._command, self._timeout, self._errors = list(command), timeout, errors
        self._targets: list[Target] = []
        self._table: PortTable | None = None
        self._memory: Memory | None = None
        self._silent: set[tuple[int, int]] = set()
        self._known: dict[tuple[int, int], Capability] = {}  # stays while a device does not answer
        self._number = 0
        self.rejects = Rejects()
        self.set_targets(targets)

    def set_targets(self, targets: Iterable[Target]) -> None:
        self._targets = list(targets)
        self._table = None

    def set_limits(self, limits: Limits) -> None:
        """perfquery has one request in flight whatever is wished."""

    @property
    def ports(self) -> int:
        return sum(len(target.ports) for target in self._targets)

    @property
    def silent(self) -> list[Target]:
        return [target for target in self._targets if target.key in self._silent]

    def wait_tick_bytes(self, target: Target, port: int) -> int | None:
        """As the documents say; the device is not asked."""
        return DeviceTraits().wait_tick_bytes(target.device, int(target.labels.get(port, {}).get("width") or 0))

    def prepare(self, progress: Progress | None = None) -> None:
        """See that the tool can be run."""
        self._run(["--version"], Rejects(), "perfquery --version")

    def sweep(self, progress: Progress | None = None) -> Sweep:
        """One pass over all switches."""
        wall, mono, start = time.time_ns(), time.monotonic_ns(), time.monotonic()
        readings: list[_Reading] = []
        with ThreadPoolExecutor(_AT_ONCE) as pool:
            for reading in pool.map(self._read, self._targets):
                readings.append(reading)
                if progress is not None:
                    progress("reading counters by perfquery", len(readings), len(self._targets))
        table = self._tabulate(readings)
        self._number += 1
        sweep = self._fill(table, readings, mono, wall, start)
        answers = {t.key for t, reading in zip(self._targets, readings, strict=True) if reading.blocks}
        back = np.array([t.key in self._silent and t.key in answers for t in table.targets], np.bool_)
        self._silent = {target.key for target in self._targets} - answers
        if self._memory is None or self._memory.table is not table:
            self._memory = Memory(table, self._memory)
        changes = self._memory.take(sweep, back)
        sweep.counts["resets"], sweep.qp1_dropped = changes.resets, changes.qp1_dropped
        sweep.seconds = time.monotonic() - start
        return sweep

    def _read(self, target: Target) -> _Reading:
        reading = _Reading()
        self._ask(target, _EXT, reading)
        reading.when = time.monotonic()
        if not reading.blocks or (self._errors and reading.capability.width is Width.MIXED):
            self._ask(target, _PC, reading)
            reading.when = reading.when if reading.blocks else time.monotonic()
        return reading

    def _ask(self, target: Target, attribute: Pma, reading: _Reading) -> None:
        """All ports of a switch. A port that fails ends a run: it is left out, and the ports after it asked anew."""
        left, where = list(target.ports), f"{target.name} {format_guid(target.guid)} lid {target.lid}"
        for _ in range(_MAX_RUNS):
            options = ["-l", "-x"] if attribute is _EXT else ["-l"]
            text = self._run([*options, str(target.lid), ",".join(map(str, left))], reading.rejects, where)
            got = [
                block
                for block in parse_perfquery(text, reading.rejects, where)
                if block.attribute is attribute and block.lid in (None, target.lid) and block.port in left
            ]
            reading.blocks |= {(attribute, block.port): block for block in got}
            left = left[left.index(got[-1].port) + 1 :] if got else left
            if not left:
                return
            reading.rejects.add("perfquery_port", f"port {left.pop(0)}", where)
            # A switch of which not one port answered is not asked port by port: each try may take the whole time limit.
            if not left or not got:
                return
        reading.rejects.add("perfquery_runs", f"{len(left)} ports not asked", where)

    def _run(self, options: list[str], rejects: Rejects, where: str) -> str:
        """Standard output of a run, also of one that failed or took too long."""
        try:
            done = subprocess.run(
                [*self._command, *options],
                stdin=subprocess.DEVNULL,
                capture_output=True,
                timeout=self._timeout,
                check=False,
            )
        except subprocess.TimeoutExpired as error:
            rejects.add("perfquery_timeout", f"{self._timeout:g} s", where)
            return (error.stdout or b"").decode(errors="replace")
        except OSError as error:
            raise FabricdError(f"{self._command[0]}: {error.strerror}") from None
        if done.returncode:
            said = done.stderr.decode(errors="replace").strip().splitlines()
            rejects.add("perfquery_failed", said[-1] if said else f"exit status {done.returncode}", where)
        return done.stdout.decode(errors="replace")

    def _tabulate(self, readings: list[_Reading]) -> PortTable:
        """The table; the last one while devices are what they were."""
        for target, reading in zip(self._targets, readings, strict=True):
            if reading.blocks:
                self._known[target.key] = reading.capability
        found = {target.key: self._known.get(target.key, ASSUMED) for target in self._targets}
        targets = sorted(self._targets, key=lambda t: (found[t.key].width, t.guid, t.ports))
        counts = [len(target.ports) for target in targets]
        width = np.repeat(np.array([found[t.key].width for t in targets], np.uint8), counts)
        hidden = [hidden_columns(found[t.key]) for t in targets for _ in t.ports]
        nowhere = np.full(sum(counts), -1, np.intp)
        table = PortTable(
            targets,
            np.repeat(np.array([t.guid for t in targets], np.uint64), counts),
            np.array([port for t in targets for port in t.ports], np.uint16),
            np.repeat(np.arange(len(targets), dtype=np.intp), counts),
            width,
            nowhere,
            nowhere,
            np.array(hidden, np.bool_).reshape(len(hidden), len(COLUMNS)),
        )
        old = self._table
        known = old is not None and old.targets == targets and np.array_equal(old.hidden, table.hidden)
        if old is None or not known or not np.array_equal(old.width, table.width):
            self._table = table
            return table
        return old

    def _fill(self, table: PortTable, readings: list[_Reading], mono: int, wall: int, start: float) -> Sweep:
        by_key = {target.key: reading for target, reading in zip(self._targets, readings, strict=True)}
        values = np.zeros((len(table), len(COLUMNS)), np.uint64)
        flags = np.zeros((len(table), len(COLUMNS)), np.uint8)
        reply = np.full(len(table), int(Reply.TIMEOUT), np.uint8)
        when = np.zeros(len(table), np.uint64)
        sweep = Sweep(self._number, table, mono, wall, 0.0, values, flags, when, reply)
        for row, (target, port) in enumerate(zip(table.target.tolist(), table.port.tolist(), strict=True)):
            reading = by_key[table.targets[target].key]
            width = Width(int(table.width[row]))
            wanted = {Width.WIDE: [_EXT], Width.MIXED: [_EXT, _PC] if self._errors else [_EXT], Width.NARROW: [_PC]}[
                width
            ]
            for attribute in wanted:
                block = reading.blocks.get((attribute, port))
                if block is not None:
                    _fill_row(values[row], flags[row], block, width)
            if flags[row].any():
                when[row] = int(max(0.0, reading.when - start) * 1e9)
                flags[row][table.hidden[row]] = int(Flag.NOT_OBSERVABLE)
                values[row][table.hidden[row]] = 0
            if all((attribute, port) in reading.blocks for attribute in wanted):
                reply[row] = int(Reply.OK)
        for reading in readings:
            for reject in reading.rejects.recent:
                sweep.rejects.add(reject.kind, reject.what, reject.where)
        return sweep


def _fill_row(values: U64, flags: U8, block: Block, width: Width) -> None:
    """Extended blocks of devices without 64-bit errors give traffic only: older tools print zeros for the rest."""
    layout = [counter.raw for counter in LAYOUT[block.attribute]]
    raw = np.array([[block.values.get(name, 0) for name in layout]], np.uint64)
    value, flag = cells(block.attribute, raw)
    columns = range(len(COLUMNS))
    if block.attribute is _EXT and width is Width.MIXED:
        columns = range(8)
    elif block.attribute is _PC and width is Width.MIXED:
        columns = range(8, len(COLUMNS))
    for column in columns:
        name = COLUMNS[column]
        if name in block.values:
            at = layout.index(name)
            values[column], flags[column] = value[0, at], flag[0, at]

"""Switch counters by SNMP at fleet scale, as frames of kind ``switch``: one stream a switch, worker processes that read.

A switch is who its LLDP chassis id says (its base MAC address), unless the targets file gives a GUID; without either its counters
would belong to nobody and are rejected. An agent that refreshes its own data every few seconds is not asked more often than that.
"""

from __future__ import annotations

import multiprocessing
import time
from array import array
from collections.abc import Iterable
from dataclasses import dataclass, field
from multiprocessing.connection import Connection, wait
from typing import Any

from fabricd.devices.snmp.targets import Target
from fabricd.errors import FabricdError
from fabricd.model.catalogue import CounterDef, scaled
from fabricd.model.frame import Column, Row, Schema, encode_frame
from fabricd.model.ident import guid_from_mac, parse_guid
from fabricd.model.rejects import Rejects
from fabricd.model.sample import Flag
from fabricd.sources.snmp_worker import Ask, Reading, work

READ_OFFSET = Column(name="read_offset", unit="ns", kind="time", source="snmp")
EPOCH = Column(name="epoch", kind="epoch", source="snmp")
LEADING = 2
PRIORITIES = 8
AT_ONCE = 32  # agents a worker has on the wire


@dataclass(slots=True)
class _Switch:
    """What is known of one target between polls."""

    target: Target
    stream: int
    worker: int
    guid: int = 0
    names: dict[int, str] = field(default_factory=dict)
    megabits: dict[int, int] = field(default_factory=dict)
    uptime: int | None = None
    boots: int | None = None
    epoch: int = 0
    polled: float = -1e9
    schema: Schema | None = None
    schema_id: int = 0
    cells: dict[tuple[int, str, int], int] = field(default_factory=dict)  # (ifIndex, OID, priority) -> cell


@dataclass(slots=True)
class Poll:
    """One round: schemas to publish first, frames with their sequence, and figures for the status."""

    schemas: list[Schema] = field(default_factory=list)
    frames: list[tuple[int, bytes]] = field(default_factory=list)
    rows: int = 0
    answered: int = 0
    asked: int = 0
    seconds: float = 0.0
    rejects: Rejects = field(default_factory=Rejects)


class SnmpPoller:
    """Reads all targets when told to. ``workers`` processes are started with the first poll. Use as a context manager."""

    def __init__(
        self, targets: Iterable[Target], node: str, fabric: str, boot: int, *, workers: int = 2, at_once: int = AT_ONCE
    ) -> None:
        self._switches = {
            target.name: _Switch(target, stream, stream % workers) for stream, target in enumerate(targets)
        }
        self.node, self.boot, self._fabric = node, boot, fabric
        self._workers, self._at_once = min(workers, max(1, len(self._switches))), at_once
        self._pipes: list[Connection[Any, Any]] = []
        self._processes: list[Any] = []
        self._sequence = 0

    def __enter__(self) -> SnmpPoller:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        for pipe in self._pipes:
            pipe.close()
        for process in self._processes:
            process.join(2.0)
            if process.is_alive():
                process.kill()
        self._pipes.clear()
        self._processes.clear()

    def _start(self) -> None:
        context = multiprocessing.get_context("spawn")
        for worker in range(self._workers):
            mine = [switch.target for switch in self._switches.values() if switch.worker % self._workers == worker]
            ours, theirs = context.Pipe()
            process = context.Process(
                target=work, args=(theirs, mine, self._at_once), name=f"fabricd-snmp-{worker}", daemon=True
            )
            process.start()
            theirs.close()
            self._pipes.append(ours)
            self._processes.append(process)

    def poll(self, within_s: float = 60.0) -> Poll:
        """One round over the targets that are due. Raises FabricdError when a worker ended."""
        if not self._pipes:
            self._start()
        start, out = time.monotonic(), Poll()
        due = [s for s in self._switches.values() if start - s.polled >= s.target.profile.refresh_s]
        out.asked = len(due)
        busy: list[Connection[Any, Any]] = []
        for worker, pipe in enumerate(self._pipes):
            mine = [switch for switch in due if switch.worker % self._workers == worker]
            if mine:
                unknown = frozenset(switch.target.name for switch in mine if switch.schema is None)
                pipe.send(Ask(tuple(switch.target.name for switch in mine), unknown))
                busy.append(pipe)
        while busy:
            ready = wait(busy, max(0.0, start + within_s - time.monotonic()))
            if not ready:
                self.close()  # a worker that hangs is replaced; its targets are asked in the next round
                out.rejects.add("snmp_late", f"{within_s:g} s", f"{len(busy)} workers")
                break
            for pipe in [pipe for pipe in busy if pipe in ready]:
                try:
                    readings: list[Reading] = pipe.recv()
                except (EOFError, OSError):
                    self.close()
                    raise FabricdError("an SNMP worker process ended") from None
                busy.remove(pipe)
                for reading in readings:
                    self._take(reading, start, out)
        out.seconds = time.monotonic() - start
        return out

    # ---------------------------------------------------------------- readings to frames

    def _take(self, reading: Reading, start: float, out: Poll) -> None:
        switch = self._switches[reading.target]
        for kind, what in reading.why:
            out.rejects.add(kind, what, reading.target)
        if not reading.columns:
            return
        switch.polled = start
        switch.names, switch.megabits = reading.names or switch.names, reading.megabits or switch.megabits
        # The agent was restarted, or its clock of hundredths wrapped: no rate across it.
        went_back = switch.uptime is not None and (reading.uptime is None or reading.uptime < switch.uptime)
        if went_back or (switch.uptime is not None and reading.boots != switch.boots):
            switch.epoch += 1
        switch.uptime, switch.boots = reading.uptime, reading.boots
        if not switch.guid and not self._identify(switch, reading, out):
            return
        values = self._values(switch, reading)
        if switch.schema is None or any(cell not in switch.cells for cell in values):
            self._lay_out(switch, reading, out)
        out.answered += 1
        out.rows += len(values)
        self._encode(switch, reading, values, out)

    def _identify(self, switch: _Switch, reading: Reading, out: Poll) -> bool:
        try:
            if switch.target.guid:
                switch.guid = parse_guid(switch.target.guid)
            elif len(reading.chassis) == 6:
                switch.guid = guid_from_mac(":".join(f"{octet:02x}" for octet in reading.chassis))
        except ValueError as error:
            out.rejects.add("snmp_identity", str(error), reading.target)
            return False
        if not switch.guid:
            out.rejects.add("snmp_identity", "no LLDP chassis id, and no guid in the targets file", reading.target)
            return False
        twin = next((s for s in self._switches.values() if s is not switch and s.guid == switch.guid), None)
        if twin is not None:
            out.rejects.add("duplicate_guid", f"also {twin.target.name}", reading.target)
            switch.guid = 0
            return False
        return True

    def _values(self, switch: _Switch, reading: Reading) -> dict[tuple[int, str, int], int]:
        """(ifIndex, OID, priority or -1) -> raw value. Parts of the index behind the priority are added up."""
        out: dict[tuple[int, str, int], int] = {}
        for read in switch.target.profile.read:
            for index, value in reading.columns.get(read.oid, ()):
                if not isinstance(value, int) or value < 0:
                    continue
                if read.index == "port":
                    key = index[0], read.oid, -1
                elif len(index) > 1 and index[1] < PRIORITIES:
                    key = index[0], read.oid, index[1]
                else:
                    continue
                out[key] = out.get(key, 0) + value
        return out

    def _lay_out(self, switch: _Switch, reading: Reading, out: Poll) -> None:
        """A schema of the ports that count data, and all columns of the profile this agent has."""
        values = self._values(switch, reading)
        ports = sorted({port for port, _, _ in values})
        columns: list[tuple[str, int, CounterDef]] = []
        for read in switch.target.profile.read:
            if read.oid in reading.columns:
                priorities = range(PRIORITIES) if read.index == "port.priority" else (-1,)
                columns += [(read.oid, priority, read.definition) for priority in priorities]
        switch.schema = Schema(
            node=self.node,
            fabric=self._fabric,
            stream=switch.stream,
            boot=self.boot,
            kind="switch",
            rows=tuple(
                Row(
                    guid=switch.guid,
                    port=port,
                    device=switch.target.name,
                    netdev=switch.names.get(port, ""),
                    link_layer="Ethernet",
                    rate_gbps=switch.megabits.get(port, 0) / 1000,
                )
                for port in ports
            ),
            columns=(
                READ_OFFSET,
                EPOCH,
                *(
                    Column(
                        name=known.name, unit=known.unit, width=known.width, sticky=known.sticky, kind=known.kind,
                        priority=None if priority < 0 else priority, raw=known.raw, source="snmp",
                    )
                    for _, priority, known in columns
                ),
            ),
        )  # fmt: skip
        switch.schema_id = switch.schema.id
        width = LEADING + len(columns)
        switch.cells = {
            (port, oid, priority): row * width + LEADING + column
            for row, port in enumerate(ports)
            for column, (oid, priority, _) in enumerate(columns)
        }
        out.schemas.append(switch.schema)

    def _encode(self, switch: _Switch, reading: Reading, values: dict[tuple[int, str, int], int], out: Poll) -> None:
        schema = switch.schema
        assert schema is not None
        width = len(schema.columns)
        cells = array("Q", bytes(8 * width * len(schema.rows)))
        flags = bytearray(len(cells))
        wall, mono = time.time_ns(), time.monotonic_ns()
        base = min(mono, reading.when_ns)
        for row in range(len(schema.rows)):
            cells[row * width], cells[row * width + 1] = reading.when_ns - base, switch.epoch
            flags[row * width] = flags[row * width + 1] = int(Flag.VALID)
        definitions = {read.oid: read.definition for read in switch.target.profile.read}
        for key, raw in values.items():
            at, known = switch.cells[key], definitions[key[1]]
            if raw < known.limit:
                cells[at], flags[at] = scaled(known, raw), int(Flag.VALID)
        self._sequence += 1
        frame = encode_frame(schema, switch.schema_id, self._sequence, base, wall - (mono - base), cells, flags)
        out.frames.append((self._sequence, frame))

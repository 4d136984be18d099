"""One switch's sub-agent: a connection to its snmpd, answers from its table, sets in two phases."""

from __future__ import annotations

import asyncio
import logging
import struct
from collections.abc import Callable

from fabricd.errors import FabricdError
from fabricd.twin.face import Counters
from fabricd.twin.snmp.agentx import (
    HEADER,
    OTHER_CONTEXT,
    Error,
    Kind,
    Oid,
    Reader,
    Type,
    Value,
    encode_octets,
    encode_oid,
    packet,
    response,
)
from fabricd.twin.snmp.table import Table, Writable, bind, nothing

log = logging.getLogger(__name__)

Groups = dict[tuple[str, int], tuple[Writable, dict[tuple[int, ...], int]]]
MAX_REPETITIONS = 128


class SubAgent:
    """Serves ``table`` below ``subtrees`` through the AgentX socket at ``path``."""

    def __init__(self, name: str, table: Table, subtrees: tuple[Oid, ...], read: Callable[[], Counters]) -> None:
        self._name, self._table, self._subtrees, self._read = name, table, subtrees, read
        self._session = 0
        self._numbers = 0
        self._pending: dict[int, Groups] = {}  # transaction -> what a tested set will write
        self._undo: dict[int, Groups] = {}

    async def connect(self, path: str) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        """Open a session and register. Raises FabricdError when the master refuses, OSError when it is not there."""
        reader, writer = await asyncio.open_unix_connection(path)
        opened = await self._ask(
            reader, writer, Kind.OPEN, bytes(4) + encode_oid(()) + encode_octets(self._name.encode())
        )
        self._session = opened
        for subtree in self._subtrees:
            await self._ask(reader, writer, Kind.REGISTER, struct.pack(">BBBx", 0, 127, 0) + encode_oid(subtree))
        return reader, writer

    async def _ask(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, kind: Kind, payload: bytes) -> int:
        self._numbers += 1
        writer.write(packet(kind, self._session, 0, self._numbers, payload))
        head = HEADER.unpack(await reader.readexactly(HEADER.size))
        body = await reader.readexactly(head[6])
        error = struct.unpack_from(">IHH", body)[1]
        if error:
            raise FabricdError(f"snmpd of {self._name} refuses the sub-agent: error {error}")
        return int(head[3])

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Answer until the master goes away."""
        try:
            while True:
                _, kind, flags, session, transaction, number, length = HEADER.unpack(
                    await reader.readexactly(HEADER.size)
                )
                payload = await reader.readexactly(length)
                if kind == Kind.CLOSE:
                    return
                if kind == Kind.CLEANUP_SET:
                    self._pending.pop(transaction, None)
                    self._undo.pop(transaction, None)
                    continue
                error, index, bindings = self._answer(kind, flags, transaction, payload)
                writer.write(response(session, transaction, number, error, index, bindings))
        except (asyncio.IncompleteReadError, ConnectionResetError):
            log.info("snmpd of %s went away", self._name)
        finally:
            writer.close()

    def _answer(self, kind: int, flags: int, transaction: int, payload: bytes) -> tuple[int, int, bytes]:
        """(error, index of the wrong binding, bindings)."""
        reader = Reader(payload)
        try:
            if flags & OTHER_CONTEXT:
                reader.octets()
            if kind == Kind.GET:
                return 0, 0, self._get(reader)
            if kind == Kind.GET_NEXT:
                return 0, 0, self._next(reader)
            if kind == Kind.GET_BULK:
                return 0, 0, self._bulk(reader)
            if kind == Kind.TEST_SET:
                return (*self._test(transaction, reader.bindings()), b"")
        except (struct.error, IndexError):
            return Error.GENERAL, 0, b""
        if kind == Kind.COMMIT_SET:
            self._undo[transaction] = self._write(self._pending.pop(transaction, {}))
        elif kind == Kind.UNDO_SET:
            self._write(self._undo.pop(transaction, {}))
        return 0, 0, b""

    def _get(self, reader: Reader) -> bytes:
        counters = self._read()
        out = []
        for oid, _, _ in reader.ranges():
            cell = self._table.get(oid)
            if cell is not None:
                out.append(bind(cell, counters))
            else:
                out.append(nothing(oid, Type.NO_SUCH_INSTANCE if self._table.knows(oid) else Type.NO_SUCH_OBJECT))
        return b"".join(out)

    def _next(self, reader: Reader) -> bytes:
        counters = self._read()
        return b"".join(self._step(counters, *asked)[0] for asked in reader.ranges())

    def _step(self, counters: Counters, start: Oid, include: bool, end: Oid) -> tuple[bytes, Oid | None]:
        cell = self._table.next(start, include, end)
        return (bind(cell, counters), cell.oid) if cell is not None else (nothing(start, Type.END_OF_VIEW), None)

    def _bulk(self, reader: Reader) -> bytes:
        single, repetitions = reader.number(">H"), reader.number(">H")
        counters = self._read()
        asked = reader.ranges()
        out = [self._step(counters, *one)[0] for one in asked[:single]]
        places: list[tuple[Oid, bool, Oid]] = asked[single:]
        for _ in range(min(repetitions, MAX_REPETITIONS)):
            if not places:
                break
            further = []
            for start, include, end in places:
                binding, found = self._step(counters, start, include, end)
                out.append(binding)
                further.append((found or start, False, end))
            if all(after[0] == before[0] for after, before in zip(further, places, strict=True)):
                break
            places = further
        return b"".join(out)

    def _test(self, transaction: int, bindings: list[tuple[Oid, int, Value]]) -> tuple[int, int]:
        groups: Groups = {}
        last: dict[tuple[str, int], int] = {}
        for index, (oid, kind, value) in enumerate(bindings, 1):
            cell = self._table.get(oid)
            if cell is None or cell.writable is None:
                return Error.NOT_WRITABLE, index
            if kind != cell.kind or not isinstance(value, int):
                return Error.WRONG_TYPE, index
            error = cell.writable.check(value)
            if error:
                return error, index
            values = groups.setdefault(cell.writable.group, (cell.writable, {}))[1]
            values[cell.writable.key] = value
            last[cell.writable.group] = index
        for name, (writable, values) in groups.items():
            error = writable.settle(writable.current() | values)
            if error:
                return error, last[name]
        self._pending[transaction] = groups
        return 0, 0

    def _write(self, groups: Groups) -> Groups:
        """Write and give back what would undo it."""
        undo: Groups = {}
        for name, (writable, values) in groups.items():
            undo[name] = (writable, writable.current())
            writable.write(writable.current() | values)
        return undo

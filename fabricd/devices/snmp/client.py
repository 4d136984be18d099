"""GET, SET and walks, for callers that block. One pysnmp engine a process, in a thread with its event loop.

MIBs are never looked up (``lookupMib=False``): OIDs are numbers here, and resolving names costs three quarters of the time.
GETs are repeated once by the engine; SETs never: one that was not answered may have been carried out.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from typing import Any, TypeVar

from pysnmp.error import PySnmpError
from pysnmp.hlapi.v3arch.asyncio import (
    USM_AUTH_HMAC96_SHA,
    USM_AUTH_HMAC128_SHA224,
    USM_AUTH_HMAC192_SHA256,
    USM_AUTH_HMAC256_SHA384,
    USM_AUTH_HMAC384_SHA512,
    USM_PRIV_CFB128_AES,
    USM_PRIV_CFB192_AES,
    USM_PRIV_CFB256_AES,
    CommunityData,
    ContextData,
    Gauge32,
    Integer32,
    ObjectIdentity,
    ObjectType,
    SnmpEngine,
    UdpTransportTarget,
    UsmUserData,
    bulk_cmd,
    get_cmd,
    set_cmd,
)
from pysnmp.proto.rfc1905 import EndOfMibView, NoSuchInstance, NoSuchObject

from fabricd.devices.base import DeviceError, DeviceUnreachable
from fabricd.devices.snmp.targets import Target

AUTH = {
    "SHA": USM_AUTH_HMAC96_SHA, "SHA-224": USM_AUTH_HMAC128_SHA224, "SHA-256": USM_AUTH_HMAC192_SHA256,
    "SHA-384": USM_AUTH_HMAC256_SHA384, "SHA-512": USM_AUTH_HMAC384_SHA512,
}  # fmt: skip
PRIVACY = {"AES": USM_PRIV_CFB128_AES, "AES-192": USM_PRIV_CFB192_AES, "AES-256": USM_PRIV_CFB256_AES}
TYPES = {"integer": Integer32, "gauge": Gauge32}
REPETITIONS = 25
MOST_VARBINDS = 40  # what fits into a datagram of 1500 bytes with SNMPv3's head
Value = int | bytes
Answer = TypeVar("Answer")


class SetRefused(DeviceError):
    """The agent's own error status: ``notWritable``, ``wrongValue``, …; nothing of the PDU was set (RFC 3416)."""

    def __init__(self, message: str, status: str) -> None:
        super().__init__(message)
        self.status = status


class Engine:
    """The engine of this process and its thread."""

    _lock = threading.Lock()
    _shared: Engine | None = None

    def __init__(self) -> None:
        self.loop = asyncio.new_event_loop()
        self._ready = threading.Event()
        self.snmp: Any = None
        threading.Thread(target=self._run, name="snmp", daemon=True).start()
        self._ready.wait()

    @classmethod
    def shared(cls) -> Engine:
        with cls._lock:
            if cls._shared is None:
                cls._shared = cls()
            return cls._shared

    def _run(self) -> None:
        asyncio.set_event_loop(self.loop)
        self.snmp = SnmpEngine()
        self._ready.set()
        self.loop.run_forever()

    def call(self, work: Coroutine[Any, Any, Answer], within_s: float) -> Answer:
        """Run in the engine's thread and wait. Raises DeviceUnreachable when it takes longer."""
        future = asyncio.run_coroutine_threadsafe(work, self.loop)
        try:
            return future.result(within_s)
        except PySnmpError as error:
            raise DeviceError(f"SNMP: {str(error).splitlines()[0]}") from None
        except TimeoutError:
            future.cancel()
            raise DeviceUnreachable(f"SNMP: no answer within {within_s:g} s", reached=True) from None


class SnmpClient:
    """One agent, blocking."""

    def __init__(self, target: Target, engine: Engine | None = None) -> None:
        self.target = target
        self._engine = engine or Engine.shared()
        self._wire = Wire(self._engine.snmp, target)
        self._limit_s = 8 * target.timeout_s + 5

    def get(self, oids: Sequence[str]) -> list[int | bytes | None]:
        """Values in the order asked; None where the agent has no such object. Raises DeviceError, DeviceUnreachable."""
        return self._engine.call(self._wire.get(oids), self._limit_s)

    def set(self, writes: Sequence[tuple[str, str, int]]) -> None:
        """(OID, type, value) in one PDU: all or none. Raises SetRefused, DeviceUnreachable (``reached``)."""
        self._engine.call(self._wire.set(writes), self._limit_s)

    def walk(self, column: str) -> list[tuple[tuple[int, ...], Value]]:
        """(index, value) of a column."""
        return self._engine.call(self._wire.walk(column), 30 * self._limit_s)


class Wire:
    """The same as coroutines, for pollers that have many agents at once.

    An SNMPv3 agent that was restarted has another engine time or even id, and pysnmp goes on with what it knew: every request is
    then lost. So an agent that answered before and does not any more is asked once more by a fresh engine of its own.
    """

    def __init__(self, engine: Any, target: Target) -> None:
        self._engine, self._target = engine, target
        self._who = _credentials(target)
        self._context = ContextData()
        self._place: Any = None
        self._place_for_set: Any = None
        self._answered = self._own_engine = False

    async def _to(self, retries: int) -> Any:
        if self._place is None:
            address = (self._target.host, self._target.port)
            try:
                self._place = await UdpTransportTarget.create(address, timeout=self._target.timeout_s, retries=1)
                self._place_for_set = await UdpTransportTarget.create(
                    address, timeout=self._target.timeout_s, retries=0
                )
            except (OSError, ValueError, LookupError) as error:
                raise DeviceUnreachable(f"{self._target.name}: {error}") from None
        return self._place if retries else self._place_for_set

    async def get(self, oids: Sequence[str]) -> list[Value | None]:
        """Values in the order asked."""
        return await self._again(lambda: self._get(oids))

    async def walk(self, column: str, repetitions: int = REPETITIONS) -> list[tuple[tuple[int, ...], Value]]:
        """(index, value) of a column."""
        return await self._again(lambda: self._walk(column, repetitions))

    async def _again(self, ask: Callable[[], Awaitable[Answer]]) -> Answer:
        """``ask``, and once more with a fresh engine where an agent that was there fell silent."""
        try:
            out = await ask()
        except DeviceUnreachable:
            if not self._answered or self._target.user is None:
                raise
            self.close()
            self._engine, self._own_engine, self._answered = SnmpEngine(), True, False
            self._place = None
            out = await ask()
        self._answered = True
        return out

    def close(self) -> None:
        """Let go of an engine of its own."""
        if self._own_engine:
            self._engine.close_dispatcher()

    async def _get(self, oids: Sequence[str]) -> list[Value | None]:
        out: list[Value | None] = []
        for start in range(0, len(oids), MOST_VARBINDS):
            names = [ObjectType(ObjectIdentity(oid)) for oid in oids[start : start + MOST_VARBINDS]]
            place = await self._to(1)
            error, status, index, found = await get_cmd(
                self._engine, self._who, place, self._context, *names, lookupMib=False
            )
            self._raise(error, status, index, oids[start:], "GET")
            out += [_value(item[1]) for item in found]
        return out

    async def set(self, writes: Sequence[tuple[str, str, int]]) -> None:
        if self._target.user is None:
            raise DeviceError(f"{self._target.name}: SNMPv2c is for reading; writes need an SNMPv3 user")
        items = [ObjectType(ObjectIdentity(oid), TYPES[kind](value)) for oid, kind, value in writes]
        place = await self._to(0)
        error, status, index, _ = await set_cmd(self._engine, self._who, place, self._context, *items, lookupMib=False)
        self._raise(error, status, index, [oid for oid, _, _ in writes], "SET")

    async def _walk(self, column: str, repetitions: int) -> list[tuple[tuple[int, ...], Value]]:
        base = tuple(map(int, column.split(".")))
        out: list[tuple[tuple[int, ...], Value]] = []
        at = base
        place = await self._to(1)
        while True:
            error, status, index, found = await bulk_cmd(
                self._engine,
                self._who,
                place,
                self._context,
                0,
                repetitions,
                ObjectType(ObjectIdentity(at)),
                lookupMib=False,
            )
            self._raise(error, status, index, [column], "GETBULK")
            for name, value in found:
                oid = tuple(name)
                if oid[: len(base)] != base or isinstance(value, EndOfMibView):
                    return out
                if oid <= at and out:
                    raise DeviceError(f"{self._target.name}: the agent's objects under {column} do not increase")
                read = _value(value)
                if read is not None:
                    out.append((oid[len(base) :], read))
                at = oid
            if not found:
                return out

    def _raise(self, error: Any, status: Any, index: Any, oids: Sequence[str], what: str) -> None:
        name = self._target.name
        if error:
            text = str(error)
            if "imeout" in text or "No SNMP response" in text:
                raise DeviceUnreachable(f"{name}: {what}: no answer", reached=what == "SET")
            raise DeviceError(f"{name}: {what}: {text}")
        if status:
            word = status.prettyPrint() if hasattr(status, "prettyPrint") else str(status)
            at = int(index) - 1
            where = f" at {oids[at]}" if 0 <= at < len(oids) else ""
            raise SetRefused(f"{name}: {what}: {word}{where}", word)


def _value(value: Any) -> Value | None:
    if isinstance(value, NoSuchObject | NoSuchInstance | EndOfMibView):
        return None
    try:
        return int(value)
    except (ValueError, TypeError):
        return bytes(value)


def _credentials(target: Target) -> Any:
    if target.user is not None:
        user = target.user
        return UsmUserData(
            user.name,
            user.auth.reveal(),
            user.privacy.reveal(),
            authProtocol=AUTH[user.auth_protocol],
            privProtocol=PRIVACY[user.privacy_protocol],
        )
    assert target.community is not None
    return CommunityData(target.community.reveal(), mpModel=1)

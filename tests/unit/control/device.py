"""A device in memory behind the adapter protocol, with faults on demand."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from fabricd.control.adapters.base import Ack, AdapterError, Capability, Conflict, Push, Unreachable
from fabricd.model.action import Change, Lever, Proposal, Touched


class Killed(BaseException):
    """The process died here (kill -9): nothing after this point ran."""


class MemoryAdapter:
    """``hook(call, lever)`` runs before every call and may raise."""

    name = "memory"
    time_limit_s = 1.0

    def __init__(self, values: dict[str, Any]) -> None:
        self.values = dict(values)
        self.hook: Callable[[str, Lever], None] = lambda call, lever: None
        self.ignores_writes = False
        self.writes: list[tuple[str, Any]] = []

    def probe(self) -> list[Capability]:
        return [Capability(name=key, device="d", writable=True) for key in self.values]

    def read(self, lever: Lever) -> Any:
        self.hook("read", lever)
        return self.values.get(lever.key)

    def plan(self, change: Change) -> Push:
        return Push(lever=change.lever, shown=(f"set {change.lever.key} {change.new!r}",))

    def push(self, change: Change) -> Ack:
        self.hook("push", change.lever)
        if self.values.get(change.lever.key) != change.old:
            raise Conflict(f"{change.lever.key} is {self.values.get(change.lever.key)!r}")
        if not self.ignores_writes:
            self.values[change.lever.key] = change.new
        self.writes.append((change.lever.key, change.new))
        self.hook("pushed", change.lever)
        return Ack(answer="ok", device_seconds=0.0)

    def read_back(self, lever: Lever) -> Any:
        self.hook("read_back", lever)
        return self.values.get(lever.key)


def lever(key: str) -> Lever:
    return Lever(adapter="memory", device="d", name="weight", key=key)


def proposal(name: str, *keys: str, new: Any = 9, created_ns: int = 1, **more: Any) -> Proposal:
    return Proposal(
        id=name,
        verdict_id="v1",
        cause="ecmp_collision",
        remedy="hop_weights",
        changes=tuple(Change(lever=lever(key), new=new) for key in keys),
        touched=more.pop("touched", Touched()),
        gain=0.5,
        cost=0.1,
        why="test",
        created_ns=created_ns,
        **more,
    )


def unreachable_on(*calls: str) -> Callable[[str, Lever], None]:
    def hook(call: str, which: Lever) -> None:
        if call in calls:
            raise Unreachable(f"{call} {which.key}: no answer")

    return hook


def failing_on(call_to_fail: str, *, reached: bool) -> Callable[[str, Lever], None]:
    def hook(call: str, which: Lever) -> None:
        if call == call_to_fail:
            raise AdapterError(f"{call} refused", reached=reached)

    return hook

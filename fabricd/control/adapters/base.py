"""What every adapter can do: say what it may write, read a lever, push a change, read it back from the device plane.

The order is always probe → read → compare → write → acknowledge → read back → undo record. Adapters are thin: protocol work
is in ``devices/``, decisions are in ``control/``.
"""

from __future__ import annotations

from typing import Any, Literal, Protocol, runtime_checkable

import msgspec

from fabricd.errors import FabricdError
from fabricd.model.action import Change, Lever


class AdapterError(FabricdError):
    """A device did not do what was asked. ``reached``: whether the write may have taken effect (unknown counts as yes)."""

    def __init__(self, message: str, *, reached: bool = False) -> None:
        super().__init__(message)
        self.reached = reached


class Conflict(AdapterError):
    """The lever does not hold what was last written or seen: somebody else wrote it. Nothing was written."""


class Unreachable(AdapterError):
    """The device or manager does not answer; nothing is known of the lever."""


class Capability(msgspec.Struct, frozen=True, kw_only=True):
    """One kind of lever of a device, as probed: whether it can be written here and now, and if not, why."""

    name: str
    device: str
    writable: bool
    why: str = ""


class Push(msgspec.Struct, frozen=True, kw_only=True):
    """Byte for byte what a change sends, for the journal, the audit and the dry run. Secrets are redacted in ``shown``."""

    lever: Lever
    shown: tuple[str, ...]  # requests, file contents or commands, in order


class Ack(msgspec.Struct, frozen=True, kw_only=True):
    """What the device answered, and how long it took (device time, apart from our own)."""

    answer: str
    device_seconds: float
    warnings: tuple[str, ...] = ()


class Adapter(Protocol):
    """Every call is bounded by ``time_limit_s``; calls block (the controller runs them in a worker thread)."""

    name: str
    time_limit_s: float

    def probe(self) -> list[Capability]:
        """What this device lets us write. Raises Unreachable."""
        ...

    def read(self, lever: Lever) -> Any:
        """The lever's present value, as JSON data; None where it is not set. Raises Unreachable, AdapterError."""
        ...

    def plan(self, change: Change) -> Push:
        """What ``push`` would send, without sending it. Raises AdapterError for a value the lever cannot take."""
        ...

    def push(self, change: Change) -> Ack:
        """Compare the lever with ``change.old``, then write ``change.new``. Raises Conflict, Unreachable, AdapterError."""
        ...

    def read_back(self, lever: Lever) -> Any:
        """The value as the device plane has it (not as the manager claims). Raises Unreachable."""
        ...


@runtime_checkable
class Restarts(Protocol):
    """An adapter whose manager may restart or fail over, and then has to be read again."""

    def epoch(self) -> str:
        """A text that changes when the manager restarted or another one took over. Raises Unreachable."""
        ...


Severity = Literal["info", "minor", "warning", "critical"]


@runtime_checkable
class Reports(Protocol):
    """An adapter whose manager shows findings to its own users."""

    def report(self, severity: Severity, name: str, text: str, object_name: str = "") -> None:
        """Tell the manager. Raises AdapterError, Unreachable."""
        ...

"""Any adapter without its writes: the same reads, comparisons and plans, and byte for byte what would have been sent.

What would have been written is remembered here, so that an action lives through its whole life: a read after a push gives the new
value until it is taken back. A restart forgets it, as if the device had been found unchanged.
"""

from __future__ import annotations

import logging
from typing import Any

from fabricd.control.adapters.base import Ack, Adapter, Capability, Push
from fabricd.control.adapters.base_calls import compare
from fabricd.model.action import Change, Lever

log = logging.getLogger(__name__)


class DryRun:
    """Wraps an adapter; its ``name`` and time limit stay."""

    def __init__(self, inner: Adapter) -> None:
        self._inner = inner
        self.name, self.time_limit_s = inner.name, inner.time_limit_s
        self._wrote: dict[Lever, tuple[Any, Any]] = {}  # lever -> (what the device held, what it would hold)
        if hasattr(inner, "probe_by_writing"):
            inner.probe_by_writing = False

    def probe(self) -> list[Capability]:
        return self._inner.probe()

    def read(self, lever: Lever) -> Any:
        """What the device would hold; what it holds as soon as that is no longer what it was when we "wrote"."""
        now = self._inner.read(lever)
        before, after = self._wrote.get(lever, (None, None))
        return after if lever in self._wrote and now == before else now

    read_back = read

    def plan(self, change: Change) -> Push:
        return self._inner.plan(change)

    def push(self, change: Change) -> Ack:
        lever = change.lever
        compare(lever, self.read(lever), change.old)
        now = self._inner.read(lever)
        # An undo of what never went out would be planned against a device that has nothing to undo.
        shown = () if change.new == now else self._inner.plan(change).shown
        for part in shown:
            log.info("dry run, %s %s: would send %s", lever.name, lever.key, part)
        if change.new == now:
            self._wrote.pop(lever, None)
        else:
            self._wrote[lever] = now, change.new
        said = "\n".join(shown) or "nothing: the device already holds it"
        return Ack(answer=f"dry run, not sent:\n{said}", device_seconds=0.0)

"""The adapters together: what they let us write, what levers hold, and which of their managers restarted."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Any

from fabricd.control.adapters.base import Adapter, AdapterError, Restarts
from fabricd.control.remedies.base import Levers
from fabricd.model.action import Lever

log = logging.getLogger(__name__)

AGAIN_NS, SELDOM_NS = 15_000_000_000, 300_000_000_000


class Managers:
    """``levers`` is empty until the first ``probe``."""

    def __init__(self, adapters: Mapping[str, Adapter]) -> None:
        self.adapters = adapters
        self.levers = Levers()
        self._epochs: dict[str, str] = {}
        self._silent = False
        self._probed_ns = 0

    def refresh(self, now_ns: int) -> None:
        """Probe again when it is time: soon after one did not answer, else seldom."""
        every = AGAIN_NS if self._silent else SELDOM_NS
        if not self._probed_ns <= now_ns < self._probed_ns + every:
            self.probe()
            self._probed_ns = now_ns

    def probe(self) -> None:
        """Ask every adapter what it may write. One that does not answer can write nothing."""
        levers = Levers()
        self._silent = False
        for name, adapter in self.adapters.items():
            try:
                found = adapter.probe()
            except AdapterError as error:
                log.warning("adapter %s: %s", name, error)
                self._silent = True
                continue
            for item in found:
                key = (name, item.name)
                if item.writable:
                    levers.writable[key] = levers.writable.get(key, frozenset()) | {item.device}
                elif item.why:
                    levers.why_not[key] = item.why
        self.levers = levers

    def read(self, lever: Lever) -> Any:
        """Raises AdapterError, also when there is no such adapter."""
        adapter = self.adapters.get(lever.adapter)
        if adapter is None:
            raise AdapterError(f"adapter {lever.adapter} is not configured")
        return adapter.read(lever)

    def restarted(self) -> list[str]:
        """Names of adapters whose manager restarted or failed over since the last call. One that does not answer is not known to."""
        changed = []
        for name, adapter in self.adapters.items():
            if not isinstance(adapter, Restarts):
                continue
            try:
                now = adapter.epoch()
            except AdapterError as error:
                log.warning("adapter %s: %s", name, error)
                continue
            if self._epochs.setdefault(name, now) != now:
                changed.append(name)
            self._epochs[name] = now
        return changed

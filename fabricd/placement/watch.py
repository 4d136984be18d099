"""Watch mode: a scheduler's file kept true to the fabric. Written atomically, at most once per interval, only on change."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from fabricd.config.placement import PlacementConfig
from fabricd.errors import FabricdError
from fabricd.model.topology import Topology
from fabricd.placement.changes import causes, membership_changes
from fabricd.placement.exporters import export
from fabricd.placement.exporters.names import load_names, save_names
from fabricd.placement.fabric import Fabric, compile_fabric
from fabricd.placement.files import write_atomically

STABLE_LOOKS = 2


@dataclass(slots=True)
class Watcher:
    """Feed it topologies; it decides when to write. A change must be seen in STABLE_LOOKS looks in a row, so that a port that
    flaps between two looks does not rewrite the file. ``settled`` is the topology last written."""

    format: str
    out: str
    config: PlacementConfig
    names: str = ""
    clock: Callable[[], float] = time.monotonic
    settled: Topology | None = None
    written_at: float | None = None
    _seen: str = field(default="")
    _looks: int = field(default=0)

    def look(self, topology: Topology) -> dict[str, Any] | None:
        """One look at the fabric. Returns the record of a write (what changed and why), or of a refusal; None when nothing was due.

        A fabric that lost many hosts at once is more likely seen badly than gone: it is not written.
        """
        book = load_names(self.names) if self.names else None
        if book is not None:
            book.apply(topology)
        after = compile_fabric(topology)
        if refusal := self._refusal(after):
            return {"refused": refusal, "format": self.format}
        text = export(topology, self.format, self.config)
        if self.settled is None and self._current() == text:
            self.settled = topology
        if text == self._current():
            self._looks = 0
            return None
        self._looks = self._looks + 1 if text == self._seen else 1
        self._seen = text
        now = self.clock()
        first = self.settled is None and not Path(self.out).exists()
        if not first and self._looks < STABLE_LOOKS:
            return None
        if self.written_at is not None and now - self.written_at < self.config.export_min_interval_s:
            return None
        write_atomically(self.out, text)
        if book is not None:
            save_names(self.names, book)
        before, self.settled, self.written_at, self._looks = self.settled, topology, now, 0
        record: dict[str, Any] = {"written": self.out, "format": self.format, "digest": after.digest}
        if before is None:
            return {**record, "changes": [{"what": "first export", "nodes": len(after.hosts)}], "why": []}
        return {**record, "changes": membership_changes(compile_fabric(before), after), "why": causes(before, topology)}

    def _refusal(self, after: Fabric) -> str:
        if not after.hosts:
            return "no compute host is seen"
        if self.settled is None:
            return ""
        before = {host for group in self.settled.rails if group.kind == "compute" for host in group.hosts}
        lost = len(before - after.index.keys())
        if lost > self.config.export_max_loss * len(before):
            return f"{lost} of {len(before)} hosts are gone; placement.export_max_loss = {self.config.export_max_loss}"
        return ""

    def _current(self) -> str | None:
        try:
            return Path(self.out).read_text(encoding="utf-8")
        except FileNotFoundError:
            return None
        except (OSError, UnicodeDecodeError) as error:
            raise FabricdError(f"{self.out}: {error}") from None

"""When to look at the fabric again, and what came of it: a clock of its own, apart from counter polling.

A change (a port went down or came up, a new LID, a trap) asks for a look once things have settled; without changes there is one
every ``refresh_interval``. Descriptions are read again only of nodes not known by GUID, and of all of them in the periodic look.
"""

from __future__ import annotations

import contextlib
import json
import os
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from fabricd.config.topology import TopologyConfig
from fabricd.model.topology import Topology
from fabricd.topology.diff import Difference, compare
from fabricd.topology.flaps import FlapTracker
from fabricd.topology.golden import full_json, topology_from_json
from fabricd.topology.live import Picture
from fabricd.topology.slots import SlotBook

Look = Callable[[Mapping[int, str]], Picture]  # known descriptions -> picture


@dataclass(slots=True)
class Refreshed:
    """A new picture and what changed since the one before (nothing, the first time)."""

    picture: Picture
    differences: list[Difference] = field(default_factory=list)
    successor: dict[int, int] = field(default_factory=dict)


class TopologyWatch:
    """Keeps the present topology, the slots and the flaps. ``look`` takes a picture; times are seconds since 1970.

    Not thread-safe; ``refresh`` takes as long as a discovery does and raises what ``look`` raises: the old picture then stands.
    """

    def __init__(self, config: TopologyConfig, look: Look) -> None:
        self.config = config
        self.flaps = FlapTracker(config.flap_half_life, config.flap_stable)
        self.slots = SlotBook()
        self.current: Topology | None = None
        self._look = look
        self._looked_at: float | None = None
        self._full_at: float | None = None
        self._first_change: float | None = None
        self._last_change = 0.0

    def note_change(self, now: float) -> None:
        """Something about the wiring changed, or may have."""
        if self._first_change is None:
            self._first_change = now
        self._last_change = now

    def due(self, now: float) -> bool:
        """Is it time to look? Changes wait until they settle, but not for ever."""
        if self._looked_at is None or now - self._looked_at >= self.config.refresh_interval:
            return True
        if self._first_change is None:
            return False
        settled = now - self._last_change >= self.config.settle
        return settled or now - self._first_change >= self.config.settle_max

    def refresh(self, now: float) -> Refreshed:
        """Look now, compare with the last picture, keep the books and the cache."""
        full = self._full_at is None or now - self._full_at >= self.config.refresh_interval
        known: dict[int, str] = {}
        if not full and self.current is not None:
            known = {g: n.labels.get("description", n.name) for g, n in self.current.nodes.items() if n.name}
        self._looked_at = now  # also when it fails: the next try is a change or an interval away, not at once
        self._first_change = None
        picture = self._look(known)
        if full:
            self._full_at = now
        before, self.current = self.current, picture.topology
        result = Refreshed(picture)
        if before is not None:
            comparison = compare(before, picture.topology)
            result.differences, result.successor = comparison.differences, comparison.successor
        for old, new in sorted(result.successor.items()):
            self.slots.replace(old, new, now)
        self.slots.see(set(picture.topology.nodes), now)
        self.flaps.forget(
            {ref for link in picture.topology.links for ref in (link.a, link.b)} | set(self.flaps.flapping())
        )
        picture.topology.faults.extend(self.flaps.faults(picture.topology))
        self.save()
        return result

    def save(self) -> None:
        """Write the cache, whole or not at all. A cache that cannot be written is no reason to stop: it is counted as a rejection."""
        if self.current is None or not self.config.cache:
            return
        path = Path(self.config.cache)
        document = {"topology": full_json(self.current), "slots": self.slots.to_json()}
        try:
            handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=path.name)
            try:
                with os.fdopen(handle, "w", encoding="utf-8") as file:
                    json.dump(document, file, separators=(",", ":"))
                Path(temporary).replace(path)
            except OSError:
                with contextlib.suppress(OSError):
                    Path(temporary).unlink()
                raise
        except OSError as error:
            self.current.rejects.add("cache_unwritten", error.strerror or error, path)

    def restore(self) -> bool:
        """Start from the cache: names and slots are there before the first look. False when there is none, or a broken one."""
        try:
            document = json.loads(Path(self.config.cache).read_text(encoding="utf-8"))
            topology = topology_from_json(document["topology"], "cache")
            slots = SlotBook.from_json(document["slots"])
        except (OSError, ValueError, KeyError, TypeError):
            return False
        self.current, self.slots = topology, slots
        return True

"""When to look at the fabric again, and what came of it: a clock of its own, apart from counter polling.

A change (a port went down or came up, a new LID, a trap) asks for a look once things have settled; without changes there is one
every ``refresh_interval``. Descriptions are read again only of nodes not known by GUID, and of all of them in the periodic look.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from fabricd.config.topology import TopologyConfig
from fabricd.errors import FabricdError
from fabricd.model.topology import PortRef, Topology
from fabricd.topology.cache import load_cache, save_cache
from fabricd.topology.diff import Difference, compare
from fabricd.topology.discovery import port_states
from fabricd.topology.flaps import FlapTracker
from fabricd.topology.live import Picture
from fabricd.topology.slots import SlotBook, remember

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
        self.gone = Topology()  # devices that left, until their slots are taken
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
        return self.take(picture, now)

    def take(self, picture: Picture, now: float) -> Refreshed:
        """A picture taken by somebody: compare it with the last one, keep the books and the cache."""
        before, self.current = self.current, picture.topology
        result = Refreshed(picture)
        if before is not None:
            comparison = compare(before, picture.topology, self.gone)
            self.gone = remember(self.gone, before, picture.topology)
            result.differences, result.successor = comparison.differences, comparison.successor
        for old, new in sorted(result.successor.items()):
            self.slots.replace(old, new, now)
        self.slots.see(set(picture.topology.nodes), now)
        if picture.snapshot is not None:
            for ref, (_, physical) in port_states(picture.snapshot).items():
                self.flaps.observe(ref, now, physical or None)
        linked = {ref for link in picture.topology.links for ref in (link.a, link.b)}
        self.flaps.forget(linked | set(self.flaps.flapping()))
        picture.topology.faults.extend(self.flaps.faults(picture.topology))
        self.save(picture)
        return result

    def note_link_downed(self, ref: PortRef, now: float, value: int | None, saturated: bool = False) -> None:
        """A port's LinkDowned counter as the sweep read it; a step asks for a look."""
        if self.flaps.observe(ref, now, None, value, saturated):
            self.note_change(now)

    def save(self, picture: Picture) -> None:
        """Write the cache. A cache that cannot be written is no reason to stop: it is counted as a rejection."""
        if not self.config.cache:
            return
        try:
            save_cache(self.config.cache, picture, self.slots, self.gone)
        except OSError as error:
            picture.topology.rejects.add("cache_unwritten", error.strerror or error, self.config.cache)

    def restore(self) -> bool:
        """Start from the cache: names and slots are there before the first look. False when there is none, or a broken one."""
        try:
            cached = load_cache(self.config.cache)
        except FabricdError:
            return False
        self.current, self.slots, self.gone = cached.picture.topology, cached.slots, cached.gone
        return True

"""What the aggregator knows of one publisher: a node's agent or a sweep of switches."""

from __future__ import annotations

from collections import Counter
from typing import Any

from fabricd.model.frame import Header
from fabricd.store.clock import SkewEstimate
from fabricd.store.sequences import Ledger
from fabricd.store.table import Stream

RIVAL_MARGIN_NS = 5_000_000_000  # a boot may still send this long after the next one began: a restart, not a rival

PAST_BOOTS = 64


class Node:
    """``boot`` is the newest one. Sequences are per node and boot, over all streams."""

    __slots__ = (
        "_began", "_past", "boot", "counts", "fabric", "heard_ns", "ledger", "name", "seq", "skew", "status", "streams", "wall_ns",
    )  # fmt: skip

    def __init__(self, fabric: str, name: str) -> None:
        self.fabric, self.name = fabric, name
        self.ledger = Ledger()
        self.streams: dict[int, Stream] = {}
        self.status: dict[str, Any] = {}
        self.counts: Counter[str] = Counter()
        self.skew = SkewEstimate()
        self.boot: int | None = None
        self.seq = -1
        self.wall_ns = 0
        self.heard_ns = 0  # receiver's monotonic clock
        self._began = 0  # wall ns of the newest boot's first frame
        self._past: dict[int, None] = {}  # boots before it, as an ordered set

    def is_newest(self, header: Header, *, backlog: bool) -> bool:
        """Whether this frame belongs to the newest boot (which it may begin). Frames of earlier boots come late, or from a rival."""
        if header.boot == self.boot:
            return True
        if header.boot not in self._past:
            # A live frame of an unknown boot begins it, whatever its clock says; the backlog of one may be older than what we have.
            if self.boot is None or not backlog or header.wall_ns > self.wall_ns:
                if self.boot is not None:
                    self._remember(self.boot)
                self.boot, self._began, self.seq = header.boot, header.wall_ns, -1
                return True
            self._remember(header.boot)
        if not backlog and header.wall_ns > self._began + RIVAL_MARGIN_NS:
            # An earlier boot goes on sending live: two machines have one node id. Neither is believed for control.
            self.counts["rival"] += 1
        return False

    def _remember(self, boot: int) -> None:
        self._past[boot] = None
        if len(self._past) > PAST_BOOTS:
            del self._past[next(iter(self._past))]

    @property
    def contested(self) -> bool:
        return self.counts["rival"] > 0

    def state(self, now_ns: int, stale_ns: int) -> str:
        """``alive``, ``stale`` (nothing heard lately), ``stopped``, ``dead`` (its last will came) or ``silent`` (never a frame)."""
        said = self.status.get("state")
        if self.heard_ns and now_ns - self.heard_ns <= stale_ns:
            return "alive"
        if said in ("dead", "stopped"):
            return str(said)
        return "stale" if self.heard_ns else "silent"

"""Counted rejections: one bad line, file, device, port or node costs only itself, and is visible."""

from __future__ import annotations

from collections import Counter, deque
from dataclasses import dataclass, field

from fabricd.model.ident import printable


@dataclass(frozen=True, slots=True)
class Reject:
    """One thing that was refused: ``kind`` is a short stable slug, ``what`` the offending thing, ``where`` its place."""

    kind: str
    what: str
    where: str

    def to_json(self) -> dict[str, str]:
        return {"kind": self.kind, "what": self.what, "where": self.where}


@dataclass(slots=True)
class Rejects:
    """Counts every rejection by kind and keeps the newest ``keep`` of them for people to read."""

    keep: int = 100
    counts: Counter[str] = field(default_factory=Counter)
    recent: deque[Reject] = field(default_factory=deque)

    def add(self, kind: str, what: object, where: object = "") -> None:
        self.counts[kind] += 1
        self.recent.append(Reject(kind, printable(str(what))[:200], printable(str(where))[:200]))
        while len(self.recent) > self.keep:
            self.recent.popleft()

    @property
    def total(self) -> int:
        return self.counts.total()

    def to_json(self) -> list[dict[str, str]]:
        return [reject.to_json() for reject in self.recent]

"""Which destinations do not answer, from sweep to sweep."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass, field


@dataclass(slots=True)
class Health:
    """Destinations that stayed silent: refused, keyed, unreachable or dead, which silence alone cannot tell apart.

    Ordered by when each was last asked, so that with very many of them every one gets its probe in turn.
    """

    silent: dict[Hashable, int] = field(default_factory=dict)  # destination -> sweeps it has been silent

    def failed(self, key: Hashable) -> None:
        self.silent[key] = self.silent.pop(key, 0) + 1

    def answered(self, key: Hashable) -> None:
        self.silent.pop(key, None)

    def forget(self, known: set[Hashable]) -> None:
        """Keep only destinations that still exist."""
        for key in [key for key in self.silent if key not in known]:
            del self.silent[key]

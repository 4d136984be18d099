"""What sweeps switch ports, by whichever means."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Protocol

from fabricd.ib.limits import Limits
from fabricd.model.rejects import Rejects
from fabricd.sources.pma_reading import Sweep
from fabricd.sources.pma_targets import Target

Progress = Callable[[str, int, int], None]  # (what, done, of); of 0: not known


class Sweeper(Protocol):
    """``rejects``: what could not be learnt about targets; those of one sweep are in the sweep."""

    rejects: Rejects

    @property
    def ports(self) -> int: ...

    @property
    def silent(self) -> list[Target]:
        """Targets that do not answer: refused, keyed, filtered or dead; silence does not say which."""
        ...

    def set_targets(self, targets: Iterable[Target]) -> None:
        """The fabric changed; what is known about targets that stay is kept."""
        ...

    def set_limits(self, limits: Limits) -> None: ...

    def wait_tick_bytes(self, target: Target, port: int) -> int | None:
        """Bytes of link time per tick of PortXmitWait at a port; None when nobody says."""
        ...

    def prepare(self, progress: Progress | None = None) -> None:
        """Learn what the targets can show. Raises FabricdError."""
        ...

    def sweep(self, progress: Progress | None = None) -> Sweep:
        """One pass. Raises FabricdError when nothing can be asked at all."""
        ...

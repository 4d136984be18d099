"""What was last seen of each port, and what a new sweep says against it: moved errors, resets, restarts, dropped management."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from fabricd.model.sample import Flag
from fabricd.sources.pma_layout import U64
from fabricd.sources.pma_reading import COLUMNS, ERROR_COLUMNS, QP1_COLUMN, PortTable, Rows, Sweep

_VALID = int(Flag.VALID)


@dataclass(frozen=True, slots=True)
class Changes:
    """``moved``: ports whose errors are not what they were (at first: that have any). ``resets``: ports cleared by someone else.

    ``qp1_dropped``: management datagrams that devices dropped since, the sign that they are asked too fast.
    """

    moved: Rows
    resets: int
    qp1_dropped: int


class Memory:
    """Of the ports of one table. ``before``: of an earlier table, whose ports keep what is known."""

    def __init__(self, table: PortTable, before: Memory | None = None) -> None:
        self.table = table
        shape = (len(table), len(COLUMNS))
        self.values: U64 = np.zeros(shape, np.uint64)
        self.seen: npt.NDArray[np.bool_] = np.zeros(shape, np.bool_)
        self.epochs: U64 = np.zeros(len(table.targets), np.uint64)
        if before is not None:
            self._inherit(before)

    def _inherit(self, before: Memory) -> None:
        old = before.table
        place = {key: row for row, key in enumerate(zip(old.guid.tolist(), old.port.tolist(), strict=True))}
        pairs = [
            (row, place[key])
            for row, key in enumerate(zip(self.table.guid.tolist(), self.table.port.tolist(), strict=True))
            if key in place
        ]
        if pairs:
            mine, theirs = (np.array(side, np.intp) for side in zip(*pairs, strict=True))
            self.values[mine], self.seen[mine] = before.values[theirs], before.seen[theirs]
        epochs = {target.key: epoch for target, epoch in zip(old.targets, before.epochs, strict=True)}
        self.epochs[:] = [epochs.get(target.key, 0) for target in self.table.targets]

    def take(self, now: Sweep, back: npt.NDArray[np.bool_]) -> Changes:
        """Compare and remember. ``back``: which targets answer again after silence.

        Flags values that fell as reset; but a device that is back from silence with fallen counters was restarted: its epoch
        changes, and nobody cleared anything.
        """
        valid = now.flags & _VALID != 0
        both = valid & self.seen
        fell = (now.values < self.values) & both
        owners = self.table.target
        restarted = np.zeros(len(self.table.targets), np.bool_)
        restarted[owners[fell.any(axis=1)]] = True
        restarted &= back
        self.epochs[restarted] += np.uint64(1)
        now.epoch = self.epochs[owners]
        fell[restarted[owners]] = False
        now.flags[fell] |= int(Flag.RESET)
        differs = valid & (now.values != self.values)
        new, old = now.values[:, QP1_COLUMN], self.values[:, QP1_COLUMN]
        grown = both[:, QP1_COLUMN] & (new > old)
        changes = Changes(
            np.flatnonzero(differs[:, ERROR_COLUMNS].any(axis=1)),
            int(fell.any(axis=1).sum()),
            int((new[grown] - old[grown]).sum()),
        )
        self.values = np.where(valid, now.values, self.values)
        self.seen |= valid
        return changes

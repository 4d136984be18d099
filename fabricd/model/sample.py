"""A sample is an integer or missing, with flags that say why. Missing is never 0 and never -1."""

from __future__ import annotations

import enum
from dataclasses import dataclass


class Flag(enum.IntFlag):
    """One byte per value on the wire and in the store."""

    VALID = 1  # a value is there
    SATURATED = 2  # a sticky counter at its maximum: the true value is unknown, so is the rate
    RESET = 4  # it decreased although it does not wrap: someone cleared it
    WRAPPED = 8  # it decreased and its width wraps: the rate was corrected
    STALE = 16  # read more than once without a fresh reading from the device (lifespan, held firmware)
    NOT_OBSERVABLE = 32  # this hardware or privilege cannot show it

    @property
    def names(self) -> list[str]:
        return [f.name.lower() for f in Flag if f in self and f is not Flag.VALID and f.name]


NO_FLAGS = Flag(0)


@dataclass(frozen=True, slots=True)
class Sample:
    """``value`` in the unit of its counter definition, or None."""

    value: int | None
    flags: Flag = NO_FLAGS

    @classmethod
    def of(cls, value: int | None, flags: Flag = NO_FLAGS) -> Sample:
        """A sample whose VALID bit follows from the value."""
        return cls(value, (flags | Flag.VALID) if value is not None else (flags & ~Flag.VALID))


MISSING = Sample(None)
NOT_OBSERVABLE = Sample(None, Flag.NOT_OBSERVABLE)

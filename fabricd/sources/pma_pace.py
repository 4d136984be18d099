"""How hard to sweep: slower by itself when devices drop management datagrams, back step by step when they no longer do."""

from __future__ import annotations

from fabricd.ib.limits import Limits

_TOLERATED = 8  # dropped datagrams per sweep that are not yet our doing: subnet managers and others ask too
_CALM_SWEEPS = 30
_MAX_STEPS = 3


class Pace:
    """``limits`` and ``interval`` are what to use now. Each step halves what is in flight and doubles the interval."""

    def __init__(self, limits: Limits, interval: float) -> None:
        self._limits, self._interval = limits, interval
        self.steps = 0
        self._calm = 0

    @property
    def limits(self) -> Limits:
        limits = self._limits
        for _ in range(self.steps):
            limits = limits.slower()
        return limits

    @property
    def interval(self) -> float:
        return self._interval * (1 << self.steps)

    def after_sweep(self, dropped: int) -> bool:
        """``dropped``: QP1Dropped's growth at all swept ports and our own. Returns whether the pace changed."""
        if dropped > _TOLERATED:
            self._calm = 0
            if self.steps < _MAX_STEPS:
                self.steps += 1
                return True
            return False
        self._calm += 1
        if self.steps and self._calm >= _CALM_SWEEPS:
            self.steps -= 1
            self._calm = 0
            return True
        return False

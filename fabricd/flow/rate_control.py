"""Source rate control: DCQCN's reaction point and InfiniBand's congestion control table, vectorised over flows."""

from __future__ import annotations

import numpy as np

from fabricd.flow.graph import FloatArray, IntArray
from fabricd.flow.settings import CcSettings


class RateControl:
    """Rates are shares of a flow's line rate. ``tick`` is called at a fixed small interval, ``notify`` on CNP or BECN."""

    def __init__(self, settings: CcSettings, slowdown: float) -> None:
        self.settings, self.slowdown = settings, slowdown
        self.rate: FloatArray = np.zeros(0)
        self.target: FloatArray = np.zeros(0)
        self.alpha: FloatArray = np.zeros(0)
        self.alpha_due: FloatArray = np.zeros(0)
        self.increase_due: FloatArray = np.zeros(0)
        self.stage: IntArray = np.zeros(0, dtype=np.int64)
        self.index: IntArray = np.zeros(0, dtype=np.int64)  # CCT index (ib_cc)
        self.last_notice: FloatArray = np.zeros(0)
        table = np.asarray(settings.cct or tuple(i / 8.0 for i in range(settings.ccti_limit + 1)))
        self._share: FloatArray = 1.0 / (1.0 + table)

    @property
    def active(self) -> bool:
        return self.settings.kind != "none"

    def resize(self, n: int) -> None:
        """Follow the flow table; new flows start at line rate."""
        k = n - len(self.rate)
        if k <= 0:
            return
        self.rate = np.concatenate([self.rate, np.ones(k)])
        self.target = np.concatenate([self.target, np.ones(k)])
        self.alpha = np.concatenate([self.alpha, np.ones(k)])
        self.alpha_due = np.concatenate([self.alpha_due, np.full(k, np.inf)])
        self.increase_due = np.concatenate([self.increase_due, np.full(k, np.inf)])
        self.stage = np.concatenate([self.stage, np.zeros(k, dtype=np.int64)])
        self.index = np.concatenate([self.index, np.zeros(k, dtype=np.int64)])
        self.last_notice = np.concatenate([self.last_notice, np.full(k, -np.inf)])

    def reset(self, flows: IntArray) -> None:
        """A message that starts on an idle queue pair begins at line rate again."""
        self.rate[flows] = self.target[flows] = self.alpha[flows] = 1.0
        self.alpha_due[flows] = self.increase_due[flows] = np.inf
        self.stage[flows] = 0

    def notify(self, flows: IntArray, now: float) -> None:
        """A notification reached the sources of ``flows`` (distinct)."""
        s = self.settings
        if s.kind == "dcqcn":
            self.target[flows] = self.rate[flows]
            self.rate[flows] = np.maximum(s.min_rate, self.rate[flows] * (1.0 - self.alpha[flows] / 2.0))
            self.alpha[flows] = (1.0 - s.gain) * self.alpha[flows] + s.gain
            self.alpha_due[flows] = now + s.alpha_timer_s * self.slowdown
            self.increase_due[flows] = now + s.increase_timer_s * self.slowdown
            self.stage[flows] = 0
        elif s.kind == "ib_cc":
            self.index[flows] = np.minimum(s.ccti_limit, self.index[flows] + s.ccti_increase)
            self.rate[flows] = self._share[np.minimum(self.index[flows], len(self._share) - 1)]
            self.increase_due[flows] = np.minimum(self.increase_due[flows], now + s.ccti_timer_s * self.slowdown)

    def tick(self, now: float) -> None:
        """Run the timers that are due."""
        s = self.settings
        due = np.flatnonzero(self.increase_due <= now)
        if s.kind == "dcqcn":
            decay = np.flatnonzero(self.alpha_due <= now)
            if len(decay):
                period = s.alpha_timer_s * self.slowdown
                times = np.floor((now - self.alpha_due[decay]) / period) + 1.0
                self.alpha[decay] *= (1.0 - s.gain) ** times
                self.alpha_due[decay] += times * period
            if len(due):
                self.stage[due] += 1
                stage = self.stage[due]
                step = np.where(
                    stage > 2 * s.fast_recovery, s.hyper, np.where(stage > s.fast_recovery, s.additive, 0.0)
                )
                self.target[due] = np.minimum(1.0, self.target[due] + step)
                self.rate[due] = (self.target[due] + self.rate[due]) / 2.0
                full = self.rate[due] > 0.999
                self.rate[due[full]] = 1.0
                self.increase_due[due] = np.where(
                    full, np.inf, self.increase_due[due] + s.increase_timer_s * self.slowdown
                )
                self.alpha_due[due[full]] = np.inf
        elif s.kind == "ib_cc" and len(due):
            self.index[due] = np.maximum(s.ccti_min, self.index[due] - 1)
            self.rate[due] = self._share[np.minimum(self.index[due], len(self._share) - 1)]
            self.increase_due[due] = np.where(
                self.index[due] > s.ccti_min, self.increase_due[due] + s.ccti_timer_s * self.slowdown, np.inf
            )

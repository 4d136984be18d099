"""The step time of a job from byte counters alone, or the statement that it cannot be observed.

A training step repeats, so the rate of a NIC is periodic; autocorrelation finds the period. Polling may alias: a step of 2 s
polled every second looks like 4 s with an autocorrelation of 0.99. So a period counts only when it spans at least four polls of
every sampling, when two samplings of different intervals (or one with jitter) agree on it, and when neither an alias nor a
fraction of it explains the samples as well.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]

MIN_POLLS = 4  # a period shorter than this many polls is never claimed
MIN_PERIODS = 5  # fewer repetitions prove nothing
MIN_CORRELATION = 0.4  # of the autocorrelation at the period
FIRST_PEAK_SHARE = 0.85  # the first local maximum this close to the highest one is the period, later ones its multiples
ALIAS_MARGIN = 0.7  # the period must leave at most this share of what the best alias leaves unexplained
HARMONICS = 3
MAX_ALIAS_ORDER = 8
MIN_JITTER = 0.1  # standard deviation of a lone sampling's interval, as a share of it, that makes up for a second one


@dataclass(frozen=True, slots=True)
class Curve:
    """A cumulative counter: times in seconds (increasing, any spacing, gaps allowed) and bytes (non-decreasing)."""

    t: Floats
    total: Floats

    def __post_init__(self) -> None:
        if self.t.shape != self.total.shape or self.t.ndim != 1:
            raise ValueError(f"times {self.t.shape} and bytes {self.total.shape} differ in shape")
        if len(self.t) > 1 and not np.all(np.diff(self.t) > 0):
            raise ValueError("times do not increase")

    @property
    def interval(self) -> float:
        """The usual time between polls."""
        return float(np.median(np.diff(self.t)))

    def increments(self) -> tuple[Floats, Floats, Floats]:
        """(middle, width, mean rate) of each interval between polls; intervals over a gap are left out."""
        width = np.diff(self.t)
        keep = width < 1.75 * self.interval
        middle = self.t[:-1] + width / 2
        return middle[keep], width[keep], (np.diff(self.total) / width)[keep]

    def even_rates(self) -> Floats:
        """Rates on an even grid of the usual interval (the counter is interpolated over jitter and gaps)."""
        grid = np.arange(self.t[0], self.t[-1] + 1e-9, self.interval)
        return np.asarray(np.diff(np.interp(grid, self.t, self.total)) / self.interval, dtype=np.float64)


@dataclass(frozen=True, slots=True)
class StepTime:
    """``seconds`` is None when not observable; ``reason`` says why. ``correlation`` is that of the first sampling."""

    seconds: float | None
    correlation: float
    reason: str


def find_step_time(samplings: Sequence[Curve]) -> StepTime:
    """The period common to all samplings of one quantity, else None with the reason."""
    if not samplings or any(len(curve.t) < 4 * MIN_POLLS for curve in samplings):
        return StepTime(None, 0.0, "too few samples")
    if not _independent(samplings):
        return StepTime(None, 0.0, "needs a second sampling at another interval, or jittered polling")
    candidates = [_autocorrelation_period(curve.even_rates()) for curve in samplings]
    if any(found is None for found in candidates):
        return StepTime(None, 0.0, "no repetition in the traffic")
    periods = [found[0] * curve.interval for found, curve in zip(candidates, samplings, strict=True) if found]
    correlation = candidates[0][1] if candidates[0] else 0.0
    finest = min(range(len(samplings)), key=lambda i: samplings[i].interval)
    period = periods[finest]
    for curve, own in zip(samplings, periods, strict=True):
        if own < MIN_POLLS * curve.interval or period < MIN_POLLS * curve.interval:
            return StepTime(None, correlation, f"a step would be under {MIN_POLLS} polls of {curve.interval:.3g} s")
        # The coarser sampling resolves a period to a fraction of its own interval.
        if abs(own - period) > max(0.03 * period, 0.25 * curve.interval):
            return StepTime(None, correlation, f"samplings disagree: {period:.4g} s and {own:.4g} s")
        if (curve.t[-1] - curve.t[0]) < MIN_PERIODS * period:
            return StepTime(None, correlation, f"fewer than {MIN_PERIODS} steps seen")
    if alias := _alias_as_good(samplings, 1 / period):
        return StepTime(None, correlation, f"a step of {1 / alias:.3g} s would look the same at this polling")
    return StepTime(period, correlation, "")


def _independent(samplings: Sequence[Curve]) -> bool:
    """Whether the samplings fold frequencies differently: intervals that are no multiples of each other, or jitter."""
    if any(float(np.std(np.diff(curve.t))) >= MIN_JITTER * curve.interval for curve in samplings if not _gaps(curve)):
        return True
    first = samplings[0].interval
    ratios = [max(first, other.interval) / min(first, other.interval) for other in samplings[1:]]
    return any(abs(ratio - round(ratio)) > 0.05 for ratio in ratios)


def _gaps(curve: Curve) -> bool:
    return bool(np.any(np.diff(curve.t) > 1.75 * curve.interval))


def _autocorrelation_period(rates: Floats) -> tuple[float, float] | None:
    """(period in samples, correlation) by the first high local maximum of the unbiased autocorrelation."""
    n = len(rates)
    centred = rates - rates.mean()
    power = float(np.dot(centred, centred))
    if n < 4 * MIN_POLLS or power <= 1e-12 * max(1.0, float(np.dot(rates, rates))):
        return None
    spectrum = np.fft.rfft(centred, 2 * n)
    raw = np.fft.irfft(np.abs(spectrum) ** 2)[: n // 2 + 1]
    acf = raw / raw[0] * n / (n - np.arange(n // 2 + 1))
    inner = acf[1:-1]
    peaks = np.flatnonzero((inner > acf[:-2]) & (inner >= acf[2:])) + 1
    # A maximum inside the first descent from lag 0 is noise on the burst's own width, not a repetition.
    below = np.flatnonzero(acf < max(0.0, MIN_CORRELATION / 2))
    if not len(below):
        return None
    peaks = peaks[peaks > below[0]]
    if not len(peaks) or acf[peaks].max() < MIN_CORRELATION:
        return None
    lag = int(peaks[acf[peaks] >= FIRST_PEAK_SHARE * acf[peaks].max()][0])
    left, mid, right = acf[lag - 1], acf[lag], acf[lag + 1]
    curvature = left - 2 * mid + right
    shift = 0.0 if curvature == 0 else 0.5 * (left - right) / curvature
    return lag + float(np.clip(shift, -0.5, 0.5)), float(mid)


def _alias_as_good(samplings: Sequence[Curve], frequency: float) -> float | None:
    """A higher frequency that explains the samples about as well, if any: one folded by the polling, or a multiple.

    The autocorrelation prefers a multiple of the step where that falls nearer to a whole number of polls.
    """
    spans = [_segments(curve, 8 / frequency) for curve in samplings]
    own = _unexplained(spans, frequency)
    aliases = {
        round(abs(order / curve.interval + sign * frequency), 9)
        for curve in samplings
        for order in range(1, MAX_ALIAS_ORDER + 1)
        for sign in (-1, 1)
    }
    aliases |= {multiple * frequency for multiple in range(2, MAX_ALIAS_ORDER + 1)}
    worst, best = None, own / ALIAS_MARGIN
    for alias in aliases:
        if alias > 1.01 * frequency and (left := _unexplained(spans, alias)) < best:
            worst, best = alias, left
    return worst


Segment = tuple[Floats, Floats, Floats]


def _segments(curve: Curve, length: float) -> list[Segment]:
    """Pieces short enough that the small jitter of real steps does not wash a fixed frequency out."""
    middle, width, rate = curve.increments()
    count = max(1, int((middle[-1] - middle[0]) / length))
    index = np.minimum(((middle - middle[0]) / (middle[-1] - middle[0]) * count).astype(int), count - 1)
    return [(middle[index == i], width[index == i], rate[index == i]) for i in range(count)]


def _unexplained(spans: list[list[Segment]], frequency: float) -> float:
    """Mean over samplings of the share of variance that the frequency and its harmonics do not explain."""
    shares = []
    for segments in spans:
        left = total = 0.0
        for middle, width, rate in segments:
            if len(rate) <= 2 * HARMONICS + 2:
                continue
            columns = [np.ones_like(middle)]
            for harmonic in range(1, HARMONICS + 1):
                angle = 2 * np.pi * harmonic * frequency * middle
                # A poll sees the mean over its interval: a sinusoid comes out multiplied by sinc(f·width).
                seen = np.sinc(harmonic * frequency * width)
                columns += [np.cos(angle) * seen, np.sin(angle) * seen]
            basis = np.stack(columns, axis=1)
            solution: Floats = np.linalg.lstsq(basis, rate, rcond=1e-6)[0].astype(np.float64)
            _bound_amplitudes(solution, float(rate.mean()))
            left += float(np.sum((rate - basis @ solution) ** 2))
            total += float(np.sum((rate - rate.mean()) ** 2))
        if total > 0:
            shares.append(left / total)
    return float(np.mean(shares)) if shares else 1.0


def _bound_amplitudes(solution: Floats, mean: float) -> None:
    """A rate is never negative, so no harmonic of it swings by more than twice its mean.

    Fast aliases are nearly averaged away within a poll; without the bound they would fit with impossible amplitudes.
    """
    for harmonic in range(1, HARMONICS + 1):
        pair = solution[2 * harmonic - 1 : 2 * harmonic + 1]
        amplitude = float(np.hypot(pair[0], pair[1]))
        if amplitude > 2 * abs(mean):
            pair *= 2 * abs(mean) / amplitude

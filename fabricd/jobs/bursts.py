"""Bursts of a job's traffic: share of time, bounds of exposed communication, bytes per rail and step."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Bools = NDArray[np.bool_]

LINE_SHARE = 0.10  # below this share of line rate nothing is a burst


def bursting(rates: Floats, line_rate: float) -> Bools:
    """Which samples are in a burst: above max(median + 3 MAD, 10 % of line). Shape (..., samples), bytes/s; NaN never is.

    Where a NIC bursts for most of the time the median is the burst itself; the threshold is then half way between the
    10th and the 90th percentile.
    """
    with np.errstate(invalid="ignore"):
        median = np.nanmedian(rates, axis=-1, keepdims=True)
        mad = 1.4826 * np.nanmedian(np.abs(rates - median), axis=-1, keepdims=True)
        low, high = np.nanpercentile(rates, [10, 90], axis=-1, keepdims=True)
        usual = median + 3 * mad
        threshold = np.where((usual >= high) & (high > 2 * low), (low + high) / 2, usual)
        # A flat rate has no bursts by spread; only the line share decides.
        threshold = np.where(high <= 1.1 * low, 0.0, threshold)
        return np.asarray(rates > np.maximum(threshold, LINE_SHARE * line_rate))


@dataclass(frozen=True, slots=True)
class Exposed:
    """Share of time, as an interval: what cannot be told from counters is whether compute ran meanwhile.

    ``lower`` counts only samples in which every NIC of the job bursts at once (a barrier nobody computes through), without
    the first and last of each burst, which a burst may fill only in part; ``upper`` all samples in which any bursts.
    """

    lower: float
    upper: float


def exposed_communication(in_burst: Bools) -> Exposed:
    """Bounds from ``in_burst`` of shape (NICs, samples)."""
    if in_burst.size == 0:
        return Exposed(0.0, 1.0)
    together = np.pad(in_burst.all(axis=0), 1)
    inside = together[:-2] & together[1:-1] & together[2:]
    return Exposed(float(inside.mean()), float(in_burst.any(axis=0).mean()))


def bytes_per_step(rates: Floats, step_seconds: float) -> Floats:
    """Mean bytes of a step per series; ``rates`` in bytes/s of shape (..., samples) -> (...).

    Each series is weighed against the median series over the samples it has: a sample missing in a burst must not look like
    fewer bytes.
    """
    flat = rates.reshape(-1, rates.shape[-1])
    usual = np.nanmedian(flat, axis=0)
    seen = np.isfinite(rates) & np.isfinite(usual)
    expected = np.where(seen, usual, 0.0).sum(axis=-1)
    share = np.where(seen, rates, 0.0).sum(axis=-1) / np.where(expected > 0, expected, np.nan)
    return np.asarray(share * np.nanmean(usual) * step_seconds, dtype=np.float64)

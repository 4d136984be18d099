"""Which NIC, rail, path or host holds a job back, from counters alone.

Within a synchronous job every rail carries the same bytes per step. What differs tells the fault apart:

========== ============================================================================================
wiring     the bytes per step of a rail differ from the other rails' (wrong HCA list, crossed cable)
slow_nic   same bytes, longer bursts, lower peak, and the NIC itself does not wait
slow_path  the same on several senders of one leaf, or on one that waits for the fabric
slow_rail  the same on all NICs of a rail and of no other
slow_host  all rails of the host start late together; their bursts are not longer
========== ============================================================================================

A finding needs at least five steps, a robust z above 4 against its like, and a change of at least 10 % as a second check
(2 % for bytes). Waiting and lag are resolved to the poll interval: seconds, not milliseconds.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from fabricd.jobs.bursts import bursting, bytes_per_step

Floats = NDArray[np.float64]
Kind = Literal["wiring", "slow_nic", "slow_path", "slow_rail", "slow_host"]

MIN_STEPS = 5
MIN_Z = 4.0
MIN_CHANGE = 0.10
MIN_BYTES_CHANGE = 0.02
# Waiting this share of the burst is the fabric's doing, not the NIC's.
WAITING = 0.05


@dataclass(frozen=True, slots=True)
class JobTraffic:
    """Rates of a job's NICs: ``tx`` in bytes/s, shape (hosts, rails, samples); NaN = missing.

    ``wait`` is the stalled share of each sample, same shape, or None where it is not observable. ``leaf`` names the leaf
    of each NIC, shape (hosts, rails), -1 = unknown. ``rates`` are the NICs' own line rates, same shape, 0 = unknown.
    """

    hosts: Sequence[str]
    tx: Floats
    interval: float
    line_rate: float
    wait: Floats | None = None
    leaf: NDArray[np.int64] | None = None
    rates: Floats | None = None


@dataclass(frozen=True, slots=True)
class Straggler:
    """One finding; ``rail`` is None for a host, ``host`` is empty for a rail."""

    kind: Kind
    host: str
    rail: int | None
    evidence: dict[str, Any]


def robust_z(values: Floats, axis: int | None = None) -> Floats:
    """Distance from the median in robust standard deviations; a spread below 0.5 % of the median counts as 0.5 %."""
    median = np.nanmedian(values, axis=axis, keepdims=True)
    spread = 1.4826 * np.nanmedian(np.abs(values - median), axis=axis, keepdims=True)
    return np.asarray((values - median) / np.maximum(spread, 0.005 * np.abs(median) + 1e-30))


def find_stragglers(job: JobTraffic, step_seconds: float) -> list[Straggler]:
    """Every finding, the widest first; empty when fewer than five steps were seen or there is nothing to compare with."""
    hosts, rails, samples = job.tx.shape
    if samples * job.interval < MIN_STEPS * step_seconds or hosts * rails < 3:
        return []
    burst = bursting(job.tx, job.line_rate)
    volume = bytes_per_step(job.tx, step_seconds)
    duration = np.nanmean(np.where(np.isnan(job.tx), np.nan, burst), axis=-1) * step_seconds
    peak = np.nanpercentile(np.where(burst, job.tx, np.nan), 90, axis=-1) if burst.any() else np.zeros_like(volume)
    found = _wiring(job, volume)
    slow = _slow(duration, peak)
    for straggler in found:  # other bytes explain a longer burst
        slow[list(job.hosts).index(straggler.host), straggler.rail] = False
    found += _name_slow(job, slow, duration, peak, burst)
    found += _late_hosts(job, step_seconds)
    return found


def _against_like(values: Floats) -> tuple[Floats, Floats]:
    """(z, relative change) against all NICs of the job."""
    z = robust_z(values)
    median = float(np.nanmedian(values))
    return z, values / median - 1 if median > 0 else np.zeros_like(values)


def _wiring(job: JobTraffic, volume: Floats) -> list[Straggler]:
    z, change = _against_like(volume)
    odd = (np.abs(z) > MIN_Z) & (np.abs(change) > MIN_BYTES_CHANGE)
    # When whole hosts carry other bytes the job is uneven by design (pipeline stages), not miswired.
    odd &= ~odd.all(axis=1, keepdims=True)
    return [
        Straggler(
            "wiring",
            job.hosts[int(host)],
            int(rail),
            {
                "bytes_per_step": float(volume[host, rail]),
                "others": float(np.nanmedian(volume)),
                "z": float(z[host, rail]),
            },
        )
        for host, rail in np.argwhere(odd)
    ]


def _slow(duration: Floats, peak: Floats) -> NDArray[np.bool_]:
    """NICs whose bursts are longer and whose peak is lower than the job's usual, both by 10 % and z > 4."""
    z_long, longer = _against_like(duration)
    z_low, lower = _against_like(peak)
    return np.asarray((z_long > MIN_Z) & (longer > MIN_CHANGE) & (z_low < -MIN_Z) & (lower < -MIN_CHANGE))


def _name_slow(
    job: JobTraffic, slow: NDArray[np.bool_], duration: Floats, peak: Floats, burst: NDArray[np.bool_]
) -> list[Straggler]:
    found: list[Straggler] = []
    rest = slow.copy()
    waiting = _waiting(job, burst)
    if slow.shape[0] > 1:
        for rail in np.flatnonzero(slow.all(axis=0) & (slow.sum() < slow.size)):
            evidence = _numbers(duration[:, rail], peak[:, rail], duration, peak)
            found.append(_slow_rail(job, int(rail), evidence, waiting))
            rest[:, rail] = False
    for host, rail in np.argwhere(rest):
        evidence = _numbers(duration[host, rail], peak[host, rail], duration, peak)
        shared = 0
        if job.leaf is not None and job.leaf[host, rail] >= 0:
            shared = int((rest & (job.leaf == job.leaf[host, rail])).sum()) - 1
        evidence["others_slow_on_its_leaf"] = shared
        evidence["wait_share_of_burst"] = None if waiting is None else float(waiting[host, rail])
        on_path = shared > 0 or (waiting is not None and waiting[host, rail] > WAITING)
        found.append(Straggler("slow_path" if on_path else "slow_nic", job.hosts[int(host)], int(rail), evidence))
    return found


def _slow_rail(job: JobTraffic, rail: int, evidence: dict[str, Any], waiting: Floats | None) -> Straggler:
    """A ring is as slow as its slowest member, so a whole rail looks slow: a NIC of lower rate, or the one that waits, is named."""
    if job.rates is not None:
        rates = job.rates[:, rail]
        lower = np.flatnonzero((rates > 0) & (rates < 0.9 * np.median(job.rates)))
        if len(lower) == 1:
            evidence["line_rate_bytes_per_second"] = float(rates[lower[0]])
            return Straggler("slow_nic", job.hosts[int(lower[0])], rail, evidence)
    if waiting is not None:
        held = np.flatnonzero(waiting[:, rail] > WAITING)
        if len(held) == 1:
            evidence["wait_share_of_burst"] = float(waiting[held[0], rail])
            return Straggler("slow_path", job.hosts[int(held[0])], rail, evidence)
    return Straggler("slow_rail", "", rail, evidence)


def _waiting(job: JobTraffic, burst: NDArray[np.bool_]) -> Floats | None:
    if job.wait is None:
        return None
    inside = np.where(burst, job.wait, np.nan)
    empty = ~np.any(np.isfinite(inside), axis=-1)
    inside[empty] = 0.0
    return np.asarray(np.nanmean(inside, axis=-1), dtype=np.float64)


def _numbers(duration: Any, peak: Any, durations: Floats, peaks: Floats) -> dict[str, Any]:
    return {
        "burst_seconds": float(np.mean(duration)),
        "others_burst_seconds": float(np.nanmedian(durations)),
        "peak_bytes_per_second": float(np.mean(peak)),
        "others_peak_bytes_per_second": float(np.nanmedian(peaks)),
    }


def _late_hosts(job: JobTraffic, step_seconds: float) -> list[Straggler]:
    """Hosts whose rails all lag the job's median rail together, by at least a poll and 10 % of a step."""
    hosts, rails, samples = job.tx.shape
    if hosts < 3:
        return []
    with np.errstate(invalid="ignore"):
        reference = np.nanmedian(job.tx.reshape(hosts * rails, samples), axis=0)
    most = max(1, int(step_seconds / 2 / job.interval))
    lags = np.array([[_lag(job.tx[h, r], reference, most) for r in range(rails)] for h in range(hosts)]) * job.interval
    usual = float(np.median(lags))
    late = np.all(lags - usual >= max(job.interval, MIN_CHANGE * step_seconds), axis=1)
    spread = robust_z(np.median(lags, axis=1) + step_seconds)
    return [
        Straggler(
            "slow_host",
            job.hosts[int(h)],
            None,
            {"late_seconds": float(np.median(lags[h]) - usual), "z": float(spread[h])},
        )
        for h in np.flatnonzero(late)
        if spread[h] > MIN_Z
    ]


def _lag(series: Floats, reference: Floats, most: int) -> float:
    """Samples by which ``series`` comes after ``reference`` (-most … most): the highest cross-correlation, interpolated."""
    a = np.nan_to_num(series - np.nanmean(series))
    b = np.nan_to_num(reference - np.nanmean(reference))
    n = len(a)
    shifts = range(-most, most + 1)
    scores = np.array(
        [np.dot(a[max(0, s) : n + min(0, s)], b[max(0, -s) : n - max(0, s)]) / (n - abs(s)) for s in shifts]
    )
    top = int(np.argmax(scores))
    if 0 < top < len(scores) - 1:
        left, mid, right = scores[top - 1 : top + 2]
        bend = left - 2 * mid + right
        return top - most + (0.5 * (left - right) / bend if bend else 0.0)
    return float(top - most)

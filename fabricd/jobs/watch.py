"""Watches the running jobs' NICs and says, per job, how its steps go. Counters in, documents out; no I/O.

Each NIC may be seen by several samplings (poll schedules). The first is the base of bursts and stragglers; the step time is
claimed only when all of them agree (see :mod:`fabricd.jobs.steps`).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fabricd.jobs.bursts import bursting, bytes_per_step, exposed_communication
from fabricd.jobs.job import Job
from fabricd.jobs.steps import Curve, StepTime, find_step_time
from fabricd.jobs.stragglers import JobTraffic, find_stragglers

Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Nic:
    """One NIC port of a job. ``line_rate`` in bytes/s (0 = unknown); ``leaf`` any number that names its leaf, -1 = unknown."""

    host: str
    rail: int
    line_rate: float = 0.0
    leaf: int = -1


class Ring:
    """The newest readings of one NIC by one sampling: time (s), bytes sent, ns waited (NaN = not observable)."""

    __slots__ = ("capacity", "count", "data")

    def __init__(self, capacity: int) -> None:
        self.capacity = capacity
        self.count = 0
        self.data = np.full((3, capacity), np.nan)

    def add(self, t: float, total: float, waited: float) -> None:
        if self.count:
            last_t, last_total = self.data[:2, (self.count - 1) % self.capacity]
            if t <= last_t:
                return  # late or repeated
            if total < last_total:
                self.count = 0  # the counter began anew: nothing before it can be compared
        self.data[:, self.count % self.capacity] = (t, total, waited)
        self.count += 1

    def ordered(self) -> Floats:
        """(3, n), oldest first."""
        if self.count <= self.capacity:
            return self.data[:, : self.count]
        return np.roll(self.data, -(self.count % self.capacity), axis=1)


@dataclass(slots=True)
class JobWatch:
    """``samples``: readings kept per NIC and sampling, i.e. how many steps can be seen."""

    samples: int = 600
    jobs: dict[str, Job] = field(default_factory=dict)
    nics: dict[str, Nic] = field(default_factory=dict)
    _rings: dict[tuple[str, int], Ring] = field(default_factory=dict)
    _busy: set[str] = field(default_factory=set)  # hosts that have a job

    def set_jobs(self, jobs: Iterable[Job]) -> None:
        """The jobs that run now; what ended is forgotten, and so are readings of hosts without a job."""
        self.jobs = {job.id: job for job in jobs}
        self._forget()

    def set_nics(self, nics: Mapping[str, Nic]) -> None:
        """Which NICs there are: any stable key (GUID and port) to its place."""
        self.nics = dict(nics)
        self._forget()

    def _forget(self) -> None:
        self._busy = {host for job in self.jobs.values() for host in job.nodes}
        keep = {key for key, nic in self.nics.items() if nic.host in self._busy}
        self._rings = {slot: ring for slot, ring in self._rings.items() if slot[0] in keep}

    def observe(self, key: str, t: float, total: float, waited: float = float("nan"), sampling: int = 0) -> None:
        """A reading of NIC ``key``: seconds, bytes sent so far, ns waited so far. Ignored for hosts without a job."""
        nic = self.nics.get(key)
        if nic is None or nic.host not in self._busy:
            return
        ring = self._rings.get((key, sampling))
        if ring is None:
            ring = self._rings[key, sampling] = Ring(self.samples)
        ring.add(t, total, waited)

    def report(self, job_id: str) -> dict[str, Any]:
        """What can be said of one job; KeyError for a job that does not run."""
        job = self.jobs[job_id]
        out: dict[str, Any] = {
            "id": job.id,
            "name": job.name,
            "source": job.source,
            "nodes": list(job.nodes),
            "gpus_per_node": job.gpus_per_node,
            "nics_seen": 0,
            "step": None,
            "exposed_communication": None,
            "bytes_per_rail_per_step": None,
            "stragglers": [],
            "notes": [],
        }
        shared = [other.id for other in self.jobs.values() if other.id != job.id and set(other.nodes) & set(job.nodes)]
        if shared:
            out["notes"].append(
                f"shares nodes with {', '.join(sorted(shared))}: counters cannot tell their traffic apart"
            )
        keys = [key for key, nic in self.nics.items() if nic.host in job.nodes and (key, 0) in self._rings]
        out["nics_seen"] = len(keys)
        if not keys:
            out["notes"].append("no NIC of its nodes is read: not observable")
            return out
        step = self._step(keys)
        out["step"] = {"seconds": step.seconds, "correlation": round(step.correlation, 3), "reason": step.reason}
        traffic = self._traffic(job, keys)
        if traffic is not None:
            burst = bursting(traffic.tx, traffic.line_rate)
            seen = ~np.isnan(traffic.tx).all(axis=2)
            exposed = exposed_communication(burst[seen])
            out["exposed_communication"] = [round(exposed.lower, 4), round(exposed.upper, 4)]
            if step.seconds is not None:
                volume = bytes_per_step(traffic.tx, step.seconds)
                out["bytes_per_rail_per_step"] = [None if np.isnan(v) else float(v) for v in np.nanmean(volume, axis=0)]
                out["stragglers"] = [
                    {"kind": s.kind, "host": s.host, "rail": s.rail, "evidence": s.evidence}
                    for s in find_stragglers(traffic, step.seconds)
                ]
        return out

    def _step(self, keys: Sequence[str]) -> StepTime:
        """Over the sum of the job's NICs, by each sampling that has them."""
        curves = []
        for sampling in sorted({slot[1] for slot in self._rings}):
            readings = [self._rings[key, sampling].ordered() for key in keys if (key, sampling) in self._rings]
            curve = _summed([reading for reading in readings if reading.shape[1] >= 2])
            if curve is not None:
                curves.append(curve)
        return find_step_time(curves)

    def _traffic(self, job: Job, keys: Sequence[str]) -> JobTraffic | None:
        hosts = [host for host in job.nodes if any(self.nics[key].host == host for key in keys)]
        rails = sorted({self.nics[key].rail for key in keys})
        readings = {key: self._rings[key, 0].ordered() for key in keys}
        readings = {key: reading for key, reading in readings.items() if reading.shape[1] >= 16}
        if not readings:
            return None
        interval = float(np.median([np.median(np.diff(reading[0])) for reading in readings.values()]))
        begin = max(reading[0, 0] for reading in readings.values())
        end = min(reading[0, -1] for reading in readings.values())
        grid = np.arange(begin, end, interval)
        if len(grid) < 16:
            return None
        tx = np.full((len(hosts), len(rails), len(grid) - 1), np.nan)
        wait = np.full_like(tx, np.nan)
        leaf = np.full(tx.shape[:2], -1, dtype=np.int64)
        own = np.zeros(tx.shape[:2])
        for key, reading in readings.items():
            nic = self.nics[key]
            at = hosts.index(nic.host), rails.index(nic.rail)
            leaf[at], own[at] = nic.leaf, nic.line_rate
            tx[at] = np.diff(np.interp(grid, reading[0], reading[1])) / interval
            if np.isfinite(reading[2]).all():
                wait[at] = np.diff(np.interp(grid, reading[0], reading[2])) / (interval * 1e9)
        rates = [self.nics[key].line_rate for key in readings if self.nics[key].line_rate > 0]
        line = float(np.median(rates)) if rates else float(np.nanmax(tx))
        return JobTraffic(hosts, tx, interval, line, wait if np.isfinite(wait).any() else None, leaf, own)


def _summed(readings: list[Floats]) -> Curve | None:
    """The bytes of all NICs together at the first one's times (the others interpolated)."""
    if not readings:
        return None
    begin, end = max(r[0, 0] for r in readings), min(r[0, -1] for r in readings)
    t = readings[0][0]
    t = t[(t >= begin) & (t <= end)]
    if len(t) < 2:
        return None
    total = np.sum([np.interp(t, r[0], r[1] - r[1, 0]) for r in readings], axis=0)
    return Curve(t, np.asarray(total, dtype=np.float64))

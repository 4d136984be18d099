"""Jobs on the fabric: which adapters a job's hosts have, who may talk to whom, and which jobs sit at some adapters."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from fabricd.jobs.job import Job
from fabricd.model.topology import CA, Topology

MAX_PAIRS = 20_000  # a job of unknown groups has all pairs of its hosts: too many say nothing and cost a lot


class JobMap:
    """Hosts are matched by name, up to the first dot, because schedulers and adapters may name them at different length."""

    def __init__(self, topology: Topology, jobs: Sequence[Job]) -> None:
        self.jobs = list(jobs)
        self._adapters: dict[str, list[int]] = {}
        for guid, node in sorted(topology.nodes.items(), key=lambda item: (item[1].name, item[0])):
            if node.type == CA and node.host:
                self._adapters.setdefault(_short(node.host), []).append(guid)
        self._jobs_at: dict[int, set[str]] = {}
        for job in self.jobs:
            for host in job.nodes:
                for guid in self._adapters.get(_short(host), ()):
                    self._jobs_at.setdefault(guid, set()).add(job.id)

    def pairs(self) -> list[tuple[int, int, None]]:
        """(source GUID, destination GUID, None): rail i of one host with rail i of the other, over the groups of each job.

        Jobs whose pairs would be more than ``MAX_PAIRS`` in all are left out, the largest first.
        """
        out: list[tuple[int, int, None]] = []
        for job in sorted(self.jobs, key=lambda job: len(job.nodes)):
            found = [
                (a, b, None)
                for source, destination in sorted(job.pairs())
                for a, b in zip(
                    self._adapters.get(_short(source), ()), self._adapters.get(_short(destination), ()), strict=False
                )
            ]
            if len(out) + len(found) > MAX_PAIRS:
                break
            out += found
        return out

    def jobs_at(self, adapters: Iterable[int]) -> list[str]:
        """Sorted ids of the jobs that have a host behind one of these adapters (GUIDs)."""
        return sorted({job for guid in adapters for job in self._jobs_at.get(guid, ())})


def _short(host: str) -> str:
    return host.partition(".")[0].lower()

"""Jobs on the fabric: rail-wise pairs, names of different length, and a bound on pairs."""

import pytest

from fabricd.jobs import fabric_map
from fabricd.jobs.fabric_map import JobMap
from fabricd.jobs.job import Job
from fabricd.model.topology import CA, SWITCH, Node, Topology


def fabric(hosts: int = 3, rails: int = 2) -> Topology:
    topology = Topology()
    topology.nodes[1] = Node(1, SWITCH, "leaf")
    for h in range(hosts):
        for r in range(rails):
            guid = 100 * (h + 1) + r
            topology.nodes[guid] = Node(guid, CA, f"gpu{h} mlx5_{r}", host=f"GPU{h}.cluster")
    return topology


def test_pairs_stay_on_their_rail_and_in_their_group() -> None:
    job = Job(id="a", nodes=("gpu0", "gpu1", "gpu2"), groups=(("gpu0", "gpu1"),))
    assert JobMap(fabric(), [job]).pairs() == [(100, 200, None), (101, 201, None), (200, 100, None), (201, 101, None)]


def test_jobs_at_adapters() -> None:
    found = JobMap(fabric(), [Job(id="a", nodes=("gpu0.other",)), Job(id="b", nodes=("gpu0", "gpu2"))])
    assert found.jobs_at([101]) == ["a", "b"]
    assert found.jobs_at([300]) == ["b"]
    assert found.jobs_at([1, 200, 999]) == []


def test_too_many_pairs_leave_the_largest_job_out(monkeypatch: pytest.MonkeyPatch) -> None:
    small, large = Job(id="s", nodes=("gpu0", "gpu1")), Job(id="l", nodes=("gpu0", "gpu1", "gpu2"))

    monkeypatch.setattr(fabric_map, "MAX_PAIRS", 8)
    assert len(JobMap(fabric(), [large, small]).pairs()) == 4

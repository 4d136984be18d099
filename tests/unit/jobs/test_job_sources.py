"""Jobs from Slurm, Kubernetes and a file: every shape of every release, bad entries counted, never fatal."""

import json
from pathlib import Path
from typing import Any

import pytest

from fabricd.errors import FabricdError, UsageError
from fabricd.jobs.job import Job, jobs_by_host
from fabricd.jobs.kubernetes import parse_pods
from fabricd.jobs.slurm import from_squeue, parse_jobs
from fabricd.jobs.static import read_jobs
from fabricd.model.rejects import Rejects

SLURM_22_05 = {"job_id": 7, "name": "llm", "job_state": "RUNNING", "nodes": "gpu[01-02]", "tres_per_node": "gres:gpu:8"}
SLURM_24_05 = {
    "job_id": 8,
    "job_state": ["RUNNING"],
    "nodes": "",
    "job_resources": {"nodes": {"list": "gpu[03-04]"}},
    "start_time": {"set": True, "infinite": False, "number": 1_700_000_000},
    "array_job_id": {"set": True, "number": 5},
    "array_task_id": {"set": True, "number": 3},
    "tres_alloc_str": "cpu=2,gres/gpu=16",
}


def test_slurm_of_several_releases() -> None:
    rejects = Rejects()
    first, second = parse_jobs({"jobs": [SLURM_22_05, SLURM_24_05]}, rejects)
    assert (first.id, first.nodes, first.gpus_per_node) == ("7", ("gpu01", "gpu02"), 8)
    assert (second.id, second.nodes, second.gpus_per_node) == ("5_3", ("gpu03", "gpu04"), 8)
    assert second.started_ns == 1_700_000_000 * 10**9
    assert not rejects.total


def test_slurm_bad_entries_are_counted() -> None:
    rejects = Rejects()
    entries: list[Any] = [
        SLURM_22_05 | {"nodes": "gpu["},
        "x",
        SLURM_22_05 | {"nodes": ""},
        {"job_state": "PENDING"},
        SLURM_22_05,
    ]
    assert [job.id for job in parse_jobs({"jobs": entries}, rejects)] == ["7"]
    assert rejects.counts == {"slurm_nodes": 1, "slurm_job": 2}
    with pytest.raises(FabricdError, match="jobs"):
        parse_jobs({"errors": []}, rejects)


def test_squeue_that_fails(tmp_path: Path) -> None:
    script = tmp_path / "squeue"
    script.write_text('#!/bin/sh\necho "slurm_load_jobs error: Unable to contact slurm controller" >&2\nexit 1\n')
    script.chmod(0o755)
    with pytest.raises(FabricdError, match="exit 1: slurm_load_jobs error"):
        from_squeue(str(script), 5, Rejects())
    script.write_text("#!/bin/sh\necho not json\n")
    with pytest.raises(FabricdError, match="not JSON"):
        from_squeue(str(script), 5, Rejects())
    script.write_text(f"#!/bin/sh\necho '{json.dumps({'jobs': [SLURM_22_05]})}'\n")
    assert from_squeue(str(script), 5, Rejects())[0].name == "llm"
    with pytest.raises(FabricdError, match="No such file"):
        from_squeue(str(tmp_path / "none"), 5, Rejects())


def pod(name: str, node: str | None, gpus: int = 8, phase: str = "Running", **labels: str) -> dict[str, Any]:
    return {
        "metadata": {
            "name": name,
            "namespace": "train",
            "labels": {k.replace("__", "/"): v for k, v in labels.items()},
        },
        "spec": {"nodeName": node, "containers": [{"resources": {"limits": {"nvidia.com/gpu": str(gpus)}}}]}
        if node
        else {"containers": [{"resources": {"limits": {"nvidia.com/gpu": str(gpus)}}}]},
        "status": {"phase": phase, "startTime": "2026-01-02T03:04:05Z"},
    }


def test_pods_become_jobs_by_the_widest_label() -> None:
    rejects = Rejects()
    widest = {"jobset.sigs.k8s.io__jobset-name": "llm"}
    items = [
        pod("llm-0", "gpu1", **widest, **{"batch.kubernetes.io__job-name": "llm-a"}),
        pod("llm-1", "gpu2", **widest, **{"batch.kubernetes.io__job-name": "llm-b"}),
        pod("web", "gpu3", gpus=0),
        pod("done", "gpu4", phase="Succeeded"),
        pod("alone", "gpu5", gpus=1),
        pod("odd", None),
        "nonsense",
    ]
    jobs = parse_pods({"items": items}, rejects)
    assert [(job.id, job.nodes, job.gpus_per_node) for job in jobs] == [
        ("train/alone", ("gpu5",), 1),
        ("train/llm", ("gpu1", "gpu2"), 8),
    ]
    assert rejects.counts == {"kubernetes_pod": 2}
    with pytest.raises(FabricdError, match="items"):
        parse_pods({"kind": "Status"}, rejects)


def test_static_file(tmp_path: Path) -> None:
    file = tmp_path / "jobs.toml"
    file.write_text(
        '[[jobs]]\nid = "a"\nnodes = "gpu[1-4]"\ngroups = ["gpu[1-2]", ["gpu3", "gpu4"]]\ngpus_per_node = 8\n'
    )
    (job,) = read_jobs(str(file))
    assert job.pairs() == {("gpu1", "gpu2"), ("gpu2", "gpu1"), ("gpu3", "gpu4"), ("gpu4", "gpu3")}
    assert jobs_by_host([job])["gpu3"] == [job]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("[[jobs]]\nid = 'a'\n", "nodes are needed"),
        ("[[jobs]]\nid = 'a'\nnodes = 'g['\n", "unbalanced"),
        ("[[jobs]]\nid = 'a'\nnodes = 'g'\nfoo = 1\n", "unknown key foo"),
        ("[[jobs]]\nid = 'a'\nnodes = 'g'\ngroups = ['h']\n", "not in nodes: h"),
        ("[[jobs]]\nid = 'a'\nnodes = 'g'\ngpus_per_node = 0\n", "gpus_per_node = 0"),
        ("[[jobs]]\nid = 'a'\nnodes = 'g'\n[[jobs]]\nid = 'a'\nnodes = 'g'\n", "twice"),
        ("jobs = 3\n", 'no list "jobs"'),
        ("jobs = \n", "TOML"),
    ],
)
def test_static_file_errors_name_the_key(tmp_path: Path, text: str, said: str) -> None:
    file = tmp_path / "jobs.toml"
    file.write_text(text)
    with pytest.raises(UsageError, match=r"jobs\.toml") as caught:
        read_jobs(str(file))
    assert said in str(caught.value)


def test_pairs_without_groups_are_all_pairs() -> None:
    assert Job(id="1", nodes=("a", "b", "c")).pairs() == {(a, b) for a in "abc" for b in "abc" if a != b}

"""Running jobs from Slurm: the JSON of ``squeue --json`` and of slurmrestd's ``/slurm/vX/jobs``.

The shape moved between releases: ``job_state`` is a word up to 23.02 and a list of words after; numbers became
``{"set","infinite","number"}`` objects; the hosts are in ``nodes`` or in ``job_resources.nodes`` (text, or since 24.05 an
object with ``list``). All are read; a job that cannot be read costs only itself.
"""

from __future__ import annotations

import json
import re
import subprocess
from typing import Any

import httpx

from fabricd.errors import BAD_DOCUMENT, FabricdError
from fabricd.jobs.hostlist import HostlistError, expand
from fabricd.jobs.job import Job
from fabricd.model.rejects import Rejects

_GPUS = re.compile(r"(?:gres[/:])?gpu(?::[^:=,]+)?[:=](\d+)")


def parse_jobs(document: Any, rejects: Rejects) -> list[Job]:
    """The running jobs of a squeue or slurmrestd document. Raises FabricdError when it has no list of jobs at all."""
    jobs = document.get("jobs") if isinstance(document, dict) else None
    if not isinstance(jobs, list):
        raise FabricdError('Slurm answered without a list "jobs"')
    out: list[Job] = []
    for entry in jobs:
        if not isinstance(entry, dict):
            rejects.add("slurm_job", type(entry).__name__, "jobs[]")
            continue
        job_id = _number(entry.get("job_id"))
        if "RUNNING" not in _states(entry):
            continue
        try:
            nodes = expand(_nodes(entry))
        except HostlistError as error:
            rejects.add("slurm_nodes", error, f"job {job_id}")
            continue
        if job_id is None or not nodes:
            rejects.add("slurm_job", "running without id or nodes", f"job {job_id}")
            continue
        out.append(
            Job(
                id=_array_id(entry, job_id),
                name=str(entry.get("name") or ""),
                source="slurm",
                nodes=tuple(nodes),
                gpus_per_node=_gpus_per_node(entry, len(nodes)),
                started_ns=start * 1_000_000_000 if (start := _number(entry.get("start_time"))) else None,
            )
        )
    return out


def _states(entry: dict[str, Any]) -> list[str]:
    state = entry.get("job_state")
    return [str(s).upper() for s in state] if isinstance(state, list) else [str(state or "").upper()]


def _number(value: Any) -> int | None:
    if isinstance(value, dict):
        value = value.get("number") if value.get("set", True) else None
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def _array_id(entry: dict[str, Any], job_id: int) -> str:
    parent, task = _number(entry.get("array_job_id")), _number(entry.get("array_task_id"))
    return f"{parent}_{task}" if parent and task is not None else str(job_id)


def _nodes(entry: dict[str, Any]) -> str:
    nodes = entry.get("nodes")
    if isinstance(nodes, str) and nodes:
        return nodes
    resources = entry.get("job_resources")
    nodes = resources.get("nodes") if isinstance(resources, dict) else ""
    if isinstance(nodes, dict):
        nodes = nodes.get("list")
    return nodes if isinstance(nodes, str) else ""


def _gpus_per_node(entry: dict[str, Any], nodes: int) -> int | None:
    for key, divide in (("tres_per_node", 1), ("tres_alloc_str", nodes), ("gres_detail", None)):
        text = entry.get(key)
        if divide is not None and isinstance(text, str) and (match := _GPUS.search(text)):
            return int(match[1]) // divide
    return None


def from_squeue(command: str, timeout_s: float, rejects: Rejects) -> list[Job]:
    """Run ``squeue --json``. Raises FabricdError when it cannot be run, fails, or prints no JSON."""
    try:
        done = subprocess.run([command, "--json"], capture_output=True, timeout=timeout_s, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise FabricdError(f"{command} --json: {error}") from None
    if done.returncode:
        raise FabricdError(
            f"{command} --json: exit {done.returncode}: {done.stderr.decode(errors='replace').strip()[:200]}"
        )
    try:
        document = json.loads(done.stdout)
    except BAD_DOCUMENT as error:
        raise FabricdError(f"{command} --json: not JSON: {error}") from None
    return parse_jobs(document, rejects)


def from_slurmrestd(url: str, user: str, token: str, timeout_s: float, rejects: Rejects) -> list[Job]:
    """Ask slurmrestd (``url`` up to and with the version, e.g. ``…/slurm/v0.0.38``). Raises FabricdError on any failure."""
    headers = {"X-SLURM-USER-NAME": user, "X-SLURM-USER-TOKEN": token} if token else {}
    try:
        answer = httpx.get(f"{url.rstrip('/')}/jobs", headers=headers, timeout=timeout_s)
        answer.raise_for_status()
        document = answer.json()
    except (httpx.HTTPError, *BAD_DOCUMENT) as error:
        raise FabricdError(f"slurmrestd: {error}") from None
    return parse_jobs(document, rejects)

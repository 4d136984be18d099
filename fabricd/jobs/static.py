"""Jobs from a file, for sites without a scheduler: TOML or JSON with a list ``jobs`` of id, nodes, groups.

``nodes`` and every group are lists of names or one host list expression (``gpu[001-016]``).
"""

from __future__ import annotations

import json
import tomllib
from pathlib import Path
from typing import Any

from fabricd.errors import BAD_DOCUMENT, UsageError
from fabricd.jobs.hostlist import HostlistError, expand
from fabricd.jobs.job import Job

_KEYS = {"id", "name", "nodes", "groups", "gpus_per_node"}


def read_jobs(path: str) -> list[Job]:
    """Raises UsageError naming file, job and key."""
    file = Path(path)
    try:
        text = file.read_text(encoding="utf-8")
        document = json.loads(text) if file.suffix == ".json" else tomllib.loads(text)
    except OSError as error:
        raise UsageError(f"{path}: {error.strerror}") from None
    except BAD_DOCUMENT as error:
        raise UsageError(f"{path}: neither JSON (.json) nor TOML: {error}") from None
    entries = document.get("jobs") if isinstance(document, dict) else None
    if not isinstance(entries, list):
        raise UsageError(f'{path}: no list "jobs"')
    jobs = [_job(entry, f"{path}: jobs[{i}]") for i, entry in enumerate(entries)]
    ids = [job.id for job in jobs]
    if doubled := {job_id for job_id in ids if ids.count(job_id) > 1}:
        raise UsageError(f"{path}: id used twice: {', '.join(sorted(doubled))}")
    return jobs


def _job(entry: Any, where: str) -> Job:
    if not isinstance(entry, dict):
        raise UsageError(f"{where} is not a table")
    if unknown := entry.keys() - _KEYS:
        raise UsageError(f"{where}: unknown key {', '.join(sorted(unknown))}; known: {', '.join(sorted(_KEYS))}")
    if not isinstance(entry.get("id"), str | int) or "nodes" not in entry:
        raise UsageError(f"{where}: id and nodes are needed")
    gpus = entry.get("gpus_per_node")
    if gpus is not None and (not isinstance(gpus, int) or gpus < 1):
        raise UsageError(f"{where}: gpus_per_node = {gpus!r}: a whole number of at least 1")
    groups = entry.get("groups", [])
    if not isinstance(groups, list):
        raise UsageError(f"{where}: groups = {groups!r}: a list")
    nodes = _hosts(entry["nodes"], f"{where}: nodes")
    sets = tuple(_hosts(group, f"{where}: groups[{i}]") for i, group in enumerate(groups))
    for members in sets:
        if strangers := set(members) - set(nodes):
            raise UsageError(f"{where}: groups name hosts that are not in nodes: {', '.join(sorted(strangers))}")
    return Job(id=str(entry["id"]), name=str(entry.get("name", "")), nodes=nodes, gpus_per_node=gpus, groups=sets)


def _hosts(value: Any, where: str) -> tuple[str, ...]:
    try:
        if isinstance(value, str):
            return tuple(expand(value))
        if isinstance(value, list) and all(isinstance(item, str) for item in value):
            return tuple(value)
    except HostlistError as error:
        raise UsageError(f"{where}: {error}") from None
    raise UsageError(f"{where} = {value!r}: a list of names or a host list expression")

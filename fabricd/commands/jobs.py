"""``fabricd jobs``: which job runs where, how its steps go, who hurts it."""

from __future__ import annotations

import argparse
import sys
from typing import Any

from fabricd.commands.base import Command, add_json, print_json
from fabricd.commands.client import add_url, get_json, understanding


def _configure(parser: argparse.ArgumentParser) -> None:
    add_json(parser)
    add_url(parser)
    parser.add_argument("id", nargs="?", help="only this job")
    parser.add_argument(
        "--list", action="store_true", help="ask the scheduler itself (no aggregator needed): only who runs where"
    )


def _run(args: argparse.Namespace) -> int:
    document = _from_source(args) if args.list else get_json(args, "/api/v1/jobs", {"id": args.id})
    if args.json:
        print_json(document)
        return 0
    with understanding("jobs"):
        _print_all(document)
    return 0


def _print_all(document: dict[str, Any]) -> None:
    if document.get("problem"):
        print(f"fabricd: the jobs' source: {document['problem']}", file=sys.stderr)
    if not document["jobs"]:
        print("no job is known (jobs.source in the configuration names the scheduler)")
    for job in document["jobs"]:
        _print(job)


def _from_source(args: argparse.Namespace) -> dict[str, Any]:
    from fabricd.config.load import load_config
    from fabricd.jobs.running import running_jobs
    from fabricd.model.rejects import Rejects

    rejects = Rejects()
    jobs = [job for job in running_jobs(load_config(args.config).jobs, rejects) if args.id in (None, job.id)]
    rows = [
        {
            "id": job.id,
            "name": job.name,
            "source": job.source,
            "nodes": list(job.nodes),
            "gpus_per_node": job.gpus_per_node,
        }
        for job in jobs
    ]
    return {"jobs": rows, "problem": None, "rejects": rejects.to_json()}


def _print(job: dict[str, Any]) -> None:
    from fabricd.jobs.hostlist import compress

    gpus = f", {job['gpus_per_node']} GPUs each" if job["gpus_per_node"] else ""
    print(
        f"{' '.join(filter(None, (job['id'], job['name'])))}: {len(job['nodes'])} nodes {compress(job['nodes'])}{gpus}"
    )
    step = job.get("step")
    if step:
        seconds = step["seconds"]
        print(f"    step: {f'{seconds:.3g} s' if seconds is not None else 'not observable (' + step['reason'] + ')'}")
    if job.get("exposed_communication"):
        low, high = job["exposed_communication"]
        print(f"    exposed communication: between {low:.0%} and {high:.0%} of the time")
    for straggler in job.get("stragglers", []):
        where = straggler["host"] or "all hosts"
        rail = f", rail {straggler['rail']}" if straggler["rail"] is not None else ""
        print(f"    {straggler['kind'].replace('_', ' ')}: {where}{rail}")
    for key, words in (("hurt_by", "hurt by"), ("contributes_to", "contributes to")):
        if job.get(key):
            print(f"    {words}: {', '.join(job[key])}")
    for note in job.get("notes", []):
        print(f"    note: {note}")


COMMANDS = (Command("jobs", "running jobs: where, step time, stragglers, verdicts that touch them", _configure, _run),)

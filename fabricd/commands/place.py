"""``fabricd place``: rail-aware placement of a job, the check after its start, a comparison of policies, Slurm weights."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from fabricd.commands import place_actions
from fabricd.commands.base import Command, add_json, print_json
from fabricd.commands.place_inputs import read_view
from fabricd.config.load import load_config
from fabricd.errors import FabricdError, UsageError


def _configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--topology", metavar="FILE|live", help="JSON of `topo show --json`, ibnetdiscover output, or live"
    )
    parser.add_argument("--request", metavar="FILE", help="the request as JSON, - for standard input")
    parser.add_argument(
        "--verdicts", metavar="FILE", help="JSON of `fabricd verdicts --json`: nodes behind open ones are avoided"
    )
    parser.add_argument(
        "--doctor", metavar="FILE", action="append", default=[], help="doctor report: failed nodes are avoided"
    )
    parser.add_argument("--heat", metavar="FILE", help='uplink load by rail group as JSON: {"su1": 0.4}')
    parser.add_argument(
        "--refine", metavar="SECONDS", type=float, help="time limit of the CP-SAT refinement, 0 for none"
    )
    parser.add_argument(
        "--write", metavar="DIR", help="write hostfile, rankfile and torchrun lines into this directory"
    )
    add_json(parser)
    actions = parser.add_subparsers(dest="action", metavar="ACTION", title="other actions")
    for name, summary, configure, run in (
        (
            "check",
            "after the start: does the job run as its plan said?",
            place_actions.configure_check,
            place_actions.run_check,
        ),
        (
            "simulate",
            "compare placement policies on a stream of jobs",
            place_actions.configure_simulate,
            place_actions.run_simulate,
        ),
        (
            "weights",
            "live heat as Slurm node weights (off by default)",
            place_actions.configure_weights,
            place_actions.run_weights,
        ),
    ):
        action = actions.add_parser(name, help=summary, description=summary)
        # Given before the action's name, these must not be reset by the action's own default.
        inherited = argparse.SUPPRESS
        action.add_argument("--config", metavar="FILE", default=inherited, help="TOML configuration")
        action.add_argument("--json", action="store_true", default=inherited, help="one JSON document on stdout")
        configure(action)
        action.set_defaults(act=run)


def _run(args: argparse.Namespace) -> int:
    act: Callable[[argparse.Namespace], int] = getattr(args, "act", _place)
    return act(args)


def _place(args: argparse.Namespace) -> int:
    if not args.topology:
        raise UsageError("--topology: missing (a file, or live)")
    if not args.request:
        raise UsageError("--request: missing (a JSON file, or - for standard input)")
    from fabricd.placement.request import load_request
    from fabricd.placement.service import place

    config = load_config(args.config, {"placement.refine_seconds": args.refine}).placement
    request = load_request(args.request)
    view = read_view(args)
    plan = place(view.topology, request, config, verdicts=view.verdicts, doctor=view.doctor, heat=view.heat)
    if args.json:
        print_json(plan)
    elif plan["feasible"]:
        _print_plan(plan)
    if not plan["feasible"]:
        if not args.json:
            raise FabricdError("no placement: " + "; ".join(plan["reasons"]))
        return 1
    if args.write:
        _write_files(args.write, plan)
    return 0


def _print_plan(plan: dict[str, Any]) -> None:
    from fabricd.jobs.hostlist import compress

    job, score = plan["job"], plan["score"]
    print(
        f"{job['name']}: {job['nodes']} nodes, tp {job['tp']} pp {job['pp']} dp {job['dp']} cp {job['cp']} ep {job['ep']}"
    )
    for group in plan["groups"]:
        nodes = [
            host for entry in plan["placement"] if entry["rail_group"] == group["rail_group"] for host in entry["nodes"]
        ]
        print(f"  {group['pod']}/{group['rail_group']}: {compress(dict.fromkeys(nodes))}")
    blind = plan["baseline"]["scheduler_order"]
    print(
        f"switch hops: tensor-parallel pairs {score['mean_switch_hops_tp']} (nodes in name order {blind['mean_switch_hops_tp']}), "
        f"ring {score['mean_switch_hops_ring']} ({blind['mean_switch_hops_ring']})"
    )
    one = plan["placement"][0]["exposed_communication"]
    print(f"exposed communication, model: {one['low_ms']} to {one['high_ms']} ms per {one['per']}")
    solver = plan["solver"]
    print(f"solver: {solver['name']}, {solver['ms']} ms, {solver['bound']}")
    for reason in plan["reasons"]:
        print(f"- {reason}")
    for other in plan["alternatives"]:
        if other["feasible"]:
            print(f"alternative {other['what']}: {compress(other['nodes'])}")


def _write_files(directory: str, plan: dict[str, Any]) -> None:
    from fabricd.placement.files import write_atomically

    target = Path(directory)
    try:
        target.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UsageError(f"--write {directory}: {error.strerror}") from None
    launch = plan["launch"]
    for name, text in (
        ("slurm_hostfile", launch["slurm_hostfile"]),
        ("openmpi_rankfile", launch["openmpi_rankfile"]),
        ("openmpi_hostfile", launch["openmpi_hostfile"]),
        ("torchrun.txt", launch["torchrun"]),
        ("torchrun_env.json", json.dumps(launch["torchrun_env"], indent=1) + "\n"),
        ("plan.json", json.dumps(plan, indent=1) + "\n"),
    ):
        write_atomically(str(target / name), text)
        print(target / name, file=sys.stderr)


COMMANDS = (
    Command(
        name="place",
        summary="place a job so that tensor-parallel groups stay in their rail group",
        description="Places a job on free nodes by rail groups, pods and uplink heat, and prints rank order and launch files.",
        epilog="exit status 1: the request cannot be met (the JSON says why); docs/placement.md describes request and plan",
        configure=_configure,
        run=_run,
    ),
)

"""The other actions of ``fabricd place``: check after the start, comparison of policies, Slurm weights."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fabricd.commands.base import print_json
from fabricd.commands.place_inputs import json_file, read_topology_option, read_view
from fabricd.config.load import load_config
from fabricd.errors import FabricdError, UsageError

if TYPE_CHECKING:
    from fabricd.model.topology import Topology

FOUND = 3


def configure_check(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--plan", metavar="FILE", required=True, help="the plan as `fabricd place --json` printed it")
    parser.add_argument("--topology", metavar="FILE|live", required=True, help="the fabric now")
    where = parser.add_mutually_exclusive_group(required=True)
    where.add_argument("--hosts", metavar="HOSTLIST", help="nodes in rank order, such as gpu[001-004],gpu009")
    where.add_argument(
        "--hostfile", metavar="FILE", help="Slurm or Open MPI hostfile or rankfile the job was started with"
    )
    where.add_argument("--job", metavar="ID", help="ask Slurm where this job runs (node order, not rank order)")
    parser.add_argument(
        "--counters", metavar="FILE|live", help="bytes by switch port within one interval as JSON, or live: ask the api"
    )
    parser.add_argument(
        "--interval",
        metavar="SECONDS",
        type=float,
        default=10.0,
        help="--counters live: time between two readings (10)",
    )


def run_check(args: argparse.Namespace) -> int:
    from fabricd.jobs.hostlist import HostlistError, expand
    from fabricd.placement.check import check_plan
    from fabricd.placement.ranks import read_hostfile

    config = load_config(args.config)
    plan = json_file(args.plan, "--plan")
    if args.hosts is not None:
        try:
            running = expand(args.hosts)
        except HostlistError as error:
            raise UsageError(f"--hosts {args.hosts}: {error}") from None
    elif args.hostfile is not None:
        try:
            running = read_hostfile(Path(args.hostfile).read_text(encoding="utf-8"))
        except (OSError, UnicodeDecodeError) as error:
            raise UsageError(f"--hostfile {args.hostfile}: {error}") from None
    else:
        running = _slurm_hosts(args.job, config.jobs.squeue, config.jobs.timeout_s)
    topology = read_topology_option(args)
    traffic = _traffic(args, topology, running)
    findings = check_plan(plan, topology, running, traffic, config.placement.avoid_faults, ordered=args.job is None)
    failed = [finding for finding in findings if finding.verdict == "fail"]
    if args.json:
        print_json({"as_planned": not failed, "checks": [finding.to_json() for finding in findings]})
    else:
        for finding in findings:
            print(f"{finding.verdict:8}{finding.check}: {finding.why}")
    return FOUND if failed else 0


def _traffic(args: argparse.Namespace, topology: Topology, running: list[str]) -> dict[Any, Any] | None:
    if args.counters is None:
        return None
    if args.counters != "live":
        from fabricd.placement.check import parse_counters

        return parse_counters(json_file(args.counters, "--counters"), args.counters)
    import threading

    from fabricd.commands.live_view import api_get
    from fabricd.placement.api_source import measure_traffic
    from fabricd.placement.fabric import compile_fabric

    if not 1 <= args.interval <= 3600:
        raise UsageError(f"--interval {args.interval}: must be between 1 and 3600 seconds")
    get = api_get(load_config(args.config))
    return measure_traffic(get, compile_fabric(topology), running, lambda: threading.Event().wait(args.interval))


def _slurm_hosts(job_id: str, command: str, timeout_s: float) -> list[str]:
    from fabricd.jobs.slurm import from_squeue
    from fabricd.model.rejects import Rejects

    for job in from_squeue(command, timeout_s, Rejects()):
        if job.id == job_id:
            return list(job.nodes)
    raise FabricdError(f"--job {job_id}: Slurm knows no such running job")


def configure_simulate(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--topology", metavar="FILE", help="a fabric; without it a regular one of the next three options"
    )
    parser.add_argument("--groups", type=int, default=32, metavar="N", help="rail groups (default 32)")
    parser.add_argument("--group-size", type=int, default=32, metavar="N", help="nodes of a rail group (default 32)")
    parser.add_argument("--groups-per-pod", type=int, default=8, metavar="N", help="rail groups of a pod (default 8)")
    parser.add_argument("--jobs", type=int, default=300, metavar="N", help="jobs in the stream (default 300)")
    parser.add_argument(
        "--load", type=float, default=0.8, metavar="X", help="mean share of the nodes asked for (default 0.8)"
    )
    parser.add_argument("--seed", type=int, default=1, metavar="N")
    parser.add_argument(
        "--policies", metavar="LIST", default="random,reorder,scheduler,fabricd", help="default %(default)s"
    )


def run_simulate(args: argparse.Namespace) -> int:
    from fabricd.placement.fabric import compile_fabric
    from fabricd.placement.policies import POLICIES
    from fabricd.placement.read import read_topology
    from fabricd.placement.simulate import Mix, make_stream, simulate
    from fabricd.placement.synthetic import synthetic_fabric

    load_config(args.config)  # no key of it is needed; a wrong one is said all the same
    policies = args.policies.split(",")
    for name in policies:
        if name not in POLICIES:
            raise UsageError(f"--policies {name}: known are {', '.join(POLICIES)}")
    for option in ("groups", "group_size", "groups_per_pod", "jobs"):
        if not 1 <= getattr(args, option) <= 100_000:
            raise UsageError(f"--{option.replace('_', '-')} {getattr(args, option)}: must be between 1 and 100000")
    if not 0 < args.load <= 2:
        raise UsageError(f"--load {args.load}: must be above 0 and at most 2")
    if args.topology:
        fabric = compile_fabric(read_topology(args.topology))
    else:
        if args.groups * args.group_size > 200_000:
            raise UsageError(f"--groups {args.groups}: with --group-size {args.group_size} more than 200000 nodes")
        fabric = synthetic_fabric(args.groups, args.group_size, args.groups_per_pod)
    stream = make_stream(len(fabric.hosts), Mix(jobs=args.jobs, load=args.load), args.seed)
    results = simulate(fabric, stream, policies, args.seed)
    if args.json:
        print_json(
            {"nodes": len(fabric.hosts), "rail_groups": len(fabric.groups), "seed": args.seed, "policies": results}
        )
        return 0
    print(
        f"{len(stream)} jobs on {len(fabric.hosts)} nodes in {len(fabric.groups)} rail groups, load {args.load}, seed {args.seed}"
    )
    columns = (
        "mean_switch_hops_tp",
        "mean_switch_hops_ring",
        "tp_groups_across_groups",
        "fragmentation",
        "mean_wait_h",
    )
    heads = ("TP hops", "ring hops", "TP crossing", "fragmented", "wait h")
    print(f"{'policy':14}" + "".join(f"{head:>13}" for head in heads))
    for name, row in results.items():
        print(f"{name:14}" + "".join(f"{'-' if row[c] is None else row[c]:>13}" for c in columns))
    return 0


def configure_weights(parser: argparse.ArgumentParser) -> None:
    inherited = argparse.SUPPRESS
    parser.add_argument(
        "--topology", metavar="FILE|live", default=inherited, help="the fabric (not needed with --undo)"
    )
    parser.add_argument(
        "--heat", metavar="FILE", default=inherited, help="uplink load by rail group as JSON (default: the live one)"
    )
    parser.add_argument(
        "--state", metavar="FILE", default="/var/lib/fabricd/slurm-weights.json", help="default %(default)s"
    )
    parser.add_argument("--scontrol", metavar="CMD", default="scontrol", help="default %(default)s")
    what = parser.add_mutually_exclusive_group()
    what.add_argument("--apply", action="store_true", help="write; without it only the changes are shown")
    what.add_argument("--undo", action="store_true", help="put back every weight that is still ours")


def run_weights(args: argparse.Namespace) -> int:
    from fabricd.placement.fabric import compile_fabric
    from fabricd.placement.slurm_weights import Scontrol, apply_heat, undo

    config = load_config(args.config)
    slurm = Scontrol(args.scontrol)
    if args.undo:
        changes = undo(slurm, args.state)
    else:
        if not args.topology:
            raise UsageError("--topology: missing (a file, or live)")
        args.verdicts, args.doctor = None, []
        view = read_view(args)
        if not view.heat:
            raise FabricdError(
                "no uplink heat is known: give --heat FILE, or wait until the api has seen the uplinks long enough"
            )
        changes = apply_heat(compile_fabric(view.topology), view.heat, slurm, args.state, config.placement, args.apply)
    if args.json:
        print_json({"written": args.apply or args.undo, "changes": [change.to_json() for change in changes]})
    else:
        for change in changes:
            row = change.to_json()
            print(f"{row['result']:9}{row['nodes']}: weight {row['before']} -> {row['after']}")
        if not changes:
            print("nothing to change")
    return FOUND if any(change.result == "conflict" for change in changes) else 0

"""``fabricd place``: rail-aware placement of a job, the check after its start, a comparison of policies, Slurm weights."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fabricd.commands.base import Command, add_json, print_json
from fabricd.config.load import load_config
from fabricd.errors import FabricdError, UsageError

if TYPE_CHECKING:
    from fabricd.model.topology import Topology
    from fabricd.placement.live import LiveView

FOUND = 3


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
        ("check", "after the start: does the job run as its plan said?", _configure_check, _check),
        ("simulate", "compare placement policies on a stream of jobs", _configure_simulate, _simulate),
        ("weights", "live heat as Slurm node weights (off by default)", _configure_weights, _weights),
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
    view = _view(args)
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


def _view(args: argparse.Namespace) -> LiveView:
    """Topology, verdicts, doctor reports and heat of the options; live values where no file is given."""
    from fabricd.placement.live import LiveView
    from fabricd.placement.read import read_topology

    if args.topology == "live":
        from fabricd.commands.live_view import live_view

        view = live_view(load_config(args.config))
    else:
        view = LiveView(read_topology(args.topology))
    if args.verdicts:
        view.verdicts = _verdicts(args.verdicts)
    view.doctor += [_json_file(path, "--doctor") for path in args.doctor]
    if args.heat:
        view.heat = _heat(args.heat)
    return view


def _verdicts(path: str) -> list[Any]:
    import msgspec

    from fabricd.model.verdict import Verdict

    document = _json_file(path, "--verdicts")
    rows = document.get("verdicts") if isinstance(document, dict) else document
    try:
        return msgspec.convert(rows, list[Verdict])
    except msgspec.ValidationError as error:
        raise UsageError(f"--verdicts {path}: {error}") from None


def _heat(path: str) -> dict[str, float]:
    document = _json_file(path, "--heat")
    table = document.get("heat", document) if isinstance(document, dict) else None
    if not isinstance(table, dict):
        raise UsageError(f"--heat {path}: must map rail groups to a load between 0 and 1")
    for group, value in table.items():
        if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value <= 1:
            raise UsageError(f"--heat {path}: {group} = {value!r}: must be between 0 and 1")
    return {str(group): float(value) for group, value in table.items()}


def _json_file(path: str, option: str) -> Any:
    try:
        return json.loads(Path("/dev/stdin" if path == "-" else path).read_text(encoding="utf-8"))
    except OSError as error:
        raise UsageError(f"{option} {path}: {error.strerror}") from None
    except (ValueError, RecursionError) as error:
        raise UsageError(f"{option} {path}: not JSON: {error}") from None


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


def _configure_check(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--plan", metavar="FILE", required=True, help="the plan as `fabricd place --json` printed it")
    parser.add_argument("--topology", metavar="FILE|live", required=True, help="the fabric now")
    where = parser.add_mutually_exclusive_group(required=True)
    where.add_argument("--hosts", metavar="HOSTLIST", help="nodes in rank order, such as gpu[001-004],gpu009")
    where.add_argument(
        "--hostfile", metavar="FILE", help="Slurm or Open MPI hostfile or rankfile the job was started with"
    )
    where.add_argument("--job", metavar="ID", help="ask Slurm where this job runs (node order, not rank order)")
    parser.add_argument("--counters", metavar="FILE", help="bytes by switch port within one interval, as JSON")


def _check(args: argparse.Namespace) -> int:
    from fabricd.jobs.hostlist import HostlistError, expand
    from fabricd.placement.check import check_plan, parse_counters
    from fabricd.placement.ranks import read_hostfile

    config = load_config(args.config)
    plan = _json_file(args.plan, "--plan")
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
    topology = _topology(args)
    traffic = None if args.counters is None else parse_counters(_json_file(args.counters, "--counters"), args.counters)
    findings = check_plan(plan, topology, running, traffic, config.placement.avoid_faults)
    failed = [finding for finding in findings if finding.verdict == "fail"]
    if args.json:
        print_json({"as_planned": not failed, "checks": [finding.to_json() for finding in findings]})
    else:
        for finding in findings:
            print(f"{finding.verdict:8}{finding.check}: {finding.why}")
    return FOUND if failed else 0


def _slurm_hosts(job_id: str, command: str, timeout_s: float) -> list[str]:
    from fabricd.jobs.slurm import from_squeue
    from fabricd.model.rejects import Rejects

    for job in from_squeue(command, timeout_s, Rejects()):
        if job.id == job_id:
            return list(job.nodes)
    raise FabricdError(f"--job {job_id}: Slurm knows no such running job")


def _topology(args: argparse.Namespace) -> Topology:
    from fabricd.placement.read import read_topology

    if args.topology == "live":
        from fabricd.commands.live_view import live_view

        return live_view(load_config(args.config)).topology
    return read_topology(args.topology)


def _configure_simulate(parser: argparse.ArgumentParser) -> None:
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


def _simulate(args: argparse.Namespace) -> int:
    from fabricd.placement.fabric import compile_fabric
    from fabricd.placement.policies import POLICIES
    from fabricd.placement.read import read_topology
    from fabricd.placement.simulate import Mix, make_stream, simulate
    from fabricd.placement.synthetic import synthetic_fabric

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


def _configure_weights(parser: argparse.ArgumentParser) -> None:
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


def _weights(args: argparse.Namespace) -> int:
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
        view = _view(args)
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

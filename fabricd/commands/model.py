"""``fabricd model``: what an all-reduce or a transformer step should cost, and what a benchmark says of the wire."""

from __future__ import annotations

import argparse
import re
import sys
from pathlib import Path
from typing import Any

from fabricd.commands.base import Command, add_config_again, add_json, print_json
from fabricd.commands.client import add_url, get_json
from fabricd.config.load import load_config
from fabricd.errors import UsageError

_SIZE = re.compile(r"(\d+(?:\.\d+)?)\s*([KMGT]?)(i?)B?", re.IGNORECASE)


def parse_size(text: str) -> float:
    """``64MiB``, ``1G``, ``8589934592``: bytes. Raises argparse's error on anything else."""
    match = _SIZE.fullmatch(text.strip())
    if not match or float(match[1]) <= 0:
        raise argparse.ArgumentTypeError(f"not a size: {text!r} (examples: 65536, 64MiB, 1GB)")
    base = 1024 if match[3] else 1000
    return float(float(match[1]) * base ** " KMGT".index(match[2].upper() or " "))


def _configure(parser: argparse.ArgumentParser) -> None:
    kinds = parser.add_subparsers(dest="kind", metavar="KIND", required=True)
    reduce = kinds.add_parser("allreduce", help="time, bus bandwidth and wire bytes of one all-reduce")
    reduce.add_argument("--size", type=parse_size, default=parse_size("64MiB"), help="message size (default 64MiB)")
    _cluster_options(reduce)
    reduce.add_argument(
        "--job", metavar="ID", help="hold the prediction against what the running fabricd measures of this job"
    )
    add_url(reduce)
    step = kinds.add_parser("transformer", help="tensor-parallel communication of one training microbatch")
    for name, default in (("layers", 80), ("hidden", 8192), ("sequence", 4096), ("microbatch", 1)):
        step.add_argument(f"--{name}", type=int, default=default, help=f"default {default}")
    step.add_argument("--recompute", action="store_true", help="full activation recomputation")
    step.add_argument("--tp", type=int, default=8, help="GPUs in the tensor-parallel group (default 8)")
    step.add_argument("--tflops", type=float, default=989.0, help="peak bf16 TFLOP/s of a GPU (default 989)")
    step.add_argument(
        "--efficiency", type=float, default=0.5, help="share of the peak that compute reaches (default 0.5)"
    )
    step.add_argument(
        "--busbw", type=float, required=True, help="GB/s measured for this message size and group (nccl-tests)"
    )
    wire = kinds.add_parser("busbw", help="nccl-tests output: GB/s on each NIC against its line rate")
    wire.add_argument("file", help="output of all_reduce_perf ('-' = standard input)")
    wire.add_argument("--nodes", type=int, help="default: counted from the output")
    wire.add_argument("--gpus-per-node", type=int, help="default: counted from the output")
    wire.add_argument("--nic-gbps", type=float, default=400.0, help="line rate of one NIC in Gb/s (default 400)")
    for sub in (reduce, step, wire):
        add_config_again(sub)
        add_json(sub)


def _cluster_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--nodes", type=int, help="needed unless --job names a running one")
    parser.add_argument("--gpus-per-node", type=int, default=8)
    parser.add_argument("--nics-per-node", type=int, default=8)
    parser.add_argument("--nic-gbps", type=float, default=400.0, help="line rate of one NIC in Gb/s (default 400)")
    parser.add_argument(
        "--nvlink-gbs", type=float, default=370.0, help="bus bandwidth inside a node in GB/s (default 370)"
    )
    parser.add_argument("--cpu", choices=("intel", "amd"), default="intel")
    parser.add_argument(
        "--uplink-share",
        type=float,
        default=1.0,
        help="share of the NIC rate that the uplinks used still give (congestion)",
    )


def _run(args: argparse.Namespace) -> int:
    load_config(args.config)  # no key of it is needed; a wrong one is said all the same
    try:
        document = {"allreduce": _allreduce, "transformer": _transformer, "busbw": _busbw}[args.kind](args)
    except ValueError as error:
        raise UsageError(f"model {args.kind}: {error}") from None
    if args.json:
        print_json(document)
    else:
        _print_table(document)
    return 0


def _allreduce(args: argparse.Namespace) -> dict[str, Any]:
    from fabricd.jobs.allreduce import PROTOCOLS, Cluster, best, estimate, hierarchical, wire_bytes_per_nic

    if args.job:
        return _against_job(args)
    if args.nodes is None:
        raise ValueError("--nodes is needed")
    cluster = Cluster(
        args.nodes,
        args.gpus_per_node,
        args.nics_per_node,
        args.nic_gbps / 8,
        args.nvlink_gbs,
        args.cpu,
        args.uplink_share,
    )
    low, high = hierarchical(cluster, args.size)
    rows = [
        estimate(cluster, args.size, algorithm, protocol) for algorithm in ("ring", "tree") for protocol in PROTOCOLS
    ]
    chosen = best(cluster, args.size)
    return {
        "ranks": cluster.ranks,
        "size_bytes": args.size,
        "algorithms": [
            {"algorithm": e.algorithm, "protocol": e.protocol, "seconds": e.seconds, "busbw_gbs": e.busbw_gbs}
            for e in rows
        ],
        "best": {"algorithm": chosen.algorithm, "protocol": chosen.protocol, "seconds": chosen.seconds},
        "hierarchical_seconds": [low, high],
        "wire_bytes_per_nic": wire_bytes_per_nic(cluster, args.size),
        "note": "alpha-beta model: 10 to 20 % for large messages, sizing only for small ones",
    }


def _against_job(args: argparse.Namespace) -> dict[str, Any]:
    """The time the measured bytes need on the wire, against the time in which the job's NICs were seen busy."""
    from fabricd.jobs.predicted import against_measured

    document = get_json(args, "/api/v1/jobs", {"id": args.job})
    return against_measured(document["jobs"][0], args.nic_gbps / 8, args.uplink_share)


def _transformer(args: argparse.Namespace) -> dict[str, Any]:
    from fabricd.jobs.transformer import Transformer, step_share

    model = Transformer(args.layers, args.hidden, args.sequence, args.microbatch, args.recompute)
    share = step_share(model, args.tp, args.tflops * 1e12, args.efficiency, args.busbw)
    return {
        "message_bytes": model.message_bytes,
        "allreduces_per_microbatch": model.allreduces,
        "compute_seconds": share.compute_seconds,
        "communication_seconds": share.communication_seconds,
        "compute_share": share.compute_share,
        "note": "no overlap assumed: communication is an upper bound of what is exposed",
    }


def _busbw(args: argparse.Namespace) -> dict[str, Any]:
    from fabricd.jobs.nccl_tests import against_wire, parse

    try:
        text = sys.stdin.read() if args.file == "-" else Path(args.file).read_text(encoding="utf-8", errors="replace")
    except OSError as error:
        raise UsageError(f"{args.file}: {error.strerror}") from None
    test = parse(text)
    if not test.lines:
        raise ValueError(f"{args.file}: no line of results")
    nodes = args.nodes or test.nodes
    per_node = args.gpus_per_node or (test.ranks // nodes if nodes else 0)
    if not nodes or not per_node:
        raise ValueError(f"{args.file} names no ranks: give --nodes and --gpus-per-node")
    return against_wire(test, nodes, per_node, args.nic_gbps) | {"rejects": test.rejects.to_json()}


def _print_table(document: dict[str, Any]) -> None:
    for key, value in document.items():
        if isinstance(value, list) and value and isinstance(value[0], dict):
            print("  ".join(f"{column:>20}" for column in value[0]))
            for row in value:
                print("  ".join(f"{_short(cell):>20}" for cell in row.values()))
        elif value not in ([], {}):
            print(f"{key.replace('_', ' ')}: {_short(value)}")


def _short(value: Any) -> str:
    if isinstance(value, float):
        return f"{value:.6g}"
    if isinstance(value, list):
        return " to ".join(_short(v) for v in value)
    if isinstance(value, dict):
        return ", ".join(f"{k.replace('_', ' ')} {_short(v)}" for k, v in value.items())
    return str(value)


COMMANDS = (Command("model", "what an all-reduce or a training step should cost on this fabric", _configure, _run),)

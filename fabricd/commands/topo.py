"""``fabricd topo``: show the fabric, export it, compare it with how it should be."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from fabricd.commands.base import Command, add_config_again, add_json, print_json
from fabricd.errors import FabricdError, UsageError

if TYPE_CHECKING:
    from fabricd.model.topology import Topology

FOUND_SOMETHING = 3
OWN_FORMATS = ("json", "golden", "svg")


def _configure(parser: argparse.ArgumentParser) -> None:
    actions = parser.add_subparsers(dest="action", metavar="show|export|diff", required=True)
    show = actions.add_parser("show", help="the fabric as a tree, and what is wrong with its wiring")
    show.add_argument("--no-hosts", action="store_true", help="leave out the hosts' names")
    export = actions.add_parser(
        "export",
        help="write the fabric for other tools",
        description="Formats: json (everything), golden (for topo diff, to keep under version control), svg (a picture); "
        "for schedulers slurm-tree, slurm-block, slurm-yaml, k8s-labels, kueue, volcano, kai; nccl for NCCL.",
    )
    export.add_argument("--format", default="json", metavar="FORMAT", help="see above (default: json)")
    export.add_argument("--output", metavar="FILE", help="write there instead of to standard output")
    export.add_argument("--node", metavar="HOST", help="nccl: only this host's file")
    export.add_argument(
        "--names",
        metavar="FILE",
        help="scheduler formats: book that keeps names across runs (default: placement.names)",
    )
    export.add_argument(
        "--watch", action="store_true", help="scheduler formats: keep --output true to the fabric until stopped"
    )
    export.add_argument(
        "--every", type=float, default=10.0, metavar="SECONDS", help="--watch: time between two looks (10)"
    )
    diff = actions.add_parser(
        "diff",
        help="compare with a golden file",
        description="Names each missing, moved, added, replaced, slower or narrower link, each missing, added and renamed "
        "device. Exit status 3 when there are differences.",
    )
    diff.add_argument("golden", nargs="?", metavar="GOLDEN", help="a file of `topo export` (default: topology.golden)")
    for action in (show, export, diff):
        source = action.add_mutually_exclusive_group()
        source.add_argument("--from-ibnetdiscover", metavar="FILE", help="output of ibnetdiscover, with or without -p")
        source.add_argument(
            "--from",
            dest="source",
            metavar="FILE",
            help="any topology file: ibnetdiscover, opensm-subnet.lst, ibdiagnet2.db_csv, saquery, links file, exported JSON",
        )
        source.add_argument("--mad-socket", metavar="NAME", help="discover a simulated fabric (ibsim, fabricd twin)")
        add_config_again(action)
        add_json(action)


def _read(args: argparse.Namespace) -> Topology:
    from fabricd.config.load import load_config
    from fabricd.ib.limits import Limits
    from fabricd.ib.transport import TransportError
    from fabricd.topology.live import take_picture
    from fabricd.topology.load import load_ibnetdiscover

    if args.from_ibnetdiscover:
        return load_ibnetdiscover(args.from_ibnetdiscover)
    source = args.source or ("smp" if args.mad_socket else None)
    config = load_config(args.config, {"topology.source": source, "topology.mad_socket": args.mad_socket})
    try:
        patient = Limits(timeout_ms=1000, retries=2)  # nothing else waits for this process
        return take_picture(config.topology, config.fabric.name, limits=patient, routes=False).topology
    except TransportError as error:
        kept = config.topology.cache
        other = (
            f"the collector's last picture is there: --from {kept}"
            if Path(kept).is_file()
            else "give a file: --from FILE"
        )
        raise FabricdError(f"{error}; {other}") from None


def _run(args: argparse.Namespace) -> int:
    if args.action == "export":
        return _export(args)
    if args.action == "diff":
        return _diff(args)
    topology = _read(args)
    if args.json:
        from fabricd.topology.golden import full_json

        print_json(full_json(topology))
    else:
        from fabricd.topology.tree import render_tree

        sys.stdout.write(render_tree(topology, hosts=not args.no_hosts))
    return 0


def _export(args: argparse.Namespace) -> int:
    if args.format not in OWN_FORMATS:
        from fabricd.placement.exporters import FORMATS

        if args.format not in FORMATS:
            known = ", ".join((*OWN_FORMATS, *FORMATS))
            raise UsageError(f"--format {args.format}: unknown format; known: {known}")
        from fabricd.config.load import load_config

        args.names = args.names or load_config(args.config).placement.names
        if args.watch or args.names:
            from fabricd.commands.topo_keep import export_with_names, watch_export

            return watch_export(args, lambda: _read(args)) if args.watch else export_with_names(args, _read(args))
    elif args.watch or args.names:
        raise UsageError(f"--format {args.format}: --watch and --names are for the scheduler formats")
    text = _render(_read(args), args)
    if args.output is None:
        sys.stdout.write(text)
        return 0
    try:
        Path(args.output).write_text(text, encoding="utf-8")
    except OSError as error:
        raise UsageError(f"--output {args.output}: {error.strerror}") from None
    return 0


def _render(topology: Topology, args: argparse.Namespace) -> str:
    if args.format == "json":
        import json

        from fabricd.topology.golden import full_json

        return json.dumps(full_json(topology), separators=(",", ":")) + "\n"
    if args.format == "golden":
        from fabricd.topology.golden import golden_json

        return golden_json(topology)
    if args.format == "svg":
        from fabricd.topology.svg import render_svg

        return render_svg(topology)
    from fabricd.config.load import load_config
    from fabricd.placement.exporters import export

    config = load_config(args.config)
    return export(topology, args.format, config.placement, node=args.node)


def _diff(args: argparse.Namespace) -> int:
    from fabricd.config.load import load_config
    from fabricd.topology.diff import compare
    from fabricd.topology.load import load_topology

    path = args.golden or load_config(args.config).topology.golden
    if not path:
        raise UsageError("topo diff: give a GOLDEN file, or set topology.golden")
    golden, now = load_topology(path), _read(args)
    differences = compare(golden, now).differences
    if args.json:
        rejects = golden.rejects.to_json() + now.rejects.to_json()
        print_json({"differences": [difference.to_json() for difference in differences], "rejects": rejects})
    else:
        for difference in differences:
            print(f"{difference.kind.replace('_', ' '):17} {difference.where}: {difference.detail}")
        print(f"{len(differences)} differences" if differences else "as in the golden file")
    return FOUND_SOMETHING if differences else 0


COMMANDS = (
    Command(
        "topo",
        "show, export and compare the fabric's topology",
        _configure,
        _run,
        epilog="exit status: 0 done, 2 wrong usage, 3 differences found",
    ),
)

"""``fabricd replay``: the detector over a trace, a recording, or yesterday's data from what people already run."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

from fabricd.commands.base import Command, add_json, print_json
from fabricd.errors import UsageError

if TYPE_CHECKING:
    from fabricd.outputs.trace import Trace

EPILOG = """\
sources:
  DIR                 a trace (counters.csv.gz, topology.json) or a recording of `fabricd record`
  --from prometheus:URL    infiniband_exporter or node_exporter, with --topology for what they do not know
  --from ufm-csv:FILE      telemetry CSV of UFM, needs --topology
  --from ibdiagnet:DIR     two or more output directories (DIR holds them), or one with --topology
"""


def _configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("directory", nargs="?", metavar="DIR", help="a trace or a recording")
    parser.add_argument("--from", dest="source", metavar="SOURCE", help="prometheus:URL, ufm-csv:FILE or ibdiagnet:DIR")
    parser.add_argument(
        "--topology", metavar="FILE", help="topology JSON or ibnetdiscover text, for sources without one"
    )
    parser.add_argument("--pairs", metavar="FILE", help="who talks to whom: lines src,dst,prio (CSV) or JSON")
    parser.add_argument(
        "--start", metavar="TIME", help="prometheus: RFC 3339 or Unix time (default: 24 h before the end)"
    )
    parser.add_argument("--end", metavar="TIME", help="prometheus: default now")
    parser.add_argument("--step", metavar="SECONDS", type=float, help="prometheus: interval (default: as scraped)")
    parser.add_argument(
        "--live", action="store_true", help="print verdicts as they are raised, at the speed of the recording"
    )
    add_json(parser)


def _run(args: argparse.Namespace) -> int:
    from fabricd.outputs import replay
    from fabricd.outputs.pairs_file import read_pairs
    from fabricd.outputs.verdict_text import one_line

    if bool(args.directory) == bool(args.source):
        raise UsageError("replay: give a directory or --from SOURCE, not both")
    trace = load(args)
    pairs = read_pairs(Path(args.pairs), trace.rejects) if args.pairs else []
    result = replay.run(trace, pairs)
    if args.json:
        print_json(result.to_json())
        return 0
    for verdict in result.verdicts:
        print(one_line(verdict, still_open=verdict.id in result.open_ids))
    print(f"{result.intervals} intervals, {len(result.verdicts)} verdicts, {trace.rejects.total} rejects")
    return 0


def load(args: argparse.Namespace) -> Trace:
    """The trace a replay's options name. Raises UsageError and FabricdError."""
    if args.directory:
        return read_directory(Path(args.directory))
    raise UsageError(f"--from {args.source}: begin with prometheus:, ufm-csv: or ibdiagnet:")


def read_directory(directory: Path) -> Trace:
    """A trace or a recording. Raises UsageError and FabricdError."""
    from fabricd.outputs.trace import read_trace

    if not directory.is_dir():
        raise UsageError(f"replay {directory}: no such directory")
    return read_trace(directory)


COMMANDS = (Command("replay", "run the detector over recorded counters", _configure, _run, epilog=EPILOG),)

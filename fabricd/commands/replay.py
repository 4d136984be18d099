"""``fabricd replay``: the detector over a trace, a recording, or yesterday's data from what people already run."""

from __future__ import annotations

import argparse
from pathlib import Path

from fabricd.commands.base import Command, add_json, print_json
from fabricd.errors import UsageError


def _configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("directory", nargs="?", metavar="DIR", help="a trace or a recording")
    parser.add_argument("--from", dest="source", metavar="SOURCE", help="prometheus:URL, ufm-csv:FILE or ibdiagnet:DIR")
    parser.add_argument("--pairs", metavar="FILE", help="who talks to whom: lines src,dst,prio (CSV) or JSON")
    add_json(parser)


def _run(args: argparse.Namespace) -> int:
    from fabricd.outputs import replay
    from fabricd.outputs.trace import read_trace

    if bool(args.directory) == bool(args.source):
        raise UsageError("replay: give a directory or --from SOURCE")
    trace = read_trace(Path(args.directory))
    result = replay.run(trace)
    print_json(result.to_json())
    return 0


COMMANDS = (Command("replay", "run the detector over recorded counters", _configure, _run),)

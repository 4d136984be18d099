"""``fabricd record DIR``: a replayable recording of what the fabric publishes."""

from __future__ import annotations

import argparse
import asyncio
import math
import os
import sys
from pathlib import Path

from fabricd.commands.base import Command, add_json, print_json
from fabricd.errors import UsageError


def _configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("directory", metavar="DIR", help="directory of the recording; a new one, or one to go on with")
    parser.add_argument("--seconds", type=float, metavar="S", help="stop after so long (default: until Ctrl-C)")
    parser.add_argument("--limit-mb", type=int, default=1024, metavar="MIB", help="most disk space (%(default)s)")
    add_json(parser)


def _run(args: argparse.Namespace) -> int:
    from fabricd import logs
    from fabricd.config.load import load_config

    if args.limit_mb < 4:
        raise UsageError(f"--limit-mb {args.limit_mb}: must be at least 4")
    if args.seconds is not None and not 0 < args.seconds < math.inf:
        raise UsageError(f"--seconds {args.seconds:g}: must be above 0")
    config = load_config(args.config)
    logs.set_up(config.fabric.log_format, config.fabric.log_level)
    from fabricd.daemons.lifecycle import run_daemon
    from fabricd.daemons.recorder import Recorder

    recorder = Recorder(config, Path(args.directory), args.limit_mb << 20, f"fabricd-record-{os.getpid()}")
    asyncio.run(run_daemon(lambda ready: recorder.run(ready, args.seconds)))
    summary = recorder.summary()
    if args.json:
        print_json(summary)
    else:
        print(f"{summary['frames']} frames of {len(summary['nodes'])} nodes in {args.directory}", file=sys.stderr)
    return 0 if summary["frames"] else 1


COMMANDS = (
    Command(
        "record",
        "record the frames of the fabric for fabricd replay",
        _configure,
        _run,
        description="Subscribes beside the aggregator and writes what it sees to DIR in the aggregator's own format. It acknowledges\n"
        "nothing to the nodes, so it changes nothing for them.",
    ),
)

"""``fabricd controller``: the daemon that may change the fabric (by default it only watches)."""

from __future__ import annotations

import argparse
import asyncio

from fabricd.commands.base import Command


def _configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--mode", choices=["observe", "advise", "enforce"], help="control.mode")
    parser.add_argument("--journal", metavar="FILE", help="control.journal")


def _run(args: argparse.Namespace) -> int:
    from fabricd import logs
    from fabricd.config.load import load_config
    from fabricd.daemons.controller import run_controller
    from fabricd.daemons.lifecycle import run_daemon

    config = load_config(args.config, {"control.mode": args.mode, "control.journal": args.journal})
    logs.set_up(config.fabric.log_format, config.fabric.log_level)
    asyncio.run(run_daemon(lambda ready: run_controller(config, ready)))
    return 0


COMMANDS = (
    Command(
        "controller",
        "decide, act and verify; the default mode writes nothing",
        _configure,
        _run,
        description="Takes verdicts from the broker and figures from the aggregator, keeps its journal, and in mode advise or\n"
        "enforce changes levers through its adapters. Opens no listening socket.",
    ),
)

"""``fabricd aggregator``: the daemon that receives, records and serves."""

from __future__ import annotations

import argparse
import asyncio

from fabricd.commands.base import Command


def _configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--recording", metavar="DIR", help="directory of the recording (aggregator.recording_dir)")
    parser.add_argument("--socket", metavar="PATH", help="unix socket for the api process (aggregator.socket)")


def _run(args: argparse.Namespace) -> int:
    from fabricd import logs
    from fabricd.config.load import load_config
    from fabricd.config.root import Config
    from fabricd.daemons.aggregator import Aggregator, run_aggregator
    from fabricd.daemons.lifecycle import run_daemon

    def load() -> Config:
        return load_config(args.config, {"aggregator.recording_dir": args.recording, "aggregator.socket": args.socket})

    config = load()
    logs.set_up(config.fabric.log_format, config.fabric.log_level)
    made: list[Aggregator] = []

    def reload() -> None:
        for aggregator in made:
            aggregator.reload(load)

    asyncio.run(run_daemon(lambda ready: run_aggregator(config, ready, made.append), reload))
    return 0


COMMANDS = (
    Command(
        "aggregator",
        "receive frames from the broker, record them, serve counters and rates",
        _configure,
        _run,
        description="Subscribes to the fabric's frames, writes them to a bounded recording before it acknowledges them, keeps the\n"
        "newest readings in memory and answers the api process on a unix socket. SIGHUP reloads the configuration.",
    ),
)

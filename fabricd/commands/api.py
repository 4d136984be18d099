"""``fabricd api``: the HTTP interface as a process of its own."""

from __future__ import annotations

import argparse
import asyncio
import logging

from fabricd.commands.base import Command
from fabricd.errors import UsageError


def _configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--host", help="address to listen on (api.host, default loopback)")
    parser.add_argument("--port", type=int, help="TCP port, 0 for any free one (api.port)")
    parser.add_argument("--socket", metavar="PATH", help="the aggregator's unix socket (aggregator.socket)")


def _run(args: argparse.Namespace) -> int:
    from fabricd import logs
    from fabricd.config.load import load_config
    from fabricd.daemons.api import run_api
    from fabricd.daemons.lifecycle import run_daemon

    overrides = {"api.host": args.host, "api.port": args.port, "aggregator.socket": args.socket}
    config = load_config(args.config, overrides)
    logs.set_up(config.fabric.log_format, config.fabric.log_level)

    def reload() -> None:
        """Only the log's settings can change without a new socket."""
        try:
            fresh = load_config(args.config, overrides)
        except UsageError as error:
            logging.getLogger(__name__).error("reload: %s; the old configuration stays", error)
            return
        logs.set_up(fresh.fabric.log_format, fresh.fabric.log_level)

    asyncio.run(run_daemon(lambda ready: run_api(config, ready), reload))
    return 0


COMMANDS = (
    Command(
        "api",
        "serve status page, API and metrics over HTTP",
        _configure,
        _run,
        description="Answers GET requests by asking the aggregator over its unix socket. Listens on loopback unless told otherwise.",
    ),
)

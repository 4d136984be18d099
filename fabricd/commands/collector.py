"""``fabricd collector``: the daemon that sweeps the fabric's switches."""

from __future__ import annotations

import argparse

from fabricd.commands.base import Command

_DESCRIPTION = """\
Sweeps the counters of every switch port in-band, once a second, and publishes them over MQTT. Gets only: nothing is cleared.
It alone opens the umad device, and answers typed Gets (PortInfo, SLtoVL, LinearForwarding …) to others on a Unix socket.
Several collectors on one fabric share its switches by leases ([collector] shards, lease)."""


def _configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--device", metavar="NAME", help="InfiniBand device to sweep through (default: first active)")
    parser.add_argument("--mad-socket", metavar="NAME", help="socket name of an ibsim-compatible simulator")
    parser.add_argument("--mad-host", metavar="NODE", help="node of the simulated fabric to sit at")


def _run(args: argparse.Namespace) -> int:
    from fabricd.config.load import load_config
    from fabricd.daemons.collector import run_collector

    config = load_config(
        args.config,
        {
            "collector.device": args.device,
            "collector.mad_socket": args.mad_socket,
            "collector.mad_host": args.mad_host,
        },
    )
    return run_collector(config)


COMMANDS = (Command("collector", "sweep switch ports and publish them (daemon)", _configure, _run, _DESCRIPTION),)

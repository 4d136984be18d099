"""``fabricd up``: try it, here and now."""

from __future__ import annotations

import argparse
import asyncio
import sys
import tempfile
from collections.abc import Callable
from contextlib import AsyncExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fabricd.commands.base import Command, add_json, print_json

if TYPE_CHECKING:
    from fabricd.config.root import Config
    from fabricd.daemons.up import Running

TWIN_SLOTS = 500  # steps of the model a second: leaves most of a small machine to the rest

_EPILOG = """\
examples:
  fabricd up                        this node, on an embedded broker; Ctrl-C stops and cleans up
  fabricd up --state DIR            keep the recording in DIR and go on from it next time
  fabricd up --twin incast          a simulated fabric with a congestion tree in a quarter of a minute
  fabricd up --json                 the first line on stdout is one JSON object with the addresses
"""


def _configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--state", metavar="DIR", help="keep recording and spools here (default: a directory removed at the end)"
    )
    parser.add_argument("--host", help="address of status page and metrics (api.host, default loopback)")
    parser.add_argument("--port", type=int, help="their TCP port, 0 for any free one (api.port)")
    parser.add_argument("--twin", metavar="SCENARIO", help="a simulated fabric instead of this node (see fabricd twin)")
    parser.add_argument("--seed", type=int, metavar="N", help="with --twin: another draw")
    parser.add_argument("--hosts", type=int, metavar="N", help="with --twin: about so many adapters")
    add_json(parser)


def _run(args: argparse.Namespace) -> int:
    from fabricd import logs
    from fabricd.config.load import load_config

    config = load_config(args.config, {"api.host": args.host, "api.port": args.port})
    if args.config is None and config.fabric.log_level == "info":
        config.fabric.log_level = "warning"  # people see the announcement, not the log, unless they ask for it
    logs.set_up(config.fabric.log_format, config.fabric.log_level)
    if args.state is not None:
        asyncio.run(_up(args, config, Path(args.state)))
        return 0
    with tempfile.TemporaryDirectory(prefix="fabricd-up-", ignore_cleanup_errors=True) as state:
        asyncio.run(_up(args, config, Path(state)))
    return 0


async def _up(args: argparse.Namespace, config: Config, state: Path) -> None:
    from fabricd.daemons.agent_once import read_once
    from fabricd.daemons.lifecycle import run_daemon
    from fabricd.daemons.simulated import SimulatedFabric, simulated_fabric
    from fabricd.daemons.up import local_sources, run_up

    async def main(ready: Callable[[str], None]) -> None:
        async with AsyncExitStack() as stack:
            simulated: SimulatedFabric | None = None
            if args.twin is not None:
                simulated = await stack.enter_async_context(simulated_fabric(args.twin, _twin_arguments(args)))
                simulated.settle(config)
                sources = simulated.sources(state)
                found: dict[str, Any] = {"twin": simulated.addresses}
                words = [f"fabricd on a simulated fabric: {simulated.summary}"]
                if all(source.name != "collector" for source in sources):
                    words.append("  switch ports  not swept: RoCE switches answer SNMP, not management datagrams")
            else:
                reading = await asyncio.to_thread(read_once, config)
                sources = local_sources(state)
                found, words = _found_json(reading), _found_words(reading)
                if all(source.name != "collector" for source in sources):
                    words.append("  switch ports  not swept: no umad device this user may open")

            def announce(running: Running) -> None:
                if args.json:
                    print_json({**found, **running.to_json()})
                else:
                    print("\n".join(words + _running_words(running)))
                sys.stdout.flush()

            async with asyncio.TaskGroup() as group:
                if simulated is not None:
                    group.create_task(simulated.watch())
                await run_up(config, args.config, state, sources, announce, ready, port_is_a_wish=args.port is None)

    await run_daemon(main)


def _twin_arguments(args: argparse.Namespace) -> list[str]:
    given = {"--seed": args.seed, "--hosts": args.hosts}
    given["--slots"] = TWIN_SLOTS
    return [text for option, value in given.items() if value is not None for text in (option, str(value))]


def _found_json(found: dict[str, Any]) -> dict[str, Any]:
    return {
        "node": found["node"],
        "rdma_devices": [device["name"] for device in found["devices"]],
        "netdevs": [netdev["name"] for netdev in found.get("netdevs", ())],
    }


def _found_words(found: dict[str, Any]) -> list[str]:
    lines = [f"fabricd on node {found['node']}"]
    for device in found["devices"]:
        ports = ", ".join(
            f"port {port['port']} {port['link_layer'] or 'link layer unknown'} {port['state'] or 'state unknown'}"
            for port in device["ports"]
        )
        lines.append(f"  RDMA device   {device['name']} ({device['driver'] or 'driver unknown'}): {ports or 'no port'}")
    if not found["devices"]:
        lines.append("  RDMA devices  none on this node")
        names = [
            f"{n['name']} ({n['driver'] or 'no driver'}, {n['operstate'] or 'state unknown'})" for n in found["netdevs"]
        ]
        lines.append(f"  reading its network interfaces: {', '.join(names) or 'there are none either'}")
        lines.append("  for a simulated fabric with switches and congestion: fabricd up --twin SCENARIO")
    if found["rejects"]:
        lines.append(f"  refused       {len(found['rejects'])} readings; fabricd agent --once lists them")
    return lines


def _running_words(running: Running) -> list[str]:
    return [
        f"  broker        {running.broker} (embedded, loopback only)",
        f"  status page   {running.url}/",
        f"  metrics       {running.url}/metrics",
        f"  state         {running.state_dir}",
        "stop with Ctrl-C",
    ]


COMMANDS = (
    Command(
        "up",
        "everything at once on an embedded broker: agent, collector, aggregator, page",
        _configure,
        _run,
        description="Starts a broker, this node's agent, the collector where there is InfiniBand to sweep, the aggregator and the\n"
        "HTTP interface, on loopback, and says what it found and where to look. Nothing is installed or changed.",
        epilog=_EPILOG,
    ),
)

"""``fabricd agent``: the node agent, as a daemon or for one reading."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING, Any

from fabricd.commands.base import Command, add_json, print_json

if TYPE_CHECKING:
    from fabricd.config.root import Config

_EPILOG = """\
examples:
  fabricd agent --once                       what is on this node, in words
  fabricd agent --once --json | jq .devices  the same for programs
  fabricd agent --once --json --sysfs DIR    read a copied or generated tree instead of /sys
  fabricd agent --config /etc/fabricd.toml   run and publish (usually by systemd)
"""


def _configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--once", action="store_true", help="read everything once, print it, and end")
    parser.add_argument("--sysfs", metavar="DIR", help="directory that stands for /sys; only files are read then")
    parser.add_argument(
        "--trees",
        metavar="DIR",
        help="one agent for every directory below DIR (a simulated fabric's hosts), in one process",
    )
    add_json(parser)


def _run(args: argparse.Namespace) -> int:
    from fabricd.config.load import load_config

    config = load_config(args.config, {"agent.sysfs": args.sysfs})
    if args.once:
        from fabricd.daemons.agent_once import read_once

        document = read_once(config)
        if args.json:
            print_json(document)
        else:
            _print_words(document)
        return 0
    if args.trees is not None:
        return _run_trees(config, args.trees)
    from fabricd.daemons.agent import run_agent

    return run_agent(config, args.config, {"agent.sysfs": args.sysfs})


def _run_trees(config: Config, root: str) -> int:
    import asyncio
    from pathlib import Path

    from fabricd import logs
    from fabricd.daemons.agent_trees import run_agents
    from fabricd.daemons.lifecycle import run_daemon

    logs.set_up(config.fabric.log_format, config.fabric.log_level)
    asyncio.run(run_daemon(lambda ready: run_agents(config, Path(root), ready)))
    return 0


def _print_words(document: dict[str, Any]) -> None:
    print(f"node {document['node']}")
    if not document["devices"]:
        print("no RDMA device on this node")
    for device in document["devices"]:
        known = [device["driver"], device["node_guid"], device["board_id"], device["fw_ver"], device["role"]]
        print(f"{device['name']}: {' '.join(str(k) for k in known if k)}")
        for port in device["ports"]:
            rate = f"{port['rate_gbps']:g} Gb/s" if port["rate_gbps"] else "rate unknown"
            words = [port["link_layer"], port["state"], port["phys_state"], rate, port["netdev"]]
            print(f"  port {port['port']}: {' '.join(str(w) for w in words if w)}")
            if "visible_only_from" in port:
                print(f"    counters of its network interface are visible only from {port['visible_only_from']}")
            _print_counters(port["counters"])
    for netdev in document.get("netdevs", ()):
        print(f"{netdev['name']}: network interface {netdev['driver'] or ''} {netdev['operstate'] or ''}".rstrip())
        _print_counters(netdev["counters"])
    if document["rejects"]:
        print(f"refused: {len(document['rejects'])}")
        for reject in document["rejects"]:
            print(f"  {reject['kind']}: {reject['what']} at {reject['where']}")


def _print_counters(counters: dict[str, Any]) -> None:
    for name, entry in counters.items():
        value = "-" if entry["value"] is None else entry["value"]
        notes = " ".join(entry["flags"])
        unit = "" if entry["unit"] == "unknown" else entry["unit"]
        print(f"    {name:44} {value:>20} {unit:8} {notes}".rstrip())


COMMANDS = (
    Command(
        name="agent",
        summary="read this node's RDMA and network counters, publish them",
        configure=_configure,
        run=_run,
        description="Reads the counters of every RDMA device and port of this node from sysfs, ethtool and netlink, once a second,\n"
        "and publishes them over MQTT. It writes nothing to any device.",
        epilog=_EPILOG,
    ),
)

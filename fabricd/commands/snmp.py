"""``fabricd snmp``: the daemon that polls switches by SNMP, or one poll for people."""

from __future__ import annotations

import argparse
import sys
from typing import TYPE_CHECKING, Any

from fabricd.commands.base import Command, add_json, print_json

if TYPE_CHECKING:
    from fabricd.sources.snmp_poll import Poll

_DESCRIPTION = """\
Polls the counters of the switches in [snmp] targets and publishes them over MQTT, as the collector does with its sweeps.
It only reads: GET and GETBULK. Which objects a switch has to read is in its profile (docs/adapters.md)."""


def _configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--once", action="store_true", help="poll once, print what was read, publish nothing")
    add_json(parser)


def _run(args: argparse.Namespace) -> int:
    import asyncio

    from fabricd import logs
    from fabricd.config.load import load_config
    from fabricd.daemons.lifecycle import run_daemon
    from fabricd.daemons.snmp_poller import open_poller, run_snmp_poller

    config = load_config(args.config)
    if args.once:
        with open_poller(config) as poller:
            poll = poller.poll()
        _print(poll, args.json)
        return 0 if poll.answered else 1
    logs.set_up(config.fabric.log_format, config.fabric.log_level)
    asyncio.run(run_daemon(lambda ready: run_snmp_poller(config, ready)))
    return 0


def _print(poll: Poll, as_json: bool) -> None:
    if as_json:
        print_json({**_document(poll), "rejects": poll.rejects.to_json()})
        return
    print(f"{poll.answered} of {poll.asked} switches answered, {poll.rows} values in {poll.seconds:.2f} s")
    counters: set[str] = set()
    for schema in poll.schemas:
        row = schema.rows[0]
        print(f"  {row.device:16} 0x{row.guid:016x}  {len(schema.rows)} ports")
        counters |= {column.name for column in schema.columns if column.kind in ("counter", "gauge")}
    print(f"counters: {', '.join(sorted(counters)) or 'none'}")
    for reject in poll.rejects.to_json():
        print(f"  {reject['where']}: {reject['kind']}: {reject['what']}", file=sys.stderr)


def _document(poll: Poll) -> dict[str, Any]:
    return {
        "asked": poll.asked,
        "answered": poll.answered,
        "values": poll.rows,
        "seconds": round(poll.seconds, 3),
        "switches": [
            {
                "name": schema.rows[0].device,
                "guid": f"0x{schema.rows[0].guid:016x}",
                "ports": [{"port": row.port, "name": row.netdev, "rate_gbps": row.rate_gbps} for row in schema.rows],
                "counters": sorted({column.name for column in schema.columns[2:]}),
            }
            for schema in poll.schemas
        ],
    }


COMMANDS = (Command("snmp", "poll switches by SNMP and publish them (daemon)", _configure, _run, _DESCRIPTION),)

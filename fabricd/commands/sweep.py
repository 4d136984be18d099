"""``fabricd sweep``: every switch port's counters in-band, as a live table for people or as one JSON document."""

from __future__ import annotations

import argparse
import math
import sys
from typing import TYPE_CHECKING, Any

from fabricd.commands.base import Command, add_json, print_json
from fabricd.config.load import load_config
from fabricd.errors import FabricdError, UsageError

if TYPE_CHECKING:
    from fabricd.config.root import Config
    from fabricd.sources.sweeper import Progress

_DESCRIPTION = """\
Sweep the performance counters of every switch port in-band (Gets only: nothing is cleared).
Without --json a live table of the busiest and sickest ports, until interrupted when on a terminal.
With --json one document: ports, answered, sweeps, rejects, and with --counters the values of the last sweep."""

_EPILOG = """\
examples:
  fabricd sweep                                    live table, once a second
  fabricd sweep --count 3 --interval 1 --json      three sweeps, timed
  fabricd sweep --json --counters --optional       everything every port can show
  fabricd sweep --mad-socket sim --mad-host node1  the same on a simulated fabric

exit status: 0 done, 1 failed, 2 wrong usage or configuration"""


def _configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--count", type=int, metavar="N", help="sweeps to make (default: 1, endless on a terminal)")
    parser.add_argument(
        "--interval", type=float, metavar="S", help="seconds from sweep to sweep; 0: no pause (default 1)"
    )
    parser.add_argument(
        "--counters", action="store_true", help="with --json: the values of the last sweep, port by port"
    )
    parser.add_argument(
        "--optional", action="store_true", help="also the per-lane, congestion and FEC counters, every sweep"
    )
    parser.add_argument(
        "--no-errors", action="store_true", help="one request per port: no narrow error counters, no details"
    )
    parser.add_argument("--rows", type=int, default=20, metavar="N", help="ports in the table (default 20)")
    parser.add_argument("--device", metavar="NAME", help="InfiniBand device to sweep through (default: first active)")
    parser.add_argument("--port", type=int, metavar="P", help="port of that device")
    parser.add_argument("--mad-socket", metavar="NAME", help="socket name of an ibsim-compatible simulator")
    parser.add_argument("--mad-host", metavar="NODE", help="node of the simulated fabric to sit at")
    parser.add_argument("--topology", metavar="FILE", help="ibnetdiscover output or topology file instead of discovery")
    parser.add_argument("--adapters", action="store_true", default=None, help="adapter ports as well as switch ports")
    parser.add_argument("--source", choices=("auto", "umad", "perfquery"), help="how counters are read")
    add_json(parser)


def _run(args: argparse.Namespace) -> int:
    if args.interval is not None and not 0 <= args.interval < math.inf:
        raise UsageError(f"--interval {args.interval:g}: must be 0 or more seconds")
    if args.count is not None and args.count < 1:
        raise UsageError(f"--count {args.count}: must be 1 or more")
    if args.rows < 1:
        raise UsageError(f"--rows {args.rows}: must be 1 or more")
    if args.counters and not args.json:
        raise UsageError("--counters needs --json")
    config = load_config(
        args.config,
        {
            "collector.device": args.device,
            "collector.port": args.port,
            "collector.mad_socket": args.mad_socket,
            "collector.mad_host": args.mad_host,
            "collector.topology_file": args.topology,
            "collector.adapters": args.adapters,
            "collector.source": args.source,
            "collector.errors": False if args.no_errors else None,
            "collector.details": False if args.no_errors else None,
        },
    )
    interval = config.collector.interval if args.interval is None else args.interval
    count = args.count or (None if sys.stdout.isatty() and not args.json else 1)
    return _sweeps(args, config, interval, count)


def _sweeps(args: argparse.Namespace, config: Config, interval: float, count: int | None) -> int:
    from threading import Event
    from time import monotonic

    from fabricd.daemons.sweeping import find_targets, find_topology, make_sweeper, open_transport
    from fabricd.ib.limits import TidSpace
    from fabricd.outputs.sweep_report import Table, counters_json, summary_json

    progress = _progress_line()
    transport = open_transport(config.collector)
    try:
        tids = TidSpace()
        topology, _ = find_topology(
            config.collector, transport, config.fabric.name, tids, lambda nodes: progress("discovering nodes", nodes, 0)
        )
        targets, rejects = find_targets(config.collector, topology)
        if not targets:
            raise FabricdError("no switch with a LID was found: is a subnet manager running?")
        sweeper = make_sweeper(config.collector, transport, targets, tids, slow_sweeps=int(args.optional))
        sweeper.prepare(progress)
        table = None if args.json else Table(args.rows, sweeper.wait_tick_bytes, live=sys.stdout.isatty())
        timings: list[dict[str, Any]] = []
        pause, due = Event(), monotonic()
        while True:
            last = sweeper.sweep(progress if not timings else None)
            progress("", 0, 0)
            timings.append({"seconds": round(last.seconds, 6), "answered": last.answered})
            if table is not None:
                table.show(last, sweeper.silent)
            if len(timings) == count:
                break
            due = max(due + interval, monotonic())
            pause.wait(due - monotonic())
    finally:
        progress("", 0, 0)
        if transport is not None:
            transport.close()
    if args.json:
        for found in (topology.rejects, sweeper.rejects, last.rejects):
            for reject in found.recent:
                rejects.add(reject.kind, reject.what, reject.where)
        document = summary_json(sweeper.ports, timings, rejects)
        if args.counters:
            document["counters"] = counters_json(last)
        print_json(document)
    return 0


def _progress_line() -> Progress:
    """One line on stderr that is written over and in the end wiped; nothing where stderr is no terminal."""
    if not sys.stderr.isatty():
        return lambda what, done, of: None

    def show(what: str, done: int, of: int) -> None:
        text = f"{what}: {done}" + (f" of {of}" if of else "") if what else ""
        sys.stderr.write(f"\r\x1b[K{text}")
        sys.stderr.flush()

    return show


COMMANDS = (
    Command(
        "sweep",
        "read the counters of every switch port in-band, fast",
        _configure,
        _run,
        description=_DESCRIPTION,
        epilog=_EPILOG,
    ),
)

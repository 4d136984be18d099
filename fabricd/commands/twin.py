"""``fabricd twin``: a simulated fabric that shows itself only through the interfaces a real one has."""

from __future__ import annotations

import argparse
import asyncio
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fabricd.commands.base import Command, print_json

if TYPE_CHECKING:
    from fabricd.twin.http import Tls

_DESCRIPTION = """\
Simulate a lossless fabric in real time and serve it as hardware would be met: a directory tree per host that stands for
/sys, a management datagram socket (InfiniBand), a UFM stand-in, an SNMP agent per switch. fabricd and the usual tools
(opensm, perfquery, ibqueryerrors, curl, snmpbulkwalk) read and write it like a real fabric; all on loopback.

The first line on stdout is one JSON object with the addresses; "truth" is a file that says what really happens."""

_EPILOG = """\
scenarios:
  quiet allreduce incast slow-receiver pfc-storm ecmp-collision degraded-link link-flap qos-mismatch two-trees
  tp-storage deadlock multi-tenant

examples:
  fabricd twin incast                             until Ctrl-C
  fabricd twin degraded-link --seed 7 --hosts 128 another draw, larger
  fabricd twin quiet --no-manager                 ports in INIT: bring it up with opensm
  IBSIM_SOCKNAME=<mad_socket> ibsim-run perfquery -x 1 1
"""


def _configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("scenario", metavar="SCENARIO", help="what happens in the fabric (names below)")
    parser.add_argument(
        "--seed", type=int, default=1, metavar="N", help="draw of topology, load and places (default 1)"
    )
    parser.add_argument("--hosts", type=int, metavar="N", help="about so many network adapters (default: drawn)")
    parser.add_argument(
        "--kind", choices=("infiniband", "ethernet"), help="default: infiniband, RoCE for PFC scenarios"
    )
    parser.add_argument("--dir", metavar="D", help="where trees and truth go (default: a temporary directory)")
    parser.add_argument("--begin", type=float, default=15.0, metavar="S", help="seconds until the trouble (default 15)")
    parser.add_argument("--length", type=float, default=3600.0, metavar="S", help="how long it lasts (default 3600)")
    parser.add_argument(
        "--slots",
        type=int,
        metavar="N",
        help="steps of the model a second: finer and slower (default 1100, large: 150)",
    )
    parser.add_argument(
        "--fault", choices=("loss", "blind", "resets", "mixed-cadence"), help="something wrong with the telemetry too"
    )
    parser.add_argument(
        "--adaptive", action="store_true", help="InfiniBand switches route adaptively (which their tables do not show)"
    )
    parser.add_argument("--no-manager", action="store_true", help="an InfiniBand subnet nobody has configured yet")
    parser.add_argument(
        "--snmp", action="store_true", default=None, help="SNMP agents for InfiniBand switches too (Ethernet has them)"
    )
    parser.add_argument(
        "--ufm-tls", metavar="DIR", help="also serve UFM over TLS to client certificates: DIR/cert.pem, key.pem, ca.pem"
    )
    parser.add_argument("--json", action="store_true", help="nothing on stdout but the JSON line")


def _tls(directory: Path) -> Tls:
    from fabricd.errors import UsageError
    from fabricd.twin.http import Tls

    files = [directory / name for name in ("cert.pem", "key.pem", "ca.pem")]
    for file in files:
        if not file.is_file():
            raise UsageError(f"--ufm-tls {directory}: {file.name} is missing")
    return Tls(*files)


def _run(args: argparse.Namespace) -> int:
    from fabricd import logs
    from fabricd.config.load import load_config
    from fabricd.daemons.lifecycle import run_daemon
    from fabricd.errors import UsageError
    from fabricd.twin.runtime import Twin, TwinSettings

    config = load_config(args.config)
    if args.begin < 0 or args.length <= 0:
        raise UsageError(f"--begin {args.begin:g} --length {args.length:g}: times are positive")
    if args.slots is not None and not 20 <= args.slots <= 20000:
        raise UsageError(f"--slots {args.slots}: 20 to 20000")
    logs.set_up(config.fabric.log_format, config.fabric.log_level)
    twin = Twin(
        TwinSettings(
            scenario=args.scenario,
            seed=args.seed,
            hosts=args.hosts,
            kind=args.kind,
            directory=Path(args.dir) if args.dir else None,
            begin_s=args.begin,
            length_s=args.length,
            configured=not args.no_manager,
            slots=args.slots,
            fault=args.fault,
            adaptive=args.adaptive,
            snmp=args.snmp,
            ufm_tls=_tls(Path(args.ufm_tls)) if args.ufm_tls else None,
        )
    )

    def announce(addresses: dict[str, Any]) -> None:
        print_json(addresses)
        if not args.json:
            print(twin.summary())
            print("simulated; the UFM face is a stand-in written from documents. Stop with Ctrl-C")
        sys.stdout.flush()

    async def main(ready: Any) -> None:
        def up(addresses: dict[str, Any]) -> None:
            announce(addresses)
            ready(twin.summary())

        await twin.run(up)

    asyncio.run(run_daemon(main))
    return 0


COMMANDS = (
    Command(
        "twin",
        "a simulated fabric behind real interfaces: sysfs, management datagrams, UFM, SNMP",
        _configure,
        _run,
        description=_DESCRIPTION,
        epilog=_EPILOG,
    ),
)

"""``fabricd adapters``: what the configured managers and switches let fabricd write, here and now."""

from __future__ import annotations

import argparse

from fabricd.commands.base import Command, add_json, print_json


def _configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--write",
        action="store_true",
        help="try each SNMP lever by setting the value that is there already (else the profile is believed)",
    )
    add_json(parser)


def _run(args: argparse.Namespace) -> int:
    import msgspec

    from fabricd.config.load import load_config
    from fabricd.control.adapters.base import AdapterError
    from fabricd.control.adapters.registry import open_adapters
    from fabricd.errors import UsageError

    config = load_config(args.config).control
    if not config.adapters:
        raise UsageError("control.adapters is empty: it lists the adapters in use (opensm, ufm, snmp)")
    if args.write and config.dry_run:
        raise UsageError("--write with control.dry_run = true: a dry run sends nothing")
    rows, failed = [], 0
    for name, adapter in open_adapters(config).items():
        if hasattr(adapter, "probe_by_writing"):
            adapter.probe_by_writing = args.write
        try:
            rows += [{"adapter": name, **msgspec.to_builtins(found)} for found in adapter.probe()]
        except AdapterError as error:
            rows.append({"adapter": name, "name": "", "device": "", "writable": False, "why": str(error)})
            failed = 1
    if args.json:
        print_json({"levers": rows})
        return failed
    for row in rows:
        what = f"{row['adapter']:7} {row['device']:12} {row['name']:15}"
        print(f"{what} {'writable' if row['writable'] else 'no: ' + str(row['why'])}")
    return failed


COMMANDS = (
    Command(
        "adapters",
        "what the configured managers and switches let fabricd write",
        _configure,
        _run,
        description="Asks every adapter of [control] for its levers. Writes nothing, unless --write is given.",
    ),
)

"""What the ``fabricd place`` commands read: topology, verdicts, doctor reports, heat; from files, or live."""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fabricd.config.load import load_config
from fabricd.errors import BAD_DOCUMENT, UsageError

if TYPE_CHECKING:
    from fabricd.model.topology import Topology
    from fabricd.placement.live import LiveView


def read_view(args: argparse.Namespace) -> LiveView:
    """Topology, verdicts, doctor reports and heat of the options; live values where no file is given."""
    from fabricd.placement.live import LiveView
    from fabricd.placement.read import read_topology

    if args.topology == "live":
        from fabricd.commands.live_view import live_view

        view = live_view(load_config(args.config))
    else:
        view = LiveView(read_topology(args.topology))
    apply_names(args, view.topology)
    if args.verdicts:
        view.verdicts = _verdicts(args.verdicts)
    view.doctor += [json_file(path, "--doctor") for path in args.doctor]
    if args.heat:
        view.heat = _heat(args.heat)
    return view


def _verdicts(path: str) -> list[Any]:
    import msgspec

    from fabricd.model.verdict import Verdict

    document = json_file(path, "--verdicts")
    rows = document.get("verdicts") if isinstance(document, dict) else document
    try:
        return msgspec.convert(rows, list[Verdict])
    except msgspec.ValidationError as error:
        raise UsageError(f"--verdicts {path}: {error}") from None


def _heat(path: str) -> dict[str, float]:
    document = json_file(path, "--heat")
    table = document.get("heat", document) if isinstance(document, dict) else None
    if not isinstance(table, dict):
        raise UsageError(f"--heat {path}: must map rail groups to a load between 0 and 1")
    for group, value in table.items():
        if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value <= 1:
            raise UsageError(f"--heat {path}: {group} = {value!r}: must be between 0 and 1")
    return {str(group): float(value) for group, value in table.items()}


def json_file(path: str, option: str) -> Any:
    """The decoded file (``-`` is standard input). Raises UsageError naming option and file."""
    try:
        return json.loads(Path("/dev/stdin" if path == "-" else path).read_text(encoding="utf-8"))
    except OSError as error:
        raise UsageError(f"{option} {path}: {error.strerror}") from None
    except BAD_DOCUMENT as error:
        raise UsageError(f"{option} {path}: not JSON: {error}") from None


def read_topology_option(args: argparse.Namespace) -> Topology:
    """Only the topology of ``--topology``."""
    from fabricd.placement.read import read_topology

    if args.topology == "live":
        from fabricd.commands.live_view import live_view

        topology = live_view(load_config(args.config)).topology
    else:
        topology = read_topology(args.topology)
    apply_names(args, topology)
    return topology


def apply_names(args: argparse.Namespace, topology: Topology) -> None:
    """The names the scheduler knows the rail groups by, where ``placement.names`` keeps a book; the book is not changed."""
    book = load_config(args.config).placement.names
    if book:
        from fabricd.placement.exporters.names import load_names

        load_names(book).apply(topology)

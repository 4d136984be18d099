"""``fabricd topo export`` for schedulers over time: names that stay, and watch mode."""

from __future__ import annotations

import argparse
import json
import sys
import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from fabricd.config.load import load_config
from fabricd.errors import FabricdError, UsageError

if TYPE_CHECKING:
    from fabricd.model.topology import Topology


def export_with_names(args: argparse.Namespace, topology: Topology) -> int:
    """One export with the name book read, extended and written back."""
    from fabricd.placement.exporters import export
    from fabricd.placement.exporters.names import load_names, save_names
    from fabricd.placement.files import write_atomically

    book = load_names(args.names)
    book.apply(topology)
    text = export(topology, args.format, load_config(args.config).placement, node=args.node)
    if args.output is None:
        sys.stdout.write(text)
    else:
        write_atomically(args.output, text)
    save_names(args.names, book)
    return 0


def watch_export(args: argparse.Namespace, read: Callable[[], Topology], looks: int | None = None) -> int:
    """Look every ``--every`` seconds and write when something settled; one line (``--json``: one document) per write.

    A look that fails is reported and costs only itself. ``looks`` bounds their number.
    """
    from fabricd.placement.watch import Watcher

    if args.output is None:
        raise UsageError("--watch: needs --output FILE")
    if not 0.1 <= args.every <= 86400:
        raise UsageError(f"--every {args.every}: must be between 0.1 and 86400 seconds")
    watcher = Watcher(args.format, args.output, load_config(args.config).placement, names=args.names or "")
    pause = threading.Event()
    while looks is None or looks > 0:
        try:
            record = watcher.look(read())
        except UsageError:
            raise
        except FabricdError as error:
            record = {"refused": str(error), "format": args.format}
        if record is not None:
            _say(record, args.json)
        looks = None if looks is None else looks - 1
        if looks != 0:
            pause.wait(args.every)
    return 0


def _say(record: dict[str, Any], as_json: bool) -> None:
    if as_json:
        print(json.dumps(record, separators=(",", ":")), flush=True)
    elif "refused" in record:
        print(f"not written: {record['refused']}", file=sys.stderr, flush=True)
    else:
        changes = "; ".join(_change(change) for change in record["changes"]) or "no change of membership"
        why = "; ".join(record["why"])
        print(f"wrote {record['written']}: {changes}" + (f" (because: {why})" if why else ""), flush=True)


def _change(change: dict[str, Any]) -> str:
    rest = " ".join(f"{key} {value}" for key, value in change.items() if key != "what")
    return f"{change['what']} {rest}"

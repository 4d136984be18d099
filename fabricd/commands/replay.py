"""``fabricd replay``: the detector over a trace, a recording, or yesterday's data from what people already run."""

from __future__ import annotations

import argparse
import threading
from pathlib import Path
from typing import TYPE_CHECKING

from fabricd.commands.base import Command, add_json, print_json
from fabricd.errors import UsageError

if TYPE_CHECKING:
    from fabricd.outputs.replay import Replay
    from fabricd.outputs.trace import Trace

EPILOG = """\
sources:
  DIR                 a trace (counters.csv.gz, topology.json), a recording of `fabricd record`, or a bundle of `fabricd report`
  --from prometheus:URL    infiniband_exporter or node_exporter, with --topology for what they do not know
  --from ufm-csv:FILE      telemetry CSV of UFM, needs --topology
  --from ibdiagnet:DIR     output directories of two or more runs (DIR holds them)
"""


def _configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("directory", nargs="?", metavar="DIR", help="a trace or a recording")
    parser.add_argument("--from", dest="source", metavar="SOURCE", help="prometheus:URL, ufm-csv:FILE or ibdiagnet:DIR")
    parser.add_argument(
        "--topology", metavar="FILE", help="topology JSON or ibnetdiscover text, for sources without one"
    )
    parser.add_argument("--pairs", metavar="FILE", help="who talks to whom: lines src,dst,prio (CSV) or JSON")
    parser.add_argument(
        "--start", metavar="TIME", help="prometheus: RFC 3339, Unix time or 2h (ago); default: a day before the end"
    )
    parser.add_argument("--end", metavar="TIME", help="prometheus: default now")
    parser.add_argument("--step", metavar="SECONDS", type=float, help="prometheus: interval (default: as scraped)")
    parser.add_argument(
        "--live", action="store_true", help="print each verdict when it was raised, at the pace of the recording"
    )
    add_json(parser)


def _run(args: argparse.Namespace) -> int:
    from fabricd.outputs.verdict_text import one_line

    if bool(args.directory) == bool(args.source):
        raise UsageError("replay: give a directory or --from SOURCE, not both")
    result = replayed(args)
    if args.json:
        print_json(result.to_json())
        return 0
    pace = threading.Event()
    before = result.verdicts[0].start if result.verdicts else 0
    for verdict in result.verdicts:
        if args.live:
            pace.wait((verdict.detected_at - before) / 1e9)
            before = verdict.detected_at
        print(one_line(verdict, still_open=verdict.id in result.open_ids), flush=args.live)
    print(f"{result.intervals} intervals, {len(result.verdicts)} verdicts, {result.rejects.total} rejects")
    return 0


def replayed(args: argparse.Namespace) -> Replay:
    """The replay the options name: of a recording, a trace or somebody's history. Raises UsageError and FabricdError."""
    from fabricd.model.rejects import Rejects
    from fabricd.outputs import replay
    from fabricd.outputs.pairs_file import read_pairs
    from fabricd.outputs.recording_replay import is_recording, run_recording
    from fabricd.outputs.report_bundle import is_bundle, unpacked

    rejects = Rejects()
    pairs = read_pairs(Path(args.pairs), rejects) if args.pairs else []
    directory = Path(args.directory) if args.directory else None
    if directory is not None and is_bundle(directory):
        with unpacked(directory) as place:
            return replayed(argparse.Namespace(**{**vars(args), "directory": str(place)}))
    if directory is not None and is_recording(directory):
        result = run_recording(directory, args.topology, pairs)
    else:
        result = replay.run(load(args), pairs)
    for reject in rejects.recent:
        result.rejects.add(reject.kind, reject.what, reject.where)
    return result


def load(args: argparse.Namespace) -> Trace:
    """The trace a replay's options name. Raises UsageError and FabricdError."""
    if args.directory:
        return read_directory(Path(args.directory))
    from fabricd.commands.replay_history import load_history

    return load_history(args)


def read_directory(directory: Path) -> Trace:
    """A trace or a recording. Raises UsageError and FabricdError."""
    from fabricd.outputs.trace import read_trace

    if not directory.is_dir():
        raise UsageError(f"replay {directory}: no such directory")
    return read_trace(directory)


COMMANDS = (Command("replay", "run the detector over recorded counters", _configure, _run, epilog=EPILOG),)

"""``fabricd report ID``: one bundle for a vendor ticket, which replays to the same verdict anywhere."""

from __future__ import annotations

import argparse
import os
import secrets
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fabricd.commands.base import Command, add_json, print_json
from fabricd.commands.client import add_url
from fabricd.errors import FabricdError, UsageError

if TYPE_CHECKING:
    from fabricd.config.root import Config
    from fabricd.model.verdict import Verdict
    from fabricd.outputs.report_bundle import Report

DESCRIPTION = """\
Packs the counters around a verdict, the topology, the routes, the verdict and its explanation, and what was written to devices
because of it, into fabricd-report-ID.tar.gz. Names, GUIDs, addresses and jobs are replaced, the same by the same. The bundle is
replayed before it is handed over: `fabricd replay FILE` shows the same root to whoever gets it.

The verdict is a running fabricd's, whose recording is read; or that of a replay (--replay DIR, --from SOURCE)."""


def _configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("id", metavar="ID", help="a verdict's id, or the beginning of it")
    parser.add_argument(
        "--replay",
        dest="directory",
        metavar="DIR",
        help="a verdict of this trace or recording, not of a running fabricd",
    )
    parser.add_argument(
        "--from", dest="source", metavar="SOURCE", help="a verdict of yesterday's data, as in fabricd replay"
    )
    parser.add_argument("--start", metavar="TIME", help="with --from prometheus:URL, as in fabricd replay")
    parser.add_argument("--end", metavar="TIME", help="likewise")
    parser.add_argument("--step", metavar="SECONDS", type=float, help="likewise")
    parser.add_argument(
        "--recording", metavar="DIR", help="recording of the running fabricd (aggregator.recording_dir)"
    )
    parser.add_argument("--topology", metavar="FILE", help="topology of the recording (topology.cache)")
    parser.add_argument("--key", metavar="TEXT", help="with the same key names are replaced as in an earlier report")
    parser.add_argument("--output", "-o", metavar="FILE", help="default: fabricd-report-ID.tar.gz here")
    add_url(parser)
    add_json(parser)


def _run(args: argparse.Namespace) -> int:
    from fabricd.config.load import load_config

    if args.directory and args.source:
        raise UsageError("report: give --replay DIR or --from SOURCE, not both")
    config = load_config(args.config)
    report = make(args, config)
    if args.json:
        print_json(report.to_json())
    else:
        print(f"{report.path}: {report.intervals} intervals, {report.path.stat().st_size:,} bytes")
    if not report.same:
        raise FabricdError(f"{report.path}: kept, but its replay does not lead to verdict {report.verdict.id}")
    return 0


def make(args: argparse.Namespace, config: Config) -> Report:
    """The bundle the options ask for. Raises UsageError and FabricdError."""
    from fabricd.commands.verdicts import find
    from fabricd.outputs import replay, report_bundle
    from fabricd.outputs.recording_replay import is_recording, run_recording

    key = args.key.encode() if args.key else secrets.token_bytes(32)
    if args.source or (args.directory and not is_recording(Path(args.directory))):
        from fabricd.commands.replay import load

        trace = load(args)
        result = replay.run(trace)
        verdict = find(result.verdicts, args.id)
        return report_bundle.of_trace(trace, result.intervals, verdict, [], key, _output(args, verdict))
    if args.directory:
        verdict = find(run_recording(Path(args.directory), args.topology).verdicts, args.id)
        recording, topology = Path(args.directory), args.topology
    else:
        verdict = _live(args)
        recording = Path(args.recording or config.aggregator.recording_dir)
        topology = args.topology or config.topology.cache
        if not is_recording(recording):
            raise FabricdError(
                f"{recording}: no recording there (aggregator.recording_dir, --recording): no counters to pack"
            )
    actions = actions_of(verdict.id, config.control.journal)
    return report_bundle.of_recording(recording, topology, verdict, actions, key, _output(args, verdict))


def _live(args: argparse.Namespace) -> Verdict:
    import msgspec

    from fabricd.commands.client import get_json, understanding
    from fabricd.commands.verdicts import find
    from fabricd.model.verdict import Verdict

    document = get_json(args, "/api/v1/verdicts")
    with understanding("verdicts"):
        found = msgspec.convert(document["verdicts"], list[Verdict], strict=False)
    return find(found, args.id)


def _output(args: argparse.Namespace, verdict: Verdict) -> Path:
    from fabricd.outputs.report_bundle import SUFFIX

    path = Path(args.output or f"fabricd-report-{verdict.id}{SUFFIX}")
    return path if path.name.endswith(SUFFIX) else path.with_name(path.name + SUFFIX)


def actions_of(verdict_id: str, journal: str) -> list[dict[str, Any]]:
    """The actions a verdict led to, with every byte pushed and every answer; none without a journal on this machine."""
    import msgspec

    from fabricd.control.journal import SqliteJournal

    if not Path(journal).exists() or not os.access(journal, os.W_OK):
        return []
    book = SqliteJournal(journal)
    try:
        return [msgspec.to_builtins(a) for a in book.actions() if a.proposal.verdict_id == verdict_id]
    finally:
        book.close()


COMMANDS = (Command("report", "one anonymised bundle of a verdict for a vendor ticket", _configure, _run, DESCRIPTION),)

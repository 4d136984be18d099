"""``fabricd verdicts`` and ``fabricd explain``: what was found and why, from a running fabricd or from a trace."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from fabricd.commands.base import Command, add_json, print_json
from fabricd.commands.client import add_url, get_json, understanding
from fabricd.errors import FabricdError

if TYPE_CHECKING:
    from fabricd.model.verdict import Verdict


def _options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--replay",
        dest="directory",
        metavar="DIR",
        help="take the verdicts of a trace or recording, not of a running fabricd",
    )
    parser.add_argument("--topology", metavar="FILE", help="with --replay of a recording: its topology")
    parser.add_argument("--pairs", metavar="FILE", help="with --replay: who talks to whom")
    add_url(parser)
    add_json(parser)


def _configure_list(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--open", action="store_true", help="only those that have not ended")
    _options(parser)


def _configure_explain(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("id", metavar="ID", help="a verdict's id, or the beginning of it")
    _options(parser)


def verdicts_of(args: argparse.Namespace) -> tuple[list[Verdict], set[str]]:
    """(verdicts, ids of the open ones) from --replay or from the api."""
    import msgspec

    from fabricd.model.verdict import Verdict

    if args.directory:
        from fabricd.commands.replay import replayed

        result = replayed(args)
        return result.verdicts, result.open_ids
    document = get_json(args, "/api/v1/verdicts")
    with understanding("verdicts"):
        found = msgspec.convert(document["verdicts"], list[Verdict], strict=False)
    return found, {verdict.id for verdict in found if verdict.end is None}


def find(verdicts: list[Verdict], wanted: str) -> Verdict:
    """The newest verdict whose id begins with ``wanted``. Raises FabricdError when there is none, or several ids fit."""
    fitting = [verdict for verdict in verdicts if verdict.id.startswith(wanted)]
    ids = {verdict.id for verdict in fitting}
    if not fitting:
        raise FabricdError(f"no verdict {wanted}" + (f" among {len(verdicts)}" if verdicts else ": there are none"))
    if len(ids) > 1:
        raise FabricdError(f"{wanted} fits {len(ids)} verdicts: {', '.join(sorted(ids)[:5])}")
    return max(fitting, key=lambda verdict: verdict.detected_at)


def _list(args: argparse.Namespace) -> int:
    import msgspec

    from fabricd.outputs.verdict_text import one_line

    found, still_open = verdicts_of(args)
    if args.open:
        found = [verdict for verdict in found if verdict.id in still_open]
    if args.json:
        print_json({"verdicts": [msgspec.to_builtins(verdict) for verdict in found]})
        return 0
    for verdict in found:
        print(one_line(verdict, still_open=verdict.id in still_open))
    if not found:
        print("no open verdict" if args.open else "no verdict")
    return 0


def _explain(args: argparse.Namespace) -> int:
    import msgspec

    from fabricd.outputs.verdict_text import explain

    verdict = find(verdicts_of(args)[0], args.id)
    if args.json:
        print_json(msgspec.to_builtins(verdict))
    else:
        print(explain(verdict))
    return 0


COMMANDS = (
    Command("verdicts", "what was found: root, cause, who is hurt", _configure_list, _list),
    Command("explain", "why: the tree of waits of one verdict, with its numbers", _configure_explain, _explain),
)

"""``fabricd ledger``: what the controller would have done, what it promised and what then happened."""

from __future__ import annotations

import argparse
from typing import Any

from fabricd.commands.base import Command, add_json, print_json
from fabricd.commands.client import table
from fabricd.commands.control_journal import open_journal, percent, when
from fabricd.errors import UsageError


def _configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--limit", type=int, default=100, help="newest entries (%(default)s)")
    add_json(parser)


def _run(args: argparse.Namespace) -> int:
    if args.limit < 1:
        raise UsageError(f"--limit {args.limit}: at least 1")
    _, journal = open_journal(args)
    try:
        entries = journal.ledger(args.limit)
    finally:
        journal.close()
    if args.json:
        print_json({"ledger": entries})
        return 0
    if not entries:
        print("the ledger is empty: no verdict led to a proposal yet")
        return 0
    head = ["WHEN (UTC)", "WHAT", "CAUSE", "REMEDY", "PREDICTED", "STALL BEFORE", "AFTER", "OUTCOME"]
    print(table(head, [_row(entry) for entry in entries]))
    return 0


def _row(entry: dict[str, Any]) -> list[str]:
    outcome = entry.get("result") or "; ".join(entry.get("refused", ())) or "would be admitted"
    return [
        when(entry["at_ns"]), entry["what"], entry["cause"], entry["remedy"], percent(entry.get("predicted_gain")),
        percent(entry.get("stall_before")), percent(entry.get("stall_after")), outcome[:70],
    ]  # fmt: skip


COMMANDS = (
    Command(
        "ledger",
        "the trust ledger: what was or would have been done, promised and seen",
        _configure,
        _run,
        description="In mode observe the controller writes nothing, but notes what it would have done, what gain the model\n"
        "predicted, and how the victims fared without it. In the other modes the same for what it did.",
    ),
)

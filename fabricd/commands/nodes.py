"""``fabricd nodes``: who publishes, and how well."""

from __future__ import annotations

import argparse
from typing import Any

from fabricd.commands.base import Command, add_json, print_json
from fabricd.commands.client import add_url, get_json, table, understanding


def _configure(parser: argparse.ArgumentParser) -> None:
    add_url(parser)
    add_json(parser)


def _run(args: argparse.Namespace) -> int:
    document = get_json(args, "/api/v1/nodes")
    if args.json:
        print_json(document)
        return 0
    with understanding("nodes"):
        _print(document)
    return 0


def _print(document: dict[str, Any]) -> None:
    if not document["nodes"]:
        print(f"fabric {document['fabric']}: no node has published anything yet")
        return
    head = ["NODE", "KIND", "STATE", "PORTS", "FRAMES", "AGE", "SKEW", "GAPS", "LATE", "NOTES"]
    print(table(head, [_row(node) for node in document["nodes"]], frozenset(range(3, 9))))
    for entry in document["contested"]:
        print(f"duplicate: {entry['guid']} port {entry['port']} is claimed by {', '.join(entry['nodes'])}")


def _row(node: dict[str, Any]) -> list[str]:
    notes = []
    if node["rival_publisher"]:
        notes.append("two publishers use this id")
    if node["counter_resets"]:
        notes.append(f"{node['counter_resets']} counters cleared by others")
    dropped = node["status"].get("publisher", {}).get("dropped", 0)
    if dropped:
        notes.append(f"{dropped} frames dropped by its full spool")
    skew, age = node["clock_skew_s"], node["age_s"]
    return [
        node["node"], node["kind"], node["state"], str(node["ports"]), str(node["stored_frames"]),
        "never" if age is None else f"{age:.1f} s", "unknown" if skew is None else f"{skew * 1e3:.1f} ms",
        str(node["gaps"]), str(node["late"]), "; ".join(notes),
    ]  # fmt: skip


COMMANDS = (Command("nodes", "list the nodes that publish: state, age, clock skew, losses", _configure, _run),)

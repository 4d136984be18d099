"""``fabricd actions``: what the controller did, does and waits for; approvals; the dead man's timer."""

from __future__ import annotations

import argparse
import json
import sys
import time
from typing import TYPE_CHECKING, Any

from fabricd.commands.base import Command, add_json, print_json
from fabricd.commands.client import table
from fabricd.commands.control_journal import add_config_again, open_journal, percent, when, who
from fabricd.errors import FabricdError, UsageError

if TYPE_CHECKING:
    from fabricd.control.journal import SqliteJournal, Verb
    from fabricd.model.action import Action

_EPILOG = """\
examples:
  fabricd actions list --in-force          what stands on the fabric now
  fabricd actions show a1b2c3              its life, its bytes and the devices' answers
  fabricd actions approve a1b2c3           in mode advise: let it be done
  fabricd actions expire                   undo what is past its lease, without broker and aggregator
  fabricd actions audit > audit.jsonl      every step of every action, one JSON object a line
"""
_WAIT_S = 15.0
_LOOK_S = 0.2
_DONE: dict[str, frozenset[str]] = {
    "approve": frozenset(
        {"refused", "confirmed", "verified", "failed", "conflict", "stuck", "rolled_back", "released"}
    ),
    "reject": frozenset({"refused"}),
    "rollback": frozenset({"rolled_back", "conflict", "stuck", "released", "lost"}),
}


def _configure(parser: argparse.ArgumentParser) -> None:
    words = parser.add_subparsers(dest="word", metavar="WORD", required=True)
    listing = words.add_parser("list", help="newest actions, one a line")
    listing.add_argument("--in-force", action="store_true", help="only those that hold a lever")
    listing.add_argument("--limit", type=int, default=50, help="most actions to show (%(default)s)")
    show = words.add_parser("show", help="one action with everything that happened to it")
    show.add_argument("id", metavar="ID", help="an action's id, or the beginning of it")
    for word, help_ in (
        ("approve", "let a waiting action be done (mode advise)"),
        ("reject", "refuse a waiting action"),
        ("rollback", "take an action back now"),
    ):
        sub = words.add_parser(word, help=help_)
        sub.add_argument("id", metavar="ID", help="an action's id, or the beginning of it")
        sub.add_argument("--no-wait", action="store_true", help="leave the request and do not wait for the controller")
    words.add_parser("expire", help="undo what is past its lease; needs only the journal and the devices")
    words.add_parser("audit", help="the audit trail, one JSON object a line")
    for sub in words.choices.values():
        add_config_again(sub)
        add_json(sub)


def _run(args: argparse.Namespace) -> int:
    config, journal = open_journal(args)
    try:
        if args.word == "list":
            return _list(args, journal)
        if args.word == "show":
            return _show(args, journal)
        if args.word == "expire":
            return _expire(args, config.control, journal)
        if args.word == "audit":
            for event in journal.audit():
                json.dump(event, sys.stdout, separators=(",", ":"))
                sys.stdout.write("\n")
            return 0
        return _ask(args, journal)
    finally:
        journal.close()


def _list(args: argparse.Namespace, journal: SqliteJournal) -> int:
    from fabricd.control.documents import brief

    if args.limit < 1:
        raise UsageError(f"--limit {args.limit}: at least 1")
    found = [brief(action) for action in journal.actions(in_force=args.in_force, newest=args.limit)]
    if args.json:
        print_json({"actions": found, "latches": journal.latches()})
        return 0
    for name, by in sorted(journal.latches().items()):
        print(f"{name} since {by}")
    if not found:
        print("no action in force" if args.in_force else "no action yet")
        return 0
    head = ["ID", "STATE", "CAUSE", "REMEDY", "GAIN", "CREATED (UTC)", "LEASE UNTIL", "LAST"]
    rows = [
        [
            one["id"], one["state"], one["cause"], one["remedy"], percent(one["gain"]), when(one["created_ns"]),
            when(one["lease_until_ns"]), one["detail"][:60],
        ]
        for one in found
    ]  # fmt: skip
    print(table(head, rows))
    return 0


def _find(journal: SqliteJournal, wanted: str) -> Action:
    exact = journal.load(wanted)
    if exact is not None:
        return exact
    found = [action for action in journal.actions() if action.id.startswith(wanted)]
    if len(found) != 1:
        raise FabricdError(f"{wanted}: {'several actions begin so' if found else 'no such action'}")
    return found[0]


def _show(args: argparse.Namespace, journal: SqliteJournal) -> int:
    from fabricd.control.documents import action_document

    action = _find(journal, args.id)
    document = action_document(action)
    if args.json:
        print_json(document)
        return 0
    print(f"{action.id}: {action.state}")
    if "alert" in document:
        print(f"ALERT: {document['alert']}")
    print(f"cause {document['cause']} (verdict {document['verdict']}), remedy {document['remedy']}")
    print(f"why: {document['why']}")
    print(f"predicted gain {percent(document['gain'])}; lease until {when(action.lease_until_ns)}")
    for change in document["changes"]:
        lever = change["lever"]
        print(
            f"  {lever['adapter']} {lever['device']} {lever['name']} {lever['key']}: {change['old']} -> {change['new']}"
        )
    for event in document["events"]:
        print(f"{when(event['at_ns'])}  {event['state']:<12} {event['detail']}")
        _print_data(event["data"])
    return 0


def _print_data(data: dict[str, Any]) -> None:
    for line in data.get("sends", ()):
        print(f"{'':20} sends {line}")
    for answer in data.get("answers", ()):
        own, device = answer["own_s"] * 1e3, answer["device_s"] * 1e3
        print(f"{'':20} answer {answer['answer']} (device {device:.0f} ms, own {own:.0f} ms)")
    if "prediction" in data:
        p = data["prediction"]
        print(f"{'':20} predicted stall of the victims {percent(p['before'])} -> {percent(p['after'])}")


def _expire(args: argparse.Namespace, config: Any, journal: SqliteJournal) -> int:
    """The dead man's timer: 1 when something could not be undone."""
    from fabricd.control.adapters.registry import open_adapters
    from fabricd.control.life import Life

    if "freeze" in journal.latches():
        print(f"frozen ({journal.latches()['freeze']}): nothing is undone", file=sys.stderr)
        return 1
    with journal.exclusive(_WAIT_S * 4) as held:
        if not held:
            print("the controller does not let go of the journal's lock; going on without it", file=sys.stderr)
        due = Life(journal, open_adapters(config)).expire()
    stuck = [action for action in due if action.state == "stuck"]
    if args.json:
        print_json({"due": [{"id": action.id, "state": action.state} for action in due]})
    else:
        for action in due:
            print(f"{action.id}: {action.state}: {action.events[-1].detail}")
    return 1 if stuck else 0


def _ask(args: argparse.Namespace, journal: SqliteJournal) -> int:
    action = _find(journal, args.id)
    verb: Verb = args.word
    waiting = action.state == "admitted"
    if verb in ("approve", "reject") and not waiting:
        raise FabricdError(f"{action.id} is {action.state}: it does not wait for approval")
    if "freeze" in journal.latches():
        raise FabricdError(f"frozen ({journal.latches()['freeze']}): nothing is written; fabricd resume first")
    journal.ask(verb, action.id, who(), time.time_ns())
    state: str = action.state
    if not args.no_wait:
        state = _await(journal, action.id, _DONE[verb])
    if args.json:
        print_json({"id": action.id, "asked": verb, "state": state})
    elif state in _DONE[verb]:
        print(f"{action.id}: {state}")
    elif args.no_wait:
        print(f"{action.id}: asked to {verb}")
    else:
        print(f"{action.id}: still {state}; is the controller running?", file=sys.stderr)
        return 1
    return 0


def _await(journal: SqliteJournal, action_id: str, done: frozenset[str]) -> str:
    import threading

    deadline = time.monotonic() + _WAIT_S
    pause = threading.Event()
    while True:
        action = journal.load(action_id)
        state = action.state if action is not None else ""
        if state in done or time.monotonic() >= deadline:
            return state
        pause.wait(_LOOK_S)


COMMANDS = (
    Command(
        "actions",
        "what the controller did and does: list, show, approve, reject, rollback, expire, audit",
        _configure,
        _run,
        description="The controller's actions, from its journal on this machine. expire is run by a systemd timer and needs\n"
        "neither broker nor aggregator nor a running controller.",
        epilog=_EPILOG,
    ),
)

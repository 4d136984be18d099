"""``fabricd pause|resume|freeze|revert-all``: the brakes."""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from fabricd.commands.base import Command, add_json, print_json
from fabricd.commands.control_journal import who
from fabricd.errors import FabricdError

if TYPE_CHECKING:
    from fabricd.control.journal import Latch

_SAID = {
    "pause": "no new actions; undo still runs",
    "freeze": "no writes at all, not even undo",
    "revert-all": "everything is undone, then frozen",
}


def _set(latch: Latch) -> Callable[[argparse.Namespace], int]:
    def run(args: argparse.Namespace) -> int:
        from fabricd.config.load import load_config
        from fabricd.control.journal import SqliteJournal

        config = load_config(args.config)
        # Made if it is not there: a brake must hold before the controller's first start as well.
        journal = SqliteJournal(config.control.journal)
        try:
            held = journal.latches()
            if latch == "revert-all" and "freeze" in held:
                raise FabricdError(
                    f"frozen ({held['freeze']}): nothing can be undone; fabricd resume --only freeze first"
                )
            if latch not in held:
                journal.latch(latch, who(), time.time_ns())
            latches = journal.latches()
        finally:
            journal.close()
        print_json({"latches": latches}) if args.json else print(f"{latch}: {_SAID[latch]} ({latches[latch]})")
        return 0

    return run


def _configure_resume(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--only", choices=list(_SAID), help="clear only this latch (default: all of them)")
    add_json(parser)


def _resume(args: argparse.Namespace) -> int:
    """Clears latches in the journal, and their files, which would set them again at once."""
    from fabricd.config.load import load_config
    from fabricd.control.journal import LATCHES, SqliteJournal

    config = load_config(args.config)
    journal = SqliteJournal(config.control.journal)
    cleared = []
    try:
        for latch in LATCHES:
            if args.only not in (None, latch):
                continue
            file = Path(config.control.latch_dir) / latch
            try:
                file.unlink(missing_ok=True)
            except OSError as error:
                raise FabricdError(f"{file}: {error.strerror}") from None
            if latch in journal.latches():
                journal.unlatch(latch)
                cleared.append(latch)
        latches = journal.latches()
    finally:
        journal.close()
    if args.json:
        print_json({"cleared": cleared, "latches": latches})
    else:
        print(f"cleared: {', '.join(cleared)}" if cleared else "nothing was latched")
        for name, by in latches.items():
            print(f"still {name} since {by}")
    return 0


COMMANDS = (
    Command("pause", "no new actions; what stands stays and is undone as usual", add_json, _set("pause")),
    Command("freeze", "no writes to any device at all", add_json, _set("freeze")),
    Command("revert-all", "undo everything, then freeze", add_json, _set("revert-all")),
    Command("resume", "clear pause, freeze and revert-all", _configure_resume, _resume),
)

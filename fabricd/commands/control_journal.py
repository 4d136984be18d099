"""Opening the controller's journal for the commands that read it or leave requests in it."""

from __future__ import annotations

import argparse
import getpass
import os
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fabricd.errors import FabricdError

if TYPE_CHECKING:
    from fabricd.config.root import Config
    from fabricd.control.journal import SqliteJournal


def add_config_again(parser: argparse.ArgumentParser) -> None:
    """``--config`` after the word of a sub-command counts as well as before it."""
    parser.add_argument("--config", metavar="FILE", default=argparse.SUPPRESS, help="TOML configuration")


def open_journal(args: argparse.Namespace) -> tuple[Config, SqliteJournal]:
    """Raises FabricdError when there is no journal or it may not be opened."""
    from fabricd.config.load import load_config
    from fabricd.control.journal import SqliteJournal

    config = load_config(args.config)
    path = config.control.journal
    if not Path(path).exists():
        raise FabricdError(f"no journal at {path} (control.journal): has the controller run on this machine?")
    if not os.access(path, os.W_OK):
        raise FabricdError(f"journal {path}: no permission; run as root or as the controller's user")
    return config, SqliteJournal(path)


def who() -> str:
    """The person at the command line, for the audit trail."""
    name = os.environ.get("SUDO_USER")
    if not name:
        try:
            name = getpass.getuser()
        except (KeyError, OSError):  # a user id without a name
            name = f"uid {os.getuid()}"
    return f"{name}@{os.uname().nodename}"


def when(at_ns: int | None) -> str:
    """Seconds of UTC, or a dash."""
    return "-" if not at_ns else time.strftime("%Y-%m-%d %H:%M:%S", time.gmtime(at_ns / 1e9))


def percent(value: Any) -> str:
    return "-" if value is None else f"{value:.0%}"

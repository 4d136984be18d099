"""What a sub-command is: a name, a line of summary, its options and a function that returns the exit status."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

Run = Callable[[argparse.Namespace], int]


@dataclass(frozen=True, slots=True)
class Command:
    """One sub-command. Modules of this package list theirs in ``COMMANDS``; heavy imports belong inside ``run``."""

    name: str
    summary: str
    configure: Callable[[argparse.ArgumentParser], None]
    run: Run
    description: str = ""
    epilog: str = ""


def add_config(parser: argparse.ArgumentParser) -> None:
    """The option every sub-command has."""
    parser.add_argument("--config", metavar="FILE", help="TOML configuration (default: built-in defaults)")


def add_config_again(parser: argparse.ArgumentParser) -> None:
    """The same option after an action's name. SUPPRESS: where it is not given here, the one before the action counts."""
    parser.add_argument("--config", metavar="FILE", default=argparse.SUPPRESS, help="TOML configuration")


def add_json(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--json", action="store_true", help="one JSON document on stdout, logs on stderr")


def print_json(document: Any) -> None:
    """One JSON document on stdout."""
    json.dump(document, sys.stdout, separators=(",", ":"), default=str)
    sys.stdout.write("\n")

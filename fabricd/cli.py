"""The ``fabricd`` command: finds the sub-commands, parses, runs one, turns errors into one line and an exit status.

Exit status: 0 done, 1 failed, 2 wrong usage or configuration, 3 done and found something.
"""

from __future__ import annotations

import argparse
import importlib
import io
import os
import pkgutil
import signal
import sys
from collections.abc import Sequence

from fabricd import __version__
from fabricd import commands as commands_package
from fabricd.commands.base import Command, add_config
from fabricd.commands.extras import what_is_missing
from fabricd.errors import FabricdError


def all_commands() -> list[Command]:
    """Every sub-command of ``fabricd.commands``, by name."""
    found: list[Command] = []
    for info in pkgutil.iter_modules(commands_package.__path__):
        module = importlib.import_module(f"{commands_package.__name__}.{info.name}")
        found.extend(getattr(module, "COMMANDS", ()))
    return sorted(found, key=lambda command: command.name)


def build_parser(found: Sequence[Command]) -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="fabricd",
        description="Fabric telemetry and congestion control for GPU clusters on InfiniBand and RoCE: "
        "finds head-of-line blocking, says where and why, and (only if told to) mends it.",
        epilog="exit status: 0 done, 1 failed, 2 wrong usage or configuration, 3 done and found something",
    )
    parser.add_argument("--version", action="version", version=f"fabricd {__version__}")
    subparsers = parser.add_subparsers(dest="command", metavar="COMMAND", required=True)
    for command in found:
        sub = subparsers.add_parser(
            command.name,
            help=command.summary,
            description=command.description or command.summary,
            epilog=command.epilog or None,
            formatter_class=argparse.RawDescriptionHelpFormatter,
        )
        add_config(sub)
        command.configure(sub)
        sub.set_defaults(run=command.run)
    return parser


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line; returns the exit status."""
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")  # names of the kernel's may hold any bytes, terminals may not
    parser = build_parser(all_commands())
    args = parser.parse_args(argv)
    try:
        status: int = args.run(args)
        sys.stdout.flush()
    except FabricdError as error:
        print(f"fabricd: {error}", file=sys.stderr)
        return error.exit_status
    except ModuleNotFoundError as error:
        if error.name is None or error.name.split(".")[0] == "fabricd":
            raise  # a fault of ours, not of the installation
        print(f"fabricd: {what_is_missing(error.name, args.command)}", file=sys.stderr)
        return FabricdError.exit_status
    except BrokenPipeError:
        # The reader went away (a pager, head): not an error of ours.
        _silence_stdout()
        return 128 + signal.SIGPIPE
    except OSError as error:
        # What no room foresaw (a full disk under a redirected output): still one line.
        _silence_stdout()
        where = f"{error.filename}: " if error.filename else ""
        print(f"fabricd: {where}{error.strerror or error}", file=sys.stderr)
        return FabricdError.exit_status
    except KeyboardInterrupt:
        return 128 + signal.SIGINT
    return status


def _silence_stdout() -> None:
    """Keep the interpreter from complaining at exit about what it cannot write."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


if __name__ == "__main__":
    sys.exit(main())

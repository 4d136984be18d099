"""``fabricd completion bash|zsh``: a script for the shell."""

from __future__ import annotations

import argparse

from fabricd.commands.base import Command

_EPILOG = """\
examples:
  fabricd completion bash > /etc/bash_completion.d/fabricd
  fabricd completion zsh > "${fpath[1]}/_fabricd"
"""


def _configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("shell", choices=("bash", "zsh"))


def _run(args: argparse.Namespace) -> int:
    import shtab

    from fabricd.cli import all_commands, build_parser

    print(shtab.complete(build_parser(all_commands()), args.shell))
    return 0


COMMANDS = (Command("completion", "print a completion script for a shell", _configure, _run, epilog=_EPILOG),)

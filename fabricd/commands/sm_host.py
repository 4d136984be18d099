"""``fabricd sm-host``: the far end of ssh on the machine where opensm runs."""

from __future__ import annotations

import argparse
import sys

from fabricd.commands.base import Command

_DESCRIPTION = """\
Reads one JSON question a line and answers each. It touches the files in the directory of control.opensm_conf and in
control.opensm_directories, sends SIGHUP to opensm, gives a few commands to its console and reads its log: nothing else.
Meant as the forced command of the controller's key."""


def _configure(parser: argparse.ArgumentParser) -> None:
    """It takes no options of its own."""


def _run(args: argparse.Namespace) -> int:
    from fabricd.config.load import load_config
    from fabricd.control.adapters.opensm import local_host
    from fabricd.devices.opensm.far_end import serve

    serve(local_host(load_config(args.config).control), sys.stdin.buffer, sys.stdout.buffer)
    return 0


COMMANDS = (
    Command(
        "sm-host",
        "answer the controller's opensm adapter on standard input (run by ssh on a UFM or opensm host)",
        _configure,
        _run,
        description=_DESCRIPTION,
        epilog='In authorized_keys: restrict,command="fabricd sm-host --config /etc/fabricd/sm-host.toml" ssh-ed25519 AAAA…',
    ),
)

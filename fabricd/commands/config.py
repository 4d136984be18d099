"""``fabricd config check|show``."""

from __future__ import annotations

import argparse
import json
from typing import Any

from fabricd.commands.base import Command, add_config_again, add_json, print_json

_EPILOG = """\
order, later wins: defaults, the file, environment FABRICD_SECTION__KEY=value, options of the command line
examples:
  fabricd config check --config /etc/fabricd.toml
  fabricd config show > fabricd.toml       a commented file with every key and its default
"""


def _configure(parser: argparse.ArgumentParser) -> None:
    actions = parser.add_subparsers(dest="action", metavar="check|show", required=True)
    check = actions.add_parser("check", help="read the configuration and say whether it is right")
    show = actions.add_parser("show", help="print every key with its value, default and documentation, as TOML")
    for sub in (check, show):
        add_config_again(sub)
        add_json(sub)


def _run(args: argparse.Namespace) -> int:
    from fabricd.config.load import describe, load_config

    config = load_config(args.config)
    if args.action == "check":
        where = args.config or "built-in defaults"
        print_json({"config": where, "ok": True}) if args.json else print(f"{where}: right")
        return 0
    keys = [(key, allowed, default, words, _value(config, key)) for key, allowed, default, words in describe()]
    if args.json:
        names = ("key", "allowed", "default", "description", "value")
        print_json([dict(zip(names, entry, strict=True)) for entry in keys])
        return 0
    print(_as_toml(keys))
    return 0


def _value(config: Any, key: str) -> Any:
    for part in key.split("."):
        config = getattr(config, part)
    return config


def _as_toml(keys: list[tuple[str, str, Any, str, Any]]) -> str:
    lines: list[str] = []
    section = None
    for key, allowed, default, words, value in keys:
        parent, _, name = key.rpartition(".")
        if parent != section:
            lines += ([""] if lines else []) + [f"[{parent}]"]
            section = parent
        lines.append(f"# {words}")
        lines.append(f"# {allowed}; default {_toml(default) if default is not None else 'unset'}")
        # TOML has no null: an unset key is shown commented out.
        lines.append(f"{name} = {_toml(value)}" if value is not None else f"# {name} =")
    return "\n".join(lines)


def _toml(value: Any) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, int | float):
        return str(value)
    if isinstance(value, str):
        return json.dumps(value, ensure_ascii=False)
    if isinstance(value, list | tuple):
        return f"[{', '.join(map(_toml, value))}]"
    if isinstance(value, dict):
        return f"{{{', '.join(f'{json.dumps(str(k))} = {_toml(v)}' for k, v in value.items())}}}"
    return _toml({name: entry for name in value.__struct_fields__ if (entry := getattr(value, name)) is not None})


COMMANDS = (Command("config", "check a configuration file, or show every key", _configure, _run, epilog=_EPILOG),)

"""``fabricd policy check``: is a policy file right, and what does it choose."""

from __future__ import annotations

import argparse

from fabricd.commands.base import Command, add_json, print_json
from fabricd.commands.client import table
from fabricd.commands.control_journal import add_config_again, percent


def _configure(parser: argparse.ArgumentParser) -> None:
    words = parser.add_subparsers(dest="word", metavar="check", required=True)
    check = words.add_parser("check", help="read a policy and list its remedies by cause")
    check.add_argument(
        "file", metavar="FILE", nargs="?", help="policy file (default: control.policy_file, or the built-in)"
    )
    add_config_again(check)
    add_json(check)


def _run(args: argparse.Namespace) -> int:
    from fabricd.config.load import load_config
    from fabricd.control.policy import CAUSES, DEFAULT_FILE, RemedyRules, load_policy
    from fabricd.control.remedies import REMEDIES

    config = load_config(args.config)
    path = args.file or config.control.policy_file or str(DEFAULT_FILE)
    policy = load_policy(path)
    rows = []
    document: dict[str, list[dict[str, object]]] = {}
    for cause in CAUSES:
        chosen = document.setdefault(cause, [])
        for name in policy.causes.get(cause, []):
            remedy, rules = REMEDIES[name], policy.remedies.get(name) or RemedyRules()
            needs = [need.name for need in remedy.needs]
            lease = rules.lease_s or config.control.lease_s
            least = config.control.min_gain if rules.min_gain is None else rules.min_gain
            chosen.append(
                {
                    "remedy": name,
                    "summary": remedy.summary,
                    "needs": needs,
                    "enabled": rules.enabled,
                    "lease_s": lease,
                    "min_gain": least,
                }
            )
            word = name if rules.enabled else f"{name} (off)"
            rows.append([cause, word, f"{lease:g} s", percent(least), "; ".join(needs)])
        if not chosen:
            rows.append([cause, "-", "", "", "never an action: only an alert"])
    if args.json:
        print_json({"policy": path, "ok": True, "min_confidence": policy.min_confidence, "causes": document})
        return 0
    print(f"{path}: right")
    print(table(["CAUSE", "REMEDY", "LEASE", "LEAST GAIN", "NEEDS"], rows))
    return 0


COMMANDS = (Command("policy", "check a policy file", _configure, _run),)

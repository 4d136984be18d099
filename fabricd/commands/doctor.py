"""``fabricd doctor``: GPUDirect RDMA checks of this node, of a captured one, or of the fleet."""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import Any

from fabricd.commands.base import Command, add_json, print_json
from fabricd.commands.client import add_url, get_json, understanding
from fabricd.errors import BAD_DOCUMENT, FabricdError, UsageError

_MARKS = {"ok": "ok  ", "warn": "WARN", "fail": "FAIL", "unknown": "?   "}


def _configure(parser: argparse.ArgumentParser) -> None:
    add_json(parser)
    add_url(parser)
    parser.add_argument(
        "--root", metavar="DIR", default="/", help="a captured tree (directory or capture file) instead of this node"
    )
    mode = parser.add_mutually_exclusive_group()
    mode.add_argument(
        "--capture", metavar="FILE", help="write what the checks read into FILE (.tar.gz), without secrets"
    )
    mode.add_argument(
        "--fix", action="store_true", help="show, and with --yes write, the doctor's own files (reversible)"
    )
    mode.add_argument("--undo", action="store_true", help="take back what --fix wrote")
    mode.add_argument("--fleet", action="store_true", help="which node differs from the majority")
    mode.add_argument(
        "--nccl-conf", metavar="FILE", help="write recommended NCCL settings of this node to FILE ('-': stdout)"
    )
    mode.add_argument(
        "--dump-config",
        action="store_true",
        help="root helper: leave PCI configuration spaces for the unprivileged doctor",
    )
    parser.add_argument("--yes", action="store_true", help="with --fix: write without asking")
    parser.add_argument(
        "--reports", metavar="DIR", help="with --fleet: JSON reports of nodes instead of the running aggregator"
    )
    parser.add_argument("--publish", action="store_true", help="send the report to the broker for the fleet view")
    parser.add_argument(
        "--probe", action="store_true", help="also move data through each NIC with ib_write_bw (some seconds each)"
    )
    parser.add_argument("--all", action="store_true", help="show passed checks too")


def _run(args: argparse.Namespace) -> int:
    if args.fleet:
        return _fleet(args)
    from fabricd.doctor.capture import opened_root, write_capture
    from fabricd.doctor.run import make_context, report, run_checks

    if args.dump_config:
        from fabricd.doctor.dump import dump_configs

        print(f"{dump_configs()} configuration spaces written", file=sys.stderr)
        return 0
    with opened_root(args.root) as root:
        if args.undo:
            return _undo(root)
        context = make_context(root)
        if args.capture:
            entries = write_capture(context, args.capture)
            print(f"{args.capture}: {entries} entries", file=sys.stderr)
            return 0
        if args.nccl_conf:
            return _nccl_conf(context, args.nccl_conf)
        if args.probe:
            _probe(args, context)
        results = run_checks(context)
        if args.fix:
            return _fix(args, root, context, results)
        document = report(context, results)
    if args.publish:
        _publish(args, document)
    if args.json:
        print_json(document)
    else:
        _print(document, args.all)
    return 3 if document["verdict"] == "fail" else 0


def _probe(args: argparse.Namespace, context: Any) -> None:
    from fabricd.doctor.probe import measure

    if not context.tree.live:
        raise UsageError("--probe moves data on this node; it does not go with --root")
    context.calls.data["bandwidth"] = {
        nic.name: measure(nic.name, lambda line: print(line, file=sys.stderr)) for nic in context.inventory.nics
    }


def _publish(args: argparse.Namespace, document: dict[str, Any]) -> None:
    import asyncio

    from fabricd.config.load import load_config
    from fabricd.daemons.identity import node_id
    from fabricd.model import topics
    from fabricd.transport.post import post

    config = load_config(args.config)
    topic = topics.doctor(config.fabric.name, node_id(config.agent.node))
    asyncio.run(post(config.broker, topic, json.dumps(document).encode()))


def _print(document: dict[str, Any], everything: bool) -> None:
    platform = document["platform"]
    print(
        f"{document['node'] or 'node'}: {len(platform['gpus'])} GPUs, {len(platform['rdma_devices'])} RDMA devices"
        f"{', virtual machine' if platform['vm'] else ''}"
    )
    counts = dict.fromkeys(_MARKS, 0)
    for check in document["checks"]:
        counts[check["verdict"]] += 1
        if check["verdict"] == "ok" and not everything:
            continue
        print(f"{_MARKS[check['verdict']]} {check['id']}: wanted {check['wanted']}")
        for subject in check["subjects"]:
            if subject["verdict"] != "ok" or everything:
                name = f"{subject['subject']}: " if subject["subject"] else ""
                note = f" ({subject['note']})" if subject["note"] else ""
                print(f"       {name}{_compact(subject['value'])}{note}")
        if not check["subjects"]:
            print(f"       {check['notes']['node']}")
        if check["verdict"] in ("fail", "warn"):
            print(f"       why: {check['why']}")
            if check["effect"]:
                print(f"       effect: {check['effect']}")
            if check["do"]:
                by = f" (class {check['class']})" if check["class"] else ""
                print(f"       do{by}: {check['do']}")
    print(", ".join(f"{count} {verdict}" for verdict, count in counts.items()))


def _compact(value: Any) -> str:
    if isinstance(value, dict):
        return ", ".join(f"{key}={_compact(item)}" for key, item in value.items())
    return "not known" if value is None else str(value)


def _nccl_conf(context: Any, target: str) -> int:
    from fabricd.doctor.checks.environment import recommended_nccl_conf

    text = recommended_nccl_conf(context)
    if target == "-":
        sys.stdout.write(text)
        return 0
    try:
        Path(target).write_text(text, encoding="utf-8")
    except OSError as error:
        raise FabricdError(f"{target}: {error.strerror}") from None
    return 0


def _fix(args: argparse.Namespace, root: str, context: Any, results: Any) -> int:
    from fabricd.doctor.fix import FixJournal, plan

    files = plan(context, results)
    by_hand: list[dict[str, Any]] = []
    described = [{"path": file.path, "content": file.content, "why": file.why} for file in files]
    shown: dict[str, Any] = {"files": described, "applied": False, "by_hand": by_hand}
    for result in results:
        if result.verdict in ("warn", "fail") and result.cls in ("B", "C"):
            old = {f.subject or "node": f.value for f in result.findings if f.verdict in ("warn", "fail")}
            by_hand.append({"id": result.id, "class": result.cls, "do": result.do, "now": old})
    agreed = args.yes or (bool(files) and sys.stdin.isatty() and not args.json and _ask(shown))
    if files and agreed:
        for line in FixJournal(Path(root)).apply(files):
            print(line, file=sys.stderr)
        shown["applied"] = True
    if args.json:
        print_json(shown)
    elif not sys.stdin.isatty() or args.yes or not files:
        _print_plan(shown)
    return 0


def _print_plan(shown: dict[str, Any]) -> None:
    if not shown["files"]:
        print("nothing the doctor may write would help")
    for file in shown["files"]:
        print(f"{'wrote' if shown['applied'] else 'would write'} {file['path']} ({file['why']}):")
        print("".join(f"    {line}\n" for line in file["content"].splitlines()), end="")
    for item in shown["by_hand"]:
        what = "by hand, on a drained node" if item["class"] == "B" else "report only"
        print(f"{item['id']} ({what}): {item['do']}\n    now: {_compact(item['now'])}")
    if shown["files"] and not shown["applied"]:
        print("nothing was written; run again with --yes")


def _ask(shown: dict[str, Any]) -> bool:
    _print_plan(shown)
    return input("write these files? [y/N] ").strip().lower() in ("y", "yes")


def _undo(root: str) -> int:
    from fabricd.doctor.fix import FixJournal

    undone, conflicts = FixJournal(Path(root)).undo()
    for line in undone or ([] if conflicts else ["nothing to undo"]):
        print(line)
    for line in conflicts:
        print(f"conflict: {line}", file=sys.stderr)
    return 1 if conflicts else 0


def _fleet(args: argparse.Namespace) -> int:
    from fabricd.doctor.fleet import compare

    document = compare(_read_reports(args.reports)) if args.reports else get_json(args, "/api/v1/doctor/fleet")
    with understanding("the fleet's differences"):
        found = document["differing"] or document["crossed_rails"] or document["failing"]
        if args.json:
            print_json(document)
        else:
            _print_fleet(document)
    return 3 if found else 0


def _read_reports(folder: str) -> list[dict[str, Any]]:
    if not Path(folder).is_dir():
        raise UsageError(f"--reports {folder}: not a directory")
    reports = []
    for file in sorted(Path(folder).glob("*.json")):
        try:
            report = json.loads(file.read_text(encoding="utf-8"))
        except (OSError, *BAD_DOCUMENT) as error:
            print(f"fabricd: {file}: left out: {error}", file=sys.stderr)
            continue
        if isinstance(report, dict) and isinstance(report.get("checks"), list):
            reports.append(report)
        else:
            print(f"fabricd: {file}: left out: not a doctor report", file=sys.stderr)
    return reports


def _print_fleet(document: dict[str, Any]) -> None:
    print(f"{document['nodes']} nodes reported")
    for entry in document["differing"]:
        print(
            f"{entry['node']}: {entry['property']} is {entry['value']}; {entry['share']:.0%} of the fleet have {entry['majority']}"
        )
    for entry in document["crossed_rails"]:
        print(f"{entry['node']}: {entry['detail']}")
    for node, ids in document["failing"].items():
        print(f"{node}: fails {', '.join(ids)}")
    for entry in document["undecided"]:
        print(f"no majority for {entry['property']}: {_compact(entry['values'])}")


COMMANDS = (
    Command(
        "doctor",
        "check (and where safe, configure) GPUDirect RDMA on a node",
        _configure,
        _run,
        epilog="exit status: 0 nothing fails, 3 a check fails (or nodes differ); unknown means it could not be read, never ok",
    ),
)

"""``fabricd ports``: the ports and their counters as they are now."""

from __future__ import annotations

import argparse
from typing import Any

from fabricd.commands.base import Command, add_json, print_json
from fabricd.commands.client import add_url, get_json, table, understanding

_SENT = ("port_transmit_data_bytes", "netdev_transmit_bytes")
_RECEIVED = ("port_receive_data_bytes", "netdev_receive_bytes")


def _configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--node", help="only ports this node publishes")
    parser.add_argument("--device", help="only this device or network interface")
    parser.add_argument("--guid", help="only this GUID (0x…)")
    parser.add_argument("--counters", action="store_true", help="list every counter of each port")
    parser.add_argument("--limit", type=int, default=1000, help="most ports to show (%(default)s)")
    add_url(parser)
    add_json(parser)


def _run(args: argparse.Namespace) -> int:
    query = {"node": args.node, "device": args.device, "guid": args.guid, "limit": args.limit}
    document = get_json(args, "/api/v1/ports", query)
    if args.json:
        print_json(document)
        return 0
    with understanding("ports"):
        _print(document, args.counters)
    return 0


def _print(document: dict[str, Any], counters: bool) -> None:
    if not document["ports"]:
        print(f"fabric {document['fabric']}: no port with a fresh reading matches")
        return
    head = ["NODE", "DEVICE", "PORT", "GUID", "LINK", "RATE", "SENT", "RECEIVED", "NOTES"]
    print(table(head, [_row(port) for port in document["ports"]], frozenset({5, 6, 7})))
    if counters:
        for port in document["ports"]:
            _print_counters(port)
    if document["total"] > len(document["ports"]):
        print(
            f"{document['total'] - len(document['ports'])} more ports: raise --limit, or choose with --node, --device, --guid"
        )


def _row(port: dict[str, Any]) -> list[str]:
    notes = ["duplicate GUID"] if port["contested"] else []
    full = sum("saturated" in counter["flags"] for counter in port["counters"])
    if full:
        notes.append(f"{full} counters saturated")
    return [
        port["node"], port["device"] or port["netdev"] or "-", str(port["port"]), port["guid"], port["link_layer"] or "-",
        f"{port['rate_gbps']:g} Gb/s" if port["rate_gbps"] else "-",
        _traffic(port, _SENT), _traffic(port, _RECEIVED), "; ".join(notes),
    ]  # fmt: skip


def _traffic(port: dict[str, Any], names: tuple[str, ...]) -> str:
    for name in names:
        for counter in port["counters"]:
            if counter["name"] == name and counter["priority"] is None and counter["rate"] is not None:
                return _bits(counter["rate"] * 8)
    return "-"


def _bits(rate: float) -> str:
    for factor, unit in ((1e9, "Gb/s"), (1e6, "Mb/s"), (1e3, "kb/s")):
        if rate >= factor:
            return f"{rate / factor:.1f} {unit}"
    return f"{rate:.0f} b/s"


def _print_counters(port: dict[str, Any]) -> None:
    print(f"\n{port['node']} {port['device'] or port['netdev']} port {port['port']} {port['guid']}")
    rows = []
    for counter in sorted(port["counters"], key=lambda c: (c["name"], c["priority"] or 0)):
        name = counter["name"] if counter["priority"] is None else f"{counter['name']}[{counter['priority']}]"
        value = "-" if counter["value"] is None else str(counter["value"])
        rate = "-" if counter["rate"] is None else f"{counter['rate']:.6g}/s"
        rows.append(["  " + name, value, counter["unit"] or "unknown", rate, " ".join(counter["flags"])])
    print(table(["  COUNTER", "VALUE", "UNIT", "RATE", "FLAGS"], rows, frozenset({1, 3})))


COMMANDS = (Command("ports", "list ports with traffic, or with every counter", _configure, _run),)

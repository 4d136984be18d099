"""What the API says about nodes and ports, as plain documents. The command line prints the same ones."""

from __future__ import annotations

import time
from typing import Any

import numpy as np

from fabricd.model.ident import format_guid
from fabricd.model.sample import Flag
from fabricd.store.node import Node
from fabricd.store.store import Store
from fabricd.store.table import Stream


def nodes_document(store: Store, stale_ns: int) -> dict[str, Any]:
    now = time.monotonic_ns()
    return {
        "fabric": store.fabric,
        "nodes": [_node(node, now, stale_ns) for node in sorted(store.nodes.values(), key=lambda n: n.name)],
        "contested": [
            {"guid": format_guid(key.guid), "port": key.port, "plane": key.plane, "nodes": names}
            for key, names in store.ports.contested().items()
        ],
    }


def _node(node: Node, now: int, stale_ns: int) -> dict[str, Any]:
    kinds = {stream.schema.kind for stream in node.streams.values()}
    return {
        "node": node.name,
        "kind": "switch" if kinds == {"switch"} else "node",
        "state": node.state(now, stale_ns),
        "age_s": round((now - node.heard_ns) / 1e9, 3) if node.heard_ns else None,
        "boot": f"{node.boot:016x}" if node.boot is not None else None,
        "seq": node.seq if node.seq >= 0 else None,
        "ports": sum(stream.count for stream in node.streams.values()),
        "clock_skew_s": round(node.skew.ns / 1e9, 6) if node.skew.ns is not None else None,
        "stored_frames": sum(len(ranges) for ranges in node.ledger.boots.values()),
        "gaps": node.counts["gap"],
        "late": node.counts["late"],
        "duplicates": node.counts["duplicate"],
        "counter_resets": sum(stream.resets for stream in node.streams.values()),
        "rival_publisher": node.contested,
        "status": node.status,
    }


def ports_document(
    store: Store, stale_ns: int, *, node: str | None = None, device: str | None = None, guid: int | None = None,
    offset: int = 0, limit: int = 1000,
) -> dict[str, Any]:  # fmt: skip
    """Ports with their counters; only fresh ones. ``total`` counts all that match, ``ports`` holds one page of them."""
    now = time.monotonic_ns()
    wanted: dict[int, list[tuple[Stream, int]]] = {}
    for owner in store.nodes.values():
        if node is not None and owner.name != node:
            continue
        for stream in owner.streams.values():
            heard = stream.heard_ns
            if not heard or now - heard > stale_ns:
                continue
            for row, port in enumerate(stream.table.port[stream.start : stream.start + stream.count].tolist()):
                labels = store.ports.labels[port]
                if device is not None and device not in (labels.device, labels.netdev):
                    continue
                if guid is not None and store.ports.keys[port].guid != guid:
                    continue
                wanted.setdefault(port, []).append((stream, row))
    contested = store.ports.contested()
    page = sorted(wanted)[offset : offset + limit]
    return {
        "fabric": store.fabric,
        "total": len(wanted),
        "offset": offset,
        "ports": [_port(store, port, wanted[port], now, store.ports.keys[port] in contested) for port in page],
    }


def _port(store: Store, port: int, places: list[tuple[Stream, int]], now: int, contested: bool) -> dict[str, Any]:
    key, labels = store.ports.keys[port], store.ports.labels[port]
    return {
        "guid": format_guid(key.guid),
        "port": key.port,
        "plane": key.plane,
        "node": labels.node,
        "device": labels.device,
        "netdev": labels.netdev,
        "link_layer": labels.link_layer,
        "driver": labels.driver,
        "rate_gbps": labels.rate_gbps or None,
        "labels": labels.labels,
        "contested": contested,
        "counters": [counter for stream, row in places for counter in _counters(stream, row, now)],
    }


def _counters(stream: Stream, row: int, now: int) -> list[dict[str, Any]]:
    table, number = stream.table, stream.start + row
    age = round((now - stream.heard_ns) / 1e9, 3)
    out = []
    for at, column in enumerate(stream.schema.columns):
        if column.kind in ("time", "epoch"):
            continue
        flags, span = Flag(int(table.flags[number, at])), int(table.spans(np.array([number]), at)[0])
        counts = column.kind == "counter" and span > 0
        out.append(
            {
                "name": column.name,
                "priority": column.priority,
                "unit": column.unit,
                "value": int(table.value[number, at]) if Flag.VALID in flags else None,
                "rate": int(table.delta[number, at]) * 1e9 / span if counts else None,
                "flags": flags.names,
                "age_s": age,
                "raw": column.raw,
                "source": column.source,
            }
        )
    return out

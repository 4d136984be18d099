"""Which node differs from its like: the doctor reports of a fleet compared, property by property. Pure."""

from __future__ import annotations

import json
from collections import Counter
from typing import Any

from fabricd.model.topology import Fault

# property -> (check id, how to read a comparable value out of one subject's value; None = the value itself)
_PROPERTIES: dict[str, tuple[str, str | None]] = {
    "pairing": ("fleet.pairing", "hash"),
    "firmware": ("nic.firmware", "fw_ver"),
    "traffic_class": ("roce.traffic_class", "jobs"),
    "gid_index": ("roce.gid", None),
    "dscp_map": ("roce.trust_pfc", "dscp_map"),
    "pfc": ("roce.trust_pfc", "pfc"),
    "active_mtu": ("port.mtu", "active_mtu"),
    "max_read_request": ("pcie.read_request", "max_read_request"),
}


def _properties(report: dict[str, Any]) -> dict[str, str]:
    """Comparable text of each property the report knows."""
    checks = {check.get("id"): check for check in report.get("checks", []) if isinstance(check, dict)}
    out: dict[str, str] = {}
    for name, (check_id, key) in _PROPERTIES.items():
        subjects = (checks.get(check_id) or {}).get("subjects") or []
        values = {}
        for subject in subjects:
            value = subject.get("value")
            value = value.get(key) if key and isinstance(value, dict) else value
            if value is not None:
                values[str(subject.get("subject"))] = value
        if values:
            # Device names may differ between nodes without harm: what counts is the set of values per node.
            distinct = sorted({json.dumps(value, sort_keys=True) for value in values.values()})
            out[name] = " | ".join(distinct)
    return out


def compare(reports: list[dict[str, Any]], faults: list[Fault] | None = None) -> dict[str, Any]:
    """``{"nodes", "majority", "differing": [...], "undecided": [...], "crossed_rails": [...], "failing": {...}}``.

    A property without a majority (no value on more than half of the nodes that know it) is undecided: nobody is named.
    """
    known = {str(report.get("node")): report for report in reports if report.get("node")}
    per_node = {node: _properties(report) for node, report in known.items()}
    majority: dict[str, str] = {}
    differing, undecided = [], []
    for name in _PROPERTIES:
        values = {node: properties[name] for node, properties in per_node.items() if name in properties}
        if len(values) < 3:
            continue
        top, count = Counter(values.values()).most_common(1)[0]
        if 2 * count <= len(values):
            undecided.append({"property": name, "values": dict(Counter(values.values()))})
            continue
        majority[name] = top
        differing += [
            {"node": node, "property": name, "value": value, "majority": top, "share": count / len(values)}
            for node, value in sorted(values.items())
            if value != top
        ]
    crossed = [
        {"node": fault.where, "detail": fault.detail, "reported": fault.where in known}
        for fault in faults or []
        if fault.kind in ("crossed_rail", "missing_rail")
    ]
    failing = {
        node: [c["id"] for c in report.get("checks", []) if c.get("verdict") == "fail"]
        for node, report in sorted(known.items())
    }
    return {
        "nodes": len(known),
        "majority": majority,
        "differing": differing,
        "undecided": undecided,
        "crossed_rails": crossed,
        "failing": {node: ids for node, ids in failing.items() if ids},
    }

"""Hosts that should get no new job, each with the reason: faults of the fabric, missing rails, the doctor, open verdicts."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from fabricd.errors import UsageError
from fabricd.model.ident import parse_guid
from fabricd.model.topology import CA, Topology
from fabricd.model.verdict import Verdict
from fabricd.placement.fabric import Fabric

Flags = dict[str, list[str]]


def flag(flags: Flags, host: str, why: str) -> None:
    """Add one reason, once."""
    reasons = flags.setdefault(host, [])
    if why not in reasons:
        reasons.append(why)


def from_faults(topology: Topology, kinds: Sequence[str]) -> Flags:
    """Hosts named by a topology fault whose kind starts with one of ``kinds``: by its ports, else by its place."""
    flags: Flags = {}
    hosts = {node.host for node in topology.nodes.values() if node.host}
    hosts |= {host for group in topology.rails for host in group.hosts}
    for fault in topology.faults:
        if not any(fault.kind.startswith(kind) for kind in kinds):
            continue
        found = {
            node.host
            for guid, _ in fault.ports
            if (node := topology.nodes.get(guid)) is not None and node.type == CA and node.host
        }
        if not found:
            found = {word for word in fault.where.replace(",", " ").replace(":", " ").split() if word in hosts}
        for host in found:
            flag(flags, host, f"{fault.kind}: {fault.detail or fault.where}")
    return flags


def from_verdicts(topology: Topology, fabric: Fabric, verdicts: Iterable[Verdict]) -> Flags:
    """Hosts behind an open verdict: the host at a root port, or all hosts of the rail group whose leaf has the root port."""
    flags: Flags = {}
    peers = topology.neighbours()
    group_of = {leaf: i for i, group in enumerate(fabric.groups) for rail in group.leaves for leaf in rail}
    for verdict in verdicts:
        if verdict.end is not None:
            continue
        for node_id, port in verdict.roots:
            guid = _guid(node_id)
            if guid is None:
                continue
            ends = [guid, *([peers[guid, port][0]] if (guid, port) in peers else [])]
            why = f"behind open verdict {verdict.id} ({verdict.cause})"
            hosts = {topology.nodes[end].host for end in ends if end in topology.nodes and topology.nodes[end].host}
            if hosts:
                for host in hosts:
                    flag(flags, host, why)
                continue
            for end in ends:
                if end in group_of:
                    for host in fabric.members(group_of[end]):
                        flag(flags, host, why)
    return flags


def _guid(node_id: str | int) -> int | None:
    if isinstance(node_id, int):
        return node_id
    try:
        return parse_guid(node_id)
    except ValueError:
        return None


def from_doctor(document: Any, where: str) -> Flags:
    """Hosts with a failed check in a doctor report, a list of reports, or a fleet's report. Raises UsageError if it is none.

    A report has ``node`` and ``checks`` with ``id`` and ``verdict`` (or ``status``); only ``fail`` flags a host.
    """
    flags: Flags = {}
    for report in _reports(document, where):
        node = report.get("node") or report.get("host")
        checks = report.get("checks")
        if not isinstance(node, str) or not isinstance(checks, list):
            raise UsageError(f"{where}: not a doctor report: it needs node and checks")
        for check in checks:
            if isinstance(check, Mapping) and (check.get("verdict") or check.get("status")) == "fail":
                flag(flags, node, f"doctor: {check.get('id', 'a check')} failed")
    return flags


def _reports(document: Any, where: str) -> list[Mapping[str, Any]]:
    if isinstance(document, Mapping):
        if "checks" in document:
            return [document]
        for key in ("nodes", "reports"):
            inner = document.get(key)
            if isinstance(inner, list):
                return [report for report in inner if isinstance(report, Mapping)]
            if isinstance(inner, Mapping):
                return [{"node": node, **report} for node, report in inner.items() if isinstance(report, Mapping)]
    if isinstance(document, list):
        return [report for report in document if isinstance(report, Mapping)]
    raise UsageError(f"{where}: not a doctor report: it needs node and checks")


def merge(*sources: Mapping[str, Sequence[str]]) -> Flags:
    """All reasons of all sources, in their order."""
    out: Flags = {}
    for source in sources:
        for host, reasons in source.items():
            for why in reasons:
                flag(out, host, why)
    return out

"""Actions and their jobs, and ports marked unhealthy."""

from __future__ import annotations

import asyncio
import itertools
import time
from dataclasses import dataclass, field
from typing import Any

from fabricd.twin.face import PlanNode
from fabricd.twin.ufm.inventory import Inventory, guid16, label, lid, port_name, system_name
from fabricd.twin.ufm.strict import Refused, check

JOB_SECONDS = 0.2  # how long an action of the stand-in is Running
PORT_ACTIONS = ("enable", "disable", "reset")
RUNNING, COMPLETED, ERRORS, ABORTED = "Running", "Completed", "Completed With Errors", "Aborted"


@dataclass(slots=True)
class Job:
    """One job as UFM shows it. ``parent`` of the sub-jobs of an action on several systems."""

    identifier: str
    description: str
    operation: str
    created_by: str
    objects: list[str]
    parent: str | None = None
    status: str = RUNNING
    progress: int = 0
    summary: str = ""
    created: float = field(default_factory=time.time)
    updated: float = field(default_factory=time.time)

    def to_json(self) -> dict[str, Any]:
        return {
            "ID": self.identifier, "Status": self.status, "Progress": self.progress, "Summary": self.summary,
            "Description": self.description, "Created": _when(self.created), "LastUpdated": _when(self.updated),
            "RelatedObjects": self.objects, "CreatedBy": self.created_by, "Operation": self.operation,
            "Foreground": True, "SiteName": None,
        }  # fmt: skip


class Jobs:
    """The job list; a job ends a moment after it was started."""

    def __init__(self) -> None:
        self.table: dict[str, Job] = {}
        self._numbers = itertools.count(1)
        self._running: set[asyncio.Task[None]] = set()

    def start(self, description: str, operation: str, user: str, parts: list[tuple[str, str, str]]) -> Job:
        """A job with one part per system: (object, status it will end with, summary). Several parts become sub-jobs."""
        job = Job(str(next(self._numbers)), description, operation, user, [name for name, _, _ in parts])
        self.table[job.identifier] = job
        subs = []
        if len(parts) > 1:
            for number, (name, _, _) in enumerate(parts, 1):
                sub = Job(f"{job.identifier}.{number}", description, operation, user, [name], job.identifier)
                self.table[sub.identifier] = sub
                subs.append(sub)
        task = asyncio.create_task(self._finish(job, subs, parts))
        self._running.add(task)
        task.add_done_callback(self._running.discard)
        return job

    async def _finish(self, job: Job, subs: list[Job], parts: list[tuple[str, str, str]]) -> None:
        await asyncio.sleep(JOB_SECONDS)
        for sub, (_, status, summary) in zip(subs, parts, strict=False):
            self._end(sub, status, summary)
        worst = ERRORS if any(status != COMPLETED for _, status, _ in parts) else COMPLETED
        self._end(job, worst, "; ".join(summary for _, _, summary in parts))

    def _end(self, job: Job, status: str, summary: str) -> None:
        if job.status == RUNNING:
            job.status, job.progress, job.summary, job.updated = status, 100, summary, time.time()

    def abort_all(self) -> None:
        for job in self.table.values():
            self._end(job, ABORTED, "aborted")


class Operations:
    """What ``POST /actions`` and the unhealthy-ports list do to the fabric."""

    def __init__(self, inventory: Inventory, jobs: Jobs) -> None:
        self._inventory, self.jobs = inventory, jobs
        self.unhealthy: dict[str, tuple[str, float]] = {}  # port name -> (action, time)

    def act(self, body: dict[str, Any], user: str) -> Job:
        """Check an action, do it, and give the job that tells of it. Raises Refused."""
        action, params = body["action"], body.get("params", {})
        if body.get("object_type") != "System":
            raise Refused(400, "object_type: only System is served")
        systems = [self._system(text, body.get("identifier", "id")) for text in body["object_ids"]]
        if not systems:
            raise Refused(400, "object_ids is empty")
        description = body.get("description") or action.replace("_", " ")
        if action in PORT_ACTIONS:
            parts = self._port_action(action, systems, params)
        elif action == "mark_device_unhealthy":
            parts = self._mark_devices(systems, params)
        elif action == "run_cli":
            parts = self._run_cli(systems, params)
        else:
            raise Refused(400, f"action {action} is not served")
        return self.jobs.start(description, "Provisioning", user, parts)

    def _system(self, text: Any, identifier: str) -> PlanNode:
        if identifier not in ("id", "ip"):
            raise Refused(400, f"identifier {identifier}: id or ip")
        node = None
        if isinstance(text, str):
            node = self._inventory.system(text) if identifier == "id" else self._inventory.by_address(text)
        if node is None:
            raise Refused(404, f"no system {text}")
        return node

    def _port_action(self, action: str, systems: list[PlanNode], params: dict[str, Any]) -> list[tuple[str, str, str]]:
        name = check(params, {"port_id": str}, {})["port_id"]
        row = self._inventory.row(name)
        if row is None or self._inventory.plan.node_of(row) is not systems[0] or len(systems) > 1:
            raise Refused(400, f"port_id {name} is not a port of the system")
        self._inventory.mad.operate(row, action)
        return [(name, COMPLETED, f"{action} {name}: done")]

    def _mark_devices(self, systems: list[PlanNode], params: dict[str, Any]) -> list[tuple[str, str, str]]:
        checked = check(params, {"device_policy": str}, {"action": str})
        if checked["device_policy"] not in ("UNHEALTHY", "HEALTHY"):
            raise Refused(400, "device_policy: UNHEALTHY or HEALTHY")
        action = _policy_action(checked.get("action", "isolate"))
        for node in systems:
            rows = [row for row in self._inventory.rows(node) if self._inventory.plan.row_peer[row] >= 0]
            self._set_health(rows, checked["device_policy"], action)
        return [(guid16(node.guid), COMPLETED, checked["device_policy"]) for node in systems]

    def _run_cli(self, systems: list[PlanNode], params: dict[str, Any]) -> list[tuple[str, str, str]]:
        checked = check(params, {"commandline": list}, {"arguments": dict})
        lines = checked["commandline"]
        if not lines or not all(isinstance(line, str) for line in lines):
            raise Refused(400, "commandline: a list of lines")
        if any(node.kind != "switch" for node in systems):
            raise Refused(400, "run_cli: managed switches only")
        return [(guid16(node.guid), *self._cli(node, lines)) for node in systems]

    def _cli(self, node: PlanNode, lines: list[str]) -> tuple[str, str]:
        """The few lines of the switch's command language that are served: entering modes and shutting ports."""
        row: int | None = None
        for line in lines:
            words = line.split()
            if words in (["enable"], ["configure", "terminal"], ["exit"], ["end"]):
                row = None if words[0] != "enable" else row
            elif words[:2] == ["interface", "ib"] and len(words) == 3:
                numbers = {label(node, n): n for n in range(1, node.ports + 1)} | {
                    f"1/{n}": n for n in range(1, node.ports + 1)
                }
                number = numbers.get(words[2])
                if number is None:
                    return ERRORS, f"% no interface {words[2]}"
                row = self._inventory.plan.row(node, number)
            elif words in (["shutdown"], ["no", "shutdown"]) and row is not None:
                self._inventory.mad.operate(row, "disable" if words == ["shutdown"] else "enable")
            else:
                return ERRORS, f'% unrecognized command "{line}"'
        return COMPLETED, ""

    # -- unhealthy ports -----------------------------------------------------------------------------------------

    def set_ports(self, body: dict[str, Any]) -> None:
        """``PUT /app/unhealthy_ports``. Raises Refused."""
        rows = []
        for name in body["ports"]:
            row = self._inventory.row(name) if isinstance(name, str) else None
            if row is None:
                raise Refused(400, f"no port {name}")
            rows.append(row)
        policy = body["ports_policy"]
        if policy not in ("UNHEALTHY", "HEALTHY"):
            raise Refused(400, "ports_policy: UNHEALTHY or HEALTHY")
        if policy == "UNHEALTHY" and "action" not in body:
            raise Refused(400, "action: isolate or no_discover")
        self._set_health(rows, policy, _policy_action(body.get("action", "isolate")))

    def _set_health(self, rows: list[int], policy: str, action: str) -> None:
        for row in rows:
            name = port_name(self._inventory.port(row))
            if policy == "UNHEALTHY":
                self.unhealthy[name] = (action, time.time())
            else:
                self.unhealthy.pop(name, None)
            peer = self._inventory.port(row).peer
            held = peer is not None and port_name(peer) in self.unhealthy
            self._inventory.fabric.set_isolated(row, policy == "UNHEALTHY" or held)

    def unhealthy_json(self, name: str) -> dict[str, Any]:
        action, when = self.unhealthy[name]
        row = self._inventory.row(name)
        assert row is not None
        port = self._inventory.port(row)
        node, peer = port.node.plan, port.peer
        document: dict[str, Any] = {
            "UnhealthyGUID": guid16(port.guid), "UnhealthyPort": name, "UnhealthyPortNumber": port.number,
            "UnhealthyPortDname": label(node, port.number), "UnhealthyNode": system_name(node),
            "UnhealthyNodeType": _node_type(node),
        }  # fmt: skip
        if peer is not None:
            other = peer.node.plan
            document |= {
                "PeerGUID": guid16(peer.guid), "PeerPort": port_name(peer), "PeerPortNumber": peer.number,
                "PeerPortDname": label(other, peer.number), "PeerNode": system_name(other),
                "PeerNodeType": _node_type(other), "PeerLID": lid(peer),
            }  # fmt: skip
        return document | {"State": action, "Condition": ["MANUAL"], "StatusTime": time.ctime(when)}


def _policy_action(action: str) -> str:
    if action not in ("isolate", "no_discover"):
        raise Refused(400, f"action {action}: isolate or no_discover")
    return action


def _node_type(node: PlanNode) -> str:
    return "Switch" if node.kind == "switch" else "Computer"


def _when(seconds: float) -> str:
    return time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(seconds))

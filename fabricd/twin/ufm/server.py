"""Routes of the stand-in and its two listeners (REST, telemetry)."""

from __future__ import annotations

import itertools
import logging
import time
from collections.abc import Awaitable, Callable
from typing import Any
from urllib.parse import parse_qs

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, Response
from starlette.routing import Route

from fabricd.twin.face import Fabric
from fabricd.twin.mad.server import MadServer
from fabricd.twin.ufm import monitoring
from fabricd.twin.ufm.auth import Accounts
from fabricd.twin.ufm.inventory import Inventory
from fabricd.twin.ufm.monitoring import SESSION_FIELDS, Monitoring
from fabricd.twin.ufm.operations import Jobs, Operations
from fabricd.twin.ufm.partitions import LevelLimits, Partitions
from fabricd.twin.ufm.resources import Handler, Resources
from fabricd.twin.ufm.strict import Refused, check, fields, json_body, query
from fabricd.twin.ufm.telemetry import telemetry_app

log = logging.getLogger(__name__)

BANNER = "fabricd twin: a stand-in for UFM written from public documents, not UFM"
PREFIXES = ("/ufmRest", "/ufmRestV2", "/ufmRestV3", "")
VERSION = {
    "ufm_release_version": "6.19.0-7", "opensm": "5.21.12.MLNX20250101", "sharp": "3.8.0", "ibdiagnet": "2.13.0",
    "telemetry": "1.19.1", "mft": "4.30.0", "ufm_webui": "", "plugins": {},
}  # fmt: skip
SMCONF = {
    "subnet_prefix": "0xfe80000000000000", "m_key": "0x0", "sm_key": "0x1", "sa_key": "0x1", "m_key_per_port": False,
    "routing_engine_active": "minhop", "max_wire_smps": 4, "transaction_timeout": 200, "sm_priority": 15,
}  # fmt: skip
EVENT_SEVERITIES = {551: "Info", 552: "Minor", 553: "Warning", 554: "Critical"}


class UfmServer:
    """One stand-in over one subnet. ``rest`` and ``telemetry`` are the ASGI applications."""

    def __init__(self, fabric: Fabric, mad: MadServer, accounts: Accounts | None = None) -> None:
        self.accounts = accounts or Accounts()
        self.inventory = Inventory(fabric, mad)
        self.jobs = Jobs()
        self.operations = Operations(self.inventory, self.jobs)
        self.partitions = Partitions(self.inventory)
        self.limits = LevelLimits(self.inventory)
        self.monitoring = Monitoring(self.inventory)
        self.events: list[dict[str, Any]] = []
        self._event_numbers = itertools.count(1)
        self._resources = Resources(self.inventory, self.partitions, self.limits)
        self._table = self._routes()
        routes = [Route("/dologin", self._login, methods=["POST"]), Route("/", self._banner)]
        for prefix in PREFIXES:
            for path, methods in self._table.items():
                routes.append(Route(prefix + path, self._endpoint(prefix, methods), methods=list(methods)))
        self.rest = Starlette(routes=routes)
        self.telemetry = telemetry_app(self.monitoring, BANNER)

    # -- plumbing ------------------------------------------------------------------------------------------------

    def _endpoint(self, prefix: str, methods: dict[str, Handler]) -> Callable[[Request], Awaitable[Response]]:
        async def endpoint(request: Request) -> Response:
            try:
                user = self.accounts.require(request, prefix)
                method = "GET" if request.method == "HEAD" else request.method
                return await methods[method](request, user)
            except Refused as refused:
                headers = {"WWW-Authenticate": 'Basic realm="UFM"'} if refused.status == 401 else None
                return JSONResponse({"error": str(refused)}, refused.status, headers)

        return endpoint

    async def _login(self, request: Request) -> Response:
        form = parse_qs((await request.body()).decode("utf-8", "replace"))
        user, password = (form.get(key, [""])[0] for key in ("httpd_username", "httpd_password"))
        if not self.accounts.matches(user, password):
            return JSONResponse({"error": "wrong user or password"}, 401)
        response = PlainTextResponse("", 200)
        response.set_cookie("session", self.accounts.new_session(), httponly=True)
        return response

    async def _banner(self, request: Request) -> Response:
        return PlainTextResponse(BANNER + "\n")

    def _routes(self) -> dict[str, dict[str, Handler]]:
        return self._resources.routes() | {
            "/app/ufm_version": {"GET": _constant(VERSION | {"stand_in": BANNER})},
            "/app/ufm_config": {"GET": _constant(CONFIGURATION)},
            "/app/smconf": {"GET": self._smconf},
            "/app/tokens": {"GET": self._tokens, "POST": self._new_token},
            "/app/roles_access_control/rest_apis": {"GET": self._rest_apis},
            "/app/events": {"GET": self._events},
            "/app/events/external_event": {"POST": self._external_event},
            "/app/events/external_events": {"POST": self._external_events},
            "/app/events/{identifier}": {"GET": self._event},
            "/app/alarms": {"GET": self._alarms},
            "/app/unhealthy_ports": {"GET": self._unhealthy, "PUT": self._set_unhealthy},
            "/app/unhealthy_ports/policy": {"GET": _constant({"policy": "manual"})},
            "/app/unhealthy_ports/{name}": {"GET": self._unhealthy_one},
            "/actions": {"POST": self._action},
            "/actions/fabric_discovery_refresh": {"POST": self._refresh},
            "/jobs": {"GET": self._jobs},
            "/jobs/abortall": {"POST": self._abort_all},
            "/jobs/{ids}": {"GET": self._job, "DELETE": self._delete_job},
            "/jobs/{ids}/info": {"GET": self._job},
            "/monitoring/attributes": {"GET": _constant(ATTRIBUTES)},
            "/monitoring/start": {"POST": self._start_session},
            "/monitoring/snapshot": {"POST": self._snapshot},
            "/monitoring/session/{session}": {"PUT": self._change_session, "DELETE": self._end_session},
            "/monitoring/session/{session}/data": {"GET": self._session_data},
        }

    # -- application ---------------------------------------------------------------------------------------------

    async def _rest_apis(self, request: Request, user: str) -> Response:
        return JSONResponse(
            [
                {"route": path.replace("{", "<").replace("}", ">"), "method": method}
                for path, methods in self._table.items()
                for method in methods
            ]
        )

    async def _smconf(self, request: Request, user: str) -> Response:
        key = query(request, "param_name").get("param_name")
        if key is None:
            return JSONResponse(SMCONF)
        if key not in SMCONF:
            raise Refused(400, f"no parameter {key}")
        return JSONResponse({key: SMCONF[key]})

    async def _tokens(self, request: Request, user: str) -> Response:
        return JSONResponse(list(self.accounts.tokens.values()))

    async def _new_token(self, request: Request, user: str) -> Response:
        return JSONResponse(self.accounts.new_token(user))

    async def _external_event(self, request: Request, user: str) -> Response:
        self._record(await json_body(request))
        return Response(status_code=200)

    async def _external_events(self, request: Request, user: str) -> Response:
        documents = await json_body(request)
        if not isinstance(documents, list):
            raise Refused(400, "a list of events is expected")
        for document in documents:
            self._record(document)
        return Response(status_code=200)

    def _record(self, document: Any) -> None:
        event = check(
            document,
            {"event_id": int, "description": str},
            {"external_event_name": str, "external_event_type": str, "external_event_source": str, "object_name": str},
        )
        severity = EVENT_SEVERITIES.get(event["event_id"])
        if severity is None:
            raise Refused(400, f"event_id {event['event_id']}: 551 to 554")
        self.events.append(
            {
                "id": next(self._event_numbers), "name": event.get("external_event_name", "External Event"),
                "type": event.get("external_event_type", ""), "category": "External", "severity": severity,
                "timestamp": time.strftime("%Y-%m-%d %H:%M:%S"), "object_name": event.get("object_name", "Grid"),
                "object_path": event.get("external_event_source", ""), "counter": None,
                "description": event["description"], "write_to_syslog": False,
            }
        )  # fmt: skip

    async def _events(self, request: Request, user: str) -> Response:
        wanted = query(request, "object_name", "type", "category", "severity", "group")
        wanted.pop("group", None)
        found = [event for event in self.events if all(str(event[key]) == value for key, value in wanted.items())]
        return JSONResponse(found)

    async def _event(self, request: Request, user: str) -> Response:
        identifier = request.path_params["identifier"]
        found = [event for event in self.events if str(event["id"]) == identifier]
        if not found:
            raise Refused(404, f"no event {identifier}")
        return JSONResponse(found[0])

    async def _alarms(self, request: Request, user: str) -> Response:
        query(request, "device_id")
        return JSONResponse([])

    # -- unhealthy ports -----------------------------------------------------------------------------------------

    async def _unhealthy(self, request: Request, user: str) -> Response:
        return JSONResponse([self.operations.unhealthy_json(name) for name in self.operations.unhealthy])

    async def _unhealthy_one(self, request: Request, user: str) -> Response:
        name = request.path_params["name"].lower()
        if name not in self.operations.unhealthy:
            raise Refused(404, f"{name} is not unhealthy")
        return JSONResponse(self.operations.unhealthy_json(name))

    async def _set_unhealthy(self, request: Request, user: str) -> Response:
        query(request, "force_set")
        self.operations.set_ports(await fields(request, {"ports": list, "ports_policy": str}, {"action": str}))
        return Response(status_code=200)

    # -- actions and jobs ----------------------------------------------------------------------------------------

    async def _action(self, request: Request, user: str) -> Response:
        body = await fields(
            request,
            {"action": str, "object_ids": list, "object_type": str},
            {"identifier": str, "params": dict, "description": str},
        )
        return _accepted(request, "jobs", self.operations.act(body, user).identifier)

    async def _refresh(self, request: Request, user: str) -> Response:
        job = self.jobs.start("fabric discovery refresh", "Discovery", user, [("Grid", "Completed", "")])
        return _accepted(request, "jobs", job.identifier)

    async def _jobs(self, request: Request, user: str) -> Response:
        asked = query(request, "parent_id", "object_ids", "operation", "status", "advanced_information")
        found = list(self.jobs.table.values())
        if "parent_id" in asked:
            parent = None if asked["parent_id"] == "null" else asked["parent_id"]
            found = [job for job in found if job.parent == parent]
        if "status" in asked:
            found = [job for job in found if job.status == asked["status"]]
        if "operation" in asked:
            found = [job for job in found if job.operation == asked["operation"]]
        if "object_ids" in asked:
            wanted = set(asked["object_ids"].split(","))
            found = [job for job in found if wanted & set(job.objects)]
        return JSONResponse([job.to_json() for job in found])

    async def _job(self, request: Request, user: str) -> Response:
        query(request, "type", "advanced_information")
        identifiers = request.path_params["ids"].split(",")
        found = [self.jobs.table.get(identifier) for identifier in identifiers]
        if None in found:
            raise Refused(404, f"no job {request.path_params['ids']}")
        documents = [job.to_json() for job in found if job is not None]
        return JSONResponse(documents[0] if len(documents) == 1 else documents)

    async def _delete_job(self, request: Request, user: str) -> Response:
        if self.jobs.table.pop(request.path_params["ids"], None) is None:
            raise Refused(404, f"no job {request.path_params['ids']}")
        return Response(status_code=200)

    async def _abort_all(self, request: Request, user: str) -> Response:
        self.jobs.abort_all()
        return Response(status_code=200)

    # -- monitoring ----------------------------------------------------------------------------------------------

    async def _start_session(self, request: Request, user: str) -> Response:
        number = self.monitoring.start(await fields(request, SESSION_FIELDS, {}))
        return _accepted(request, "monitoring/session", number)

    async def _snapshot(self, request: Request, user: str) -> Response:
        body = await fields(request, {k: v for k, v in SESSION_FIELDS.items() if k != "interval"}, {"interval": int})
        return JSONResponse(self.monitoring.data(self.monitoring.check(body)))

    def _session(self, request: Request) -> str:
        number: str = request.path_params["session"]
        if number not in self.monitoring.sessions:
            raise Refused(404, f"no session {number}")
        return number

    async def _session_data(self, request: Request, user: str) -> Response:
        query(request, "pkey")
        return JSONResponse(self.monitoring.data(self.monitoring.sessions[self._session(request)]))

    async def _change_session(self, request: Request, user: str) -> Response:
        number = self._session(request)
        self.monitoring.sessions[number] = self.monitoring.check(await fields(request, SESSION_FIELDS, {}))
        return Response(status_code=200)

    async def _end_session(self, request: Request, user: str) -> Response:
        del self.monitoring.sessions[self._session(request)]
        return Response(status_code=200)


CONFIGURATION = {
    "ls_auditing": False, "monitoring_mode": False, "syslog": False, "license_state": "valid", "license_state_info": "",
    "telemetry": "Enabled",
}  # fmt: skip
ATTRIBUTES = {
    "classes": {"Port": list(monitoring.ATTRIBUTES)}, "attributes": list(monitoring.ATTRIBUTES), "functions": ["RAW"],
}  # fmt: skip


def _constant(document: Any) -> Handler:
    async def handler(request: Request, user: str) -> Response:
        return JSONResponse(document)

    return handler


def _accepted(request: Request, what: str, identifier: str) -> Response:
    """202 with the place to look in the Location header, and as a link in the body."""
    prefix = next(p for p in sorted(PREFIXES, key=len, reverse=True) if request.url.path.startswith(p))
    location = f"{prefix}/{what}/{identifier}"
    return Response(location, 202, {"Location": location}, "text/plain")

"""Requests about systems, ports, links, partitions and rate limits."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping

from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from fabricd.twin.ufm.inventory import Inventory
from fabricd.twin.ufm.partitions import NUMBER, LevelLimits, Partitions, parse_pkey
from fabricd.twin.ufm.strict import Refused, Types, fields, guid_text, is_true, json_body, query

Handler = Callable[[Request, str], Awaitable[Response]]
_MEMBERS: Mapping[str, Types] = {"membership": str, "memberships": list, "ip_over_ib": bool, "index0": bool}
_QOS: Mapping[str, Types] = {"mtu_limit": int, "service_level": int, "rate_limit": NUMBER}


class Resources:
    """Handlers below ``/resources``; each gets the request and the user."""

    def __init__(self, inventory: Inventory, partitions: Partitions, limits: LevelLimits) -> None:
        self.inventory, self.partitions, self.limits = inventory, partitions, limits

    def routes(self) -> dict[str, dict[str, Handler]]:
        """Path -> method -> handler."""
        return {
            "/resources/systems": {"GET": self._systems},
            "/resources/systems/{names}": {"GET": self._systems},
            "/resources/ports": {"GET": self._ports},
            "/resources/ports/{names}": {"GET": self._ports},
            "/resources/links": {"GET": self._links},
            "/resources/pkeys": {"GET": self._pkeys, "POST": self._add_members, "PUT": self._put_members},
            "/resources/pkeys/add": {"POST": self._new_pkey},
            "/resources/pkeys/qos_conf": {"PUT": self._qos_conf},
            "/resources/pkeys/{pkey}": {"GET": self._pkey, "DELETE": self._delete_pkey},
            "/resources/sl_qos/names": {"GET": self._names, "POST": self._add_names, "DELETE": self._delete_name},
            "/resources/sl_qos/names/{name}": {"PUT": self._put_name},
            "/resources/sl_qos/rules": {"GET": self._rules, "POST": self._put_rules, "PUT": self._put_rules},
            "/resources/sl_qos/rules/{guid}": {"GET": self._rule, "DELETE": self._delete_rule},
            "/actions/remove_guids_from_pkey": {"POST": self._remove_guids},
        }

    # -- resources -----------------------------------------------------------------------------------------------

    async def _systems(self, request: Request, user: str) -> Response:
        asked = query(
            request,
            "ip",
            "brief",
            "type",
            "model",
            "role",
            "peer_name",
            "chassis",
            "in_rack",
            "ports",
            "events",
            "modules",
        )
        names = request.path_params.get("names")
        nodes = list(self.inventory.plan.nodes)
        if names is not None:
            found = [self.inventory.system(name) for name in names.split(",")]
            if None in found:
                raise Refused(404, f"no system {names}")
            nodes = [node for node in found if node is not None]
        documents = [self.inventory.system_json(node, is_true(asked.get("ports"))) for node in nodes]
        for key in ("ip", "type", "model", "role"):
            if key in asked:
                documents = [document for document in documents if document[key] == asked[key]]
        if is_true(asked.get("brief")):
            keys = ("guid", "name", "system_name", "type", "ip", "state")
            documents = [{key: document[key] for key in keys} for document in documents]
        return JSONResponse(documents)

    async def _ports(self, request: Request, user: str) -> Response:
        asked = query(
            request, "system", "sys_type", "active", "external", "show_disabled", "high_ber_only", "high_ber_severity",
            "cable_info",
        )  # fmt: skip
        inventory = self.inventory
        rows = [row for row in range(inventory.plan.rows) if inventory.plan.row_peer[row] >= 0]
        if "names" in request.path_params:
            found = [inventory.row(name) for name in request.path_params["names"].split(",")]
            if None in found:
                raise Refused(404, f"no port {request.path_params['names']}")
            rows = [row for row in found if row is not None]
        if "system" in asked:
            node = inventory.system(asked["system"])
            if node is None:
                raise Refused(404, f"no system {asked['system']}")
            rows = [row for row in rows if row in inventory.rows(node)]
        if "sys_type" in asked:
            wanted = {"Switch": "switch", "Computer": "adapter"}.get(asked["sys_type"])
            rows = [row for row in rows if inventory.plan.node_of(row).kind == wanted]
        if is_true(asked.get("active")):
            rows = [row for row in rows if inventory.port(row).state == 4]
        if is_true(asked.get("high_ber_only")):
            rows = []
        return JSONResponse([inventory.port_json(row) for row in rows])

    async def _links(self, request: Request, user: str) -> Response:
        asked = query(request, "system", "cable_info", "monitoring_counters_info", "page_number", "rpp")
        inventory = self.inventory
        peers = inventory.plan.row_peer
        rows = [row for row in range(inventory.plan.rows) if row < peers[row] and inventory.port(row).physical == 5]
        if "system" in asked:
            node = inventory.system(asked["system"])
            if node is None:
                raise Refused(404, f"no system {asked['system']}")
            mine = inventory.rows(node)
            rows = [row for row in rows if row in mine or int(peers[row]) in mine]
        documents = [inventory.link_json(row) for row in rows]
        if "page_number" not in asked and "rpp" not in asked:
            return JSONResponse(documents)
        try:
            page, size = int(asked.get("page_number", "1")), int(asked.get("rpp", "100"))
        except ValueError:
            page = size = 0
        if page < 1 or size < 1:
            raise Refused(400, "page_number and rpp count from 1")
        return JSONResponse({"data": documents[(page - 1) * size : page * size]})

    # -- partitions ----------------------------------------------------------------------------------------------

    async def _pkeys(self, request: Request, user: str) -> Response:
        asked = query(request, "guids_data", "qos_conf")
        guids, qos = is_true(asked.get("guids_data")), is_true(asked.get("qos_conf"))
        if guids and qos:
            raise Refused(400, "guids_data and qos_conf exclude each other")
        return JSONResponse({f"{pkey:#x}": self.partitions.show(pkey, guids, qos) for pkey in self.partitions.table})

    async def _pkey(self, request: Request, user: str) -> Response:
        asked = query(request, "guids_data", "qos_conf")
        pkey = parse_pkey(request.path_params["pkey"])
        if pkey not in self.partitions.table:
            return JSONResponse({})  # UFM's habit: an unknown partition is an empty object, not 404
        return JSONResponse(
            self.partitions.show(pkey, is_true(asked.get("guids_data")), is_true(asked.get("qos_conf")))
        )

    async def _add_members(self, request: Request, user: str) -> Response:
        self.partitions.add(await fields(request, {"pkey": str, "guids": list}, _MEMBERS), replace=False)
        return Response(status_code=200)

    async def _put_members(self, request: Request, user: str) -> Response:
        self.partitions.add(await fields(request, {"pkey": str, "guids": list}, _MEMBERS), replace=True)
        return Response(status_code=200)

    async def _new_pkey(self, request: Request, user: str) -> Response:
        optional = {"partition_name": str, "index0": bool, "ip_over_ib": bool, **_QOS}
        self.partitions.create(await fields(request, {"pkey": str}, optional))
        return Response(status_code=201)

    async def _qos_conf(self, request: Request, user: str) -> Response:
        self.partitions.set_qos(await fields(request, {"pkey": str}, _QOS))
        return Response(status_code=200)

    async def _delete_pkey(self, request: Request, user: str) -> Response:
        self.partitions.delete(parse_pkey(request.path_params["pkey"]))
        return Response(status_code=200)

    async def _remove_guids(self, request: Request, user: str) -> Response:
        body = await fields(request, {"pkey": str, "guids": list}, {})
        self.partitions.remove(parse_pkey(body["pkey"]), [guid_text(str(text)) for text in body["guids"]])
        return Response(status_code=200)

    # -- rate limits by level ------------------------------------------------------------------------------------

    async def _names(self, request: Request, user: str) -> Response:
        name = query(request, "name").get("name")
        if name is None:
            return JSONResponse(self.limits.names)
        if name not in self.limits.names:
            raise Refused(404, f"no bandwidth {name}")
        return JSONResponse(self.limits.names[name])

    async def _add_names(self, request: Request, user: str) -> Response:
        document = await json_body(request)
        if not isinstance(document, dict) or not document:
            raise Refused(400, "an object of name to Mb/s is expected")
        if taken := [name for name in document if name in self.limits.names]:
            raise Refused(400, f"{taken[0]} is there already")
        for name, megabits in document.items():
            self.limits.set_name(name, megabits)
        return Response(status_code=201)

    async def _put_name(self, request: Request, user: str) -> Response:
        name = request.path_params["name"]
        if name not in self.limits.names:
            raise Refused(404, f"no bandwidth {name}")
        self.limits.set_name(name, await json_body(request))
        return Response(status_code=200)

    async def _delete_name(self, request: Request, user: str) -> Response:
        name = query(request, "name").get("name")
        if name is None:
            raise Refused(400, "name is missing")
        self.limits.delete_name(name)
        return Response(status_code=202)

    async def _rules(self, request: Request, user: str) -> Response:
        return JSONResponse(self.limits.rules)

    async def _put_rules(self, request: Request, user: str) -> Response:
        self.limits.set_rules(await json_body(request))
        return Response(status_code=200)

    async def _rule(self, request: Request, user: str) -> Response:
        guid = guid_text(request.path_params["guid"])
        if guid not in self.limits.rules:
            raise Refused(404, f"no rule for {guid}")
        return JSONResponse(self.limits.rules[guid])

    async def _delete_rule(self, request: Request, user: str) -> Response:
        self.limits.delete_rule(guid_text(request.path_params["guid"]))
        return Response(status_code=200)

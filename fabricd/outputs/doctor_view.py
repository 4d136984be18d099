"""The fleet's doctor reports: kept by node, compared, served as JSON and as metric lines."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import msgspec
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import BaseRoute, Route

from fabricd.doctor.fleet import compare
from fabricd.errors import BAD_DOCUMENT
from fabricd.model.rejects import Rejects
from fabricd.model.topology import Fault

MAX_NODES = 100_000
VERDICTS = ("ok", "warn", "fail", "unknown")


class DoctorReports:
    """The latest report of each node. ``faults`` gives the fabric's own findings (crossed rails) to join."""

    def __init__(self, faults: Callable[[], list[Fault]] = list) -> None:
        self.reports: dict[str, dict[str, Any]] = {}
        self.rejects = Rejects()
        self._faults = faults

    def put(self, node: str, payload: bytes) -> None:
        """Take one retained message; an empty one forgets the node. A bad one is counted and changes nothing."""
        if not payload:
            self.reports.pop(node, None)
            return
        try:
            report = msgspec.json.decode(payload)
        except BAD_DOCUMENT as error:
            self.rejects.add("doctor_syntax", error, node)
            return
        checks = report.get("checks") if isinstance(report, dict) else None
        if not isinstance(checks, list) or not all(
            isinstance(c, dict) and c.get("verdict") in VERDICTS for c in checks
        ):
            self.rejects.add("doctor_shape", "not a doctor report", node)
        elif node not in self.reports and len(self.reports) >= MAX_NODES:
            self.rejects.add("doctor_nodes", f"more than {MAX_NODES}", node)
        else:
            self.reports[node] = {**report, "node": node}

    def fleet(self) -> dict[str, Any]:
        return compare(list(self.reports.values()), self._faults())

    def routes(self) -> list[BaseRoute]:
        async def all_reports(request: Request) -> Response:
            wanted = request.query_params.get("node")
            if wanted is not None and wanted not in self.reports:
                return JSONResponse({"error": f"node {wanted!r} has sent no report"}, 404)
            chosen = [self.reports[wanted]] if wanted is not None else list(self.reports.values())
            return JSONResponse({"reports": chosen, "rejects": self.rejects.to_json()})

        async def fleet(request: Request) -> Response:
            return JSONResponse(self.fleet())

        return [Route("/api/v1/doctor", all_reports), Route("/api/v1/doctor/fleet", fleet)]

    def metric_families(self) -> Iterator[tuple[str, str, str, list[tuple[dict[str, str], float]]]]:
        """(name, HELP, TYPE, samples) for the exposition."""
        checks = [
            ({"node": node, "check": str(check["id"]), "verdict": str(check["verdict"])}, 1.0)
            for node, report in sorted(self.reports.items())
            for check in report["checks"]
            if check["verdict"] in ("warn", "fail")
        ]
        yield "fabricd_doctor_check", "A doctor check that warns or fails on a node.", "gauge", checks
        totals = dict.fromkeys(VERDICTS, 0)
        for report in self.reports.values():
            for check in report["checks"]:
                totals[check["verdict"]] += 1
        yield (
            "fabricd_doctor_checks", "Doctor checks over all nodes, by verdict.", "gauge",
            [({"verdict": verdict}, float(count)) for verdict, count in totals.items()],
        )  # fmt: skip
        differing = [({"node": d["node"], "property": d["property"]}, 1.0) for d in self.fleet()["differing"]]
        yield "fabricd_doctor_differs", "A node differs from the fleet's majority in a property.", "gauge", differing

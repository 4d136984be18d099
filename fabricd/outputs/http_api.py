"""The HTTP interface: status page, health, nodes, ports, metrics, OpenAPI. Read-only; every handler reads the live store."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import HTMLResponse, JSONResponse, Response
from starlette.routing import BaseRoute, Route

from fabricd.model.ident import parse_guid
from fabricd.model.verdict import Verdict
from fabricd.outputs import exposition
from fabricd.outputs.documents import nodes_document, ports_document
from fabricd.outputs.openapi import describe
from fabricd.outputs.status_page import status_page
from fabricd.store.ingest import Ingest
from fabricd.store.store import Store

MAX_PAGE = 100_000
Problems = Callable[[], list[str]]  # what keeps the aggregator from being ready, in words


class View:
    """What the handlers read. ``stale_after`` in seconds; a function, because a reload may change it."""

    def __init__(self, store: Store, ingest: Ingest, problems: Problems, stale_after: Callable[[], float]) -> None:
        self.store, self.ingest, self.problems = store, ingest, problems
        self._stale_after = stale_after
        self.verdicts: Callable[[], list[Verdict]] = list  # the open ones, for the status page
        self.fleet: Callable[[], dict[str, Any]] = dict  # the doctors' reports compared, for the status page
        self.families: list[Callable[[], Iterable[exposition.MoreFamily]]] = []  # metrics of other rooms

    def more_families(self) -> Iterator[exposition.MoreFamily]:
        for families in self.families:
            yield from families()

    @property
    def stale_ns(self) -> int:
        return int(self._stale_after() * 1e9)


def make_app(view: View, more: list[BaseRoute] | None = None) -> Starlette:
    """The application over one store; ``more`` routes of other rooms (verdicts, the web page) are put before ours."""

    async def healthz(request: Request) -> Response:
        return JSONResponse({"status": "ok"})

    async def readyz(request: Request) -> Response:
        problems = view.problems()
        return JSONResponse({"ready": not problems, "problems": problems}, 503 if problems else 200)

    async def metrics(request: Request) -> Response:
        page = exposition.render(view.store, view.ingest, view.stale_ns, view.more_families())
        return Response(page, media_type=None, headers={"content-type": exposition.CONTENT_TYPE})

    async def nodes(request: Request) -> Response:
        return JSONResponse(nodes_document(view.store, view.stale_ns))

    async def ports(request: Request) -> Response:
        try:
            wanted = _port_query(request)
        except ValueError as error:
            return JSONResponse({"error": str(error)}, 400)
        return JSONResponse(ports_document(view.store, view.stale_ns, **wanted))

    async def openapi(request: Request) -> Response:
        return JSONResponse(describe())

    async def index(request: Request) -> Response:
        document = nodes_document(view.store, view.stale_ns)
        return HTMLResponse(status_page(view.store.fabric, document, view.problems(), view.verdicts(), view.fleet()))

    routes: list[BaseRoute] = [
        *(more or ()),
        Route("/", index),
        Route("/healthz", healthz),
        Route("/readyz", readyz),
        Route("/metrics", metrics),
        Route("/api/v1/nodes", nodes),
        Route("/api/v1/ports", ports),
        Route("/openapi.json", openapi),
    ]
    return Starlette(routes=routes)


def _port_query(request: Request) -> dict[str, Any]:
    query = request.query_params
    wanted: dict[str, Any] = {key: query[key] for key in ("node", "device") if key in query}
    if "guid" in query:
        wanted["guid"] = parse_guid(query["guid"])
    for key, default, low, high in (("offset", 0, 0, 1 << 40), ("limit", 1000, 1, MAX_PAGE)):
        text = query.get(key, str(default))
        if not text.isdigit() or not low <= int(text) <= high:
            raise ValueError(f"{key} = {text!r}: a number from {low} to {high}")
        wanted[key] = int(text)
    return wanted

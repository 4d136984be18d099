"""The HTTP interface: status page, health, nodes, ports, metrics, OpenAPI. Read-only; every handler reads the live store."""

from __future__ import annotations

import html
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import HTMLResponse, JSONResponse, Response
from starlette.routing import BaseRoute, Route

from fabricd import __version__
from fabricd.model.ident import parse_guid
from fabricd.outputs import exposition
from fabricd.outputs.documents import nodes_document, ports_document
from fabricd.outputs.openapi import describe
from fabricd.store.ingest import Ingest
from fabricd.store.store import Store

MAX_PAGE = 100_000
Problems = Callable[[], list[str]]  # what keeps the aggregator from being ready, in words


class View:
    """What the handlers read. ``stale_after`` in seconds; a function, because a reload may change it."""

    def __init__(self, store: Store, ingest: Ingest, problems: Problems, stale_after: Callable[[], float]) -> None:
        self.store, self.ingest, self.problems = store, ingest, problems
        self._stale_after = stale_after
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
        return HTMLResponse(_status_page(view))

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


def _status_page(view: View) -> str:
    document = nodes_document(view.store, view.stale_ns)
    problems = view.problems()
    rows = "".join(
        "<tr>" + "".join(f"<td>{html.escape(str(value))}</td>" for value in _cells(node)) + "</tr>"
        for node in document["nodes"]
    )
    ready = "ready" if not problems else "not ready: " + "; ".join(problems)
    links = " · ".join(
        f'<a href="{path}">{path}</a>' for path in ("/metrics", "/api/v1/nodes", "/api/v1/ports", "/openapi.json")
    )
    return (
        f"<!doctype html><html lang=en><meta charset=utf-8><title>fabricd {html.escape(view.store.fabric)}</title>"
        "<meta http-equiv=refresh content=5><style>body{font:15px/1.5 system-ui;margin:2rem}td,th{padding:.2rem .8rem;"
        "text-align:left;border-bottom:1px solid #ccc}</style>"
        f"<h1>fabricd {__version__}: fabric {html.escape(view.store.fabric)}</h1><p>{html.escape(ready)}</p>"
        f"<table><tr><th>node<th>kind<th>state<th>ports<th>frames<th>age<th>clock skew</tr>{rows}</table><p>{links}</p></html>"
    )


def _cells(node: dict[str, Any]) -> list[object]:
    age, skew = node["age_s"], node["clock_skew_s"]
    return [
        node["node"], node["kind"], node["state"], node["ports"], node["stored_frames"],
        "never" if age is None else f"{age:.1f} s", "unknown" if skew is None else f"{skew * 1e3:.1f} ms",
    ]  # fmt: skip

"""HTTP: ``POST /api/v1/place``, exports, the scheduler extender and topograph's endpoints, as starlette routes for the api."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable
from typing import Any

import anyio
from starlette.background import BackgroundTask
from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, Response
from starlette.routing import Route

from fabricd.config.placement import PlacementConfig
from fabricd.errors import BAD_DOCUMENT, FabricdError, UsageError
from fabricd.model.topology import Topology
from fabricd.placement.exporters import FORMATS, export
from fabricd.placement.extender import Extender
from fabricd.placement.fabric import Fabric, compile_fabric
from fabricd.placement.live import LiveSource
from fabricd.placement.request import parse_request
from fabricd.placement.service import place
from fabricd.placement.topograph import Desk

MAX_BODY = 64 << 20
Handler = Callable[[Request], Awaitable[Response]]


def routes(live: LiveSource, config: PlacementConfig | None = None) -> list[Route]:
    """All routes of placement; ``/healthz``, which topograph's clients ask too, is the api's own.

    ``live`` is called in a worker thread; it raises FabricdError when it knows no fabric yet.
    """
    config = config or PlacementConfig()
    extender = Extender(live, config)
    desk = Desk(live, config)
    # One solve at a time: a second core is worth more to the daemon's own work.
    limiter = anyio.CapacityLimiter(1)

    held: list[tuple[Topology, Fabric]] = []  # compiled once per topology; only touched under the limiter

    async def in_thread(function: Callable[[], Any]) -> Any:
        return await anyio.to_thread.run_sync(function, limiter=limiter)

    async def post_place(request: Request) -> Response:
        wanted = parse_request(await _body(request))

        def work() -> dict[str, Any]:
            view = live()
            if not held or held[0][0] is not view.topology:
                held[:] = [(view.topology, compile_fabric(view.topology))]
            return place(
                view.topology,
                wanted,
                config,
                verdicts=view.verdicts,
                doctor=view.doctor,
                heat=view.heat,
                compiled=held[0][1],
            )

        plan = await in_thread(work)
        return JSONResponse(plan, status_code=200 if plan["feasible"] else 409)

    async def get_export(request: Request) -> Response:
        name = request.path_params["format"]
        if name not in FORMATS:
            return _error(404, f"format {name!r}: one of {', '.join(FORMATS)}")
        node = request.query_params.get("node")
        text = await in_thread(lambda: export(live().topology, name, config, node=node))
        return PlainTextResponse(text)

    async def post_filter(request: Request) -> Response:
        body = await _body(request)
        return JSONResponse(await in_thread(lambda: extender.filter(body)))

    async def post_prioritize(request: Request) -> Response:
        body = await _body(request)
        return JSONResponse(await in_thread(lambda: extender.prioritize(body)))

    async def post_generate(request: Request) -> Response:
        uid = desk.accept(await _body(request))

        async def work() -> None:
            await in_thread(lambda: desk.work(uid))

        return PlainTextResponse(uid, status_code=202, background=BackgroundTask(work))

    async def get_topology(request: Request) -> Response:
        status, text = desk.result(request.query_params.get("uid", ""))
        return PlainTextResponse(text, status_code=status)

    async def get_heat(request: Request) -> Response:
        heat = (await in_thread(live)).heat
        return JSONResponse({"heat": heat, "window_s": config.heat_window_s})

    return [
        Route("/api/v1/place", _guarded(post_place), methods=["POST"]),
        Route("/api/v1/topology/export/{format}", _guarded(get_export), methods=["GET"]),
        Route("/scheduler/filter", _guarded(post_filter), methods=["POST"]),
        Route("/scheduler/prioritize", _guarded(post_prioritize), methods=["POST"]),
        Route("/v1/generate", _guarded(post_generate), methods=["POST"]),
        Route("/v1/topology", _guarded(get_topology), methods=["GET"]),
        Route("/api/v1/placement/heat", _guarded(get_heat), methods=["GET"]),
    ]


def _error(status: int, text: str) -> JSONResponse:
    return JSONResponse({"error": text}, status_code=status)


def _guarded(handler: Handler) -> Handler:
    """Errors as JSON: 400 for a bad request, 413 for one too large, 503 when the fabric is not known."""

    async def guarded(request: Request) -> Response:
        try:
            return await handler(request)
        except _TooLarge:
            return _error(413, f"body larger than {MAX_BODY} bytes")
        except UsageError as error:
            return _error(400, str(error))
        except ValueError as error:
            return _error(400, f"request: {error}")
        except FabricdError as error:
            return _error(503, str(error))

    return guarded


class _TooLarge(Exception):
    """The body exceeds MAX_BODY."""


async def _body(request: Request) -> Any:
    """The decoded JSON body. Raises UsageError, _TooLarge."""
    data = bytearray()
    async for chunk in request.stream():
        data += chunk
        if len(data) > MAX_BODY:
            raise _TooLarge
    try:
        return json.loads(bytes(data))
    except BAD_DOCUMENT as error:
        raise UsageError(f"request: not JSON: {error}") from None

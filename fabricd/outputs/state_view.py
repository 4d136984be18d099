"""``/api/v1/state``: the newest interval's figures per port, for the controller. Answered on the aggregator's unix socket."""

from __future__ import annotations

from collections.abc import Callable

from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from fabricd.control.state import State, to_json


def state_route(newest: Callable[[], State | None]) -> Route:
    """503 as long as no interval is complete."""

    async def state(request: Request) -> Response:
        found = newest()
        if found is None:
            return JSONResponse({"error": "no interval is complete yet"}, 503)
        return Response(to_json(found), media_type="application/json")

    return Route("/api/v1/state", state)

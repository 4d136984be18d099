"""The api process's view: every GET is answered by the aggregator over its unix socket. Nothing is cached, nothing is written."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import httpx
from starlette.applications import Starlette
from starlette.background import BackgroundTask
from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import BaseRoute, Route

_PASSED_BACK = ("content-type", "content-encoding", "cache-control", "etag", "vary")
_PASSED_ON = ("accept", "accept-encoding", "if-none-match", "last-event-id")


def make_proxy(socket: str, timeout: float, more: Sequence[BaseRoute] = ()) -> Starlette:
    """``socket`` is the aggregator's; ``timeout`` in seconds bounds the wait for an answer's beginning, not its length.

    ``more`` routes are answered here, before anything is passed on."""
    limits = httpx.Limits(max_connections=64)
    transport = httpx.AsyncHTTPTransport(uds=socket, limits=limits)
    client = httpx.AsyncClient(
        transport=transport, base_url="http://aggregator", timeout=httpx.Timeout(timeout, read=None), trust_env=False
    )

    async def healthz(request: Request) -> Response:
        return JSONResponse({"status": "ok"})

    async def forward(request: Request) -> Response:
        headers = {name: request.headers[name] for name in _PASSED_ON if name in request.headers}
        url = httpx.URL(path=request.url.path, query=request.url.query.encode())
        try:
            async with asyncio.timeout(timeout):
                answer = await client.send(client.build_request("GET", url, headers=headers), stream=True)
        except (httpx.HTTPError, TimeoutError) as error:
            # readyz of the api process is then false as well: there is nothing to show.
            problem = f"aggregator does not answer: {error or type(error).__name__}"
            return JSONResponse({"ready": False, "problems": [problem], "error": problem}, 503)
        passed = {name: answer.headers[name] for name in _PASSED_BACK if name in answer.headers}
        return StreamingResponse(
            answer.aiter_raw(), answer.status_code, passed, background=BackgroundTask(answer.aclose)
        )

    return Starlette(routes=[Route("/healthz", healthz), *more, Route("/{path:path}", forward)])

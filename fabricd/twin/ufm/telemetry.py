"""The telemetry endpoint: no authentication, its own port, CSV and Prometheus text, counter sets, shards."""

from __future__ import annotations

from collections.abc import Callable

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route

from fabricd.twin.ufm.monitoring import SETS, TELEMETRY, Monitoring, Values
from fabricd.twin.ufm.strict import Refused, query


def telemetry_app(monitoring: Monitoring, banner: str) -> Starlette:
    """The ASGI application."""

    async def csv(request: Request) -> Response:
        return _text(request, monitoring.csv)

    async def labels(request: Request) -> Response:
        return _text(request, monitoring.prometheus)

    async def root(request: Request) -> Response:
        return PlainTextResponse(banner + "\n")

    return Starlette(
        routes=[
            Route("/csv/metrics", csv),
            Route("/labels/csv/metrics", labels),
            Route("/csv/cset/{name}", csv),
            Route("/csv/xcset/{name}", csv),
            Route("/", root),
        ]
    )


def _shard(request: Request) -> tuple[int, int]:
    asked = query(request, "num_shards", "shard", "sharding_field")
    try:
        shards, shard = int(asked.get("num_shards", "1")), int(asked.get("shard", "0"))
    except ValueError:
        shards = shard = 0
    if not 0 <= shard < shards or asked.get("sharding_field", "port_guid") != "port_guid":
        raise Refused(400, "num_shards, shard (from 0) and sharding_field=port_guid")
    return shards, shard


def _text(request: Request, write: Callable[[dict[str, Values], int, int], str]) -> Response:
    try:
        name = request.path_params.get("name")
        which = TELEMETRY if name is None else SETS.get(name)
        if which is None:
            raise Refused(404, f"no counter set {name}")
        return PlainTextResponse(write(which, *_shard(request)))
    except Refused as refused:
        return PlainTextResponse(f"{refused}\n", refused.status)

"""The api process: HTTP on TCP, answered by the aggregator over its unix socket. No state, no secrets, no broker connection.
Placement is computed here, so that a solver never delays the aggregator."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable

from fabricd.config.root import Config
from fabricd.daemons.http_server import bind_tcp, serve, url_of
from fabricd.daemons.placement_view import PlacementView
from fabricd.outputs.proxy import make_proxy

log = logging.getLogger(__name__)


async def run_api(config: Config, ready: Callable[[str], None]) -> None:
    placement = PlacementView(config)
    app = make_proxy(config.aggregator.socket, config.api.timeout, placement.routes)
    listener = bind_tcp(config.api.host, config.api.port)
    listener.listen(2048)  # whoever reads the next line may connect at once
    url = url_of(listener)
    log.info("listening on %s", url)
    ready(url)
    async with asyncio.TaskGroup() as group:
        group.create_task(placement.run())
        group.create_task(serve(app, listener))

"""The fabric as it is now, for commands with ``live``: verdicts, doctor and heat from the running api, the topology by discovery."""

from __future__ import annotations

import http.client
import json
import urllib.error
import urllib.request
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from fabricd.commands.client import api_address
from fabricd.errors import BAD_DOCUMENT, FabricdError

if TYPE_CHECKING:
    from fabricd.config.root import Config
    from fabricd.placement.live import LiveView


def api_get(config: Config) -> Callable[[str], Any]:
    """Asks the configured api; what it returns raises FabricdError when nothing answers with JSON."""
    base = api_address(config)

    def get(path: str) -> Any:
        try:
            with urllib.request.urlopen(base + path, timeout=config.api.timeout) as answer:
                return json.load(answer)
        except (urllib.error.URLError, OSError, http.client.HTTPException, *BAD_DOCUMENT) as error:
            raise FabricdError(f"{base}{path}: {error}") from None

    return get


def live_view(config: Config) -> LiveView:
    """Raises FabricdError when the fabric cannot be discovered or has no rail groups. An api that is not there costs its parts."""
    from fabricd.ib.transport import TransportError
    from fabricd.placement.api_source import ApiSource
    from fabricd.placement.read import require_rails
    from fabricd.topology.live import take_picture

    get = api_get(config)
    try:
        topology = take_picture(config.topology, config.fabric.name, routes=False).topology
    except TransportError as error:
        raise FabricdError(f"--topology live: {error}; without InfiniBand here, give a file") from None
    require_rails(topology, "live")
    view = ApiSource(get, lambda: topology)()
    try:
        view.heat = {str(group): float(load) for group, load in get("/api/v1/placement/heat")["heat"].items()}
    except (FabricdError, KeyError, TypeError, ValueError, AttributeError):
        view.heat = {}
    return view

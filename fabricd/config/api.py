"""[api]: where the HTTP interface listens."""

from __future__ import annotations

from typing import Annotated

import msgspec
from msgspec import Meta


class ApiConfig(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    host: Annotated[
        str, Meta(min_length=1, description="address to listen on; anything but loopback opens the port to the network")
    ] = "127.0.0.1"
    port: Annotated[
        int, Meta(ge=0, le=65535, description="TCP port of status page, API and metrics; 0: any free one")
    ] = 9470
    timeout: Annotated[
        float, Meta(ge=0.1, le=300, description="seconds the api process waits for the aggregator's answer")
    ] = 10.0

"""[fabric]: what this installation watches."""

from typing import Annotated

import msgspec
from msgspec import Meta


class FabricConfig(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    name: Annotated[
        str, Meta(pattern=r"^[A-Za-z0-9._-]{1,64}$", description="fabric id: part of every key and topic")
    ] = "default"
    log_format: Annotated[str, Meta(pattern="^(text|json)$", description="log lines on stderr: text or json")] = "text"
    log_level: Annotated[
        str, Meta(pattern="^(debug|info|warning|error)$", description="least severe log line shown")
    ] = "info"

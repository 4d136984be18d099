"""[detector]: how often the fabric is looked at and how long verdicts are remembered."""

from __future__ import annotations

from typing import Annotated

import msgspec
from msgspec import Meta


class DetectorConfig(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    """The detector has no thresholds in seconds or bytes to set: it counts in intervals."""

    enabled: Annotated[bool, Meta(description="look for head-of-line blocking")] = True
    interval: Annotated[
        float, Meta(ge=0.1, le=3600, description="seconds between looks; not shorter than the slowest source is read")
    ] = 1.0
    history: Annotated[int, Meta(ge=1, le=1_000_000, description="ended verdicts that are remembered")] = 1000
    wait_tick_bytes: Annotated[
        int,
        Meta(
            ge=1,
            le=4096,
            description="bytes of link time per tick of PortXmitWait where the ASIC is not known to count otherwise",
        ),
    ] = 8

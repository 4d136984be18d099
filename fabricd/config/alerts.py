"""[alerts]: who is told of verdicts, and how."""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec
from msgspec import Meta


class AlertTarget(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    kind: Annotated[
        Literal["alertmanager", "json", "slack"],
        Meta(description="Alertmanager's v2 API, any JSON receiver, or a Slack webhook"),
    ]
    url: Annotated[
        str, Meta(pattern="^https?://", description="Alertmanager's base address, or the webhook's full one")
    ]
    secret_file: Annotated[
        str, Meta(description="credential file whose first line signs each request (HMAC-SHA256)")
    ] = ""
    template: Annotated[str, Meta(description="kind json: file with the JSON body; {name} stands for a field")] = ""
    ca_file: Annotated[str, Meta(description="authorities that may sign the receiver's certificate")] = ""
    timeout_s: Annotated[float, Meta(gt=0, le=60, description="time limit of one request")] = 5.0


class AlertsConfig(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    targets: Annotated[list[AlertTarget], Meta(description="receivers; empty: nobody is told")] = []
    queue_dir: Annotated[str, Meta(description="where messages wait that a receiver did not take")] = (
        "/var/lib/fabricd/alerts"
    )
    repeat_s: Annotated[
        float, Meta(ge=5, description="seconds after which an open verdict is told Alertmanager again")
    ] = 60.0
    retry_max_s: Annotated[float, Meta(ge=1, description="longest pause between attempts")] = 300.0
    keep: Annotated[int, Meta(ge=1, description="messages kept per receiver; the oldest go first")] = 1000
    page_url: Annotated[str, Meta(description="address of the page that messages link to")] = ""

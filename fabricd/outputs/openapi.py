"""The OpenAPI 3.1 description of the HTTP interface, made from the same table as its routes."""

from __future__ import annotations

from typing import Any, NamedTuple

from fabricd import __version__


class Parameter(NamedTuple):
    name: str
    type: str
    description: str


class Endpoint(NamedTuple):
    """One GET. ``example`` shows the shape of the answer."""

    path: str
    summary: str
    parameters: tuple[Parameter, ...] = ()
    media: str = "application/json"
    fields: tuple[tuple[str, str, str], ...] = ()  # (name, JSON type, description) of the answer


ENDPOINTS = (
    Endpoint("/", "Status page for people", media="text/html"),
    Endpoint("/healthz", "200 while the process works", fields=(("status", "string", "ok"),)),
    Endpoint(
        "/readyz",
        "200 when the broker is connected and the disk takes frames, else 503",
        fields=(("ready", "boolean", ""), ("problems", "array", "what is missing, in words")),
    ),
    Endpoint("/metrics", "All counters in Prometheus' text format", media="text/plain"),
    Endpoint(
        "/api/v1/nodes",
        "Who publishes, and how well",
        fields=(
            ("fabric", "string", "fabric id"),
            ("nodes", "array", "one object a publisher: state, age, clock skew, gaps, its own status"),
            ("contested", "array", "ports that several nodes claim: duplicate GUIDs"),
        ),
    ),
    Endpoint(
        "/api/v1/ports",
        "Ports and their counters: value, rate, flags, age",
        (
            Parameter("node", "string", "only this publisher's"),
            Parameter("device", "string", "only this device or netdev"),
            Parameter("guid", "string", "only this GUID (0x…)"),
            Parameter("offset", "integer", "first port of the page (0)"),
            Parameter("limit", "integer", "ports a page (1000, at most 100000)"),
        ),
        fields=(
            ("fabric", "string", "fabric id"),
            ("total", "integer", "ports that match"),
            ("offset", "integer", "first port of this page"),
            ("ports", "array", "identity, labels and counters of each"),
        ),
    ),
    Endpoint("/openapi.json", "This description"),
)


def describe(endpoints: tuple[Endpoint, ...] = ENDPOINTS) -> dict[str, Any]:
    """The document."""
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "fabricd",
            "version": __version__,
            "description": "Read-only view of an RDMA fabric's telemetry.",
        },
        "paths": {endpoint.path: {"get": _operation(endpoint)} for endpoint in endpoints},
    }


def _operation(endpoint: Endpoint) -> dict[str, Any]:
    schema: dict[str, Any] = {"type": "string"}
    if endpoint.media == "application/json":
        schema = {
            "type": "object",
            "properties": {name: {"type": kind, "description": words} for name, kind, words in endpoint.fields},
            "required": [name for name, _, _ in endpoint.fields],
        }
    responses: dict[str, Any] = {
        "200": {"description": endpoint.summary, "content": {endpoint.media: {"schema": schema}}}
    }
    if endpoint.path == "/readyz":
        responses["503"] = {"description": "Not ready", "content": responses["200"]["content"]}
    if endpoint.parameters:
        responses["400"] = {"description": "A parameter that cannot be read"}
    return {
        "summary": endpoint.summary,
        "operationId": endpoint.path.strip("/").replace("/", "_").replace(".", "_") or "index",
        "parameters": [
            {"name": p.name, "in": "query", "required": False, "description": p.description, "schema": {"type": p.type}}
            for p in endpoint.parameters
        ],
        "responses": responses,
    }

"""The HTTP interface in process: documents, refusals, OpenAPI against what is really answered."""

from __future__ import annotations

import asyncio
from typing import Any

import httpx
import jsonschema
import pytest

from fabricd.model.frame import Column
from fabricd.model.sample import Flag
from fabricd.outputs.http_api import View, make_app
from fabricd.outputs.openapi import ENDPOINTS
from fabricd.store.ingest import Ingest
from fabricd.store.store import Store
from tests.unit.store.frames import FABRIC, announcement, frame, message, schema

COLUMNS = [
    Column(name="port_transmit_data_bytes", unit="bytes"),
    Column(name="port_transmit_wait", width=32, sticky=True),
]


def ask(path: str, problems: tuple[str, ...] = (), nodes: int = 2) -> httpx.Response:
    ingest = Ingest(Store(FABRIC), FABRIC)
    for n in range(nodes):
        s = schema(COLUMNS, rows=2, node=f"n{n}", guid=1000 * (n + 1))
        ingest.batch([announcement(s)])
        for seq in range(2):
            flags = [1, 1, 1, Flag.VALID | Flag.SATURATED]
            ingest.batch([message(s, frame(s, seq, [seq * 1000, seq, 7, 2**32 - 1], flags))])
    app = make_app(View(ingest.store, ingest, lambda: list(problems), lambda: 60.0))

    async def run() -> httpx.Response:
        async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://test") as client:
            return await client.get(path)

    return asyncio.run(run())


def test_health_and_readiness() -> None:
    assert ask("/healthz").json() == {"status": "ok"}
    assert ask("/readyz").json() == {"ready": True, "problems": []}
    answer = ask("/readyz", ("no broker",))
    assert (answer.status_code, answer.json()) == (503, {"ready": False, "problems": ["no broker"]})


def test_nodes() -> None:
    document = ask("/api/v1/nodes").json()
    assert [(n["node"], n["state"], n["ports"], n["stored_frames"]) for n in document["nodes"]] == [
        ("n0", "alive", 2, 2), ("n1", "alive", 2, 2),
    ]  # fmt: skip


def test_ports_have_values_rates_and_flags() -> None:
    document = ask("/api/v1/ports").json()
    assert document["total"] == 4
    counters = {c["name"]: c for c in document["ports"][0]["counters"]}
    assert counters["port_transmit_data_bytes"]["value"] == 1000
    assert counters["port_transmit_data_bytes"]["rate"] == 1000.0
    full = {c["name"]: c for c in document["ports"][1]["counters"]}["port_transmit_wait"]
    assert (full["value"], full["rate"], full["flags"]) == (2**32 - 1, None, ["saturated"])


@pytest.mark.parametrize(
    ("query", "expected"),
    [("node=n1", 2), ("device=dev0", 2), ("guid=0x3e8", 1), ("node=none", 0), ("node=n1&device=dev1", 1)],
)
def test_ports_can_be_chosen(query: str, expected: int) -> None:
    assert ask(f"/api/v1/ports?{query}").json()["total"] == expected


def test_pages() -> None:
    document = ask("/api/v1/ports?offset=1&limit=2").json()
    assert (document["total"], document["offset"], len(document["ports"])) == (4, 1, 2)


@pytest.mark.parametrize("query", ["limit=0", "limit=x", "limit=1000000", "offset=-1", "guid=xyz"])
def test_what_cannot_be_read_is_refused_in_words(query: str) -> None:
    answer = ask(f"/api/v1/ports?{query}")
    assert answer.status_code == 400
    assert query.split("=")[1] in answer.json()["error"]


def test_openapi_describes_what_is_answered() -> None:
    document = ask("/openapi.json").json()
    assert document["openapi"].startswith("3.1")
    assert set(document["paths"]) == {e.path for e in ENDPOINTS}
    for path, item in document["paths"].items():
        answer = ask(path)
        ((media, content),) = item["get"]["responses"]["200"]["content"].items()
        assert answer.headers["content-type"].startswith(media), path
        if media == "application/json":
            jsonschema.validate(answer.json(), content["schema"])


def test_the_page_shows_nodes_escaped() -> None:
    answer: Any = ask("/")
    assert "n0" in answer.text
    assert "ready" in answer.text

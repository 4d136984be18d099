"""HTTP: place, exports, topograph's three endpoints, the scheduler extender."""

from __future__ import annotations

import asyncio
from typing import Any

import httpx
import pytest
from starlette.applications import Starlette

from fabricd.config.placement import PlacementConfig
from fabricd.errors import FabricdError
from fabricd.model.topology import Fault, Topology
from fabricd.placement.exporters import export
from fabricd.placement.extender import Extender
from fabricd.placement.http import routes
from fabricd.placement.live import LiveView
from fabricd.topology.railfaults import check_rails
from tests.fabrics import rail_fabric

FAST = PlacementConfig(refine_seconds=0)
GENERATE = {
    "provider": {"name": "infiniband-bm", "params": {"accelerator": {"source": "none"}}},
    "engine": {"name": "slurm", "params": {"plugin": "topology/block", "blockSizes": [2, 4]}},
    "nodes": [{"region": "local", "instances": {"i-1": "gpu001", "i-2": "gpu002", "i-3": "gpu005", "i-4": "gpu006"}}],
}


def fabric() -> Topology:
    topology = rail_fabric(units=2, hosts=4, rails=2)
    check_rails(topology)
    return topology


class Web:
    """Asks the application in memory; an answer is there when its background work is done."""

    def __init__(self, app: Starlette) -> None:
        self.app = app

    def ask(self, method: str, path: str, **rest: Any) -> httpx.Response:
        async def one() -> httpx.Response:
            async with httpx.AsyncClient(transport=httpx.ASGITransport(self.app), base_url="http://api") as client:
                return await client.request(method, path, **rest)

        return asyncio.run(one())

    def get(self, path: str, **rest: Any) -> httpx.Response:
        return self.ask("GET", path, **rest)

    def post(self, path: str, **rest: Any) -> httpx.Response:
        return self.ask("POST", path, **rest)


def client(view: LiveView | None, config: PlacementConfig = FAST) -> Web:
    def live() -> LiveView:
        if view is None:
            raise FabricdError("no topology is known yet")
        return view

    return Web(Starlette(routes=list(routes(live, config))))


def test_place() -> None:
    web = client(LiveView(fabric(), heat={"su1": 0.5}))
    plan = web.post("/api/v1/place", json={"nodes": 4, "tp": 16})
    assert plan.status_code == 200 and len(plan.json()["rank_order"]) == 4
    refused = web.post("/api/v1/place", json={"nodes": 9})
    assert refused.status_code == 409 and refused.json()["reasons"] == ["9 nodes asked for, 8 usable"]
    bad = web.post("/api/v1/place", json={"nodes": 4, "tp": 3})
    assert bad.status_code == 400 and "job.tp = 3" in bad.json()["error"]
    assert web.post("/api/v1/place", content=b"{").status_code == 400
    assert client(None).post("/api/v1/place", json={"nodes": 1}).status_code == 503


def test_exports_over_http() -> None:
    web = client(LiveView(fabric()))
    assert web.get("/api/v1/topology/export/slurm-tree").text == export(fabric(), "slurm-tree")
    assert web.get("/api/v1/topology/export/nccl?node=gpu001").text == export(fabric(), "nccl", node="gpu001")
    assert web.get("/api/v1/topology/export/toml").status_code == 404
    assert web.get("/api/v1/placement/heat").json() == {"heat": {}, "window_s": 120.0}


def test_topograph_block_of_some_nodes() -> None:
    web = client(LiveView(fabric()))
    accepted = web.post("/v1/generate", json=GENERATE)
    assert accepted.status_code == 202
    result = web.get("/v1/topology", params={"uid": accepted.text})
    assert result.status_code == 200
    lines = [line for line in result.text.splitlines() if not line.startswith("#")]
    assert lines == ["BlockName=su1 Nodes=gpu[001-002]", "BlockName=su2 Nodes=gpu[005-006]", "BlockSizes=2,4"]
    assert web.get("/v1/topology", params={"uid": "nobody"}).status_code == 404


@pytest.mark.parametrize(
    ("engine", "first"),
    [
        ({}, "SwitchName=su1"),
        ({"name": "slurm", "params": {"plugin": "topology/tree"}}, "SwitchName=su1"),
        ({"name": "slinky"}, "- topology: fabric-tree"),
        ({"name": "k8s", "params": {"fabricLabels": ["example.com/leaf"]}}, "    example.com/leaf: su1"),
        ({"name": "graph"}, '"rails"'),
    ],
)
def test_topograph_engines(engine: dict[str, Any], first: str) -> None:
    web = client(LiveView(fabric()))
    uid = web.post("/v1/generate", json={"engine": engine}).text
    assert first in web.get("/v1/topology", params={"uid": uid}).text


@pytest.mark.parametrize(
    ("document", "words"),
    [
        ([], "JSON object"),
        ({"engine": {"name": "nomad"}}, "engine.name = 'nomad'"),
        ({"engine": {"params": {"plugin": "topology/torus"}}}, "engine.params.plugin = 'topology/torus'"),
        ({"engine": {"params": {"blockSizes": [2, 6]}}}, "blockSizes = [2, 6]"),
        ({"engine": {"params": {"blockSizes": "2"}}}, "blockSizes = '2'"),
        ({"nodes": {"a": 1}}, "nodes"),
    ],
)
def test_topograph_refuses_what_it_does_not_understand(document: Any, words: str) -> None:
    answer = client(LiveView(fabric())).post("/v1/generate", json=document)
    assert answer.status_code == 400 and words in answer.json()["error"]


def test_topograph_failure_is_reported_under_its_id() -> None:
    web = client(None)
    uid = web.post("/v1/generate", json=GENERATE).text
    assert web.get("/v1/topology", params={"uid": uid}).status_code == 500


NAMES = ["gpu001", "gpu005", "other"]


def hot() -> LiveView:
    topology = fabric()
    topology.faults.append(Fault("missing_rail", "gpu002", "no port on rail 1", []))
    return LiveView(topology, heat={"su1": 0.9, "su2": 0.1})


def test_the_extender_is_off_by_default() -> None:
    web = client(hot())
    kept = web.post("/scheduler/filter", json={"Pod": {}, "NodeNames": ["gpu002", *NAMES]}).json()
    assert kept["NodeNames"] == ["gpu002", *NAMES] and kept["FailedNodes"] == {} and kept["Error"] == ""
    scores = web.post("/scheduler/prioritize", json={"Pod": {}, "NodeNames": NAMES}).json()
    assert scores == [{"Host": name, "Score": 0} for name in NAMES]


def test_the_extender_filters_and_prefers_cool_groups() -> None:
    web = client(hot(), PlacementConfig(extender_enabled=True))
    kept = web.post("/scheduler/filter", json={"Pod": {}, "NodeNames": ["gpu002", *NAMES]}).json()
    assert kept["NodeNames"] == NAMES and "missing_rail" in kept["FailedNodes"]["gpu002"]
    scores = web.post("/scheduler/prioritize", json={"pod": {}, "nodenames": NAMES}).json()
    assert scores == [{"Host": "gpu001", "Score": 1}, {"Host": "gpu005", "Score": 9}, {"Host": "other", "Score": 5}]
    nodes = {"items": [{"metadata": {"name": "gpu002"}, "spec": {}}, {"metadata": {"name": "gpu001"}}]}
    whole = web.post("/scheduler/filter", json={"Pod": {}, "Nodes": nodes}).json()
    assert [node["metadata"]["name"] for node in whole["Nodes"]["items"]] == ["gpu001"]
    alone = web.post("/scheduler/filter", json={"Pod": {}, "NodeNames": ["gpu002"]}).json()
    assert alone["NodeNames"] == ["gpu002"]  # never a filter that leaves nothing
    assert web.post("/scheduler/filter", json={"Pod": {}}).status_code == 400
    assert web.post("/scheduler/filter", json={"Nodes": {"items": [{}]}}).status_code == 400


def test_the_extender_is_rate_limited_and_fails_open() -> None:
    views: list[LiveView | None] = [hot(), None]
    now = [0.0]

    def live() -> LiveView:
        view = views.pop(0)
        if view is None:
            raise FabricdError("gone")
        return view

    extender = Extender(live, PlacementConfig(extender_enabled=True, extender_refresh_s=30), clock=lambda: now[0])
    names = {"NodeNames": ["gpu001", "gpu005"]}
    first = extender.prioritize(names)
    now[0] = 29.0
    assert extender.prioritize(names) == first and len(views) == 1
    now[0] = 30.0
    assert extender.prioritize(names) == [{"Host": "gpu001", "Score": 0}, {"Host": "gpu005", "Score": 0}]

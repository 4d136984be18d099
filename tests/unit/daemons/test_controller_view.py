"""What the controller sees: files read when they change, what is missing said in words, pairs by names of hosts."""

from __future__ import annotations

import asyncio
import json
import socket
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from starlette.applications import Starlette

from fabricd.config.aggregator import AggregatorConfig
from fabricd.config.control import ControlConfig
from fabricd.config.root import Config
from fabricd.config.topology import TopologyConfig
from fabricd.control.state import State
from fabricd.daemons.controller_view import ControllerView
from fabricd.daemons.http_server import bind_unix, serve
from fabricd.outputs.state_view import state_route
from tests.unit.control.fabrics import Net


class Aggregator:
    """The state route on a unix socket, in a thread."""

    def __init__(self, path: str) -> None:
        self.newest: State | None = None
        self._listener: socket.socket = bind_unix(path)
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _run(self) -> None:
        self._task = self._loop.create_task(serve(Starlette(routes=[state_route(lambda: self.newest)]), self._listener))
        try:
            self._loop.run_until_complete(self._task)
        except asyncio.CancelledError:
            pass

    def stop(self) -> None:
        self._loop.call_soon_threadsafe(self._task.cancel)
        self._thread.join(20)


def config(directory: Path, **control: object) -> Config:
    return Config(
        aggregator=AggregatorConfig(socket=str(directory / "socket")),
        topology=TopologyConfig(source=str(directory / "topology.json")),
        control=ControlConfig(**control),  # type: ignore[arg-type]
    )


@pytest.fixture
def aggregator(tmp_path: Path) -> Iterator[Aggregator]:
    found = Aggregator(str(tmp_path / "socket"))
    yield found
    found.stop()


def test_what_is_missing_is_said_and_nothing_is_raised(tmp_path: Path) -> None:
    view = ControllerView(config(tmp_path))
    inputs = view.look({})
    assert (inputs.state, inputs.routes) == (None, None)
    assert [problem.split(":")[0] for problem in view.problems] == ["topology", "aggregator/api/v1/state"]
    view.close()


def test_figures_topology_and_pairs(tmp_path: Path, aggregator: Aggregator) -> None:
    net = Net()
    (tmp_path / "topology.json").write_text(json.dumps(net.topology.to_json()))
    (tmp_path / "pairs").write_text("src,dst,prio\nhost0,host5,3\nhost1,nobody,3\n")
    view = ControllerView(config(tmp_path, pairs_file=str(tmp_path / "pairs")))
    inputs = view.look({})
    assert view.problems == ["aggregator/api/v1/state: " + view.problems[0].partition(": ")[2]]
    assert "503" in view.problems[0]
    aggregator.newest = net.state(77)
    inputs = view.look({})
    assert view.problems == []
    assert inputs.state is not None
    assert inputs.state.t_ns == 77
    assert inputs.routes is not None
    assert len(inputs.world.topology.links) == len(net.topology.links)
    assert not inputs.ethernet
    (pair,) = inputs.pairs
    assert (pair.src, pair.dst, pair.level) == (net.hosts[0], net.hosts[5], 3)
    view.close()

"""The figures the controller acts by are those the live detector looked at, served over the aggregator's interface."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from starlette.applications import Starlette
from starlette.testclient import TestClient

from fabricd.config.root import Config
from fabricd.control.remedies.base import port_ref
from fabricd.control.state import from_json
from fabricd.daemons.detector import DetectorFeed
from fabricd.model.frame import read_header
from fabricd.store.store import Store
from tests.integration.test_replay_recording import BEGIN, SECOND, frames, save_topology


def test_victims_of_a_live_verdict_wait_in_the_state(tmp_path: Path) -> None:
    config = Config()
    config.topology.cache = str(tmp_path / "topology.json")
    save_topology(tmp_path / "topology.json")
    schema, sent = frames()
    now = 0
    store = Store("test", lambda: now)
    feed = DetectorFeed(config, store)
    client = TestClient(Starlette(routes=feed.routes()))
    assert client.get("/api/v1/state").status_code == 503
    stream = store.open_stream(store.node("sweep"), schema, schema.id)
    for k, frame in enumerate(sent):
        now = (k + 1) * SECOND
        stream.take(frame, read_header(frame), now)
        feed.look(BEGIN + k * SECOND)
    (verdict,) = feed.verdicts()
    state = from_json(client.get("/api/v1/state").content)
    assert state.interval_ns == SECOND
    assert state.visible_share(state.ports) == 1.0
    assert state.newest_age(state.t_ns) <= 3
    victims = [port_ref(victim) for victim in verdict.victims]
    assert victims
    assert np.nanmax(state.stall_of(victims, verdict.priority)) > 0.1
    root = port_ref(verdict.roots[0])
    assert state.use_of(root) > 0.9

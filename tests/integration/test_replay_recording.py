"""Frames in a recording: the detector finds live (store, MQTT documents, API) and in the replay the same root."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from starlette.applications import Starlette
from starlette.testclient import TestClient

from fabricd.cli import main
from fabricd.config.root import Config
from fabricd.daemons.detector import DetectorFeed
from fabricd.errors import FabricdError
from fabricd.model.frame import Column, Row, Schema, encode_frame, read_header
from fabricd.store.recording import Recording
from fabricd.store.records import Kind
from fabricd.store.store import Store
from fabricd.topology.golden import full_json
from fabricd.topology.slots import SlotBook
from tests.unit.detect.scenes import LINE, RATE, Scene, leaf_spine
from tests.unit.detect.test_causes import incast, quiet

SECOND = 10**9
BEGIN = 1_700_000_000 * SECOND
COLUMNS = tuple(
    Column(name=name, unit=unit)
    for name, unit in (
        ("port_transmit_data_bytes", "bytes"),
        ("port_receive_data_bytes", "bytes"),
        ("port_transmit_wait", "ticks"),
    )
)


def frames() -> tuple[Schema, list[bytes]]:
    """Six quiet seconds and ten of an incast at leaf0:1, as one sweep of all ports would send them."""
    scene = Scene(leaf_spine())
    fabric = scene.fabric
    rows = tuple(Row(guid=guid, port=port, rate_gbps=RATE / 1e9) for guid, port in fabric.ports)
    schema = Schema(node="sweep", fabric="test", stream=0, boot=1, rows=rows, columns=COLUMNS, kind="switch")
    totals = np.zeros((fabric.size, 3))
    out = []
    for k in range(17):
        use, stall = quiet(k) if k < 7 else incast(k)
        for name, share in use.items():
            port = scene.port(name)
            totals[port, 0] += share * LINE
            totals[int(fabric.peer[port]), 1] += share * LINE
        for name, share in stall.items():
            totals[scene.port(name), 2] += share * RATE / 8 / 8  # ticks of eight bytes of link time
        values = [int(v) for v in totals.ravel()]
        now = BEGIN + k * SECOND
        out.append(encode_frame(schema, schema.id, k + 1, now - BEGIN + SECOND, now, values, bytes([1]) * len(values)))
    return schema, out


def save_topology(path: Path) -> None:
    topology = full_json(leaf_spine())
    empty = leaf_spine()
    empty.nodes.clear()
    empty.links.clear()
    path.write_text(json.dumps({"topology": topology, "slots": SlotBook().to_json(), "gone": empty.to_json()}))


def test_live_verdicts_in_the_api(tmp_path: Path) -> None:
    config = Config()
    config.topology.cache = str(tmp_path / "topology.json")
    schema, sent = frames()
    now = 0
    store = Store("test", lambda: now)
    feed = DetectorFeed(config, store)
    with pytest.raises(FabricdError, match="no topology yet"):
        feed.look(BEGIN)
    save_topology(tmp_path / "topology.json")
    stream = store.open_stream(store.node("sweep"), schema, schema.id)
    changed = []
    for k, frame in enumerate(sent):
        now = (k + 1) * SECOND
        stream.take(frame, read_header(frame), now)
        changed += feed.look(BEGIN + k * SECOND)
    assert [v.cause for v in changed] == ["incast"]
    assert changed[0].root_labels[0]["port"] == "leaf0:1"
    client = TestClient(Starlette(routes=feed.routes()))
    document = client.get("/api/v1/verdicts").json()
    assert [v["cause"] for v in document["verdicts"]] == ["incast"] and document["verdicts"][0]["end"] is None
    for k in range(len(sent), len(sent) + 15):  # nothing comes any more: that is no evidence of recovery
        now = (k + 1) * SECOND
        feed.look(BEGIN + k * SECOND)
    held = next(iter(feed.open.values()))
    assert any("held meanwhile, not cleared" in word for word in held.blind)


def test_a_recording_replays(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    schema, sent = frames()
    directory = tmp_path / "recording"
    directory.mkdir()
    recording = Recording(directory, 64 << 20, lambda: [(Kind.SCHEMA, schema.encode())])
    for k, frame in enumerate(sent):
        recording.append(Kind.FRAME, frame, BEGIN + k * SECOND)
    recording.flush()
    recording.close()
    assert main(["replay", str(directory)]) == 2
    assert "name one with --topology" in capsys.readouterr().err
    save_topology(tmp_path / "topology.json")
    assert main(["replay", str(directory), "--json"]) == 0
    verdicts = json.loads(capsys.readouterr().out)["verdicts"]
    assert [(v["cause"], v["root_labels"][0]["port"]) for v in verdicts] == [("incast", "leaf0:1")]

"""A bundle for a vendor ticket replays to the same verdict and tells no name."""

from __future__ import annotations

import gzip
import http.server
import io
import json
import tarfile
import threading
from pathlib import Path
from typing import Any

import pytest

from fabricd.cli import main
from fabricd.control.journal import SqliteJournal
from fabricd.model.action import Action, Change, Lever, Proposal, Touched
from fabricd.outputs.trace import read_trace
from fabricd.store.recording import Recording
from fabricd.store.records import Kind
from tests.exporters import Watched
from tests.integration.test_replay_recording import BEGIN, SECOND, frames, save_topology

TRACES = Path(__file__).parent.parent / "data" / "traces"


def verdicts(capsys: pytest.CaptureFixture[str], *arguments: str) -> list[dict[str, Any]]:
    assert main(["replay", "--json", *arguments]) == 0
    found: list[dict[str, Any]] = json.loads(capsys.readouterr().out)["verdicts"]
    return found


def report(capsys: pytest.CaptureFixture[str], *arguments: str) -> dict[str, Any]:
    assert main(["report", "--json", *arguments]) == 0
    found: dict[str, Any] = json.loads(capsys.readouterr().out)
    assert found["replays_to_the_same"] is True
    return found


def contents(bundle: Path) -> dict[str, bytes]:
    """Every file in a bundle, unpacked."""
    with tarfile.open(bundle) as tar:
        files = {Path(member.name).name: tar.extractfile(member) for member in tar.getmembers()}
        read = {name: file.read() for name, file in files.items() if file is not None}
    return {name: gzip.decompress(data) if name.endswith(".gz") else data for name, data in read.items()}


def record(directory: Path) -> None:
    """A recording with an incast in it, and its topology."""
    schema, sent = frames()
    recording = Recording(directory / "recording", 64 << 20, lambda: iter([(Kind.SCHEMA, schema.encode())]))
    for k, frame in enumerate(sent):
        recording.append(Kind.FRAME, frame, BEGIN + k * SECOND)
    recording.flush()
    recording.close()
    save_topology(directory / "topology.json")


@pytest.mark.parametrize("name", ["incast-1", "slow_receiver-1"])
def test_of_a_trace(name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    trace = str(TRACES / name)
    before = verdicts(capsys, trace)[0]
    bundle = tmp_path / "ticket.tar.gz"
    report(capsys, before["id"], "--replay", trace, "-o", str(bundle))
    again = verdicts(capsys, str(bundle))
    same = next(found for found in again if found["id"] == before["id"])
    # A trace numbers its nodes, so roots are comparable as they are: only names differ.
    for key in ("roots", "cause", "priority", "start", "end", "victims"):
        assert same[key] == before[key]
    assert same["root_labels"][0]["port"] != before["root_labels"][0]["port"]
    everything = b"".join(contents(bundle).values())
    for word in (b"leaf", b"spine", b"host0", before["root_labels"][0]["port"].encode()):
        assert word not in everything
    assert b"host-" in everything


def test_of_a_history_keeps_no_guid(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    fabric = Watched(read_trace(TRACES / "incast-1"), 30_000)
    (tmp_path / "ufm.csv").write_text(fabric.ufm_csv(BEGIN, 30 * SECOND))
    (tmp_path / "topology.json").write_text(fabric.topology_json())
    source = ("--from", f"ufm-csv:{tmp_path}/ufm.csv", "--topology", f"{tmp_path}/topology.json")
    before = verdicts(capsys, *source)[0]
    bundle = tmp_path / "ticket.tar.gz"
    report(capsys, before["id"], *source, "-o", str(bundle), "--key", "ours")
    same = next(found for found in verdicts(capsys, str(bundle)) if found["id"] == before["id"])
    assert same["cause"] == before["cause"] and len(same["victims"]) == len(before["victims"])
    assert same["roots"][0][1] == before["roots"][0][1] and same["roots"] != before["roots"]
    assert same["blind"] == before["blind"]  # that routes were assumed is still said
    files = contents(bundle)
    assert b"b83fd200" not in b"".join(files.values()) and b"leaf1" not in b"".join(files.values())
    assert json.loads(files["verdict.json"])["roots"] == same["roots"]
    # With the same key the names are the same again, with another they are not.
    for key, alike in (("ours", True), ("other", False)):
        report(capsys, before["id"], *source, "-o", str(tmp_path / f"{key}.tar.gz"), "--key", key)
        assert (contents(tmp_path / f"{key}.tar.gz")["verdict.json"] == files["verdict.json"]) is alike


def test_of_a_recording_with_what_was_done(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    record(tmp_path)
    before = verdicts(capsys, str(tmp_path / "recording"))[0]
    root_guid = before["roots"][0][0]
    lever = Lever(adapter="ufm", device=root_guid, name="hop_weight", key="3")
    action = Action(
        proposal=Proposal(
            id="a1", verdict_id=before["id"], cause="incast", remedy="reweigh", changes=(Change(lever=lever, new=4, old=1),),
            touched=Touched(switches=(int(root_guid, 16),)), gain=0.5, cost=0.01, why="leaf0:1 is full", created_ns=BEGIN,
        )
    )  # fmt: skip
    action.advance("admitted", BEGIN + 1)
    action.advance("intended", BEGIN + 2)
    action.advance(
        "pushed", BEGIN + 3, "PUT https://10.20.0.11/ufmRest by ann@ops", body='{"leaf0": 4}', answer="202 Accepted"
    )
    other = Action(proposal=Proposal(
        id="a2", verdict_id="0000000000", cause="incast", remedy="reweigh", changes=(), touched=Touched(), gain=0.5, cost=0.01,
        why="", created_ns=BEGIN,
    ))  # fmt: skip
    journal = SqliteJournal(tmp_path / "journal.db")
    journal.save(action)
    journal.save(other)
    journal.close()
    monkeypatch.setenv("FABRICD_CONTROL__JOURNAL", str(tmp_path / "journal.db"))
    bundle = tmp_path / "ticket.tar.gz"
    report(capsys, before["id"], "--replay", str(tmp_path / "recording"), "-o", str(bundle))
    same = verdicts(capsys, str(bundle))[0]
    assert (same["cause"], same["start"], same["roots"][0][1]) == (
        before["cause"],
        before["start"],
        before["roots"][0][1],
    )
    files = contents(bundle)
    done = json.loads(files["actions.json"])
    assert [entry["proposal"]["id"] for entry in done] == ["a1"]
    assert done[0]["proposal"]["changes"][0]["lever"]["device"] == same["roots"][0][0]
    assert done[0]["events"][-1]["data"]["answer"] == "202 Accepted"
    everything = b"".join(files.values())
    for word in (b"leaf0", b"10.20.0.11", b"ann@ops", b"sweep"):
        assert word not in everything, word


class _Api(http.server.BaseHTTPRequestHandler):
    """What a running fabricd answers for its verdicts."""

    document = b""

    def do_GET(self) -> None:
        self.send_response(200)
        self.end_headers()
        self.wfile.write(self.document)

    def log_message(self, format: str, *args: object) -> None:
        pass


def test_of_a_running_fabricd(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    record(tmp_path)
    before = verdicts(capsys, str(tmp_path / "recording"))[0]
    # Live it looked at other instants, and it is still open: another start, another id.
    live = {**before, "id": "aaaaaaaaaa", "start": before["start"] + SECOND // 3, "end": None}
    monkeypatch.setattr(_Api, "document", json.dumps({"verdicts": [live], "problem": None}).encode())
    monkeypatch.setenv("FABRICD_AGGREGATOR__RECORDING_DIR", str(tmp_path / "recording"))
    monkeypatch.setenv("FABRICD_TOPOLOGY__CACHE", str(tmp_path / "topology.json"))
    with http.server.HTTPServer(("127.0.0.1", 0), _Api) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            url = f"http://127.0.0.1:{server.server_address[1]}"
            report(capsys, "aaaa", "--url", url, "-o", str(tmp_path / "ticket"))
        finally:
            server.shutdown()
            thread.join()
    same = verdicts(capsys, str(tmp_path / "ticket.tar.gz"))[0]
    files = contents(tmp_path / "ticket.tar.gz")
    assert json.loads(files["verdict.json"])["roots"] == same["roots"] != before["roots"]
    assert json.loads(files["actions.json"]) == []


def test_what_is_not_there(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    trace = str(TRACES / "quiet_uniform-1")
    assert main(["report", "abc", "--replay", trace]) == 1
    assert "no verdict abc" in capsys.readouterr().err
    (tmp_path / "x.tar.gz").write_bytes(b"no archive")
    assert main(["replay", str(tmp_path / "x.tar.gz")]) == 1
    assert "not a bundle" in capsys.readouterr().err
    with tarfile.open(tmp_path / "evil.tar.gz", "w:gz") as tar:
        for name in ("../outside", "/abs/outside", "x/.."):
            member = tarfile.TarInfo(name)
            member.size = 4
            tar.addfile(member, io.BytesIO(b"evil"))
        link = tarfile.TarInfo("x/verdict.json")
        link.type, link.linkname = tarfile.SYMTYPE, "/etc/passwd"
        tar.addfile(link)
    assert main(["replay", str(tmp_path / "evil.tar.gz")]) == 1
    assert "not a bundle" in capsys.readouterr().err
    assert not (tmp_path / "outside").exists() and not (tmp_path.parent / "outside").exists()
    assert main(["report", "abc", "--replay", trace, "--from", "ufm-csv:x"]) == 2
    assert "not both" in capsys.readouterr().err

"""Recordings: what was flushed is read back, whatever happened to the end or the middle; bounded; in order for the reader."""

from __future__ import annotations

import asyncio
import os
import tempfile
from pathlib import Path

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fabricd.errors import FabricdError
from fabricd.model.rejects import Rejects
from fabricd.store.ingest import Ingest
from fabricd.store.playback import Playback
from fabricd.store.receiver import rebuild
from fabricd.store.recording import Recording
from fabricd.store.records import HEAD, Kind, read_segment, segments
from fabricd.store.store import Store
from tests.unit.store.frames import FABRIC, SECOND, announcement, frame, message, schema


def aggregator(directory: Path, limit: int = 64 << 20, segment: int | None = None) -> Ingest:
    """An ingest over a recording, filled from what is there: as after a start."""
    ingest = Ingest(Store(FABRIC), FABRIC)
    recording = Recording(directory, limit, ingest.preamble, segment)
    asyncio.run(rebuild(ingest, recording))
    ingest.recording = recording
    return ingest


def played(directory: Path) -> list[tuple[str, int, int]]:
    return [(p.frame.header.node, p.frame.header.boot, p.frame.header.seq) for p in Playback(directory)]


@given(
    st.lists(st.tuples(st.sampled_from([Kind.SCHEMA, Kind.STATUS, Kind.NOTE]), st.binary(max_size=300)), max_size=20),
    st.data(),
)
def test_a_torn_tail_costs_only_the_torn_record(records: list[tuple[Kind, bytes]], data: st.DataObject) -> None:
    with tempfile.TemporaryDirectory() as name:
        recording = Recording(Path(name), 64 << 20, lambda: iter(()))
        ends = [8]
        for number, (kind, payload) in enumerate(records):
            recording.append(kind, payload, number)
            recording.flush()
            ends.append(ends[-1] + HEAD.size + len(payload) + -len(payload) % 8)
        recording.close()
        if not records:
            return
        (path,) = segments(Path(name))
        assert path.stat().st_size == ends[-1]
        cut = data.draw(st.integers(8, ends[-1]))
        os.truncate(path, cut)
        rejects = Rejects()
        got = [(r.kind, bytes(r.payload), r.received_ns) for r in read_segment(path, rejects)]
        whole = sum(1 for e, (_, p) in zip(ends[1:], records, strict=True) if e - -len(p) % 8 <= cut)
        assert got == [(kind, payload, i) for i, (kind, payload) in enumerate(records)][:whole]
        # Zeros might be reserved room; anything else after the last whole record is a torn one, and counted.
        assert rejects.total == int(any(path.read_bytes()[ends[whole] :]))


@given(st.data())
def test_a_flipped_bit_costs_at_most_what_follows_it(data: st.DataObject) -> None:
    with tempfile.TemporaryDirectory() as name:
        directory = Path(name)
        ingest = aggregator(directory)
        s = schema(rows=2)
        ingest.batch([announcement(s)])
        for seq in range(6):
            ingest.batch([message(s, frame(s, seq, [seq, seq]))])
        assert ingest.recording is not None
        ingest.recording.close()
        (path,) = segments(directory)
        raw = bytearray(path.read_bytes())
        bit = data.draw(st.integers(0, len(raw) * 8 - 1))
        raw[bit // 8] ^= 1 << bit % 8
        path.write_bytes(raw)
        rejects = Rejects()
        frames = [r for r in read_segment(path, rejects) if r.kind == Kind.FRAME]
        assert len(frames) == 6 or rejects.total
        again = aggregator(directory)
        assert set(again.store.nodes) <= {"n"}


def test_a_restart_knows_frames_and_columns(tmp_path: Path) -> None:
    first = aggregator(tmp_path)
    s = schema(rows=3)
    first.batch([announcement(s), *(message(s, frame(s, seq, [seq * 10, seq * 20, seq * 30])) for seq in range(5))])
    second = aggregator(tmp_path)
    node = second.store.nodes["n"]
    assert node.ledger.report(FABRIC, "n").boots == first.store.nodes["n"].ledger.report(FABRIC, "n").boots
    # Nothing is shown before a live frame came; then the movement is counted from the recorded one.
    assert len(second.store.read("c").port) == 0
    second.batch([message(s, frame(s, 5, [50, 100, 150]))])
    assert second.store.read("c").delta.tolist() == [10, 20, 30]
    assert second.store.read("c").span.tolist() == [SECOND] * 3
    # What the broker delivers again is a duplicate.
    second.batch([message(s, frame(s, seq, [0, 0, 0])) for seq in range(6)])
    assert node.counts["duplicate"] == 6
    assert played(tmp_path) == [("n", 1, seq) for seq in range(6)]


def test_bounded_and_still_knowing_what_was_removed(tmp_path: Path) -> None:
    ingest = aggregator(tmp_path, limit=1 << 20, segment=64 << 10)
    s = schema(rows=100)
    ingest.batch([announcement(s)])
    for seq in range(3000):
        ingest.batch([message(s, frame(s, seq, [seq] * 100))])
        if seq % 500 == 0:
            assert sum(p.stat().st_size for p in tmp_path.iterdir()) <= 1 << 20
    assert ingest.recording is not None
    assert ingest.recording.trimmed > 10
    ingest.recording.close()
    assert ingest.recording.bytes == sum(p.stat().st_size for p in tmp_path.iterdir()) <= 1 << 20
    again = aggregator(tmp_path, limit=1 << 20, segment=64 << 10)
    assert again.store.nodes["n"].ledger.report(FABRIC, "n").boots[0].stored == [(0, 2999)]
    assert again.store.nodes["n"].streams, "each segment carries the schemas it needs"
    kept = played(tmp_path)
    assert kept == [("n", 1, seq) for seq in range(3000 - len(kept), 3000)]
    assert len(kept) > 500


def test_what_the_disk_refuses_is_not_stored(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ingest = aggregator(tmp_path)
    s = schema()
    ingest.batch([announcement(s), message(s, frame(s, 0, [1]))])

    def refuse(fd: int, parts: object, at: int) -> int:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(os, "pwritev", refuse)
        ingest.batch([message(s, frame(s, 1, [2]))])
        assert ingest.disk_refuses
    assert ingest.store.nodes["n"].ledger.report(FABRIC, "n").boots[0].stored == [(0, 0)]
    assert ingest.store.read("c").value.tolist() == [2], "the live view goes on"
    ingest.batch([message(s, frame(s, 2, [3])), message(s, frame(s, 1, [2]), "backlog")])
    assert not ingest.disk_refuses
    assert played(tmp_path) == [("n", 1, 0), ("n", 1, 1), ("n", 1, 2)]


def test_room_that_was_reserved_is_no_damage(tmp_path: Path) -> None:
    """A crash leaves the rest of the reserved segment: zeros, at whatever offset."""
    for extra in (0, 1, 7, 8, 23, 24, 1000):
        directory = tmp_path / str(extra)
        ingest = aggregator(directory)
        s = schema()
        ingest.batch([announcement(s), message(s, frame(s, 0, [1]))])
        assert ingest.recording is not None
        ingest.recording.close()
        (path,) = segments(directory)
        os.truncate(path, path.stat().st_size + extra)
        playback = Playback(directory)
        assert [p.frame.header.seq for p in playback] == [0]
        assert playback.rejects.total == 0


def test_a_short_write_leaves_no_half_record(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ingest = aggregator(tmp_path)
    s = schema(rows=50)
    ingest.batch([announcement(s), message(s, frame(s, 0, [1] * 50))])
    real = os.pwritev

    def half(fd: int, parts: list[bytes], at: int) -> int:
        return real(fd, [b"".join(parts)[:100]], at)

    with monkeypatch.context() as patch:
        patch.setattr(os, "pwritev", half)
        ingest.batch([message(s, frame(s, 1, [2] * 50))])
    ingest.batch([message(s, frame(s, 2, [3] * 50))])
    playback = Playback(tmp_path)
    assert [p.frame.header.seq for p in playback] == [0, 2]
    assert playback.rejects.total == 0


def test_playback_is_in_order_whatever_the_order_of_arrival(tmp_path: Path) -> None:
    ingest = aggregator(tmp_path)
    a, b = schema(node="a"), schema(node="b", guid=200)
    ingest.batch([announcement(a), announcement(b)])
    for seq in (0, 5, 6):
        ingest.batch([message(a, frame(a, seq, [seq]))])
    for seq in (3, 1, 4, 2, 3, 6):
        ingest.batch([message(a, frame(a, seq, [seq]), "backlog")])
    for seq in range(7):
        ingest.batch([message(b, frame(b, seq, [seq]))])
    assert played(tmp_path) == [(node, 1, seq) for seq in range(7) for node in ("a", "b")]
    assert ingest.store.nodes["a"].counts == {"gap": 1, "late": 4, "duplicate": 2}
    assert [p.frame.values.tolist() for p in Playback(tmp_path) if p.schema.node == "a"] == [[[s]] for s in range(7)]


def test_frames_without_a_schema_are_counted(tmp_path: Path) -> None:
    ingest = aggregator(tmp_path)
    s = schema()
    ingest.batch([message(s, frame(s, 0, [1]))])
    playback = Playback(tmp_path)
    assert list(playback) == []
    assert playback.rejects.counts == {"schema_missing": 1}


def test_notes_travel_with_the_frames(tmp_path: Path) -> None:
    recording = Recording(tmp_path, 1 << 20, lambda: iter(()))
    recording.append(Kind.NOTE, msgspec.json.encode({"note": "topology", "links": 3}), 1)
    recording.append(Kind.NOTE, b"not json", 2)
    recording.flush()
    playback = Playback(tmp_path)
    assert playback.notes == [{"note": "topology", "links": 3}]
    assert playback.rejects.counts == {"note_syntax": 1}


def test_an_empty_segment_is_counted(tmp_path: Path) -> None:
    (tmp_path / "00000000.fbrec").touch()
    rejects = Rejects()
    assert list(read_segment(tmp_path / "00000000.fbrec", rejects)) == []
    assert rejects.counts == {"segment_torn": 1}


def test_no_recording_there(tmp_path: Path) -> None:
    with pytest.raises(FabricdError, match="no segment"):
        Playback(tmp_path)
    with pytest.raises(FabricdError, match="No such file"):
        Playback(tmp_path / "missing")
    (tmp_path / "file").write_text("")
    with pytest.raises(FabricdError, match="recording"):
        Recording(tmp_path / "file", 1 << 20, lambda: iter(()))


def test_playback_by_intervals_shows_the_store_as_it_was(tmp_path: Path) -> None:
    ingest = aggregator(tmp_path)
    s = schema(rows=2)
    ingest.batch([announcement(s)])
    for seq in (0, 1, 2, 5):
        ingest.batch([message(s, frame(s, seq, [seq * 100, seq]))])
    seen = []
    for at, store in Playback(tmp_path).intervals(SECOND):
        reading = store.read("c")
        seen.append(
            (
                at // SECOND,
                reading.value.tolist(),
                reading.span.tolist()[0] // SECOND,
                reading.age.tolist()[0] // SECOND,
            )
        )
    first = seen[0][0]
    assert [(at - first, *rest) for at, *rest in seen] == [
        (0, [0, 0], 0, 1),
        (1, [100, 1], 1, 1),
        (2, [200, 2], 1, 1),
        (3, [200, 2], 1, 2),
        (4, [200, 2], 1, 3),
        (5, [500, 5], 3, 1),
    ]

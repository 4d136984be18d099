"""The spool: order, limits, freeing, and what survives a process that dies in the middle of a write."""

import itertools
import os
import tempfile
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fabricd.errors import FabricdError
from fabricd.transport.spool import Spool


def test_keeps_order_and_payloads(tmp_path: Path) -> None:
    spool = Spool(tmp_path, 1 << 20)
    for seq in range(50):
        assert spool.append(7, seq, b"payload %d" % seq)
    assert list(spool) == [(7, seq) for seq in range(50)]
    assert spool.read((7, 31)) == b"payload 31"
    assert spool.read((7, 99)) is None
    assert spool.free(7, [(0, 9), (40, 60)]) == 20
    assert spool.free(8, [(0, 100)]) == 0
    assert list(spool) == [(7, seq) for seq in range(10, 40)]


def test_full_drops_the_oldest_and_counts(tmp_path: Path) -> None:
    spool = Spool(tmp_path, 64 << 10)
    for seq in range(200):
        assert spool.append(1, seq, bytes(1000))
    assert spool.bytes <= 64 << 10
    kept = list(spool)
    assert kept[-1] == (1, 199)
    assert kept == [(1, seq) for seq in range(200 - len(kept), 200)]
    assert spool.dropped == 200 - len(kept)
    assert len(kept) * 1024 > (64 << 10) * 0.85  # one segment at most is lost to granularity
    assert sum(p.stat().st_size for p in tmp_path.glob("*.spool")) <= 64 << 10


def test_a_record_larger_than_the_limit_is_dropped_alone(tmp_path: Path) -> None:
    spool = Spool(tmp_path, 16 << 10)
    spool.append(1, 0, b"small")
    assert not spool.append(1, 1, bytes(32 << 10))
    assert spool.dropped == 1
    assert list(spool) == [(1, 0)]


def test_survives_the_process_with_a_torn_tail(tmp_path: Path) -> None:
    spool = Spool(tmp_path, 1 << 20)
    for seq in range(5):
        spool.append(3, seq, b"x" * 100)
    spool.close()
    (segment,) = tmp_path.glob("*.spool")
    with segment.open("r+b") as file:
        file.truncate(segment.stat().st_size - 30)
    again = Spool(tmp_path, 1 << 20)
    assert list(again) == [(3, 0), (3, 1), (3, 2), (3, 3)]
    assert again.torn == 1
    again.append(4, 0, b"after")
    again.close()
    third = Spool(tmp_path, 1 << 20)
    assert [third.read(key) for key in third][-1] == b"after"
    assert third.torn == 0


def test_freed_segments_leave_the_disk(tmp_path: Path) -> None:
    spool = Spool(tmp_path, 64 << 10)
    for seq in range(60):
        spool.append(1, seq, bytes(1000))
    before = len(list(tmp_path.glob("*.spool")))
    spool.free(1, [(0, 59)])
    assert len(spool) == 0
    assert len(list(tmp_path.glob("*.spool"))) == 1 < before


def test_two_processes_cannot_share_one(tmp_path: Path) -> None:
    spool = Spool(tmp_path, 1 << 20)
    with pytest.raises(FabricdError, match="another process"):
        Spool(tmp_path, 1 << 20)
    spool.close()
    Spool(tmp_path, 1 << 20).close()


def test_an_unusable_directory_is_one_line(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(FabricdError, match=r"spool .*file"):
        Spool(tmp_path / "file", 1 << 20)


def test_a_refusing_disk_is_counted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    spool = Spool(tmp_path, 1 << 20)
    spool.append(1, 0, b"kept")

    def refuse(fd: int, parts: object) -> int:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(os, "writev", refuse)
        assert not spool.append(1, 1, b"lost")
    assert spool.errors == 1
    assert spool.append(1, 2, b"later")
    assert [spool.read(key) for key in spool] == [b"kept", b"later"]


OPERATIONS = st.lists(
    st.one_of(
        st.tuples(st.just("append"), st.integers(0, 300)),
        st.tuples(st.just("free"), st.integers(0, 40)),
        st.tuples(st.just("restart"), st.just(0)),
    ),
    max_size=60,
)


@given(OPERATIONS)
def test_behaves_like_an_ordered_dict_with_a_limit(operations: list[tuple[str, int]]) -> None:
    """Whatever is done, what is there is a suffix of what was put and not freed, and bytes on disk stay within the limit."""
    limit = 8 << 10
    with tempfile.TemporaryDirectory() as name:
        directory = Path(name)
        spool = Spool(directory, limit)
        expected: dict[tuple[int, int], bytes] = {}
        seq = 0
        for what, number in operations:
            if what == "append":
                payload = bytes([seq % 256]) * number
                assert spool.append(1, seq, payload)
                expected[1, seq] = payload
                seq += 1
            elif what == "free":
                spool.free(1, [(0, number)])
                expected = {key: value for key, value in expected.items() if key[1] > number}
            else:
                freed_again = number_freed(spool)
                spool.close()
                spool = Spool(directory, limit)
                # Freeing is not on disk: until the next report, records of a half-freed segment are back.
                spool.free(1, freed_again)
            keys = list(spool)
            missing = [key for key in expected if key not in keys]
            assert missing == list(expected)[: len(missing)], "only the oldest may be gone"
            for key in missing:
                del expected[key]
            assert {key: spool.read(key) for key in keys} == expected
            assert sum(p.stat().st_size for p in directory.glob("*.spool")) == spool.bytes <= limit
        spool.close()


def number_freed(spool: Spool) -> list[tuple[int, int]]:
    """The ranges a report would name: everything below the first one that is kept, and the holes."""
    kept = sorted(seq for _, seq in spool)
    edges = [-1, *kept, 1 << 62]
    return [(low + 1, high - 1) for low, high in itertools.pairwise(edges) if high - low > 1]

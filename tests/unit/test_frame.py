from array import array

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fabricd.model.frame import Column, FrameError, Row, Schema, decode_schema, encode_frame, read_header


def schema(rows: int, cols: int, node: str = "n1") -> Schema:
    return Schema(
        node=node,
        fabric="f",
        stream=3,
        boot=7,
        rows=tuple(Row(guid=r + 1, port=1) for r in range(rows)),
        columns=tuple(Column(name=f"c{c}") for c in range(cols)),
    )


U64 = st.integers(0, 2**64 - 1)


@given(st.integers(0, 5), st.integers(0, 7), st.data(), st.text(min_size=1, max_size=20))
def test_header_round_trip(rows: int, cols: int, data: st.DataObject, node: str) -> None:
    s = schema(rows, cols, node)
    values = data.draw(st.lists(U64, min_size=rows * cols, max_size=rows * cols))
    flags = bytes(data.draw(st.lists(st.integers(0, 63), min_size=rows * cols, max_size=rows * cols)))
    seq, mono, wall = data.draw(U64), data.draw(U64), data.draw(U64)
    frame = encode_frame(s, s.id, seq, mono, wall, values, flags)
    head = read_header(frame)
    assert (head.schema_id, head.boot, head.seq, head.mono_ns, head.wall_ns) == (s.id, 7, seq, mono, wall)
    assert (head.rows, head.columns, head.stream, head.node) == (rows, cols, 3, node)
    assert list(memoryview(frame)[head.values_at : head.flags_at].cast("Q")) == values
    assert frame[head.flags_at : head.flags_at + rows * cols] == flags
    assert len(frame) % 8 == 0


@given(st.binary(max_size=300))
def test_hostile_bytes_give_a_frame_error(data: bytes) -> None:
    with pytest.raises(FrameError):
        read_header(data)
    with pytest.raises(FrameError):
        read_header(b"FBD1\x01" + data)


@given(st.data())
def test_any_flipped_bit_is_noticed(data: st.DataObject) -> None:
    s = schema(2, 3)
    frame = bytearray(encode_frame(s, s.id, 1, 2, 3, range(6), bytes(6)))
    bit = data.draw(st.integers(0, len(frame) * 8 - 1))
    frame[bit // 8] ^= 1 << bit % 8
    with pytest.raises(FrameError):
        read_header(frame)


def test_wrong_sizes_are_refused() -> None:
    s = schema(2, 3)
    with pytest.raises(ValueError, match="5 values"):
        encode_frame(s, s.id, 1, 2, 3, array("Q", range(5)), bytes(6))


def test_schema_round_trip_and_id() -> None:
    s = schema(2, 3)
    assert decode_schema(s.encode()) == s
    assert s.id == schema(2, 3).id != schema(2, 4).id


@given(st.binary(max_size=100))
def test_hostile_schema(data: bytes) -> None:
    with pytest.raises(FrameError):
        decode_schema(data)

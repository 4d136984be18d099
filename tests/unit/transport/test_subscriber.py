"""The packet reader, fed with whatever pieces a network may make of the stream."""

import asyncio
import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fabricd.transport.subscriber import ConnectionLost, Subscriber, _length

PACKETS = st.lists(
    st.tuples(st.text(min_size=1, max_size=30), st.binary(max_size=5000), st.integers(0, 1), st.booleans()), max_size=12
)


def publish(topic: str, payload: bytes, qos: int, retain: bool, mid: int) -> bytes:
    name = topic.encode()
    body = len(name).to_bytes(2, "big") + name + (mid.to_bytes(2, "big") if qos else b"") + payload
    return bytes([0x30 | qos << 1 | retain]) + _length(len(body)) + body


def feed(
    stream: bytes, cuts: list[int], max_packet: int = 1 << 20
) -> tuple[list[tuple[bytes, bytes, bool, int]], BaseException | None]:
    """Hand the stream over in pieces; returns copies of the messages, and why the connection was given up."""

    async def run() -> tuple[list[tuple[bytes, bytes, bool, int]], BaseException | None]:
        got: list[tuple[bytes, bytes, bool, int]] = []
        subscriber = Subscriber(
            lambda batch: got.extend((topic, bytes(payload), retained, mid) for topic, payload, retained, mid in batch),
            30,
            max_packet,
        )
        edges = sorted({0, len(stream), *(cut % (len(stream) + 1) for cut in cuts)})
        for low, high in itertools.pairwise(edges):
            piece = memoryview(stream)[low:high]
            while piece and not subscriber.closed.done():
                room = subscriber.get_buffer(-1)
                taken = piece[: len(room)]
                room[: len(taken)] = taken
                subscriber.buffer_updated(len(taken))
                piece = piece[len(taken) :]
        return got, subscriber.closed.exception() if subscriber.closed.done() else None

    return asyncio.run(run())


@given(PACKETS, st.lists(st.integers(0, 1 << 30), max_size=20))
def test_any_fragmentation_gives_the_same_messages(
    packets: list[tuple[str, bytes, int, bool]], cuts: list[int]
) -> None:
    stream = b"".join(publish(t, p, q, r, i + 1) for i, (t, p, q, r) in enumerate(packets))
    got, error = feed(stream, cuts)
    assert error is None
    assert got == [(t.encode(), p, r, (i + 1) if q else 0) for i, (t, p, q, r) in enumerate(packets)]


@given(st.binary(max_size=400))
def test_hostile_bytes_end_the_connection_or_wait(data: bytes) -> None:
    _, error = feed(data, [])
    assert error is None or isinstance(error, ConnectionLost)


def test_packets_larger_than_the_buffer_are_joined() -> None:
    payload = bytes(range(256)) * (3 << 12)
    got, error = feed(publish("t", payload, 1, False, 9), [], max_packet=8 << 20)
    assert error is None
    assert got[0][1] == payload


def test_packets_beyond_the_limit_are_refused() -> None:
    _, error = feed(publish("t", bytes(5000), 0, False, 0), [], max_packet=4096)
    assert "5003 bytes, allowed 4096" in str(error)


def test_a_length_of_five_bytes_is_no_mqtt() -> None:
    _, error = feed(b"\x30\xff\xff\xff\xff\x01", [])
    assert "length" in str(error)


@pytest.mark.parametrize(("code", "words"), [(4, "bad user name or password"), (5, "not authorised"), (99, "code 99")])
def test_a_refused_login_says_why(code: int, words: str) -> None:
    _, error = feed(bytes([0x20, 2, 0, code]), [])
    assert words in str(error)

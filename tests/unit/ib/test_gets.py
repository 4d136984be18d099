"""Typed Gets: what may be asked, how it becomes a MAD, and lines that are refused."""

from __future__ import annotations

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fabricd.ib.gets import ALLOWED, GetRequest, build, decode_request, encode_line, refuse, reply_of
from fabricd.ib.mad import GET, Pma, Reply
from fabricd.ib.scheduler import Answer, Scheduler
from tests.unit.ib.fake_fabric import FakeFabric, marked


@pytest.mark.parametrize("name", ALLOWED)
def test_everything_on_the_list_is_a_get(name: str) -> None:
    request = build(GetRequest(name, lid=5, port=1))
    assert request.mad[3] == GET and request.address.lid == 5


@pytest.mark.parametrize(
    ("request_", "attribute", "modifier"),
    [
        (GetRequest("PortInfo", 1, port=9), 0x15, 9),
        (GetRequest("SLtoVL", 1, port=2, in_port=3), 0x17, 0x0302),
        (GetRequest("VLArbitration", 1, port=2, block=1), 0x18, 0x10002),
        (GetRequest("LinearForwarding", 1, block=7), 0x19, 7),
    ],
)
def test_modifiers(request_: GetRequest, attribute: int, modifier: int) -> None:
    mad = build(request_, m_key=5).mad
    assert struct.unpack_from(">HxxI", mad, 16) == (attribute, modifier)
    assert int.from_bytes(mad[24:32], "big") == 5


def test_round_trip() -> None:
    fabric = FakeFabric(marked)
    request = decode_request(b'{"id":3,"get":"PortCountersExtended","lid":4,"port":2}')
    answer = Scheduler(fabric, clock=fabric.clock).get(build(request))
    reply = reply_of(request, answer)
    assert (reply.reply, reply.id) == ("ok", 3) and reply.raw[1] == 2 and len(reply.raw) == 192
    silent = reply_of(request, Answer(build(request), Reply.TIMEOUT, None))
    assert silent.reply == "timeout" and b"data" not in encode_line(silent)


@pytest.mark.parametrize(
    "line",
    [
        b"", b"{", b"[]", b'{"get":"PortInfo"}', b'{"get":"PortInfo","lid":0}', b'{"get":"PortInfo","lid":49152}',
        b'{"get":"SetPortInfo","lid":1}', b'{"get":"PortInfo","lid":1,"port":256}', b'{"get":"PortInfo","lid":1,"method":2}',
        b'\xff\xfe', b'{"get":"PortInfo","lid":true}',
    ],
)  # fmt: skip
def test_bad_lines_are_refused_with_a_reason(line: bytes) -> None:
    with pytest.raises(ValueError) as error:
        decode_request(line)
    assert str(error.value)
    assert refuse(line, "why").reply == "refused"


def test_a_refusal_carries_the_number() -> None:
    assert refuse(b'{"id":9,"get":"Foo","lid":1}', "no").id == 9


@given(st.binary(max_size=80))
def test_any_bytes(line: bytes) -> None:
    try:
        decode_request(line)
    except ValueError:
        refuse(line, "no")


def test_names_cover_every_attribute_once() -> None:
    assert len(set(ALLOWED)) == len(ALLOWED) == 8 + len(Pma)

"""AgentX packets and the table behind them."""

from __future__ import annotations

import struct

from hypothesis import given
from hypothesis import strategies as st

from fabricd.twin.snmp.agentx import Reader, Type, encode_octets, encode_oid, encode_value
from fabricd.twin.snmp.objects import DCBX_ADMIN, SwitchObjects
from fabricd.twin.snmp.subagent import SubAgent
from fabricd.twin.snmp.table import Table
from tests.unit.twin.static_fabric import StaticFabric, leaf_spine

oids = st.lists(st.integers(0, 2**32 - 1), max_size=30).map(tuple) | st.lists(
    st.integers(0, 2**32 - 1), max_size=20
).map(lambda tail: (1, 3, 6, 1, *tail))


@given(oids, st.booleans())
def test_object_identifiers_survive(oid: tuple[int, ...], include: bool) -> None:
    assert Reader(encode_oid(oid, include)).oid() == (oid, include)


def test_the_internet_prefix_is_one_byte() -> None:
    assert encode_oid((1, 3, 6, 1, 4, 1, 9)) == bytes((2, 4, 0, 0)) + struct.pack(">2I", 1, 9)


@given(st.binary(max_size=40))
def test_octets_are_padded_to_words(data: bytes) -> None:
    encoded = encode_octets(data)
    assert len(encoded) % 4 == 0 and Reader(encoded).octets() == data


@given(st.integers(-(2**31), 2**31 - 1), st.integers(0, 2**64 - 1))
def test_numbers_have_their_widths(integer: int, counter: int) -> None:
    assert struct.unpack(">i", encode_value(Type.INTEGER, integer)) == (integer,)
    assert struct.unpack(">Q", encode_value(Type.COUNTER64, counter)) == (counter,)
    assert struct.unpack(">I", encode_value(Type.COUNTER32, counter)) == (counter % 2**32,)


names = st.lists(st.integers(0, 5), min_size=1, max_size=4).map(tuple)


@given(st.sets(names, min_size=1, max_size=20), st.lists(st.integers(0, 5), max_size=4).map(tuple), st.booleans())
def test_next_is_the_lexical_successor(present: set[tuple[int, ...]], start: tuple[int, ...], include: bool) -> None:
    table = Table()
    for oid in present:
        table.constant(oid, Type.INTEGER, 1)
    table.freeze()
    after = sorted(oid for oid in present if oid > start or (include and oid == start))
    found = table.next(start, include, ())
    assert (found.oid if found else None) == (after[0] if after else None)


def roce() -> tuple[StaticFabric, SwitchObjects]:
    fabric = StaticFabric(leaf_spine(technology="ethernet", lanes=5))
    return fabric, SwitchObjects(fabric, fabric.plan.switches[0])


def binding(oid: tuple[int, ...], kind: Type, value: int) -> bytes:
    return struct.pack(">Hxx", kind) + encode_oid(oid) + encode_value(kind, value)


def test_a_set_is_tested_committed_and_undone_as_a_whole() -> None:
    fabric, objects = roce()
    agent = SubAgent("leaf-00", objects.table, objects.subtrees, fabric.read)
    shares = (*DCBX_ADMIN, 1, 3, 1, 2, 1)
    row = fabric.plan.row(fabric.plan.switches[0], 1)
    alone = binding((*shares, 3), Type.GAUGE32, 70)
    assert agent._answer(8, 0, 1, alone)[:2] == (12, 1)
    both = binding((*shares, 3), Type.GAUGE32, 40) + binding((*shares, 0), Type.GAUGE32, 10)
    assert agent._answer(8, 0, 2, both)[:2] == (0, 0)
    assert fabric.pulled("set_shares") == []
    assert agent._answer(9, 0, 2, b"")[:2] == (0, 0)
    assert fabric.shares(row) == (10, 25, 25, 40, 0, 0, 0, 0)
    agent._answer(10, 0, 2, b"")
    assert fabric.shares(row) == (25, 25, 25, 25, 0, 0, 0, 0)


def test_a_truncated_packet_is_an_error_and_no_more() -> None:
    fabric, objects = roce()
    agent = SubAgent("leaf-00", objects.table, objects.subtrees, fabric.read)
    assert agent._answer(5, 0, 1, b"\x07\x00\x00\x00\x00") == (5, 0, b"")


def test_infiniband_switches_have_interfaces_only() -> None:
    fabric = StaticFabric(leaf_spine())
    objects = SwitchObjects(fabric, fabric.plan.switches[0])
    assert len(objects.subtrees) == 2
    assert objects.table.get((*DCBX_ADMIN, 3, 2, 1, 2, 1, 3)) is None

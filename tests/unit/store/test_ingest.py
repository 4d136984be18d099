"""Ingest: hostile bytes, identity, schema changes, boots and rivals."""

from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fabricd.model import topics
from fabricd.model.frame import Column
from fabricd.model.ident import PortKey
from fabricd.store.clock import WINDOW_NS, SkewEstimate
from fabricd.store.ingest import Ingest
from fabricd.store.store import Store
from tests.unit.store.frames import FABRIC, SECOND, announcement, frame, message, schema

WALL = 1_700_000_000 * SECOND


def fresh() -> Ingest:
    return Ingest(Store(FABRIC), FABRIC)


@given(st.sampled_from(["frames", "backlog", "schema", "status"]), st.binary(max_size=300))
def test_hostile_payloads_are_counted_and_cost_nothing_else(kind: str, payload: bytes) -> None:
    ingest = fresh()
    s = schema()
    topic = f"fabricd/{FABRIC}/{kind}/evil" + ("/0" if kind == "schema" else "")
    good = message(s, frame(s, 0, [7]))
    assert ingest.batch([announcement(s), (topic.encode(), memoryview(payload), False, 5), good]) == [5]
    assert ingest.store.read("c").value.tolist() == [7]
    if kind != "status":
        assert ingest.rejects.total == 1


@pytest.mark.parametrize("kind", ["schema", "status"])
def test_a_thousand_brackets_are_one_rejection(kind: str) -> None:
    ingest = fresh()
    topic = f"fabricd/{FABRIC}/{kind}/evil" + ("/0" if kind == "schema" else "")
    ingest.batch([(topic.encode(), memoryview(b'{"more":' + b"[" * 200_000), False, 5)])
    assert ingest.rejects.total == 1


@given(st.data())
def test_any_damage_to_a_frame_is_noticed(data: st.DataObject) -> None:
    ingest = fresh()
    s = schema(rows=2)
    raw = bytearray(frame(s, 0, [1, 2]))
    bit = data.draw(st.integers(0, len(raw) * 8 - 1))
    raw[bit // 8] ^= 1 << bit % 8
    ingest.batch([announcement(s), message(s, bytes(raw))])
    assert ingest.rejects.total == 1
    assert len(ingest.store.read("c").port) == 0


def test_foreign_topics_and_fabrics_are_refused() -> None:
    ingest = fresh()
    s = schema()
    ingest.batch([(b"fabricd/other/frames/n", memoryview(frame(s, 0, [1])), False, 0)])
    ingest.batch([(b"\xff\xfe", memoryview(b""), False, 0)])
    assert ingest.rejects.counts == {"topic": 2}
    # A frame that names another node than its topic: two agents mixed up, or somebody playing.
    ingest.batch([(topics.frames(FABRIC, "m").encode(), memoryview(frame(s, 0, [1])), False, 0)])
    assert ingest.rejects.counts["frame_topic"] == 1
    assert not ingest.store.nodes.get("n")


def test_a_frame_that_does_not_fit_its_schema_is_refused() -> None:
    ingest = fresh()
    one, two = schema(rows=1), schema(rows=2)
    ingest.batch([announcement(one)])
    forged = bytearray(frame(two, 0, [1, 2]))
    forged[8:16] = one.id.to_bytes(8, "little")
    import zlib

    forged[60:64] = bytes(4)
    forged[60:64] = zlib.crc32(forged).to_bytes(4, "little")
    ingest.batch([message(one, bytes(forged))])
    assert ingest.rejects.counts == {"frame_schema": 1}


def test_a_frame_before_its_schema_is_shown_once_it_comes() -> None:
    ingest = fresh()
    s = schema()
    ingest.batch([message(s, frame(s, 0, [41]))])
    assert ingest.counts["schema_missing"] == 1
    ingest.batch([announcement(s)])
    assert ingest.store.read("c").value.tolist() == [41]


def test_a_renamed_device_keeps_its_row() -> None:
    ingest = fresh()
    before = schema(rows=2, device="mlx5_")
    ingest.batch([announcement(before), message(before, frame(before, 0, [10, 20]))])
    number = ingest.store.ports.find(PortKey(FABRIC, 0, 101, 1))
    after = schema(rows=2, device="ibp")
    assert after.id != before.id
    ingest.batch([announcement(after), message(after, frame(after, 1, [15, 27]))])
    assert ingest.store.ports.find(PortKey(FABRIC, 0, 101, 1)) == number
    assert number is not None
    assert ingest.store.ports.labels[number].device == "ibp1"
    assert ingest.store.read("c").delta.tolist() == [5, 7], "its movement goes on"


def test_devices_and_columns_come_and_go() -> None:
    ingest = fresh()
    small = schema(rows=2)
    ingest.batch([announcement(small), message(small, frame(small, 0, [10, 20]))])
    large = schema([Column(name="c"), Column(name="d")], rows=3)
    ingest.batch([announcement(large), message(large, frame(large, 1, [11, 1, 22, 1, 33, 1]))])
    reading = ingest.store.read("c")
    assert reading.value.tolist() == [11, 22, 33]
    assert reading.delta.tolist() == [1, 2, 0]
    assert reading.span.tolist() == [SECOND, SECOND, 0]
    less = schema([Column(name="c"), Column(name="d")], rows=1, guid=101)
    ingest.batch([announcement(less), message(less, frame(less, 2, [25, 1]))])
    assert ingest.store.read("c").delta.tolist() == [3]


def test_tables_grow_and_reuse_what_left() -> None:
    ingest = fresh()
    for n in range(300):
        s = schema(rows=3, node=f"n{n}", guid=1000 * (n + 1))
        ingest.batch([announcement(s), *(message(s, frame(s, seq, [seq * n] * 3)) for seq in range(2))])
    reading = ingest.store.read("c")
    assert sorted(reading.delta.tolist()) == sorted(n for n in range(300) for _ in range(3))
    (table,) = ingest.store.tables.values()
    rows = table.rows
    for n in range(0, 300, 2):
        ingest.store.remove_node(f"n{n}")
    assert len(ingest.store.read("c").port) == 450
    for n in range(0, 300, 2):
        s = schema(rows=3, node=f"n{n}", guid=1000 * (n + 1))
        ingest.batch([message(s, frame(s, 5, [7] * 3))])
    assert table.rows == rows
    assert len(ingest.store.ports) == 900
    assert len(ingest.store.read("c").port) == 900


@given(st.randoms(use_true_random=False), st.integers(2, 40))
def test_any_order_stores_every_frame_once_and_shows_the_newest(rng: random.Random, count: int) -> None:
    ingest = fresh()
    s = schema()
    deliveries = [seq for seq in range(count) for _ in range(rng.choice([1, 1, 2]))]
    rng.shuffle(deliveries)
    ingest.batch([announcement(s)])
    for seq in deliveries:
        ingest.batch([message(s, frame(s, seq, [seq * 100]), rng.choice(["frames", "backlog"]))])
    node = ingest.store.nodes["n"]
    assert node.ledger.report(FABRIC, "n").boots[0].stored == [(0, count - 1)]
    assert node.counts["duplicate"] == len(deliveries) - count
    reading = ingest.store.read("c")
    assert reading.value.tolist() == [(count - 1) * 100]
    if reading.span[0]:
        assert reading.delta[0] * SECOND == reading.span[0] * 100


def test_the_backlog_of_an_old_boot_is_stored_but_not_shown() -> None:
    ingest = fresh()
    old, new = schema(boot=1), schema(boot=2)
    ingest.batch([announcement(old), message(old, frame(old, 0, [5]))])
    ingest.batch([announcement(new), message(new, frame(new, 0, [1000], wall=WALL + 60 * SECOND))])
    ingest.batch([message(old, frame(old, 1, [6]), "backlog")])
    node = ingest.store.nodes["n"]
    assert ingest.store.read("c").value.tolist() == [1000]
    assert [b.boot for b in node.ledger.report(FABRIC, "n").boots] == [1, 2]
    assert not node.contested


def test_a_boot_whose_clock_went_back_is_still_the_newest() -> None:
    ingest = fresh()
    old, new = schema(boot=1), schema(boot=2)
    ingest.batch([announcement(old), message(old, frame(old, 0, [5]))])
    ingest.batch([announcement(new), message(new, frame(new, 0, [1], wall=SECOND))])
    assert ingest.store.read("c").value.tolist() == [1]


def test_two_publishers_with_one_id_are_noticed() -> None:
    ingest = fresh()
    one, two = schema(boot=1), schema(boot=2)
    for i in range(20):
        wall = WALL + i * SECOND
        ingest.batch([message(one, frame(one, i, [i], wall=wall)), message(two, frame(two, i, [i], wall=wall))])
    assert ingest.store.nodes["n"].contested


def test_a_duplicate_guid_is_noticed_and_ends_with_the_other_node() -> None:
    ingest = fresh()
    a, b = schema(node="a"), schema(node="b")
    ingest.batch([announcement(a), message(a, frame(a, 0, [1])), announcement(b), message(b, frame(b, 0, [1]))])
    assert ingest.store.ports.contested() == {PortKey(FABRIC, 0, 100, 1): ["a", "b"]}
    dead = b'{"state":"dead","boot":1}'
    ingest.batch([(topics.status(FABRIC, "a").encode(), memoryview(dead), False, 0)])
    assert ingest.store.ports.contested() == {}


def test_two_sweeps_of_one_switch_are_redundancy() -> None:
    ingest = fresh()
    for node in ("sweep-a", "sweep-b"):
        s = schema(node=node, kind="switch")
        ingest.batch([announcement(s), message(s, frame(s, 0, [1]))])
    assert ingest.store.ports.contested() == {}
    assert len(ingest.store.read("c").port) == 2


def test_a_late_will_of_an_old_run_does_not_kill_its_successor() -> None:
    ingest = fresh()
    s = schema(boot=2)
    ingest.batch([announcement(s), message(s, frame(s, 0, [1]))])
    topic = topics.status(FABRIC, "n").encode()
    ingest.batch([(topic, memoryview(b'{"state":"alive","boot":2}'), True, 0)])
    ingest.batch([(topic, memoryview(b'{"state":"dead","boot":1}'), False, 0)])
    assert ingest.store.nodes["n"].status["state"] == "alive"
    ingest.batch([(topic, memoryview(b'{"state":"dead","boot":2}'), False, 0)])
    assert ingest.store.nodes["n"].status["state"] == "dead"


@given(st.integers(-(10**12), 10**12), st.lists(st.integers(0, 10**8), min_size=1, max_size=50))
def test_skew_is_the_true_one_plus_the_shortest_transit(skew: int, transits: list[int]) -> None:
    estimate = SkewEstimate()
    for i, transit in enumerate(transits):
        sent = WALL + i * SECOND
        estimate.add(sent + skew + transit, sent)
    assert estimate.ns == skew + min(transits)


def test_a_clock_that_was_set_is_followed() -> None:
    estimate = SkewEstimate()
    assert estimate.ns is None
    now = WALL
    for _ in range(5):
        estimate.add(now, now)
        now += SECOND
    for _ in range(2 * WINDOW_NS // SECOND + 10):
        estimate.add(now, now - 3 * SECOND)
        now += SECOND
    assert estimate.ns == 3 * SECOND

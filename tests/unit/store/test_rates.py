"""Rates by the rules of the data: wraps by width, resets, saturation, epochs, gaps, staleness. Each against plain integers."""

from __future__ import annotations

import math

from hypothesis import given
from hypothesis import strategies as st

from fabricd.model.frame import Column, Schema
from fabricd.model.sample import Flag
from fabricd.store.ingest import Ingest
from fabricd.store.rates import MAX_WRAP_SPAN_NS
from fabricd.store.store import Reading, Store
from tests.unit.store.frames import FABRIC, SECOND, announcement, frame, message, schema

V = Flag.VALID


class Feed:
    """One stream into a store."""

    def __init__(self, s: Schema) -> None:
        self.store = Store(FABRIC)
        self.ingest = Ingest(self.store, FABRIC)
        self.schema = s
        self.seq = 0
        self.ingest.batch([announcement(s)])

    def __call__(self, values: list[int], flags: list[int] | None = None, mono: int | None = None) -> Reading:
        self.ingest.batch([message(self.schema, frame(self.schema, self.seq, values, flags, mono))])
        self.seq += 1
        return self.store.read(self.schema.columns[0].name)

    @property
    def resets(self) -> int:
        return sum(s.resets for n in self.store.nodes.values() for s in n.streams.values())


def one(column: Column) -> Feed:
    return Feed(schema([column]))


def test_the_first_reading_has_no_rate() -> None:
    reading = one(Column(name="c"))([5])
    assert reading.value.tolist() == [5]
    assert math.isnan(reading.rate[0])
    assert reading.span.tolist() == [0]


@given(st.lists(st.tuples(st.integers(0, 2**63), st.integers(1, 10**6)), min_size=1, max_size=10))
def test_growth_is_exact(steps: list[tuple[int, int]]) -> None:
    feed = one(Column(name="c"))
    value, mono = 0, SECOND
    feed([value], mono=mono)
    for delta, pause in steps:
        if value + delta >= 2**64:
            break
        value, mono = value + delta, mono + pause
        reading = feed([value], mono=mono)
        assert int(reading.delta[0]) == delta
        assert reading.span.tolist() == [pause]
        assert math.isclose(reading.rate[0], delta * 1e9 / pause, rel_tol=1e-12)
    assert feed.resets == 0


@given(st.sampled_from([8, 16, 32]), st.integers(0, 2**32 - 1), st.integers(1, 2**32 - 1))
def test_a_known_width_wraps(width: int, start: int, growth: int) -> None:
    size = 1 << width
    start, growth = start % size, growth % size
    feed = one(Column(name="c", width=width))
    feed([start])
    reading = feed([(start + growth) % size])
    assert int(reading.delta[0]) == growth
    assert bool(reading.flags[0] & Flag.WRAPPED) == (start + growth >= size)
    assert feed.resets == 0


def test_a_wrap_after_a_long_gap_is_not_guessed() -> None:
    feed = one(Column(name="c", width=32))
    feed([100], mono=SECOND)
    reading = feed([50], mono=2 * SECOND + MAX_WRAP_SPAN_NS)
    assert math.isnan(reading.rate[0])
    assert reading.flags[0] & Flag.WRAPPED


def test_a_wrap_of_scaled_words_uses_the_scaled_width() -> None:
    """sysfs words become bytes at the agent: a 32-bit counter of words that wraps does so at 2**34 bytes."""
    column = Column(name="port_receive_data_bytes", width=32, raw="port_rcv_data", source="counters", unit="bytes")
    feed = one(column)
    feed([2**34 - 400])
    assert feed([400]).delta.tolist() == [800]


@given(st.integers(1, 2**64 - 1), st.data())
def test_a_decrease_of_a_wide_or_sticky_counter_is_a_reset(high: int, data: st.DataObject) -> None:
    low = data.draw(st.integers(0, high - 1))
    for column in (Column(name="c", width=64), Column(name="c", width=64, sticky=True)):
        feed = one(column)
        feed([high])
        reading = feed([low])
        assert reading.flags[0] & Flag.RESET
        assert math.isnan(reading.rate[0])
        assert reading.value.tolist() == [low]
        assert feed.resets == 1
        after = feed([low + 1]) if low + 1 < 2**64 else feed([low])
        assert not after.flags[0] & Flag.RESET
        assert after.span.tolist() == [SECOND]


def test_saturation_has_no_rate_and_clearing_it_is_a_reset() -> None:
    feed = one(Column(name="c", width=16, sticky=True))
    feed([65000])
    full = feed([65535], [V | Flag.SATURATED])
    assert math.isnan(full.rate[0])
    assert full.flags[0] & Flag.SATURATED
    still = feed([65535], [V | Flag.SATURATED])
    assert math.isnan(still.rate[0])
    cleared = feed([3])
    assert math.isnan(cleared.rate[0])
    assert cleared.flags[0] & Flag.RESET
    assert feed([10]).delta.tolist() == [7]


def test_missing_is_not_zero_and_the_next_reading_spans_the_gap() -> None:
    feed = one(Column(name="c"))
    feed([100])
    gone = feed([0], [0])
    assert not gone.flags[0] & V
    assert math.isnan(gone.rate[0])
    back = feed([300])
    assert back.delta.tolist() == [200]
    assert back.span.tolist() == [2 * SECOND]
    assert feed.resets == 0


def test_a_stale_reading_waits_for_a_fresh_one() -> None:
    feed = one(Column(name="c"))
    feed([100])
    assert math.isnan(feed([100], [V | Flag.STALE]).rate[0])
    fresh = feed([150])
    assert (int(fresh.delta[0]), int(fresh.span[0])) == (50, 2 * SECOND)


def test_not_observable_stays_so() -> None:
    feed = one(Column(name="c"))
    for _ in range(3):
        reading = feed([0], [Flag.NOT_OBSERVABLE])
        assert reading.flags.tolist() == [Flag.NOT_OBSERVABLE]
        assert math.isnan(reading.rate[0])


def test_no_rate_across_an_epoch_and_no_reset() -> None:
    columns = [Column(name="c"), Column(name="e", kind="epoch")]
    feed = Feed(schema(columns, rows=2))
    feed([1000, 1, 2000, 1])
    reading = feed([5, 2, 2500, 1])
    assert math.isnan(reading.rate[0])
    assert not reading.flags[0] & Flag.RESET
    assert reading.delta[1] == 500
    assert feed.resets == 0
    reading = feed([25, 2, 2600, 1])
    assert reading.delta.tolist() == [20, 100]
    # Growth across an epoch is no rate either.
    assert math.isnan(feed([1_000_000, 3, 2700, 1]).rate[0])


def test_gauges_may_fall() -> None:
    columns = [Column(name="g", kind="gauge"), Column(name="c")]
    feed = Feed(schema(columns))
    feed([9, 1])
    reading = feed([3, 2])
    assert reading.value.tolist() == [3]
    assert not reading.flags[0] & (Flag.RESET | Flag.WRAPPED)
    assert feed.store.read("c").delta.tolist() == [1]
    assert feed.resets == 0


def test_rows_read_at_their_own_time() -> None:
    columns = [Column(name="c"), Column(name="t", kind="time", unit="ns")]
    feed = Feed(schema(columns, rows=2))
    feed([0, 0, 0, 0], mono=SECOND)
    reading = feed([100, 500_000_000, 100, 0], mono=2 * SECOND)
    assert reading.span.tolist() == [1_500_000_000, SECOND]


def test_a_lost_frame_makes_the_span_longer() -> None:
    feed = one(Column(name="c"))
    feed([0])
    feed.seq = 5
    reading = feed([500])
    assert (int(reading.delta[0]), int(reading.span[0])) == (500, 5 * SECOND)
    assert feed.store.nodes["n"].counts["gap"] == 1


def test_a_new_boot_is_no_reset() -> None:
    feed = one(Column(name="c"))
    feed([1000])
    feed([1001])
    feed.schema = schema(feed.schema.columns, boot=2)
    feed.seq = 0
    feed.ingest.batch([announcement(feed.schema)])
    reading = feed([3], mono=10 * SECOND)
    assert math.isnan(reading.rate[0])
    assert feed.resets == 0
    assert feed([4], mono=11 * SECOND).delta.tolist() == [1]


CELL = st.tuples(
    st.integers(0, 2**32 - 1), st.sampled_from([V, V, V, 0, V | Flag.STALE, V | Flag.SATURATED, Flag.NOT_OBSERVABLE])
)


@given(st.lists(st.tuples(CELL, CELL, CELL), min_size=1, max_size=12))
def test_against_a_plain_model(frames: list[tuple[tuple[int, int], ...]]) -> None:
    """Three counters (64-bit, wrapping 32, sticky 32) in one row, whatever flags come: same as one at a time in plain integers."""
    columns = [Column(name="a"), Column(name="b", width=32), Column(name="c", width=32, sticky=True)]
    feed = Feed(schema(columns))
    known: list[tuple[int, int, bool] | None] = [None, None, None]  # value, when, saturated
    for number, cells in enumerate(frames):
        mono = (number + 1) * SECOND
        feed([value for value, _ in cells], [flags for _, flags in cells])
        for i, (value, flags) in enumerate(cells):
            reading = feed.store.read(columns[i].name)
            expected = None
            before = known[i]
            fresh = bool(flags & V) and not flags & Flag.STALE
            if fresh and before is not None and not flags & Flag.SATURATED and not before[2]:
                delta = value - before[0]
                if delta < 0 and i == 1:
                    delta += 1 << 32
                if delta >= 0:
                    expected = (delta, mono - before[1])
            got = (int(reading.delta[0]), int(reading.span[0])) if reading.span[0] else None
            assert got == expected, (columns[i].name, number)
            assert bool(reading.flags[0] & V) == bool(flags & V)
            if fresh:
                known[i] = (value, mono, bool(flags & Flag.SATURATED))
            elif before is not None:
                # Between fresh readings only the flag of the newest frame is kept.
                known[i] = (value if flags & V else before[0], before[1], bool(flags & Flag.SATURATED))

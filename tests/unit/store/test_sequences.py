from hypothesis import given
from hypothesis import strategies as st

from fabricd.store.sequences import MAX_BOOTS, MAX_RANGES, Ledger, Ranges, StoredBoot

NUMBERS = st.lists(st.integers(0, 60), max_size=100)


@given(NUMBERS, NUMBERS)
def test_ranges_are_a_set(added: list[int], removed: list[int]) -> None:
    ranges, expected = Ranges(), set()
    for number in added:
        assert ranges.add(number) == (number not in expected)
        expected.add(number)
    for number in removed:
        ranges.remove(number)
        expected.discard(number)
    assert [n for n in range(61) if n in ranges] == sorted(expected)
    assert len(ranges) == len(expected)
    pairs = ranges.pairs()
    assert pairs == sorted(pairs)
    assert all(low <= high for low, high in pairs)
    assert Ranges(pairs).pairs() == pairs


@given(NUMBERS)
def test_neighbours_are_joined(added: list[int]) -> None:
    ranges = Ranges()
    for number in added:
        ranges.add(number)
    assert all(b[0] - a[1] > 1 for a, b in zip(ranges.pairs(), ranges.pairs()[1:], strict=False))


def test_too_many_gaps_give_up_the_oldest_and_say_so() -> None:
    ranges = Ranges()
    for number in range(0, 4 * MAX_RANGES, 2):
        ranges.add(number)
    assert len(ranges.pairs()) == MAX_RANGES
    assert ranges.given_up == MAX_RANGES
    assert 4 * MAX_RANGES - 2 in ranges


def test_a_ledger_knows_boots_apart_and_forgets_the_oldest() -> None:
    ledger = Ledger([StoredBoot(1, [(0, 5)])])
    assert not ledger.add(1, 3)
    assert ledger.add(2, 3)
    assert (2, 3) in ledger
    assert (2, 4) not in ledger
    for boot in range(10, 10 + MAX_BOOTS):
        ledger.add(boot, 0)
    assert len(ledger.boots) == MAX_BOOTS
    assert (1, 3) not in ledger
    assert ledger.report("f", "n").boots[-1] == StoredBoot(9 + MAX_BOOTS, [(0, 0)])


def test_merging_a_checkpoint_adds() -> None:
    ledger = Ledger([StoredBoot(1, [(0, 5)])])
    ledger.merge([StoredBoot(1, [(4, 9)]), StoredBoot(2, [(1, 1)])])
    assert ledger.report("f", "n").boots == [StoredBoot(1, [(0, 9)]), StoredBoot(2, [(1, 1)])]

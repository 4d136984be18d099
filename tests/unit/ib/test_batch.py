"""The sweep's hot loop under faults: every live port answered once, nothing attributed to another, an end in bounded time."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fabricd.ib.batch import Batch, BatchResult
from fabricd.ib.health import Health
from fabricd.ib.limits import Limits, TidSpace
from fabricd.ib.mad import CLASS_PMA, Pma, Reply, pma_get
from fabricd.ib.transport import DeviceGone, NotAGet, gmp_address
from tests.unit.ib.fake_fabric import LOST, RTT, FakeFabric, Fate, mark, marked

ATTRIBUTE = int(Pma.PORT_COUNTERS_EXTENDED)


def batch_of(fabric: FakeFabric, switches: int, ports: int, limits: Limits | None = None) -> Batch:
    groups = [
        (lid, gmp_address(lid, CLASS_PMA), [pma_get(ATTRIBUTE, port) for port in range(1, ports + 1)])
        for lid in range(1, switches + 1)
    ]
    return Batch(fabric, groups, limits or Limits())


def run(batch: Batch, fabric: FakeFabric, health: Health | None = None, **options: object) -> BatchResult:
    return batch.run(health or Health(), TidSpace(fabric.clock), clock=fabric.clock, **options)  # type: ignore[arg-type]


def check_marks(result: BatchResult, switches: int, ports: int) -> None:
    """Every answered row holds its own switch and port."""
    value = result.mads[:, 72:80].copy().view(">u8")[:, 0]
    wanted = np.array([mark(s, ATTRIBUTE, p) for s in range(1, switches + 1) for p in range(1, ports + 1)], np.uint64)
    good = result.reply == Reply.OK
    assert (value[good] == wanted[good]).all()
    assert (value[~good] == 0).all()


@pytest.mark.parametrize("reports", [True, False])
def test_all_answered_within_the_windows(reports: bool) -> None:
    fabric = FakeFabric(marked, reports=reports, per_destination=2, total=16)
    result = run(batch_of(fabric, 20, 8, Limits(per_destination=2, total=16)), fabric)
    assert (result.reply == Reply.OK).all() and not any(result.counts.values())
    check_marks(result, 20, 8)
    assert (np.diff(np.sort(result.when)) >= 0).all() and (result.when > 0).all()


@pytest.mark.parametrize("reports", [True, False])
def test_a_lost_request_is_repeated_once(reports: bool) -> None:
    fabric = FakeFabric(
        marked, lambda lid, a, port, again: LOST if port == 3 and not again else Fate(), reports=reports
    )
    health = Health()
    result = run(batch_of(fabric, 5, 6), fabric, health)
    assert (result.reply == Reply.OK).all()
    assert result.counts["retried"] == 5 and not health.silent
    check_marks(result, 5, 6)


@pytest.mark.parametrize("reports", [True, False])
def test_a_dead_switch_costs_two_time_outs_then_one_probe(reports: bool) -> None:
    fabric = FakeFabric(lambda lid, mad: None if lid == 2 else marked(lid, mad), reports=reports)
    batch, health, tids = batch_of(fabric, 4, 36), Health(), TidSpace(fabric.clock)
    began = fabric.clock.now
    result = batch.run(health, tids, clock=fabric.clock)
    assert fabric.clock.now - began < 0.7
    by_switch = result.reply.reshape(4, 36)
    assert (by_switch[[0, 2, 3]] == Reply.OK).all()
    assert set(by_switch[1].tolist()) == {Reply.TIMEOUT, Reply.SKIPPED}
    assert list(health.silent) == [2]
    fabric.sent.clear()
    again = batch.run(health, tids, clock=fabric.clock)
    assert sum(lid == 2 for _, lid, _, _ in fabric.sent) == 1
    assert (again.reply.reshape(4, 36)[[0, 2, 3]] == Reply.OK).all() and health.silent == {2: 2}
    fabric.agent = marked
    healed = batch.run(health, tids, clock=fabric.clock)
    assert (healed.reply == Reply.OK).all() and not health.silent
    check_marks(healed, 4, 36)


def test_a_switch_that_dies_in_the_middle_keeps_what_it_answered() -> None:
    fabric = FakeFabric(marked)
    died = fabric.clock.now + 5 * RTT
    fabric.agent = lambda lid, mad: None if lid == 1 and fabric.clock.now >= died else marked(lid, mad)
    result = run(batch_of(fabric, 3, 36), fabric)
    first = result.reply[:36]
    assert 0 < (first == Reply.OK).sum() < 36
    assert (result.reply[36:] == Reply.OK).all()
    check_marks(result, 3, 36)


def test_late_and_doubled_answers_are_dropped() -> None:
    def plan(lid: int, attribute: int, port: int, again: int) -> Fate:
        if port == 1 and not again:
            return Fate((0.25,))  # after the time-out of 0.2 s
        return Fate((RTT, 2 * RTT)) if port == 2 else Fate()

    fabric = FakeFabric(marked, plan, reports=False, per_destination=4)
    batch, tids = batch_of(fabric, 3, 4), TidSpace(fabric.clock)
    result = batch.run(Health(), tids, clock=fabric.clock)
    assert (result.reply == Reply.OK).all()
    check_marks(result, 3, 4)
    fabric.clock.now += 0.3  # what was late arrives in the next sweep
    second = batch.run(Health(), tids, clock=fabric.clock)
    assert (second.reply == Reply.OK).all() and result.counts["late"] + second.counts["late"] >= 6
    check_marks(second, 3, 4)


def test_a_transport_that_would_block_loses_nothing() -> None:
    fabric = FakeFabric(marked, reports=False, block_every=3)
    result = run(batch_of(fabric, 9, 7), fabric)
    assert (result.reply == Reply.OK).all()
    check_marks(result, 9, 7)


def test_statuses_are_told_apart() -> None:
    statuses = {1: 0, 2: 1, 3: 2, 4: 0x0C, 5: 0x1C, 6: 0x100}
    fabric = FakeFabric(marked, lambda lid, a, port, again: Fate(status=statuses[port]))
    result = run(batch_of(fabric, 1, 6), fabric)
    assert result.reply.tolist() == [
        Reply.OK, Reply.BUSY, Reply.REDIRECT, Reply.UNSUPPORTED, Reply.INVALID, Reply.OTHER,
    ]  # fmt: skip


def test_silent_destinations_take_turns_when_there_are_very_many() -> None:
    fabric = FakeFabric(lambda lid, mad: None if lid > 10 else marked(lid, mad))
    limits = Limits(total=16)
    batch, health, tids = batch_of(fabric, 60, 2, limits), Health(), TidSpace(fabric.clock)
    batch.run(health, tids, clock=fabric.clock)
    assert len(health.silent) == 50
    probed: set[int] = set()
    for _ in range(8):
        fabric.sent.clear()
        began = fabric.clock.now
        result = batch.run(health, tids, clock=fabric.clock)
        assert fabric.clock.now - began < 0.5
        assert (result.reply.reshape(60, 2)[:10] == Reply.OK).all()
        probed |= {lid for _, lid, _, _ in fabric.sent if lid > 10}
    assert len(probed) == 50


def test_the_deadline_ends_a_pass_whatever_happens() -> None:
    fabric = FakeFabric(marked, lambda lid, a, port, again: LOST if not again else Fate(), reports=False)
    batch = batch_of(fabric, 2, 30)
    began = fabric.clock.now
    result = batch.run(Health(), TidSpace(fabric.clock), deadline_s=1.0, clock=fabric.clock)
    assert fabric.clock.now - began < 1.1 and result.counts["deadline"] == 1
    assert set(result.reply.tolist()) <= {Reply.OK, Reply.TIMEOUT, Reply.SKIPPED}


def test_a_device_that_goes_away_is_reported() -> None:
    fabric = FakeFabric(marked)

    def vanish(lid: int, mad: bytes) -> bytes:
        fabric.gone = lid == 2 or fabric.gone
        return marked(lid, mad)

    fabric.agent = vanish
    with pytest.raises(DeviceGone):
        run(batch_of(fabric, 3, 3), fabric)


def test_anything_but_a_get_is_refused() -> None:
    fabric = FakeFabric(marked)
    batch = batch_of(fabric, 1, 2)
    batch.frames[1, fabric.mad_at + 3] = 0x02  # Set: it would clear the counters
    with pytest.raises(NotAGet):
        run(batch, fabric)
    assert all(port != 2 for _, _, _, port in fabric.sent)


def test_an_answer_about_something_else_is_no_answer() -> None:
    fabric = FakeFabric(marked)
    batch = batch_of(fabric, 1, 3)
    original = fabric._push

    def twist(when: float, tid: int, frame: bytes) -> None:
        if len(frame) == fabric.size and frame[fabric.mad_at + 65] == 2:
            frame = frame[: fabric.mad_at + 17] + b"\x12" + frame[fabric.mad_at + 18 :]
        original(when, tid, frame)

    fabric._push = twist  # type: ignore[method-assign]
    result = run(batch, fabric)
    assert result.reply.tolist() == [Reply.OK, Reply.OTHER, Reply.OK] and result.counts["strange"] == 1


def test_subset_keeps_owners_and_requests() -> None:
    fabric = FakeFabric(marked)
    batch = batch_of(fabric, 3, 4)
    part = batch.subset([1, 2, 9])
    assert part.keys == [1, 3] and [part.asked(row) for row in range(3)] == [
        (ATTRIBUTE, 2),
        (ATTRIBUTE, 3),
        (ATTRIBUTE, 2),
    ]
    result = run(part, fabric)
    assert (result.reply == Reply.OK).all()


fates = st.sampled_from(["ok"] * 6 + ["lost", "late", "double", "late_double", "slow"])


@settings(max_examples=150, deadline=None)
@given(data=st.data(), reports=st.booleans(), depth=st.integers(1, 4), total=st.integers(1, 24))
def test_under_random_faults(data: st.DataObject, reports: bool, depth: int, total: int) -> None:
    switches, ports = data.draw(st.integers(1, 6)), data.draw(st.integers(1, 12))
    first = {(s, p): data.draw(fates, label=f"{s}/{p}") for s in range(1, switches + 1) for p in range(1, ports + 1)}
    death = {
        s: data.draw(st.sampled_from([None, None, 0.0, 0.001, 0.3]), label=f"death {s}") for s in range(1, switches + 1)
    }
    kinds = {
        "ok": Fate(), "lost": LOST, "late": Fate((0.23,)), "double": Fate((RTT, 3 * RTT)),
        "late_double": Fate((RTT, 0.21)), "slow": Fate((0.15,)),
    }  # fmt: skip
    fabric = FakeFabric(
        marked,
        lambda lid, a, port, again: kinds[first[lid, port]] if again == 0 else Fate(),
        reports=reports,
        per_destination=depth,
        total=total,
        block_every=0 if reports else data.draw(st.sampled_from([0, 2, 5])),
    )
    began = fabric.clock.now

    def agent(lid: int, mad: bytes) -> bytes | None:
        dies = death[lid]
        return None if dies is not None and fabric.clock.now - began >= dies else marked(lid, mad)

    fabric.agent = agent
    limits = Limits(per_destination=depth, total=total)
    result = run(batch_of(fabric, switches, ports, limits), fabric, deadline_s=60.0)
    check_marks(result, switches, ports)
    by_switch = result.reply.reshape(switches, ports)
    for s in range(1, switches + 1):
        if death[s] is None:
            assert (by_switch[s - 1] == Reply.OK).all(), (s, by_switch[s - 1])
        else:
            assert set(by_switch[s - 1].tolist()) <= {Reply.OK, Reply.TIMEOUT, Reply.SKIPPED}
    asked = max(fabric.asked.values(), default=0)
    assert asked <= 2
    # One time-out (with grace) for each lost first try and two for each dead switch, were nothing to overlap.
    faults = sum(kind in ("lost", "late", "slow") for kind in first.values()) + 2 * switches
    assert fabric.clock.now - began <= 0.35 * (faults + 2)


@pytest.mark.parametrize("reports", [True, False])
def test_a_process_that_was_kept_from_running_takes_nobody_for_dead(reports: bool) -> None:
    """We did not run for a second; the answers came in time and wait to be read."""
    fabric = FakeFabric(marked, reports=reports)
    asked = 0

    def sleepy(lid: int, mad: bytes) -> bytes:
        nonlocal asked
        asked += 1
        return marked(lid, mad)

    fabric.agent = sleepy
    original = fabric._poll
    slept = False

    def poll(timeout_ms: float) -> bool:
        nonlocal slept
        ready = original(timeout_ms)
        if ready and asked > 20 and not slept:
            slept = True
            # What was answered before stays answered: the kernel ends a transaction when its answer comes, not when it is read.
            fabric.events = [e for e in fabric.events if len(e[3]) == fabric.size]
            fabric.outstanding = {tid: (lid, until + 9) for tid, (lid, until) in fabric.outstanding.items()}
            fabric.clock.now += 1.0
        return ready

    fabric._poll = poll  # type: ignore[method-assign]
    result = run(batch_of(fabric, 20, 8), fabric)
    assert (result.reply == Reply.OK).all()
    assert result.counts["expired"] == 0 and result.counts["retried"] == 0 and asked == 160
    check_marks(result, 20, 8)

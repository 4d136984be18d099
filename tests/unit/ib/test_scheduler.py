"""Requests whose answers decide the next: windows, retries, silence, late answers."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fabricd.ib.limits import Limits
from fabricd.ib.mad import CLASS_PMA, Pma, Reply, pma_get
from fabricd.ib.scheduler import Answer, Request, Scheduler
from fabricd.ib.transport import DeviceGone, NotAGet, gmp_address
from tests.unit.ib.fake_fabric import LOST, RTT, FakeFabric, Fate, mark, marked

ATTRIBUTE = int(Pma.PORT_COUNTERS)


def request(lid: int, port: int) -> Request:
    return Request(pma_get(ATTRIBUTE, port), gmp_address(lid, CLASS_PMA), lid)


def scheduler(fabric: FakeFabric, limits: Limits | None = None, **options: bool) -> Scheduler:
    return Scheduler(fabric, limits, clock=fabric.clock, **options)


def value(answer: Answer) -> int:
    return int.from_bytes(answer.data[8:16], "big")


def test_an_answer_may_ask_the_next_question() -> None:
    fabric = FakeFabric(marked)
    asking = scheduler(fabric)
    seen: list[int] = []

    def follow(answer: Answer) -> None:
        seen.append(value(answer))
        if len(seen) < 5:
            asking.submit(request(1, len(seen) + 1), follow)

    asking.submit(request(1, 1), follow)
    asking.run()
    assert seen == [mark(1, ATTRIBUTE, port) for port in range(1, 6)]


@pytest.mark.parametrize("reports", [True, False])
def test_silence_is_a_time_out_and_the_rest_is_skipped(reports: bool) -> None:
    fabric = FakeFabric(lambda lid, mad: None if lid == 1 else marked(lid, mad), reports=reports)
    asking = scheduler(fabric)
    got: list[Reply] = []
    for port in range(1, 9):
        asking.submit(request(1, port), lambda answer: got.append(answer.reply))
    asking.run()
    assert got.count(Reply.TIMEOUT) == 2 and got.count(Reply.SKIPPED) == 6
    fabric.agent = marked
    asking.forgive()
    assert asking.get(request(1, 1)).ok


def test_a_patient_scheduler_asks_everything() -> None:
    fabric = FakeFabric(lambda lid, mad: marked(lid, mad) if mad[65] == 8 else None)
    asking = scheduler(fabric, patient=True)
    got: list[Reply] = []
    for port in range(1, 9):
        asking.submit(request(1, port), lambda answer: got.append(answer.reply))
    asking.run()
    assert got.count(Reply.TIMEOUT) == 7 and got.count(Reply.OK) == 1


def test_busy_is_asked_once_more_and_other_statuses_are_told() -> None:
    statuses = {1: 1, 2: 0x0C, 3: 0x1C}
    fabric = FakeFabric(
        marked, lambda lid, a, port, again: Fate(status=statuses[port] if port != 1 or not again else 0)
    )
    asking = scheduler(fabric)
    assert asking.get(request(1, 1)).reply is Reply.OK
    assert asking.get(request(1, 2)).reply is Reply.UNSUPPORTED
    assert asking.get(request(1, 3)).reply is Reply.INVALID


def test_sets_are_refused() -> None:
    fabric = FakeFabric(marked)
    mad = pma_get(ATTRIBUTE, 1)
    mad[3] = 0x02
    with pytest.raises(NotAGet):
        scheduler(fabric).get(Request(mad, gmp_address(1, CLASS_PMA), 1))
    assert not fabric.sent


def test_a_device_that_goes_away_is_reported() -> None:
    fabric = FakeFabric(marked)
    fabric.gone = True
    with pytest.raises(DeviceGone):
        scheduler(fabric).get(request(1, 1))


def test_a_deadline_answers_everything() -> None:
    fabric = FakeFabric(lambda lid, mad: None, reports=False)
    asking = scheduler(fabric, Limits(timeout_ms=60_000))
    got: list[Reply] = []
    for lid in range(1, 300):
        asking.submit(request(lid, 1), lambda answer: got.append(answer.reply))
    asking.run(deadline_s=0.5)
    assert len(got) == 299 and set(got) <= {Reply.TIMEOUT, Reply.SKIPPED}


@settings(max_examples=100, deadline=None)
@given(
    fates=st.lists(st.sampled_from(["ok", "ok", "lost", "late", "double", "dead"]), min_size=1, max_size=40),
    reports=st.booleans(),
    depth=st.integers(1, 4),
    total=st.integers(1, 20),
)
def test_every_request_is_answered_once_with_its_own(fates: list[str], reports: bool, depth: int, total: int) -> None:
    kinds = {"ok": Fate(), "lost": LOST, "late": Fate((0.3,)), "double": Fate((RTT, 0.1)), "dead": LOST}
    fabric = FakeFabric(
        marked,
        lambda lid, a, port, again: kinds[fates[port - 1]] if again == 0 or fates[port - 1] == "dead" else Fate(),
        reports=reports,
        per_destination=depth,
        total=total,
    )
    asking = scheduler(fabric, Limits(per_destination=depth, total=total), patient=True)
    answers: dict[int, list[Answer]] = {port: [] for port in range(1, len(fates) + 1)}
    for port, got in answers.items():
        asking.submit(request(port % 3 + 1, port), got.append)
    asking.run()
    for port, got in answers.items():
        assert len(got) == 1
        if got[0].ok:
            assert value(got[0]) == mark(port % 3 + 1, ATTRIBUTE, port)
        if fates[port - 1] in ("ok", "double"):
            assert got[0].ok
        if fates[port - 1] == "dead":
            assert got[0].reply is Reply.TIMEOUT

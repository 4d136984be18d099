"""Did it help: the promised share within the deadline, nobody else worse, and no evidence is never a success."""

import numpy as np
import pytest

from fabricd.control.state import average, from_json, from_window, to_json
from fabricd.control.verify import Baseline, Watch, take_baseline
from fabricd.detect.window import Window
from fabricd.errors import FabricdError
from tests.unit.control.fabrics import INTERVAL, Net

DEADLINE = 10


def scene(stall: float = 0.6) -> Net:
    net = Net()
    for ref in net.hosts[4:7]:
        net.stall[net.index[ref], 0] = stall
    return net


def baseline(net: Net) -> Baseline:
    states = [net.state((k + 1) * INTERVAL) for k in range(3)]
    return take_baseline(states, net.hosts[4:7], None, [net.peers[net.hosts[0]]], gain=0.8, promised_share=0.5)


def watched(before: Net, after: Net, intervals: int = DEADLINE) -> Watch:
    watch = Watch(baseline(before), 4 * INTERVAL)
    for k in range(5, 6 + intervals):
        watch.see(after.state(k * INTERVAL))
        if watch.judge(DEADLINE)[0] != "wait":
            break
    return watch


def test_a_stall_that_falls_is_help() -> None:
    outcome, detail = watched(scene(), scene(0.05)).judge(DEADLINE)
    assert outcome == "helped"
    assert detail == "the victims' stall fell from 60.0% to 5.0%"


def test_the_promise_counts_not_any_improvement() -> None:
    assert baseline(scene()).target == pytest.approx(0.36)
    assert watched(scene(), scene(0.3)).judge(DEADLINE)[0] == "helped"
    outcome, detail = watched(scene(), scene(0.4)).judge(DEADLINE)
    assert (outcome, "promised was 36.0%" in detail) == ("failed", True)


def test_an_innocent_that_waits_more_ends_it_at_once() -> None:
    after = scene(0.0)
    after.stall[after.index[after.hosts[1]], 0] = 0.3
    watch = Watch(baseline(scene()), 4 * INTERVAL)
    for k in range(5, 8):
        watch.see(after.state((k + 1) * INTERVAL))
    outcome, detail = watch.judge(DEADLINE)
    assert outcome == "failed"
    assert "waits 30% more" in detail


def test_those_who_waited_before_and_the_root_itself_are_excused() -> None:
    before, after = scene(), scene(0.0)
    for net in (before, after):
        net.stall[net.index[net.hosts[1]], 0] = 0.3
    after.stall[after.index[after.peers[after.hosts[0]]], 0] = 0.9
    assert watched(before, after).judge(DEADLINE)[0] == "helped"


def test_blind_intervals_are_no_success() -> None:
    after = scene(0.0)
    for ref in after.hosts[4:7]:
        after.stall[after.index[ref], 0] = np.nan
    outcome, detail = watched(scene(), after, 20).judge(DEADLINE)
    assert (outcome, "no evidence" in detail) == ("failed", True)


def test_where_nobody_waited_nothing_was_helped() -> None:
    outcome, detail = watched(scene(0.0), scene(0.0), 20).judge(DEADLINE)
    assert (outcome, "nothing to help" in detail) == ("failed", True)


def test_the_interval_of_the_push_and_repeats_do_not_count() -> None:
    watch = Watch(baseline(scene()), 4 * INTERVAL + 1)
    watch.see(scene(0.0).state(5 * INTERVAL))
    assert watch.seen == 0
    for _ in range(5):
        watch.see(scene(0.0).state(6 * INTERVAL))
    assert watch.seen == 1
    assert watch.judge(DEADLINE)[0] == "wait"


def test_states_travel_as_json_with_missing_as_missing() -> None:
    net = scene()
    net.tx[0, 0] = np.nan
    state = from_json(to_json(net.state()))
    assert np.isnan(state.tx[0, 0])
    assert state.stall_of(net.hosts[4:5], None).tolist() == [0.6]
    assert state.visible_share(net.ports) == 1.0
    for bad in (b"", b"{}", b'{"t_ns":1,"interval_ns":0,"ports":[],"priorities":[],"tx_bytes_per_s":[],"stall":[],'
                            b'"rate_bps":[],"age_intervals":[]}'):  # fmt: skip
        with pytest.raises(FabricdError, match="state of the fabric"):
            from_json(bad)


def test_averages_leave_out_what_is_not_known() -> None:
    net = scene()
    first = net.state()
    net.tx[:, 0] = 4.0
    net.tx[1, 0] = np.nan
    found = average([first, net.state()])
    assert found.tx[0, 0] == 2.0
    assert found.tx[1, 0] == 0.0


def test_a_detectors_interval_as_a_state() -> None:
    waits, pauses = np.array([[0.3], [np.nan], [np.nan]]), np.array([[0.9], [0.2], [np.nan]])
    rates = {"xmit_wait_ns": waits, "paused_ns": pauses, "tx_bytes": np.array([[1.0], [2.0], [np.nan]])}
    window = Window(5, 1e9, rates, np.array([[0.0], [1.0], [np.inf]]), np.array([np.nan, 8.0, np.nan]))
    state = from_window(window, [(1, 1), (2, 1), (3, 1)], [None], np.array([4.0, 4.0, 4.0]))
    assert state.stall_of([(1, 1), (2, 1)], 7).tolist() == [0.3, 0.2]
    assert np.isnan(state.stall_of([(3, 1)], None)).all()
    assert state.rate_bps.tolist() == [4.0, 8.0, 4.0]
    assert state.visible_share([(1, 1), (2, 1), (3, 1), (4, 1)]) == 0.5
    assert np.isnan(state.errors).all()

"""``--start``, ``--end`` and ``--step`` of a replay from Prometheus."""

from __future__ import annotations

import argparse
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fabricd.commands.replay_history import DAY_NS, instant, span_of
from fabricd.errors import UsageError

AT = 1_764_000_000 * 10**9


def options(start: str | None = None, end: str | None = None, step: float | None = None) -> argparse.Namespace:
    return argparse.Namespace(start=start, end=end, step=step)


@pytest.mark.parametrize(
    "text", ["1764000000", "1764000000.0", "2025-11-24T16:00:00Z", "2025-11-24 16:00:00", "2025-11-24T17:00:00+01:00"]
)
def test_instants(text: str) -> None:
    assert instant(text, "--start") == AT


def test_ages() -> None:
    before = time.time_ns()
    assert abs(instant("1.5h", "--start") - (before - 5400 * 10**9)) < 60 * 10**9
    assert abs(instant("now", "--end") - before) < 60 * 10**9


def test_the_last_day_is_the_default() -> None:
    span = span_of(options())
    assert span.end_ns - span.start_ns == DAY_NS and span.step_ns == 0
    assert span_of(options(end="1764000000", step=30)) == (AT - DAY_NS, AT, 30 * 10**9)


@pytest.mark.parametrize(
    ("given_options", "message"),
    [
        (options(start="yesterday"), "--start yesterday: not a time"),
        (options(end="-5"), "--end -5: not a time"),
        (options(start="1764000000", end="1763000000"), "must be before the end, 1763000000"),
        (options(step=0.0), "--step 0: must be at least"),
        (options(step=float("nan")), "--step nan: must be at least"),
    ],
)
def test_refusals(given_options: argparse.Namespace, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        span_of(given_options)


@given(st.text(max_size=30))
def test_any_text(text: str) -> None:
    try:
        assert 0 <= instant(text, "--start") <= 10**19
    except UsageError as error:
        assert "not a time" in str(error)

"""Period finding: right within 1 %, or not observable. Never a wrong number."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from fabricd.jobs.steps import Curve, find_step_time

Floats = NDArray[np.float64]


def job_curve(step: float, seconds: float, rng: np.random.Generator, jitter: float = 0.02) -> tuple[Floats, Floats]:
    """Exact cumulative bytes of a step of eight microbatch bursts and one gradient burst of 35 % of it."""
    times, totals = [0.0], [0.0]

    def add(duration: float, rate: float) -> None:
        times.append(times[-1] + duration)
        totals.append(totals[-1] + duration * rate)

    while times[-1] < seconds:
        length = step * (1 + jitter * rng.standard_normal())
        for _ in range(8):
            add(0.65 * length / 8 * 0.7, 0.02)
            add(0.65 * length / 8 * 0.3, 0.5)
        add(0.35 * length, 1.0 + 0.03 * rng.standard_normal())
    return np.array(times), np.array(totals)


def poll(
    exact: tuple[Floats, Floats], interval: float, jitter: float, rng: np.random.Generator, drop: float = 0.0
) -> Curve:
    t = np.arange(0, exact[0][-1] - interval, interval)
    t = t + jitter * interval * rng.uniform(-1, 1, len(t))
    t = t[rng.random(len(t)) >= drop]
    return Curve(t, np.interp(t, *exact))


@pytest.mark.parametrize("step", [5.3, 20.0])
def test_two_samplings_find_the_step(step: float) -> None:
    rng = np.random.default_rng(1)
    exact = job_curve(step, 300, rng)
    found = find_step_time([poll(exact, 1.0, 0.0, rng), poll(exact, 0.7, 0.0, rng)])
    assert found.seconds == pytest.approx(step, rel=0.02), found


def test_one_jittered_sampling_is_enough() -> None:
    rng = np.random.default_rng(2)
    exact = job_curve(12.0, 400, rng)
    assert find_step_time([poll(exact, 1.0, 0.25, rng)]).seconds == pytest.approx(12.0, rel=0.02)


def test_one_even_sampling_is_never_enough() -> None:
    rng = np.random.default_rng(3)
    found = find_step_time([poll(job_curve(20.0, 400, rng), 1.0, 0.0, rng)])
    assert found.seconds is None
    assert "second sampling" in found.reason


def test_the_classic_alias_is_refused() -> None:
    """2 s steps polled every second look like 4 s with an autocorrelation of 0.99."""
    rng = np.random.default_rng(4)
    exact = job_curve(2.0, 300, rng)
    assert find_step_time([poll(exact, 1.0, 0.0, rng), poll(exact, 0.7, 0.0, rng)]).seconds is None


@settings(max_examples=60, deadline=None)
@given(st.floats(0.15, 40), st.integers(0, 2**31), st.sampled_from([0.7, 0.63, 1.37, 2.3]), st.floats(0, 0.1))
def test_never_a_wrong_number(step: float, seed: int, second: float, drop: float) -> None:
    rng = np.random.default_rng(seed)
    exact = job_curve(step, 400, rng)
    found = find_step_time([poll(exact, 1.0, 0.02, rng, drop), poll(exact, second, 0.02, rng, drop)])
    assert found.seconds is None or found.seconds == pytest.approx(step, rel=0.05), found


@pytest.mark.parametrize("kind", ["flat", "noise", "ramp", "silent"])
def test_traffic_without_steps(kind: str) -> None:
    rng = np.random.default_rng(5)
    t = np.arange(0, 300, 1.0)
    rate = {"flat": np.ones(300), "noise": rng.random(300), "ramp": np.arange(300.0), "silent": np.zeros(300)}[kind]
    curve = Curve(t, np.cumsum(rate))
    assert find_step_time([curve, Curve(t[::2] + 0.1, np.cumsum(rate)[::2])]).seconds is None


def test_too_short() -> None:
    assert find_step_time([]).seconds is None
    assert find_step_time([Curve(np.arange(5.0), np.arange(5.0))]).reason == "too few samples"
    with pytest.raises(ValueError, match="increase"):
        Curve(np.array([1.0, 1.0]), np.array([0.0, 1.0]))

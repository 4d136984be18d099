"""What must not matter: the time scale, the numbering of ports, switches that idle. And a healthy fabric never alarms."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from fabricd.detect.window import Window
from tests.unit.detect.scenes import LINE, Scene, leaf_spine
from tests.unit.detect.test_causes import incast, quiet


def told(scene: Scene) -> set[tuple[str, str, tuple[str, ...]]]:
    scene.run(6, quiet)
    scene.run(8, incast)
    label = scene.fabric.label
    return {(label(f.roots[0]), f.cause, tuple(sorted(label(p) for p in f.affected))) for f in scene.verdicts()}


@settings(max_examples=8, deadline=None)
@given(st.floats(1e-4, 1e3))
def test_time_and_rates_scaled_together_change_nothing(factor: float) -> None:
    scene = Scene(leaf_spine())
    scene.interval *= factor
    scene.scale = 1.0 / factor
    scene.fabric.rate /= factor
    assert told(scene) == told(Scene(leaf_spine()))


def test_numbering_changes_nothing() -> None:
    assert told(Scene(leaf_spine(order=-1))) == told(Scene(leaf_spine()))


def test_idle_switches_change_nothing() -> None:
    assert told(Scene(leaf_spine(idle=3))) == told(Scene(leaf_spine()))


@settings(max_examples=15, deadline=None)
@given(st.integers(0, 10_000), st.floats(0.05, 0.95))
def test_a_healthy_fabric_never_alarms(seed: int, load: float) -> None:
    rng = np.random.default_rng(seed)
    scene = Scene(leaf_spine())
    size = scene.fabric.size
    for k in range(25):
        tx = LINE * np.clip(load * rng.uniform(0.6, 1.4, (size, 1)), 0, 0.97)
        wait = rng.uniform(0, 0.015, (size, 1))  # a busy port always waits a little
        rates = {"tx_bytes": tx, "rx_bytes": tx[scene.fabric.peer], "xmit_wait_ns": wait}
        step = scene.detector.step(Window(k * 10**9, 1e9, rates, np.zeros((size, 1)), np.full(size, np.nan)))
        assert not step.raised


@settings(max_examples=10, deadline=None)
@given(st.integers(0, 10_000), st.floats(0.05, 0.9))
def test_a_healthy_fabric_without_waits_on_hosts_never_alarms(seed: int, load: float) -> None:
    rng = np.random.default_rng(seed)
    scene = Scene(leaf_spine())
    fabric, size = scene.fabric, scene.fabric.size
    for k in range(25):
        tx = LINE * np.clip(load * rng.uniform(0.6, 1.4, (size, 1)), 0, 0.97)
        wait = np.where(fabric.is_host[:, None], np.nan, 0.0)
        rates = {"tx_bytes": tx, "rx_bytes": tx[fabric.peer], "xmit_wait_ns": wait}
        assert not scene.detector.step(Window(k * 10**9, 1e9, rates, np.zeros((size, 1)), np.full(size, np.nan))).raised


def test_nothing_is_said_of_missing_data() -> None:
    scene = Scene(leaf_spine())
    size = scene.fabric.size
    for k in range(12):
        rates = {name: np.full((size, 1), np.nan) for name in ("tx_bytes", "rx_bytes", "xmit_wait_ns")}
        assert not scene.detector.step(Window(k * 10**9, 1e9, rates, np.zeros((size, 1)), np.full(size, np.nan))).raised

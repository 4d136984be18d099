"""Faults of telemetry: seeded, and seen only where the fabric is read."""

from __future__ import annotations

import time
from pathlib import Path

import numpy as np
import pytest

from fabricd.errors import UsageError
from fabricd.twin.faults import NAMES, TelemetryFaults
from fabricd.twin.mad.pma import Pma
from fabricd.twin.sysfs.trees import Trees
from tests.unit.twin.static_fabric import StaticFabric, leaf_spine
from tests.unit.twin.test_management import Client, served, smp


def test_draws_are_repeatable_and_differ_by_seed() -> None:
    plan = leaf_spine(leaves=10, spines=10)
    blind = [TelemetryFaults(plan, "blind", seed).blind for seed in (1, 1, 2, 3)]
    assert blind[0] == blind[1] and len(set(blind)) > 1
    assert all(1 <= len(chosen) <= 4 for chosen in blind)


def test_loss_is_a_share_of_the_requests() -> None:
    plan = leaf_spine()
    faults = TelemetryFaults(plan, "loss", 1)
    lost = sum(faults.unanswered(plan.nodes[0]) for _ in range(5000)) / 5000
    assert 0.03 < lost < 0.23


def test_an_unknown_fault_is_refused() -> None:
    with pytest.raises(UsageError, match="gremlins"):
        TelemetryFaults(leaf_spine(), "gremlins", 1)
    assert "loss" in NAMES


def test_a_cleared_node_counts_from_zero() -> None:
    fabric = StaticFabric(leaf_spine())
    pma, node = Pma(fabric.plan, fabric.read), fabric.plan.switches[0]
    fabric.counters.tx_packets[node.first_row, 0] = 100
    ask = bytes([0, 1]) + bytes(190)
    pma.reset(node)
    fabric.counters.tx_packets[node.first_row, 0] += 5
    fabric.touch()
    _, data = pma.answer(1, 0x1D, ask, node, 0, True)
    assert data is not None and int.from_bytes(data[24:32], "big") == 5
    faults = TelemetryFaults(fabric.plan, "resets", 1)
    assert faults.cleared(19.0) is None and faults.cleared(20.0) is not None and faults.cleared(20.1) is None


def test_a_blind_switch_answers_subnet_management_only() -> None:
    async def check(fabric: StaticFabric, server: object, base: str) -> None:
        client = Client(base)
        await client.connect(fabric.plan.adapters[0].name)
        mad = bytearray(256)
        mad[0:4], mad[17], mad[65] = bytes((1, 4, 1, 1)), 0x1D, 1
        client.send(bytes(mad), 1)
        status, answer = await client.call(smp(0x11), 1)  # the lost answer would have come first
        assert (status, answer[1]) == (0, 1)
        client.close()

    def faults(fabric: StaticFabric) -> TelemetryFaults:
        found = TelemetryFaults(fabric.plan, "blind", 1)
        found.blind = frozenset({0})
        return found

    served(check, faults=faults)


def test_hosts_with_a_slow_pace_keep_old_numbers(tmp_path: Path) -> None:
    fabric = StaticFabric(leaf_spine(hosts_per_leaf=8))
    faults = TelemetryFaults(fabric.plan, "mixed-cadence", 3)
    pfc = np.zeros((16, 4), np.bool_)
    trees = Trees(fabric, tmp_path, lambda node: 1, lambda: pfc, faults=faults)
    trees.create()

    def shown(host: str) -> int:
        return int((tmp_path / host / "class/infiniband/mlx5_0/ports/1/counters/port_xmit_packets").read_text())

    def refresh(packets: int) -> None:
        fabric.counters.tx_packets[:, 0] = packets
        fabric.touch()
        for _ in trees.refresh():
            pass

    started = time.monotonic()
    refresh(1)
    assert {shown(host) for host in fabric.plan.hosts} == {1}
    refresh(2)
    if time.monotonic() - started < 1:
        assert {shown(host) for host in fabric.plan.hosts} == {1}
    paces = {faults.pace_s(host) for host in fabric.plan.hosts}
    assert paces <= {1.0, 2.0, 5.0} and len(paces) > 1

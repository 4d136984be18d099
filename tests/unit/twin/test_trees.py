"""The hosts' directory trees: what the files show, how they are rewritten, and that the agent reads them."""

from __future__ import annotations

import json
import os
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fabricd.twin.sysfs import layout
from fabricd.twin.sysfs.files import FileWriter
from fabricd.twin.sysfs.trees import Trees
from tests.unit.twin.static_fabric import StaticFabric, leaf_spine


def grown(tmp_path: Path, technology: str = "infiniband", lanes: int = 4) -> tuple[StaticFabric, Trees, Path]:
    fabric = StaticFabric(leaf_spine(technology=technology, lanes=lanes))  # type: ignore[arg-type]
    pfc = np.zeros((len(fabric.plan.adapters), lanes), np.bool_)
    pfc[:, 3] = True
    trees = Trees(fabric, tmp_path, lambda node: 100 + node.index, lambda: pfc)
    trees.create()
    return fabric, trees, tmp_path / "node002" / "class" / "infiniband" / "mlx5_0" / "ports" / "1"


def refresh(fabric: StaticFabric, trees: Trees) -> None:
    fabric.touch()
    for _ in trees.refresh():
        pass


def read(port: Path, name: str) -> int:
    return int((port / name).read_text())


@given(st.lists(st.integers(0, 2**64 - 1), min_size=1, max_size=6))
def test_a_kept_descriptor_never_sees_a_mixture(values: list[int]) -> None:
    path = f"/dev/shm/fabricd-test-{os.getpid()}"
    writer = FileWriter()
    writer.create(path, "18446744073709551615\n")
    fd = os.open(path, os.O_RDONLY)
    try:
        for value in values:
            writer.write(path, f"{value}\n")
            assert os.pread(fd, 64, 0) == f"{value}\n".encode()
    finally:
        os.close(fd)
        writer.close()
        Path(path).unlink()


def test_words_packets_and_waits(tmp_path: Path) -> None:
    fabric, trees, port = grown(tmp_path)
    row = fabric.plan.adapters[2].first_row
    fabric.counters.tx_bytes[row] = [4000, 0, 8, 0]
    fabric.counters.rx_packets[row, 1] = 77
    fabric.counters.port_wait_ns[row] = 160
    refresh(fabric, trees)
    assert read(port, "counters/port_xmit_data") == 1002
    assert read(port, "counters/port_rcv_packets") == 77
    assert read(port, "counters/port_xmit_wait") == 1000  # 160 ns of 8-byte ticks at 400 Gb/s


def test_narrow_counters_stick(tmp_path: Path) -> None:
    fabric, trees, port = grown(tmp_path)
    row = fabric.plan.adapters[2].first_row
    fabric.counters.port_wait_ns[row] = 10**10
    fabric.counters.symbol_errors[row] = 10**6
    fabric.counters.link_downed[row] = 300
    refresh(fabric, trees)
    shown = [read(port, f"counters/{name}") for name in ("port_xmit_wait", "symbol_error", "link_downed")]
    assert shown == [2**32 - 1, 2**16 - 1, 2**8 - 1]


@given(st.integers(0, 2**40), st.integers(0, 2**32 - 1))
def test_queue_counters_wrap_at_32_bits(count: int, base: int) -> None:
    file = layout.File("rx_write_requests", 32, False, lambda reading: np.array([count], np.uint64))
    assert (
        int(layout.show(file, np.array([count], np.uint64), np.array([base], np.uint64))[0]) == (count + base) % 2**32
    )


def test_a_link_that_fails_or_falls_back_shows_in_its_state(tmp_path: Path) -> None:
    fabric, trees, port = grown(tmp_path)
    assert (port / "rate").read_text() == "400 Gb/sec (4X NDR)\n"
    assert (port / "lid").read_text() == f"0x{100 + fabric.plan.adapters[2].index:x}\n"
    row = fabric.plan.adapters[2].first_row
    fabric.counters.gbps[row] = 100
    refresh(fabric, trees)
    assert (port / "rate").read_text() == "100 Gb/sec (1X NDR)\n"
    fabric.counters.up = fabric.counters.up.copy()
    fabric.counters.up[row] = False
    refresh(fabric, trees)
    assert (port / "state").read_text() == "1: DOWN\n" and (port / "phys_state").read_text() == "2: Polling\n"


def test_roce_has_congestion_counters_and_pause_only_where_it_is_on(tmp_path: Path) -> None:
    fabric, trees, port = grown(tmp_path, "ethernet", lanes=5)
    row = fabric.plan.adapters[2].first_row
    fabric.counters.cnp_tx[row], fabric.counters.ce_rx[row], fabric.counters.cnp_rx[row] = 3, 4, 5
    fabric.counters.pause_rx_frames[row] = [0, 0, 0, 10, 99]
    fabric.counters.pause_rx_ns[row] = [0, 0, 0, 25_000, 99]
    refresh(fabric, trees)
    names = ("np_cnp_sent", "np_ecn_marked_roce_packets", "rp_cnp_handled")
    assert [read(port, f"hw_counters/{name}") for name in names] == [3, 4, 5]
    table = json.loads((tmp_path / "node002" / "ethtool" / "eth0.json").read_text())["statistics"]
    assert (table["rx_prio3_pause"], table["rx_prio3_pause_duration"]) == (10, 25)
    assert "rx_prio4_pause" not in table and "rx_prio4_bytes" in table
    assert json.loads((tmp_path / "node002" / "dcb" / "eth0.json").read_text())["indications"][3] == 10


@pytest.mark.parametrize("technology", ["infiniband", "ethernet"])
def test_the_agent_reads_a_tree_without_a_reject(tmp_path: Path, technology: str) -> None:
    from fabricd.config.agent import AgentConfig
    from fabricd.config.root import Config
    from fabricd.daemons.agent_once import read_once

    fabric, trees, _ = grown(tmp_path, technology, lanes=5)
    fabric.counters.tx_bytes[fabric.plan.adapters[2].first_row, 0] = 4096
    fabric.counters.pause_rx_frames[fabric.plan.adapters[2].first_row, 3] = 6
    refresh(fabric, trees)
    document = read_once(Config(agent=AgentConfig(sysfs=str(tmp_path / "node002"))))
    assert document["rejects"] == []
    (device,) = document["devices"]
    (port,) = device["ports"]
    assert int(device["node_guid"], 16) == fabric.plan.adapters[2].guid
    assert (port["state"], port["rate_gbps"]) == ("ACTIVE", 400.0)
    assert port["counters"]["port_transmit_data_bytes"]["value"] == 4096
    if technology == "ethernet":
        assert port["counters"]["pfc_receive_frames_prio3"]["value"] == 6

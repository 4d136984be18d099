"""The sweeping process's books: topology and routes on disk, a look after a link went down."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from fabricd.config.root import Config
from fabricd.daemons.sweeping import find_targets, make_sweeper, open_transport
from fabricd.daemons.topology_keeper import TopologyKeeper
from fabricd.ib.limits import TidSpace
from fabricd.topology.cache import load_cache
from tests.ibsim import Fabric, leaf_spine


@pytest.fixture(scope="module")
def fabric() -> Iterator[Fabric]:
    with Fabric(leaf_spine(3, 2, hosts=2)) as running:
        yield running


def settings(fabric: Fabric, directory: Path) -> Config:
    config = Config()
    config.fabric.name = "lab"
    config.collector.mad_socket, config.collector.mad_host = fabric.socket_name, fabric.hosts[1]
    config.topology.cache = str(directory / "topology.json")
    config.topology.settle = 0
    config.collector.timeout_ms = 5000  # a simulator on a busy machine may be slow; that is not what is tested here
    return config


def test_the_picture_on_disk_has_the_routes_of_the_switches(fabric: Fabric, tmp_path: Path) -> None:
    config = settings(fabric, tmp_path)
    transport = open_transport(config.collector)
    assert transport is not None
    try:
        keeper = TopologyKeeper(config, transport, TidSpace())
        topology = keeper.look()
    finally:
        transport.close()
    cached = load_cache(config.topology.cache)
    assert cached.picture.topology.fabric == "lab"
    assert set(cached.picture.topology.nodes) == set(topology.nodes)
    assert len(cached.slots.slot_of) == len(topology.nodes)
    assert cached.picture.routes is not None
    assert cached.picture.routes.source == "lft"
    assert keeper.here is not None
    assert topology.nodes[keeper.here[0]].name == fabric.hosts[1]


def test_a_link_that_went_down_asks_for_a_look(fabric: Fabric, tmp_path: Path) -> None:
    config = settings(fabric, tmp_path)
    transport = open_transport(config.collector)
    assert transport is not None
    try:
        tids = TidSpace()
        keeper = TopologyKeeper(config, transport, tids)
        topology = keeper.look()
        sweeper = make_sweeper(config.collector, transport, find_targets(config.collector, topology)[0], tids)
        for _ in range(2):
            keeper.after_sweep(sweeper.sweep())
            assert not keeper.due()
        fabric.console('PerformanceSet "leaf00"[1] PortCounters.LinkDownedCounter=4')
        keeper.after_sweep(sweeper.sweep())
        assert keeper.due()
        faults = {fault.kind: fault for fault in keeper.look().faults}
        assert "leaf00 1" in faults["flapping_link"].where
        assert not keeper.due()
    finally:
        transport.close()


def test_a_cable_that_is_plugged_in_is_noticed_by_the_port_states(fabric: Fabric, tmp_path: Path) -> None:
    config = settings(fabric, tmp_path)
    config.topology.probe_interval = 0.001
    fabric.console('Unlink "leaf01"[1]')
    transport = open_transport(config.collector)
    assert transport is not None
    try:
        keeper = TopologyKeeper(config, transport, TidSpace())
        before = keeper.look()
        assert not keeper.due()
        fabric.console('ReLink "leaf01"[1]')
        assert keeper.due()
        assert len(keeper.look().links) == len(before.links) + 1
        assert not keeper.due()
    finally:
        fabric.console('ReLink "leaf01"[1]')
        transport.close()

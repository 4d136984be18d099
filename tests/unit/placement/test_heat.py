"""Uplink heat: means over a minute or more from counters, never from what was not observed."""

from __future__ import annotations

from typing import Any

import pytest

from fabricd.errors import FabricdError
from fabricd.model.ident import format_guid
from fabricd.model.topology import Topology
from fabricd.placement.api_source import ApiSource, measure_traffic
from fabricd.placement.check import Traffic
from fabricd.placement.fabric import compile_fabric
from fabricd.placement.heat import UplinkHeat, uplinks_by_leaf
from fabricd.topology.golden import topology_from_json
from fabricd.topology.railfaults import check_rails
from tests.fabrics import rail_fabric

LINE = 400e9 / 8  # bytes per second


@pytest.fixture
def topology() -> Topology:
    fabric = rail_fabric(units=2, hosts=2, rails=2, spines=2, uplinks=1)
    check_rails(fabric)
    return fabric


def test_heat_is_the_hottest_leaf_over_the_window(topology: Topology) -> None:
    heat = UplinkHeat(topology, window_s=120)
    ports = uplinks_by_leaf(topology)
    assert {group: sorted(map(len, leaves.values())) for group, leaves in ports.items()} == {
        "su1": [2, 2],
        "su2": [2, 2],
    }
    loads = {"su1": [(0.2, 0.4), (0.6, 0.8)], "su2": [(0.0, 0.0), (0.1, 0.1)]}
    rate = {
        ref: LINE * load
        for group, leaves in ports.items()
        for pair, uplinks in zip(loads[group], leaves.values(), strict=True)
        for load, (ref, _) in zip(pair, uplinks, strict=True)
    }
    heat.add(0, dict.fromkeys(rate, 0))
    assert heat.groups() == {}
    heat.add(59, {ref: int(r * 59) for ref, r in rate.items()})
    assert heat.groups() == {}  # under a minute
    heat.add(120, {ref: int(r * 120) for ref, r in rate.items()})
    assert heat.groups() == {"su1": pytest.approx(0.7), "su2": pytest.approx(0.1)}
    heat.add(240, {ref: int(r * 120) for ref, r in rate.items()})  # silence since: the window has moved on
    assert heat.groups()["su1"] == pytest.approx(0.0)


def test_missing_and_reset_counters_are_not_zero(topology: Topology) -> None:
    ports = uplinks_by_leaf(topology)
    refs = [ref for leaves in ports.values() for uplinks in leaves.values() for ref, _ in uplinks]
    heat = UplinkHeat(topology)
    heat.add(0, dict.fromkeys(refs, 1000))
    after: dict[Any, int | None] = {ref: int(1000 + LINE * 50) for ref in refs}
    blind, reset = list(ports["su1"].values()), list(ports["su2"].values())
    after[blind[0][0][0]] = after[blind[0][1][0]] = None  # a whole leaf unseen: the group's heat is unknown
    after[reset[0][0][0]] = 5  # one uplink reset: the other one speaks for the leaf
    heat.add(100, after)
    assert heat.groups() == {"su2": pytest.approx(0.5)}


def test_the_live_view_takes_what_answers(topology: Topology) -> None:
    now = [0.0]
    total = [0]

    def get(path: str) -> Any:
        if path.startswith("/api/v1/ports"):
            guid = path.split("guid=")[1].split("&")[0]
            counter = {"name": "port_transmit_data_bytes", "priority": None, "value": total[0]}
            return {"ports": [{"guid": guid, "port": p, "counters": [counter]} for p in range(1, 65)]}
        if path == "/api/v1/doctor":
            return {"reports": [{"node": "gpu001", "checks": [{"id": "x", "verdict": "fail"}]}]}
        raise FabricdError("no such thing")

    looks = [topology]
    source = ApiSource(get, lambda: looks[-1], clock=lambda: now[0])
    assert source().heat == {} and source().verdicts == []
    source.sample()
    now[0], total[0] = 100.0, int(LINE * 25)
    looks.append(topology_from_json(topology.to_json()))  # looked at again meanwhile: the readings stay good
    source.sample()
    view = source()
    assert view.heat == {"su1": pytest.approx(0.25), "su2": pytest.approx(0.25)}
    assert view.doctor[0]["reports"][0]["node"] == "gpu001"
    leaf = topology.rails[0].leaves[0][0]
    assert format_guid(leaf).startswith("0x")


def test_traffic_between_two_readings_leaves_out_what_was_not_seen_twice(topology: Topology) -> None:
    readings = iter([{1: (100, 10), 2: (5, 5), 3: (7, 7)}, {1: (150, 30), 2: (4, 9), 4: (1, 1)}])
    state = {"now": next(readings)}

    def get(path: str) -> Any:
        guid = path.split("guid=")[1].split("&")[0]
        return {
            "ports": [
                {
                    "guid": guid,
                    "port": port,
                    "counters": [
                        {"name": "port_transmit_data_bytes", "priority": None, "value": sent},
                        {"name": "port_receive_data_bytes", "priority": None, "value": received},
                        {"name": "port_receive_data_bytes", "priority": 3, "value": 9},
                    ],
                }
                for port, (sent, received) in state["now"].items()
            ]
        }

    fabric = compile_fabric(topology)
    found = measure_traffic(get, fabric, ["gpu001", "ghost"], lambda: state.update(now=next(readings)))
    leaves = [leaf for rail in topology.rails[0].leaves for leaf in rail]
    assert found == {(leaf, 1): Traffic(50, 20) for leaf in leaves}
    with pytest.raises(FabricdError, match="not a list of ports"):
        measure_traffic(lambda path: {"ports": [{}]}, fabric, ["gpu001"], lambda: None)

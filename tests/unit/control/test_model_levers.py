"""Levers on the flow model: each acts, each can be read back, and each undo leaves the model as it was."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from fabricd.control.adapters.base import Conflict
from fabricd.control.adapters.model import ModelAdapter
from fabricd.control.effects import Effects
from fabricd.control.journal import SqliteJournal
from fabricd.control.levers import routes_key
from fabricd.control.life import Life
from fabricd.errors import UsageError
from fabricd.flow.fabric import FlowModel
from fabricd.flow.settings import FabricSettings
from fabricd.model.action import Action, Change, Lever, Proposal, Touched
from fabricd.model.ident import format_guid
from tests.unit.control.fabrics import Net

NAMES = ("option", "routes", "hop_weight", "qos_policy", "sl_rate", "unhealthy_port", "port_admin", "pfc", "ecn")
LEASE = 300_000_000_000


class Bench:
    def __init__(self, kind: Any = "infiniband") -> None:
        self.net = Net()
        self.model = FlowModel(self.net.topology, FabricSettings(kind=kind, lanes=8))
        effects = Effects(self.model)
        options = {"ar_sl_mask": "0x0000", "qos_swe_vlarb_low": ",".join(f"{vl}:1" for vl in range(8))}
        self.adapters = {name: ModelAdapter(name, effects, NAMES, options) for name in ("opensm", "ufm", "snmp")}
        self.life = Life(SqliteJournal(":memory:"), self.adapters, lambda: 1)

    def picture(self) -> list[Any]:
        """Everything a lever could have changed."""
        c, r = self.model.controls, self.model.routes
        arrays = (
            c.adaptive, c.isolated, c.link_up, c.rate_limit, c.pfc_on, c.ecn_kmin, c.ecn_pmax, c.low_weight, r.lft,
            self.model.engine.flows.sl,
        )  # fmt: skip
        return [array.copy() for array in arrays]

    def changed(self, before: list[Any]) -> bool:
        return not all(np.array_equal(a, b) for a, b in zip(before, self.picture(), strict=True))


def leaf(bench: Bench) -> tuple[int, str, int]:
    """(GUID, name, port to a spine) of the first leaf."""
    net = bench.net
    guid = net.peers[net.hosts[0]][0]
    port = next(p for g, p in net.ports if g == guid and net.topology.nodes[net.peers[g, p][0]].type == "switch")
    return guid, net.topology.nodes[guid].name, port


def _routes(bench: Bench) -> tuple[Lever, Any]:
    guid, _, _ = leaf(bench)
    lid = 104
    lever = Lever(adapter="opensm", device=format_guid(guid), name="routes", key=routes_key([lid]))
    now = bench.adapters["opensm"].read(lever)[str(lid)]
    ups = [
        p
        for g, p in bench.net.ports
        if g == guid and bench.net.topology.nodes[bench.net.peers[g, p][0]].type == "switch"
    ]
    return lever, {str(lid): next(port for port in ups if port != now)}


def _option(key: str, value: str) -> Callable[[Bench], tuple[Lever, Any]]:
    return lambda bench: (Lever(adapter="opensm", device="sm", name="option", key=key), value)


def _rule(bench: Bench) -> tuple[Lever, Any]:
    bench.model.add_flow(4, 0)
    source, target = (format_guid(bench.net.hosts[n][0]) for n in (4, 0))
    value = {"sl": 3, "source": [source], "destination": [target]}
    return Lever(adapter="opensm", device="sm", name="qos_policy", key="fabricd-1"), value


def _ufm(name: str, value: Any) -> Callable[[Bench], tuple[Lever, Any]]:
    def make(bench: Bench) -> tuple[Lever, Any]:
        guid, _, port = leaf(bench)
        return Lever(adapter="ufm", device="ufm", name=name, key=f"{guid:016x}_{port}"), value

    return make


def _snmp(name: str, value: Any, suffix: str = "") -> Callable[[Bench], tuple[Lever, Any]]:
    def make(bench: Bench) -> tuple[Lever, Any]:
        _, device, port = leaf(bench)
        return Lever(adapter="snmp", device=device, name=name, key=f"{port}{suffix}"), value

    return make


def _rate(bench: Bench) -> tuple[Lever, Any]:
    key = format_guid(bench.net.hosts[2][0])
    return Lever(adapter="ufm", device="ufm", name="sl_rate", key=key), {"0": 50_000}


def _weight(bench: Bench) -> tuple[Lever, Any]:
    guid, _, port = leaf(bench)
    return Lever(adapter="opensm", device="sm", name="hop_weight", key=f"{format_guid(guid)} {port}"), 4


LEVERS = {
    "adaptive routing": ("infiniband", _option("ar_sl_mask", "0x0003")),
    "weights": ("infiniband", _option("qos_swe_vlarb_low", "0:1,1:200")),
    "routes": ("infiniband", _routes),
    "rule": ("infiniband", _rule),
    "hop weight": ("infiniband", _weight),
    "rate": ("infiniband", _rate),
    "unhealthy": ("infiniband", _ufm("unhealthy_port", True)),
    "port down": ("ethernet", _snmp("port_admin", "down")),
    "pause": ("ethernet", _snmp("pfc", [True] * 3 + [False] + [True] * 4)),
    "marks": ("ethernet", _snmp("ecn", {"kmin": 1, "kmax": 5, "pmax": 40}, " 3")),
}


@pytest.mark.parametrize("name", list(LEVERS))
def test_a_lever_acts_and_comes_back(name: str) -> None:
    kind, make = LEVERS[name]
    bench = Bench(kind)
    lever, value = make(bench)
    before = bench.picture()
    action = Action(
        proposal=Proposal(
            id="a1", verdict_id="v1", cause="incast", remedy="test", changes=(Change(lever=lever, new=value),),
            touched=Touched(), gain=0.5, cost=0.0, why="", created_ns=1,
        )
    )  # fmt: skip
    action.advance("admitted", 1)
    assert bench.life.push(action, LEASE), action.events[-1]
    assert bench.changed(before)
    assert bench.adapters[lever.adapter].read_back(lever) == value
    if name in ("weights", "marks"):  # their first value is read in whole percents, or was the factory's
        assert bench.life.undo(action, "released")
        return
    assert bench.life.undo(action, "released"), action.events[-1]
    assert not bench.changed(before)


def test_a_lever_that_moved_meanwhile_is_a_conflict() -> None:
    bench = Bench()
    lever, value = _rate(bench)
    adapter = bench.adapters["ufm"]
    adapter.push(Change(lever=lever, old=None, new=value))
    with pytest.raises(Conflict):
        adapter.push(Change(lever=lever, old=None, new={"0": 1}))


def test_what_the_model_does_not_show_is_said() -> None:
    effects = Effects(FlowModel(Net().topology, FabricSettings()))
    with pytest.raises(UsageError, match="does not show opensm option sweep_interval"):
        effects.write(Lever(adapter="opensm", device="sm", name="option", key="sweep_interval"), "5")
    with pytest.raises(UsageError, match="does not show ufm qos_conf"):
        effects.write(Lever(adapter="ufm", device="ufm", name="qos_conf", key="0x8001"), {})

"""Small fabrics and hand-made intervals for the detector's tests."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np

from fabricd.detect.detector import Detector, Finding
from fabricd.detect.fabric import Fabric
from fabricd.detect.params import Params
from fabricd.detect.window import Window
from fabricd.model.topology import CA, SWITCH, Link, Node, Topology
from fabricd.topology.minhop import assumed_routes
from fabricd.topology.routes import RouteTable

RATE = 100e9  # bits/s of every link
LINE = RATE / 8  # bytes/s


def leaf_spine(leaves: int = 3, hosts: int = 4, spines: int = 2, *, idle: int = 0, order: int = 1) -> Topology:
    """Names: leaf0…, spine0…, h<leaf>.<number>. ``idle`` adds switches nobody uses; ``order`` -1 turns GUIDs round."""
    names = [f"leaf{n}" for n in range(leaves)] + [f"spine{n}" for n in range(spines)]
    names += [f"h{leaf}.{n}" for leaf in range(leaves) for n in range(hosts)] + [f"idle{n}" for n in range(idle)]
    topology = Topology(fabric="test")
    guid = {name: 1000 + order * number for number, name in enumerate(names)}
    for name, value in guid.items():
        topology.nodes[value] = Node(value, CA if name.startswith("h") else SWITCH, name)
    for leaf in range(leaves):
        for n in range(hosts):
            topology.links.append(Link((guid[f"h{leaf}.{n}"], 1), (guid[f"leaf{leaf}"], n + 1), RATE / 1e9))
        for spine in range(spines):
            ends = (guid[f"leaf{leaf}"], hosts + spine + 1), (guid[f"spine{spine}"], leaf + 1)
            topology.links.append(Link(*ends, RATE / 1e9))
    for n in range(idle):
        topology.links.append(Link((guid[f"idle{n}"], 1), (guid[f"leaf{n % leaves}"], hosts + spines + 1), RATE / 1e9))
    return topology


def ring(switches: int = 4) -> tuple[Topology, RouteTable]:
    """Switches s0… in a ring with one host each; everything goes clockwise (port 1 host, 2 next, 3 previous)."""
    topology = Topology(fabric="ring")
    for n in range(switches):
        topology.nodes[100 + n] = Node(100 + n, SWITCH, f"s{n}")
        topology.nodes[200 + n] = Node(200 + n, CA, f"h{n}")
        topology.links.append(Link((200 + n, 1), (100 + n, 1), RATE / 1e9))
        topology.links.append(Link((100 + n, 2), (100 + (n + 1) % switches, 3), RATE / 1e9))
    tables = {100 + n: {(200 + m, 1): [1 if m == n else 2] for m in range(switches)} for n in range(switches)}
    return topology, RouteTable.build(topology, tables, "config")


class Scene:
    """Feeds a detector. Ports are named ``node:port``, or ``a>b`` for the egress of node a towards node b."""

    def __init__(
        self,
        topology: Topology,
        routes: RouteTable | None = None,
        priorities: int = 1,
        *,
        blind: tuple[str, ...] = (),
        no_waits: tuple[str, ...] = (),
    ) -> None:
        self.fabric = Fabric(topology, routes or assumed_routes(topology))
        self.priorities = priorities
        labels: list[int | None] = [None] if priorities == 1 else [3 + n for n in range(priorities)]
        self.detector = Detector(self.fabric, labels, params=Params())
        self.names = {node.name: guid for guid, node in topology.nodes.items()}
        self.blind = blind
        self.no_waits = no_waits  # nodes whose waits are not counted
        self.number = 0
        self.interval = 1e9
        self.scale = 1.0
        self.found: list[Finding] = []
        self.raised: list[Finding] = []

    def port(self, name: str) -> int:
        fabric = self.fabric
        if ">" in name:
            a, b = (self.names[part] for part in name.split(">"))
            for ref, index in fabric.index.items():
                if ref[0] == a and fabric.ports[int(fabric.peer[index])][0] == b:
                    return index
            raise KeyError(name)
        node, number = name.rsplit(":", 1)
        return fabric.index[self.names[node], int(number)]

    def step(
        self,
        use: Mapping[str, float] | Mapping[tuple[str, int], float],
        stall: Mapping[str, float] | Mapping[tuple[str, int], float] | None = None,
        *,
        speed: Mapping[str, float] | None = None,
        paused: Mapping[tuple[str, int], float] | None = None,
        received: Mapping[tuple[str, int], float] | None = None,
    ) -> None:
        """One interval. ``use``: share of line rate sent by a port (and priority), ``stall``: share of the interval it waited."""
        size, q = self.fabric.size, self.priorities
        tx, wait = np.zeros((size, q)), np.zeros((size, q))
        for table, array in ((use, tx), (stall or {}, wait)):
            for key, value in table.items():
                name, prio = key if isinstance(key, tuple) else (key, 0)
                array[self.port(name), prio] = value
        rx = tx[self.fabric.peer].copy()
        for (name, prio), value in (received or {}).items():
            rx[self.port(name), prio] = value
        hold = wait.copy()
        for (name, prio), value in (paused or {}).items():
            hold[self.port(name), prio] = value
        rates = {
            "tx_bytes": tx * LINE * self.scale,
            "rx_bytes": rx * LINE * self.scale,
            "xmit_wait_ns": wait,
            "paused_ns": hold,
        }
        for name in self.blind:
            rows = self.fabric.node == self.fabric.node_guids.index(self.names[name])
            for array in rates.values():
                array[rows] = np.nan
        for name in self.no_waits:
            rows = self.fabric.node == self.fabric.node_guids.index(self.names[name])
            rates["xmit_wait_ns"][rows] = rates["paused_ns"][rows] = np.nan
        rate = np.full(size, np.nan)
        for name, value in (speed or {}).items():
            rate[self.port(name)] = rate[self.fabric.peer[self.port(name)]] = value * RATE
        self.number += 1
        window = Window(int(self.number * self.interval), self.interval, rates, np.zeros((size, q)), rate)
        step = self.detector.step(window)
        self.raised += step.raised
        self.found += step.ended

    def run(self, count: int, make: Callable[[int], tuple[dict, dict]]) -> None:  # type: ignore[type-arg]
        for k in range(count):
            use, stall = make(k)
            self.step(use, stall)

    def verdicts(self) -> list[Finding]:
        return self.found + self.detector.open()

    def roots(self) -> dict[str, str]:
        """Root label -> cause of everything found."""
        out: dict[str, str] = {}
        for finding in self.verdicts():
            for root in finding.roots:
                out[self.fabric.label(root)] = finding.cause
            if not finding.roots:
                out["-"] = finding.cause
        return out

    def affected(self) -> set[str]:
        return {self.fabric.label(port) for finding in self.verdicts() for port in finding.affected}


def wobble(k: int, n: int = 0) -> float:
    """A little deterministic unrest, so that nothing looks capped that is not."""
    return 1.0 + 0.07 * float(np.sin(1.7 * k + 2.3 * n))

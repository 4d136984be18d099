"""A fabric that stands still: a leaf-spine plan, counters a test writes, levers that are only recorded."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from fabricd.twin.face import Arbitration, Counters, Marking, Plan, PlanNode, SourceControl, Technology


def leaf_spine(
    leaves: int = 2,
    spines: int = 2,
    hosts_per_leaf: int = 3,
    ports: int = 16,
    gbps: float = 400.0,
    technology: Technology = "infiniband",
    lanes: int = 4,
) -> Plan:
    """Leaf l: hosts on ports 1…, spine s on port ``ports - s``. Spine s: leaf l on port l + 1."""
    nodes: list[PlanNode] = []
    rows = 0

    def add(kind: Any, name: str, guid: int, count: int, **more: Any) -> None:
        nonlocal rows
        nodes.append(PlanNode(len(nodes), kind, name, guid, count, rows, **more))
        rows += count

    for leaf in range(leaves):
        add("switch", f"leaf-{leaf:02d}", 0xB83FD20300000200 + leaf * 0x100, ports, tier=1)
    for spine in range(spines):
        add("switch", f"spine-{spine:02d}", 0xB83FD20300080200 + spine * 0x100, ports, tier=2)
    for host in range(leaves * hosts_per_leaf):
        add("adapter", f"node{host:03d} mlx5_0", 0xB8CEF60300001000 + host * 0x10, 1, host=f"node{host:03d}")
    peer = np.full(rows, -1, np.int32)

    def cable(a: tuple[int, int], b: tuple[int, int]) -> None:
        row_a, row_b = (nodes[node].first_row + port - 1 for node, port in (a, b))
        peer[row_a], peer[row_b] = row_b, row_a

    for leaf in range(leaves):
        for spine in range(spines):
            cable((leaf, ports - spine), (leaves + spine, leaf + 1))
        for host in range(hosts_per_leaf):
            cable((leaf, host + 1), (leaves + spines + leaf * hosts_per_leaf + host, 1))
    return Plan(
        technology=technology,
        nodes=tuple(nodes),
        row_node=np.array([n.index for n in nodes for _ in range(n.ports)], np.int32),
        row_port=np.array([p for n in nodes for p in range(1, n.ports + 1)], np.int32),
        row_peer=peer,
        row_gbps=np.full(rows, gbps),
        lanes=lanes,
    )


class StaticFabric:
    """Implements the face's protocol; ``calls`` holds every lever that was pulled."""

    def __init__(self, plan: Plan) -> None:
        self.plan = plan
        self.counters = Counters.zero(plan)
        self.calls: list[tuple[Any, ...]] = []
        self.managed = False
        self.pfc_state: dict[tuple[int, int], bool] = {}
        self.share_state: dict[int, tuple[int, ...]] = {}
        self.marking_state: dict[tuple[int, int], Marking] = {}

    def read(self) -> Counters:
        return self.counters

    def touch(self) -> None:
        """A new reading is there."""
        self.counters.tick += 1

    def routes(self) -> NDArray[np.int16]:
        """Breadth first, the uplink of destination d is spine d modulo spines."""
        plan = self.plan
        leaves = [node for node in plan.switches if node.tier == 1]
        spines = [node for node in plan.switches if node.tier == 2]
        table = np.zeros((len(plan.switches), len(plan.adapters)), np.int16)
        for d, adapter in enumerate(plan.adapters):
            home_row = int(plan.row_peer[adapter.first_row])
            home = plan.node_of(home_row)
            for s, switch in enumerate(plan.switches):
                if switch is home:
                    table[s, d] = plan.row_port[home_row]
                elif switch.tier == 2:
                    table[s, d] = leaves.index(home) + 1
                else:
                    table[s, d] = switch.ports - d % len(spines)
        return table

    buffer_bytes = 1_000_000

    def pfc(self, row: int, priority: int) -> bool:
        return self.pfc_state.get((row, priority), priority == 3)

    def shares(self, row: int) -> tuple[int, ...]:
        return self.share_state.get(row, (25, 25, 25, 25, 0, 0, 0, 0))

    def marking(self, row: int, priority: int) -> Marking:
        return self.marking_state.get((row, priority), Marking(True, 100_000, 400_000, 0.2))

    def pulled(self, lever: str) -> list[tuple[Any, ...]]:
        return [call[1:] for call in self.calls if call[0] == lever]

    def set_routes(self, switch: int, egress: NDArray[np.int16]) -> None:
        self.calls.append(("set_routes", switch, egress.tolist()))

    def set_sl_to_vl(self, row: int, ingress: int, mapping: tuple[int, ...]) -> None:
        self.calls.append(("set_sl_to_vl", row, ingress, mapping))

    def set_arbitration(self, row: int, arbitration: Arbitration) -> None:
        self.calls.append(("set_arbitration", row, arbitration))

    def set_marking(self, row: int, priority: int, marking: Marking) -> None:
        self.marking_state[row, priority] = marking
        self.calls.append(("set_marking", row, priority, marking))

    def set_source_control(self, row: int, priority: int, control: SourceControl) -> None:
        self.calls.append(("set_source_control", row, priority, control))

    def set_enabled(self, row: int, enabled: bool) -> None:
        self.calls.append(("set_enabled", row, enabled))

    def set_gbps(self, row: int, gbps: float) -> None:
        self.calls.append(("set_gbps", row, gbps))

    def set_pfc(self, row: int, priority: int, on: bool) -> None:
        self.pfc_state[row, priority] = on
        self.calls.append(("set_pfc", row, priority, on))

    def set_shares(self, row: int, shares: tuple[int, ...]) -> None:
        self.share_state[row] = shares
        self.calls.append(("set_shares", row, shares))

    def set_rate_limit(self, row: int, level: int | None, gbps: float | None) -> None:
        self.calls.append(("set_rate_limit", row, level, gbps))

    def set_threshold(self, switch: int, threshold: int, marking_rate: int) -> None:
        self.calls.append(("set_threshold", switch, threshold, marking_rate))

    def set_service_level(self, rows: list[int], level: int) -> None:
        self.calls.append(("set_service_level", rows, level))

    def set_isolated(self, row: int, isolated: bool) -> None:
        self.calls.append(("set_isolated", row, isolated))

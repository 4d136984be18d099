"""A topology compiled to arrays: ports, peers, rates, endpoints.

P ports in (node, port) order, N nodes, H endpoints (adapter ports that can send and receive), I the largest port count
of a node. An endpoint is one NIC port; a host with eight NICs is eight endpoints that share ``Node.host``.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fabricd.errors import UsageError
from fabricd.model.topology import CA, SWITCH, PortRef, Topology

IntArray = NDArray[np.int64]
FloatArray = NDArray[np.float64]
BoolArray = NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class Graph:
    """Arrays of one topology. ``peer``, ``endpoint_of`` and ``switch_of`` hold -1 for "none"."""

    topology: Topology
    ports: tuple[PortRef, ...]
    index: dict[PortRef, int]
    guids: tuple[int, ...]  # node index -> GUID
    node_index: dict[int, int]
    node_of: IntArray  # [P]
    local: IntArray  # [P] position of the port within its node
    peer: IntArray  # [P]
    rate: FloatArray  # [P] nominal bytes per second
    delay: FloatArray  # [P] seconds
    node_ports: IntArray  # [N, I], -1 padded
    is_switch: BoolArray  # [N]
    endpoints: IntArray  # [H] port index
    endpoint_of: IntArray  # [P]

    @property
    def width(self) -> int:
        return int(self.node_ports.shape[1])

    def port(self, guid: int, port: int) -> int:
        """Index of a port. Raises UsageError when the fabric has no such cabled port."""
        found = self.index.get((guid, port))
        if found is None:
            raise UsageError(f"no cabled port 0x{guid:016x}/{port} in the fabric")
        return found

    def endpoint(self, guid: int, port: int = 1) -> int:
        """Endpoint number of an adapter port. Raises UsageError when it is not one."""
        found = int(self.endpoint_of[self.port(guid, port)])
        if found < 0:
            raise UsageError(f"0x{guid:016x}/{port} is a switch port, not an adapter")
        return found


def compile_graph(topology: Topology, default_delay_s: float = 1e-6) -> Graph:
    """Arrays of ``topology``. A link's label ``delay_ns`` overrides the default delay.

    Raises UsageError for a link to an unknown node, without a rate, or a port cabled twice.
    """
    cabled: dict[PortRef, tuple[PortRef, float, float]] = {}
    for link in topology.links:
        if link.rate_gbps <= 0:
            raise UsageError(f"link {link.a} - {link.b}: rate unknown, the model needs one")
        delay = float(link.labels["delay_ns"]) * 1e-9 if "delay_ns" in link.labels else default_delay_s
        for here, there in ((link.a, link.b), (link.b, link.a)):
            if here[0] not in topology.nodes:
                raise UsageError(f"link end 0x{here[0]:016x}/{here[1]}: no such node")
            if here in cabled:
                raise UsageError(f"port 0x{here[0]:016x}/{here[1]} is cabled twice")
            cabled[here] = (there, link.rate_gbps * 1.25e8, delay)
    guids = tuple(topology.nodes)
    node_index = {guid: n for n, guid in enumerate(guids)}
    ports = tuple(sorted(cabled, key=lambda ref: (node_index[ref[0]], ref[1])))
    if not ports:
        raise UsageError("the topology has no links")
    index = {ref: p for p, ref in enumerate(ports)}
    node_of = np.array([node_index[guid] for guid, _ in ports], dtype=np.int64)
    local = np.zeros(len(ports), dtype=np.int64)
    degree = np.bincount(node_of, minlength=len(guids))
    node_ports = np.full((len(guids), int(degree.max())), -1, dtype=np.int64)
    filled = [0] * len(guids)
    for p, node in enumerate(node_of.tolist()):
        local[p] = filled[node]
        node_ports[node, filled[node]] = p
        filled[node] += 1
    kinds = [topology.nodes[guid].type for guid in guids]
    endpoints = np.array([p for p, node in enumerate(node_of.tolist()) if kinds[node] == CA], dtype=np.int64)
    endpoint_of = np.full(len(ports), -1, dtype=np.int64)
    endpoint_of[endpoints] = np.arange(len(endpoints))
    return Graph(
        topology=topology,
        ports=ports,
        index=index,
        guids=guids,
        node_index=node_index,
        node_of=node_of,
        local=local,
        peer=np.array([index[cabled[ref][0]] for ref in ports], dtype=np.int64),
        rate=np.array([cabled[ref][1] for ref in ports]),
        delay=np.array([cabled[ref][2] for ref in ports]),
        node_ports=node_ports,
        is_switch=np.array([kind == SWITCH for kind in kinds]),
        endpoints=endpoints,
        endpoint_of=endpoint_of,
    )

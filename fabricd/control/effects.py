"""What each lever does in the flow model: for predictions, and for an adapter that drives a model instead of devices.

Every kind of lever of ``levers.LEVERS`` that the model can show has one function; others raise UsageError.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from fabricd.control.levers import routes_lids
from fabricd.errors import UsageError
from fabricd.flow.fabric import FlowModel
from fabricd.flow.routing import minimal_routes
from fabricd.model.action import Lever
from fabricd.model.ident import parse_guid
from fabricd.model.topology import PortRef

PRIORITIES = 8
MBPS = 125_000.0


@dataclass(slots=True)
class Effects:
    """A model, and how the names of the managers map to it.

    ``buffer_bytes``: packet memory that ECN percentages refer to. ``values`` holds what was written last to levers whose value
    the model does not keep in this form.
    """

    model: FlowModel
    buffer_bytes: float = 64e6
    _lids: dict[int, int] = field(default_factory=dict)
    _switches: dict[str, int] = field(default_factory=dict)
    _rules: dict[str, tuple[dict[str, Any], list[tuple[int, int]]]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        topology = self.model.graph.topology
        for h, port in enumerate(self.model.graph.endpoints.tolist()):
            guid, number = self.model.graph.ports[port]
            lid = topology.nodes[guid].lids.get(number)
            if lid:
                self._lids[lid] = h
        self._switches = {
            (node.labels.get("short") or node.name): guid
            for guid, node in topology.nodes.items()
            if guid in self.model.graph.node_index
        }

    def write(self, lever: Lever, value: Any) -> None:
        """Raises UsageError for a lever or value the model does not know."""
        writer = _WRITERS.get((lever.adapter, lever.name))
        if writer is None:
            raise UsageError(f"the flow model does not show {lever.adapter} {lever.name}")
        writer(self, lever, value)

    # ---------------------------------------------------------------- names

    def port(self, lever: Lever, key: str) -> PortRef:
        """A port by SNMP target and number."""
        guid = self._switches.get(lever.device)
        if guid is None:
            raise UsageError(f"no switch {lever.device!r} in the model")
        return guid, int(key)

    def endpoint(self, guid: int) -> int:
        graph = self.model.graph
        for h, port in enumerate(graph.endpoints.tolist()):
            node, number = graph.ports[port]
            if guid in (node, graph.topology.nodes[node].port_guids.get(number)):
                return h
        raise UsageError(f"no adapter port 0x{guid:016x} in the model")

    # ---------------------------------------------------------------- writers

    def option(self, lever: Lever, value: Any) -> None:
        text = str(value)
        if lever.key == "ar_sl_mask":
            mask = int(text, 0)
            for level in range(16):
                self.model.set_adaptive(level, bool(mask >> level & 1))
        elif lever.key == "cc_sw_cong_setting_threshold":
            self.model.set_cc(replace(self.model.controls.cc, kind="ib_cc", threshold=int(text, 0)))
        elif lever.key == "qos_swe_vlarb_low":
            entries = [(int(vl), int(weight)) for vl, weight in (entry.split(":") for entry in text.split(","))]
            for port, ref in enumerate(self.model.graph.ports):
                if self.model.graph.is_switch[self.model.graph.node_of[port]]:
                    self.model.set_vlarb(ref, entries)
        else:
            raise UsageError(f"the flow model does not show opensm option {lever.key}")

    def routes(self, lever: Lever, value: Any) -> None:
        switch = parse_guid(lever.device)
        for lid in routes_lids(lever.key):
            endpoint = self._lids.get(lid)
            if endpoint is not None:  # a model of a part of the fabric does not have every destination
                self.model.set_lft(switch, endpoint, int(value[str(lid)]))

    def hop_weight(self, lever: Lever, value: Any) -> None:
        guid, port = lever.key.split()
        self._avoid((parse_guid(guid), int(port)), value is not None)

    def unhealthy_port(self, lever: Lever, value: Any) -> None:
        guid, port = lever.key.split("_")
        self._avoid((parse_guid(guid), int(port)), bool(value))

    def _avoid(self, ref: PortRef, on: bool) -> None:
        """Both ways, as managers do it; the tables are made anew over what is left (here, whoever made them)."""
        model = self.model
        model.isolate(ref, on)
        if not model.auto_reroute:
            model.engine.routes = minimal_routes(model.graph, model.controls.link_up & ~model.controls.isolated)

    def sl_rate(self, lever: Lever, value: Any) -> None:
        endpoint = self.endpoint(parse_guid(lever.key))
        self.model.controls.rate_limit[endpoint, :] = np.inf
        for level, mbps in (value or {}).items():
            self.model.set_rate_limit(endpoint, int(level), None if not mbps else float(mbps) * MBPS / 1.25e8)
        self.model.engine.refresh_controls()

    def port_admin(self, lever: Lever, value: Any) -> None:
        if lever.adapter == "ufm":
            guid, number = lever.key.split("_")
            ref = (parse_guid(guid), int(number))
        else:
            ref = self.port(lever, lever.key)
        self.model.set_link(ref, up=value == "up")

    def pfc(self, lever: Lever, value: Any) -> None:
        ref = self.port(lever, lever.key)
        for priority in range(min(PRIORITIES, self.model.settings.lanes)):
            self.model.set_pfc(ref, priority, bool(value[priority]))

    def ets(self, lever: Lever, value: Any) -> None:
        """Shares of priorities the model does not have go to the first one."""
        lanes = self.model.settings.lanes
        shares = [int(share) for share in value[:lanes]]
        shares[0] += 100 - sum(shares)
        self.model.set_ets(self.port(lever, lever.key), shares)

    def ecn(self, lever: Lever, value: Any) -> None:
        number, priority = lever.key.split()
        low, high, top = (float(value[name]) / 100 for name in ("kmin", "kmax", "pmax"))
        ref = self.port(lever, number)
        self.model.set_ecn(ref, int(priority), low * self.buffer_bytes, high * self.buffer_bytes, top)

    def qos_policy(self, lever: Lever, value: Any) -> None:
        """The rule's pairs use its service level at once; taken back, they have their own again."""
        flows = self.model.engine.flows
        before = self._rules.pop(lever.key, None)
        if before is not None:
            for flow, level in before[1]:
                flows.sl[flow] = level
        if value:
            sources = {self.endpoint(parse_guid(guid)) for guid in value["source"]}
            targets = {self.endpoint(parse_guid(guid)) for guid in value["destination"]}
            moved = []
            for flow in range(flows.n):
                if (not sources or int(flows.src[flow]) in sources) and (
                    not targets or int(flows.dst[flow]) in targets
                ):
                    moved.append((flow, int(flows.sl[flow])))
                    flows.sl[flow] = int(value["sl"])
            self._rules[lever.key] = (value, moved)
        flows.dirty = True
        self.model.engine.refresh_controls()


_Writer = Callable[[Effects, Lever, Any], None]
_WRITERS: dict[tuple[str, str], _Writer] = {
    ("opensm", "option"): Effects.option,
    ("opensm", "routes"): Effects.routes,
    ("opensm", "hop_weight"): Effects.hop_weight,
    ("opensm", "qos_policy"): Effects.qos_policy,
    ("ufm", "unhealthy_port"): Effects.unhealthy_port,
    ("ufm", "sl_rate"): Effects.sl_rate,
    ("ufm", "port_admin"): Effects.port_admin,
    ("snmp", "port_admin"): Effects.port_admin,
    ("snmp", "pfc"): Effects.pfc,
    ("snmp", "ets"): Effects.ets,
    ("snmp", "ecn"): Effects.ecn,
}

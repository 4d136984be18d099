"""An adapter onto a flow model in this process: the same levers and words, no devices. For trying policies out.

One instance stands for one manager (``opensm``, ``ufm`` or ``snmp``); the three of a model share its ``Effects``.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from fabricd.control.adapters.base import Ack, AdapterError, Capability, Conflict, Push
from fabricd.control.effects import Effects
from fabricd.control.levers import kind_of, routes_lids
from fabricd.errors import UsageError
from fabricd.model.action import Change, Lever
from fabricd.model.ident import parse_guid

PRIORITIES = 8


class ModelAdapter:
    """``options``: what opensm.conf holds to begin with. ``names``: the levers this manager lets us write."""

    time_limit_s = 1.0

    def __init__(
        self, name: str, effects: Effects, names: tuple[str, ...], options: Mapping[str, str] | None = None
    ) -> None:
        self.name, self.effects, self.names = name, effects, names
        self._options = dict(options or {})
        self._values: dict[Lever, Any] = {}
        self._lid_of = {
            lid: (guid, port)
            for guid, node in effects.model.graph.topology.nodes.items()
            for port, lid in node.lids.items()
        }

    def probe(self) -> list[Capability]:
        return [Capability(name=name, device="*", writable=True) for name in self.names]

    def read(self, lever: Lever) -> Any:
        kind_of(lever)
        model = self.effects.model
        if lever.name == "option":
            return self._options.get(lever.key)
        if lever.name == "routes":
            table = model.lft(parse_guid(lever.device))
            return {str(lid): table.get(model.graph.endpoint(*self._lid_of[lid]), 0) for lid in routes_lids(lever.key)}
        if lever.name == "pfc":
            port = model.graph.port(*self.effects.port(lever, lever.key))
            on = model.controls.pfc_on[port].tolist()
            return [bool(on[p]) if p < len(on) else False for p in range(PRIORITIES)]
        if lever.name == "ecn":
            number, priority = lever.key.split()
            port = model.graph.port(*self.effects.port(lever, number))
            low, high, top = (
                float(x[port, int(priority)])
                for x in (model.controls.ecn_kmin, model.controls.ecn_kmax, model.controls.ecn_pmax)
            )
            memory = self.effects.buffer_bytes * model.settings.slowdown
            return {"kmin": round(100 * low / memory), "kmax": round(100 * high / memory), "pmax": round(100 * top)}
        return self._values.get(lever, _UNSET.get(lever.name))

    def plan(self, change: Change) -> Push:
        lever = change.lever
        shown = f"{self.name} {lever.name} {lever.device} {lever.key} = {json.dumps(change.new)}"
        return Push(lever=lever, shown=(shown,))

    def push(self, change: Change) -> Ack:
        now = self.read(change.lever)
        if now != change.old:
            raise Conflict(f"{change.lever.name} {change.lever.key} holds {now!r}, not {change.old!r}")
        try:
            self.effects.write(change.lever, change.new)
        except UsageError as error:
            raise AdapterError(str(error)) from None
        if change.lever.name == "option":
            self._options[change.lever.key] = str(change.new)
        else:
            self._values[change.lever] = change.new
        return Ack(answer="done", device_seconds=0.0)

    def read_back(self, lever: Lever) -> Any:
        return self.read(lever)


_UNSET: dict[str, Any] = {"unhealthy_port": False, "port_admin": "up"}

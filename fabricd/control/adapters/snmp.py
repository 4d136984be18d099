"""The SNMP adapter: SETs of the objects a device profile lists, nothing else; each read again from the agent."""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping
from typing import Any

from fabricd.config.control import ControlConfig
from fabricd.control.adapters.base import Ack, AdapterError, Capability, Push
from fabricd.control.adapters.base_calls import compare, settle, translated
from fabricd.control.adapters.snmp_levers import Handler, Ports, handlers
from fabricd.devices.base import DeviceError, DeviceUnreachable
from fabricd.devices.snmp.client import SetRefused, SnmpClient
from fabricd.devices.snmp.profile import LEVERS
from fabricd.devices.snmp.targets import Target, load_targets
from fabricd.errors import UsageError
from fabricd.model.action import Change, Lever

SETTLE_S = 1.0
READ_ONLY = frozenset({"notWritable", "noAccess", "authorizationError", "readOnly", "noCreation"})


class _Switch:
    """One agent with its levers."""

    def __init__(self, target: Target) -> None:
        self.target = target
        self.client = SnmpClient(target)
        self.ports = Ports(self.client, target.profile)
        self.handlers: dict[str, Handler] = handlers(self.client, target.profile, self.ports)
        self.lock = threading.RLock()


class SnmpAdapter:
    """Blocking; calls to different switches may run side by side. ``probe_by_writing``: see ``probe``."""

    name = "snmp"

    def __init__(self, targets: Mapping[str, Target], *, probe_by_writing: bool = True) -> None:
        self._switches = {name: _Switch(target) for name, target in targets.items()}
        self.time_limit_s = 10.0 + 10 * max((target.timeout_s for target in targets.values()), default=2.0)
        self.probe_by_writing = probe_by_writing

    def _place(self, lever: Lever) -> tuple[_Switch, Handler]:
        switch = self._switches.get(lever.device)
        if switch is None:
            raise AdapterError(f"snmp: no target {lever.device!r}")
        handler = switch.handlers.get(lever.name)
        if handler is None:
            raise AdapterError(
                f"snmp: {lever.device}: {switch.target.profile.why_not(lever.name) or f'no lever {lever.name}'}"
            )
        return switch, handler

    def probe(self) -> list[Capability]:
        """Every lever of every switch. A listed one is tried by setting what was just read: agents refuse there what they refuse
        later. With ``probe_by_writing`` off the profile and the user's kind are all that is looked at."""
        return [found for name in self._switches for found in self._probe(self._switches[name])]

    def _probe(self, switch: _Switch) -> list[Capability]:
        name, profile, out = switch.target.name, switch.target.profile, []
        for lever in LEVERS:
            why = profile.why_not(lever)
            if not why and switch.target.user is None:
                why = "SNMPv2c is for reading; writes need an SNMPv3 user"
            if not why and self.probe_by_writing:
                why = self._try(switch, lever)
            out.append(Capability(name=lever, device=name, writable=not why, why=why))
        return out

    def _try(self, switch: _Switch, lever: str) -> str:
        """Why a lever cannot be written; empty when it can."""
        with switch.lock:
            try:
                port = switch.ports.any()
                if port is None:
                    return "the agent shows no interfaces"
                sample = Lever(
                    adapter="snmp",
                    device=switch.target.name,
                    name=lever,
                    key=f"{port} 3" if lever == "ecn" else str(port),
                )
                handler = switch.handlers[lever]
                switch.client.set(handler.writes(sample, handler.read(sample)))
            except SetRefused as error:
                return f"the agent refuses: {error.status}"
            except DeviceUnreachable as error:
                return str(error)
            except (DeviceError, AdapterError) as error:
                return str(error)
        return ""

    def read(self, lever: Lever) -> Any:
        switch, handler = self._place(lever)
        with switch.lock, translated():
            return handler.read(lever)

    read_back = read

    def plan(self, change: Change) -> Push:
        switch, handler = self._place(change.lever)
        with switch.lock, translated():
            writes = handler.writes(change.lever, change.new)
        who = f"user {switch.target.user.name}, authPriv, keys ***" if switch.target.user else "community ***"
        head = f"SET to {switch.target.host}:{switch.target.port} ({who})"
        lines = [f"{oid} = {kind} {value}" for oid, kind, value in writes]
        return Push(lever=change.lever, shown=("\n".join([head, *lines]),))

    def push(self, change: Change) -> Ack:
        lever = change.lever
        switch, handler = self._place(lever)
        with switch.lock, translated():
            start = time.monotonic()
            compare(lever, handler.read(lever), change.old)
            writes = handler.writes(lever, change.new)
            switch.client.set(writes)
            settle(lambda: self.read(lever), change.new, SETTLE_S)
            return Ack(answer=f"noError, {len(writes)} objects in one PDU", device_seconds=time.monotonic() - start)


def open_adapter(config: ControlConfig) -> SnmpAdapter:
    """By [control]. In observe mode nothing is written, not even what is there already. Raises UsageError."""
    if not config.snmp_targets:
        raise UsageError("control.snmp_targets is empty: it names the file of switches")
    targets = load_targets(config.snmp_targets, config.snmp_secrets_file)
    return SnmpAdapter(targets, probe_by_writing=config.mode != "observe" and not config.dry_run)

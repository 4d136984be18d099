"""UFM's levers: what each reads, and which requests a change makes."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Any, Protocol

from fabricd.control.adapters.base import AdapterError, Conflict
from fabricd.devices.ufm.cli_templates import TEMPLATES
from fabricd.devices.ufm.client import Call, NotFound, UfmClient
from fabricd.model.action import Lever
from fabricd.model.ident import parse_guid

RATES = (2.5, 5, 10, 14, 20, 25, 30, 40, 56, 60, 80, 100, 112, 120, 168, 200, 300)
MTUS, LEVELS = (2, 4), range(16)
AS_CREATED = {"mtu_limit": 2, "service_level": 0, "rate_limit": 2.5}
MANUAL = "MANUAL"
NAME = "fabricd_{}"
_PORT = re.compile(r"[0-9a-f]{16}_\d{1,3}")


class Handler(Protocol):
    """One kind of lever. ``needs``: the routes a UFM must serve for it."""

    needs: tuple[tuple[str, str], ...]

    def read(self, lever: Lever) -> Any: ...
    def calls(self, lever: Lever, new: Any) -> list[Call]: ...
    def wrote(self, lever: Lever, new: Any) -> None:
        """After the calls: remember or tidy up."""


@dataclass(slots=True)
class QosConf:
    """QoS of a partition. UFM shows its defaults for one that never had any; written back, they would be a limit of 2.5 Gb/s."""

    ufm: UfmClient
    needs: tuple[tuple[str, str], ...] = (("PUT", "/resources/pkeys/qos_conf"), ("GET", "/resources/pkeys/*"))

    def _pkey(self, lever: Lever) -> str:
        try:
            pkey = int(lever.key, 16)
        except ValueError:
            pkey = 0
        if not 1 <= pkey <= 0x7FFF:
            raise AdapterError(f"qos_conf: key {lever.key!r} is not a P_Key of 0x1 to 0x7fff")
        return f"{pkey:#x}"

    def read(self, lever: Lever) -> dict[str, Any] | None:
        document = self.ufm.get(f"/resources/pkeys/{self._pkey(lever)}", qos_conf="true")
        found = document.get("qos_conf") if isinstance(document, dict) else None
        return {key: found[key] for key in AS_CREATED if key in found} if isinstance(found, dict) else None

    def calls(self, lever: Lever, new: Any) -> list[Call]:
        now = self.read(lever)
        if now is None:
            raise AdapterError(f"qos_conf: UFM has no partition {lever.key}")
        if now == AS_CREATED and new != now:
            raise AdapterError(
                f"qos_conf: partition {lever.key} has no QoS of its own; what UFM shows cannot be written back without "
                "limiting it to 2.5 Gb/s. Give it a QoS by hand first"
            )
        if not isinstance(new, dict) or set(new) != set(AS_CREATED):
            raise AdapterError(f"qos_conf: {new!r} is not mtu_limit, service_level and rate_limit")
        for key, allowed in (("mtu_limit", MTUS), ("service_level", LEVELS), ("rate_limit", RATES)):
            if isinstance(new[key], bool) or new[key] not in allowed:
                raise AdapterError(f"qos_conf: {key} {new[key]!r} is not one UFM takes")
        return [
            Call(
                "PUT", "/resources/pkeys/qos_conf", {"pkey": self._pkey(lever), **{key: new[key] for key in AS_CREATED}}
            )
        ]

    def wrote(self, lever: Lever, new: Any) -> None:
        """Nothing to tidy."""


@dataclass(slots=True)
class SlRate:
    """Rate limits of an adapter's service levels. Rules name bandwidths, so names are made for what is written.

    The body of a rule is written in no public document; ``rule_body`` is the one place that knows it.
    """

    ufm: UfmClient
    needs: tuple[tuple[str, str], ...] = (("POST", "/resources/sl_qos/rules"), ("POST", "/resources/sl_qos/names"))

    def _guid(self, lever: Lever) -> str:
        try:
            return f"{parse_guid(lever.key):016x}"
        except ValueError:
            raise AdapterError(f"sl_rate: key {lever.key!r} is not a port GUID") from None

    def _rule(self, guid: str) -> dict[str, str] | None:
        rules = self.ufm.get("/resources/sl_qos/rules")
        rule = rules.get(guid) if isinstance(rules, dict) else None
        return rule if isinstance(rule, dict) else None

    def _names(self) -> dict[str, int]:
        names = self.ufm.get("/resources/sl_qos/names")
        return names if isinstance(names, dict) else {}

    def read(self, lever: Lever) -> dict[str, int] | None:
        rule = self._rule(self._guid(lever))
        if rule is None:
            return None
        names = self._names()
        unknown = [name for name in rule.values() if name not in names]
        if unknown:
            raise AdapterError(f"sl_rate: the rule of {lever.key} names {unknown[0]}, which has no bandwidth")
        return {level: names[name] for level, name in rule.items()}

    def calls(self, lever: Lever, new: Any) -> list[Call]:
        guid = self._guid(lever)
        if new is None:
            return [Call("DELETE", f"/resources/sl_qos/rules/{guid}")]
        if not isinstance(new, dict) or not new:
            raise AdapterError(f"sl_rate: {new!r} is not an object of service level to Mb/s")
        for level, rate in new.items():
            if (
                not level.isdigit()
                or int(level) not in LEVELS
                or isinstance(rate, bool)
                or not isinstance(rate, int)
                or rate < 0
            ):
                raise AdapterError(f"sl_rate: {level!r}: {rate!r} is not a service level and whole Mb/s")
        names = self._names()
        by_rate = {rate: name for name, rate in sorted(names.items(), reverse=True)}
        wanted = {level: by_rate.get(rate, NAME.format(rate)) for level, rate in new.items()}
        fresh = {NAME.format(rate): rate for rate in new.values() if rate not in by_rate}
        if taken := [name for name in fresh if name in names]:
            raise AdapterError(f"sl_rate: the name {taken[0]} stands for {names[taken[0]]} Mb/s: somebody changed it")
        out = [Call("POST", "/resources/sl_qos/names", fresh)] if fresh else []
        out.append(
            Call("POST" if self._rule(guid) is None else "PUT", "/resources/sl_qos/rules", rule_body(guid, wanted))
        )
        return out

    def wrote(self, lever: Lever, new: Any) -> None:
        """Names of ours that no rule uses any more go."""
        used = {name for rule in self.ufm.get("/resources/sl_qos/rules").values() for name in rule.values()}
        for name in self._names():
            if name.startswith(NAME.format("")) and name not in used:
                self.ufm.do(Call("DELETE", "/resources/sl_qos/names", query=(("name", name),)))


def rule_body(guid: str, levels: dict[str, str]) -> dict[str, dict[str, str]]:
    """Derived from the policy file's grammar (port -> level -> name); not verified on a UFM."""
    return {guid: levels}


def port_name(lever: Lever) -> str:
    name = lever.key.lower().removeprefix("0x")
    if not _PORT.fullmatch(name):
        raise AdapterError(f"{lever.name}: key {lever.key!r} is not '<16 hexadecimal digits>_<port>'")
    return name


@dataclass(slots=True)
class UnhealthyPort:
    """Isolation by the SM. A port isolated by UFM's own detection, by SHIELD or by a person is theirs to release."""

    ufm: UfmClient
    needs: tuple[tuple[str, str], ...] = (("PUT", "/app/unhealthy_ports"), ("GET", "/app/unhealthy_ports"))
    _ours: dict[str, str] = field(default_factory=dict)  # port -> time UFM gave our mark

    def _entry(self, name: str) -> dict[str, Any] | None:
        for entry in self.ufm.get("/app/unhealthy_ports"):
            if str(entry.get("UnhealthyPort", "")).lower() == name:
                found: dict[str, Any] = entry
                return found
        return None

    def read(self, lever: Lever) -> bool:
        return self._entry(port_name(lever)) is not None

    def calls(self, lever: Lever, new: Any) -> list[Call]:
        name = port_name(lever)
        if not isinstance(new, bool):
            raise AdapterError(f"unhealthy_port: {new!r} is neither true nor false")
        if new:
            return [
                Call("PUT", "/app/unhealthy_ports", {"ports": [name], "ports_policy": "UNHEALTHY", "action": "isolate"})
            ]
        entry = self._entry(name)
        if entry is not None:
            causes = entry.get("Condition") or MANUAL
            other = [cause for cause in ([causes] if isinstance(causes, str) else causes) if cause != MANUAL]
            if other:
                raise Conflict(f"unhealthy_port {name} is held by {', '.join(map(str, other))}, not by us")
            ours = self._ours.get(name)
            if ours is not None and str(entry.get("StatusTime")) != ours:
                raise Conflict(f"unhealthy_port {name} was marked anew at {entry.get('StatusTime')}, by somebody else")
        return [Call("PUT", "/app/unhealthy_ports", {"ports": [name], "ports_policy": "HEALTHY"})]

    def wrote(self, lever: Lever, new: Any) -> None:
        name = port_name(lever)
        self._ours.pop(name, None)
        if new and (entry := self._entry(name)) is not None:
            self._ours[name] = str(entry.get("StatusTime"))


@dataclass(slots=True)
class PortAdmin:
    """Enable and disable a port, by UFM's action where the port offers it, else by two lines of the switch's command language."""

    ufm: UfmClient
    needs: tuple[tuple[str, str], ...] = (("POST", "/actions"), ("GET", "/jobs/*"))

    def _port(self, lever: Lever) -> dict[str, Any]:
        name = port_name(lever)
        try:
            found = self.ufm.get(f"/resources/ports/{name}", show_disabled="true")
        except NotFound:
            raise AdapterError(f"UFM knows no port {name}") from None
        port = found[0] if isinstance(found, list) and found else found
        if not isinstance(port, dict) or not port:
            raise AdapterError(f"UFM knows no port {name}")
        return port

    def read(self, lever: Lever) -> str:
        state = str(self._port(lever).get("physical_state"))
        return "down" if state.lower() in ("disabled", "disable") else "up"

    def calls(self, lever: Lever, new: Any) -> list[Call]:
        if new not in ("up", "down"):
            raise AdapterError(f"port_admin: {new!r} is neither up nor down")
        port, action = self._port(lever), "enable" if new == "up" else "disable"
        offered = port.get("capabilities") or []
        # A port shows the action that is possible now: one that is up offers disable.
        if action in offered or {"enable", "disable"} & set(offered):
            body = {
                "action": action, "object_ids": [port["systemID"]], "object_type": "System", "identifier": "id",
                "params": {"port_id": port_name(lever)}, "description": f"fabricd: {action} {port_name(lever)}",
            }  # fmt: skip
            return [Call("POST", "/actions", body, job=True)]
        if "run_cli" not in (port.get("system_capabilities") or []):
            raise AdapterError(f"port_admin: UFM offers neither {action} nor commands for {port_name(lever)}")
        address = str(port.get("system_ip"))
        lines = TEMPLATES["port_up" if new == "up" else "port_down"].fill(port=str(port.get("dname")))
        body = {
            "action": "run_cli", "object_ids": [address], "object_type": "System", "identifier": "ip",
            "params": {"commandline": lines, "arguments": {"globals": {}, "devices": {address: {}}}},
            "description": f"fabricd: {action} {port_name(lever)}",
        }  # fmt: skip
        return [Call("POST", "/actions", body, job=True)]

    def wrote(self, lever: Lever, new: Any) -> None:
        """Nothing to tidy."""


def handlers(ufm: UfmClient) -> dict[str, Handler]:
    """By the name of the lever."""
    return {
        "qos_conf": QosConf(ufm),
        "sl_rate": SlRate(ufm),
        "unhealthy_port": UnhealthyPort(ufm),
        "port_admin": PortAdmin(ufm),
    }

"""Partitions with their QoS, and rate limits per service level. What is written here throttles and moves traffic."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from fabricd.twin.face import SERVICE_LEVELS
from fabricd.twin.ufm.inventory import Inventory
from fabricd.twin.ufm.strict import Refused, guid_text

DEFAULT_PKEY = 0x7FFF
RATES = (2.5, 5, 10, 14, 20, 25, 30, 40, 56, 60, 80, 100, 112, 120, 168, 200, 300)
DEFAULT_QOS = {"mtu_limit": 2, "service_level": 0, "rate_limit": 2.5}
NUMBER = (int, float)


@dataclass(slots=True)
class Partition:
    name: str
    ip_over_ib: bool = True
    qos: dict[str, Any] | None = None  # None: as created; the defaults are shown, nothing is enforced
    members: dict[str, dict[str, Any]] = field(default_factory=dict)  # port GUID -> membership, index0


class Partitions:
    """All partitions of the subnet."""

    def __init__(self, inventory: Inventory) -> None:
        self._inventory = inventory
        self.table = {DEFAULT_PKEY: Partition("management")}

    def show(self, pkey: int, guids: bool, qos: bool) -> dict[str, Any]:
        part = self.table[pkey]
        out: dict[str, Any] = {"partition": part.name, "ip_over_ib": part.ip_over_ib}
        if pkey == DEFAULT_PKEY:
            out["membership"] = "full"
        if qos:
            out["qos_conf"] = part.qos or dict(DEFAULT_QOS)
        if guids:
            out["guids"] = [{"guid": guid, **how} for guid, how in part.members.items()]
        return out

    def add(self, body: dict[str, Any], replace: bool) -> None:
        """Add members (or replace all of them). Raises Refused 400, 404 (an unknown GUID refuses the whole request)."""
        pkey = parse_pkey(body["pkey"])
        if pkey == DEFAULT_PKEY:
            raise Refused(400, "the default partition cannot be changed")
        guids = [guid_text(text) if isinstance(text, str) else "" for text in body["guids"]]
        for guid in guids:
            if self._inventory.adapter_row(guid) is None:
                raise Refused(404, f"no port with GUID {guid}")
        kinds = body.get("memberships", [body.get("membership", "full")] * len(guids))
        if len(kinds) != len(guids) or any(kind not in ("full", "limited") for kind in kinds):
            raise Refused(400, "memberships: one of full, limited for each GUID")
        part = self.table.setdefault(pkey, Partition(f"api_pkey_{pkey:#x}"))
        part.ip_over_ib = body.get("ip_over_ib", True)
        if replace:
            self._release(part, [guid for guid in part.members if guid not in guids])
            part.members.clear()
        index0 = body.get("index0", False)
        for guid, kind in zip(guids, kinds, strict=True):
            part.members[guid] = {"membership": kind, "index0": index0}
        self._enforce(part)

    def create(self, body: dict[str, Any]) -> None:
        """An empty partition. Raises Refused 400."""
        pkey = parse_pkey(body["pkey"])
        if pkey in self.table:
            raise Refused(400, f"{pkey:#x} is there already")
        qos = {key: body[key] for key in DEFAULT_QOS if key in body}
        part = Partition(body.get("partition_name", f"api_pkey_{pkey:#x}"), body.get("ip_over_ib", True))
        part.qos = check_qos({**DEFAULT_QOS, **qos}) if qos else None
        self.table[pkey] = part

    def remove(self, pkey: int, guids: list[str]) -> None:
        """Take members out; the last one out takes the partition with it. Raises Refused 404."""
        part = self.table.get(pkey)
        unknown = [guid for guid in guids if part is None or guid not in part.members]
        if part is None or unknown:
            raise Refused(404, f"{pkey:#x}: no such partition or member {', '.join(unknown)}")
        self._release(part, guids)
        for guid in guids:
            del part.members[guid]
        if not part.members and pkey != DEFAULT_PKEY:
            del self.table[pkey]

    def delete(self, pkey: int) -> None:
        if pkey == DEFAULT_PKEY:
            raise Refused(400, "the default partition cannot be deleted")
        part = self.table.pop(pkey, None)
        if part is None:
            raise Refused(404, f"no partition {pkey:#x}")
        self._release(part, list(part.members))

    def set_qos(self, body: dict[str, Any]) -> None:
        """QoS of a partition, enforced from now on. Raises Refused 400, 404."""
        pkey = parse_pkey(body["pkey"])
        part = self.table.get(pkey)
        if part is None:
            raise Refused(404, f"no partition {pkey:#x}")
        wanted = {key: value for key, value in body.items() if key != "pkey"}
        self._release(part, list(part.members))
        part.qos = check_qos({**(part.qos or DEFAULT_QOS), **wanted})
        self._enforce(part)

    def _rows(self, guids: list[str]) -> list[int]:
        rows = (self._inventory.adapter_row(guid) for guid in guids)
        return [row for row in rows if row is not None]

    def _enforce(self, part: Partition) -> None:
        """Traffic between members takes the partition's level, and what they send there is kept to its rate."""
        if part.qos is None:
            return
        rows, level = self._rows(list(part.members)), int(part.qos["service_level"])
        fabric = self._inventory.fabric
        fabric.set_service_level(rows, level)
        for row in rows:
            fabric.set_rate_limit(row, level, float(part.qos["rate_limit"]))

    def _release(self, part: Partition, guids: list[str]) -> None:
        if part.qos is not None:
            for row in self._rows(guids):
                self._inventory.fabric.set_rate_limit(row, int(part.qos["service_level"]), None)


def parse_pkey(text: str) -> int:
    """Raises Refused 400."""
    try:
        pkey = int(text, 16)
    except ValueError:
        pkey = 0
    if not text.lower().startswith("0x") or not 1 <= pkey <= DEFAULT_PKEY:
        raise Refused(400, f"pkey {text}: 0x1 to 0x7fff")
    return pkey


def check_qos(qos: dict[str, Any]) -> dict[str, Any]:
    """Raises Refused 400 on values UFM does not take."""
    if qos["mtu_limit"] not in (2, 4):
        raise Refused(400, f"mtu_limit {qos['mtu_limit']}: 2 or 4")
    if qos["service_level"] not in range(SERVICE_LEVELS):
        raise Refused(400, f"service_level {qos['service_level']}: 0 to 15")
    if qos["rate_limit"] not in RATES:
        raise Refused(400, f"rate_limit {qos['rate_limit']}: one of {', '.join(map(str, RATES))}")
    return qos


class LevelLimits:
    """Enhanced QoS: names for bandwidths, and rules that give an adapter's service levels such a name."""

    def __init__(self, inventory: Inventory) -> None:
        self._inventory = inventory
        self.names: dict[str, int] = {}
        self.rules: dict[str, dict[str, str]] = {}  # port GUID -> level -> name

    def set_name(self, name: str, megabits: Any) -> None:
        if isinstance(megabits, bool) or not isinstance(megabits, int) or megabits < 0:
            raise Refused(400, f"{name}: a bandwidth is a whole number of Mb/s")
        if name == "default" or not name.replace("_", "").isalnum():
            raise Refused(400, f"{name!r} cannot be a name")
        self.names[name] = megabits
        for guid in [guid for guid, rule in self.rules.items() if name in rule.values()]:
            self._enforce(guid)

    def delete_name(self, name: str) -> None:
        if name not in self.names:
            raise Refused(404, f"no bandwidth {name}")
        if any(name in rule.values() for rule in self.rules.values()):
            raise Refused(400, f"{name} is in use")
        del self.names[name]

    def set_rules(self, document: Any) -> None:
        """``{port GUID: {level: name}}``; levels a rule does not name become unlimited. Raises Refused."""
        if not isinstance(document, dict):
            raise Refused(400, "rules: an object of port GUID to levels")
        checked: dict[str, dict[str, str]] = {}
        for text, rule in document.items():
            guid = guid_text(text)
            if self._inventory.adapter_row(guid) is None:
                raise Refused(404, f"no port with GUID {text}")
            if not isinstance(rule, dict) or not rule:
                raise Refused(400, f"{text}: an object of level to name")
            for level, name in rule.items():
                if not level.isdigit() or int(level) >= SERVICE_LEVELS:
                    raise Refused(400, f"{text}: level {level}: 0 to 15")
                if name not in self.names:
                    raise Refused(400, f"{text}: no bandwidth {name}")
            checked[guid] = rule
        for guid, rule in checked.items():
            self.rules[guid] = rule
            self._enforce(guid)

    def delete_rule(self, guid: str) -> None:
        if self.rules.pop(guid, None) is None:
            raise Refused(404, f"no rule for {guid}")
        self._enforce(guid)

    def _enforce(self, guid: str) -> None:
        row = self._inventory.adapter_row(guid)
        if row is None:
            return
        rule = self.rules.get(guid, {})
        for level in range(SERVICE_LEVELS):
            megabits = self.names.get(rule.get(str(level), ""), 0)
            self._inventory.fabric.set_rate_limit(row, level, megabits / 1000 if megabits else None)

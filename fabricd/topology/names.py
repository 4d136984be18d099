"""What a node description says: host, adapter, SHARP node, nothing; the faceplate label of a port; node-name-map files.

Descriptions are written by people and drivers: `mlx5_N` counts from 0 and `HCA-N` from 1 in one fabric, one in eight is still what
the factory wrote, some are empty. They are labels only; nothing here is an identity.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from fabricd.model.ident import parse_guid
from fabricd.model.rejects import Rejects
from fabricd.model.topology import AGGREGATION, CA, SWITCH, Node

NAME_BYTES = 64  # NodeDescription is 64 bytes, not always NUL-terminated

_DEVICE = re.compile(
    r"^(?:(?:mlx[45]_|hfi1_|qib|mthca|bnxt_re|irdma|ionic_|rxe|siw)\d+|HCA-\d+|(?:ib|roce)[op]?\w*\d\w*)$"
)
_DEVICE_NUMBER = re.compile(r"^(mlx[45]_|hfi1_|qib|mthca|bnxt_re|irdma|ionic_|rxe|siw|HCA-|ib|roce)(\d+)$")
_FACTORY = re.compile(
    r"Mellanox Technologies|^(?:MT\d{4,}|ConnectX|Quantum|Infiniscale|InfiniScale|SwitchX|Switch ?-?I[Bb]|BlueField)\b",
    re.I,
)
_NO_HOST = {"", "localhost", "localhost.localdomain", "(none)", "unknown", "none"}
_AGGREGATION = re.compile(r"\bAggregation Node\b", re.I)
_SWITCH_NAME = re.compile(r"^(?:MF0;)?(?P<name>[^:;]+)(?::(?P<model>[^/]*)(?:/(?P<asic>.*))?)?$")
_MAP_LINE = re.compile(r'^\s*(?P<guid>(?:0x)?[0-9A-Fa-f]{1,16})\s+(?:"(?P<quoted>.*)"|(?P<bare>[^"#]\S*))\s*(?:#.*)?$')


@dataclass(frozen=True, slots=True)
class AdapterName:
    """``host`` is "" when the description names none; ``index`` is the adapter's number from 0, None when it has none."""

    host: str
    device: str = ""
    index: int | None = None


def clean_name(raw: str) -> str:
    """At most 64 bytes, control characters blanked, outer blanks cut."""
    text = "".join(c if c.isprintable() else " " for c in raw)
    return text.encode("utf-8", "replace")[:NAME_BYTES].decode("utf-8", "ignore").strip()


def is_factory_name(name: str) -> bool:
    """Is the description what the device came with (or nothing), so that nobody named it?"""
    return not name.strip() or bool(_FACTORY.search(name))


def parse_adapter_name(description: str) -> AdapterName:
    """``gpu001 mlx5_3`` and ``gpu001 HCA-4`` are both adapter 3 of gpu001; a factory description names no host."""
    if is_factory_name(description):
        return AdapterName("")
    host, _, device = description.strip().rpartition(" ")
    if host and _DEVICE.match(device):
        number = _DEVICE_NUMBER.match(device)
        index = int(number[2]) - (1 if number[1] == "HCA-" else 0) if number else None
        return AdapterName("" if host.strip().lower() in _NO_HOST else host.strip(), device, index)
    name = description.strip()
    if name.lower() in _NO_HOST:
        return AdapterName("")
    if _DEVICE.match(name) and not name.startswith(("ib", "roce")):  # a host may well be called ib01
        return AdapterName("", name)
    return AdapterName(name)


def node_type(kind: str, description: str) -> str:
    """A SHARP aggregation node calls itself a channel adapter; every switch has one, and it is no host."""
    return AGGREGATION if kind == CA and _AGGREGATION.search(description) else kind


def apply_names(node: Node) -> None:
    """Fill host, adapter and switch labels from the node's description. Known labels are kept."""
    if node.type == CA:
        parsed = parse_adapter_name(node.name)
        node.host = node.host or parsed.host
        if parsed.device:
            node.labels.setdefault("device", parsed.device)
        if parsed.index is not None:
            node.labels.setdefault("hca", str(parsed.index))
    elif (
        node.type == SWITCH
        and (match := _SWITCH_NAME.match(node.name))
        and match["model"]
        and not is_factory_name(node.name)
    ):
        node.labels.setdefault("model", match["model"])
        node.labels.setdefault("short", match["name"])
        if match["asic"]:
            node.labels.setdefault("asic", match["asic"])


def short_name(node: Node) -> str:
    """``MF0;LEAF-01:MQM9700/U1`` -> ``LEAF-01``; other names unchanged; a nameless node by the end of its GUID."""
    return node.labels.get("short") or node.name or f"{node.guid:016x}"


def parse_name_map(text: str, rejects: Rejects, where: str) -> dict[int, str]:
    """The node-name-map of the InfiniBand tools: ``0xGUID "name"`` a line, # comments. Bad lines are counted."""
    names: dict[int, str] = {}
    for number, line in enumerate(text.splitlines(), 1):
        if not line.strip() or line.lstrip().startswith("#"):
            continue
        match = _MAP_LINE.match(line)
        if match is None:
            rejects.add("name_map_line", line, f"{where}:{number}")
            continue
        names[parse_guid(match["guid"])] = clean_name(match["quoted"] if match["quoted"] is not None else match["bare"])
    return names


# Ports of the switch chips by PCI device id; cages and ports a cage from the vendors' hardware manuals (MQM9700, MQM8700, SB7800).
_TWIN_PORT_CAGES = {0xD2F2, 0xD2F4}  # Quantum-2, Quantum-3: an OSFP cage carries two ports
_SINGLE_PORT_CAGES = {
    0xD2F0: 40,
    0xCB20: 36,
    0xCF08: 36,
}  # Quantum, Switch-IB, Switch-IB 2: ports when nothing is split
_QUANTUM2_CAGES = 32


def faceplate(device_id: int, num_ports: int, port: int) -> str | None:
    """The label printed at a switch port, derived from the model's geometry; None when the model is not known.

    ``1/16/1``: cage 16, its first port; ``1/16/1/2``: the second half of that port, split; ``1/16``: a cage of one port.
    Port 0 (management) and a chip's internal SHARP port have none.
    """
    if port < 1:
        return None
    if device_id == 0xD2F2 and num_ports >= 4 * _QUANTUM2_CAGES:
        cage, rest = divmod(port - 1, 4)
        return f"1/{cage + 1}/{rest // 2 + 1}/{rest % 2 + 1}" if cage < _QUANTUM2_CAGES else None
    if device_id in _TWIN_PORT_CAGES:
        cage, rest = divmod(port - 1, 2)
        return f"1/{cage + 1}/{rest + 1}" if device_id != 0xD2F2 or cage < _QUANTUM2_CAGES else None
    if device_id in _SINGLE_PORT_CAGES:
        cages = _SINGLE_PORT_CAGES[device_id]
        if num_ports >= 2 * cages:
            cage, rest = divmod(port - 1, 2)
            return f"1/{cage + 1}/{rest + 1}" if cage < cages else None
        return f"1/{port}" if port <= cages else None
    return None


def split_lane(label: str, device_id: int) -> str:
    """Which part of a split port a faceplate label names (``1/16/1/2`` -> ``2``), "" when the port is whole."""
    parts = label.split("/")
    whole = 3 if device_id in _TWIN_PORT_CAGES else 2
    return parts[-1] if device_id in _TWIN_PORT_CAGES | set(_SINGLE_PORT_CAGES) and len(parts) > whole else ""

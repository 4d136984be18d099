"""What perfquery prints, block by block; a run that broke off keeps the blocks before it, and a bad line costs only itself.

# Port extended counters: Lid 3 port 8 (CapMask: 0x1300 CapMask2: 0x0000000)
PortSelect:......................8
PortXmitData:....................76
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field

from fabricd.ib.mad import Pma
from fabricd.model.rejects import Rejects
from fabricd.sources.pma_device import ASSUMED, Capability
from fabricd.sources.pma_layout import LAYOUT

_HEAD = re.compile(
    r"# Port (?P<extended>extended )?counters: (?:DR path \S+;? ?)?(?:Lid (?P<lid>\d+) )?.*?port (?P<port>\d+)"
    r"(?: \(CapMask: (?P<mask>0x[0-9A-Fa-f]+)(?: CapMask2: (?P<mask2>0x[0-9A-Fa-f]+))?\))?\s*"
)
_LINE = re.compile(r"(\w+):\.*(-?\d+|0x[0-9A-Fa-f]+)\s*")
_NOT_COUNTERS = frozenset({"PortSelect", "CounterSelect", "CounterSelect2"})
_OLD_NAMES = {
    "SymbolErrors": "SymbolErrorCounter",
    "LinkRecovers": "LinkErrorRecoveryCounter",
    "LinkDowned": "LinkDownedCounter",
    "RcvErrors": "PortRcvErrors",
    "RcvRemotePhysErrors": "PortRcvRemotePhysicalErrors",
    "RcvSwRelayErrors": "PortRcvSwitchRelayErrors",
    "XmtDiscards": "PortXmitDiscards",
    "XmtConstraintErrors": "PortXmitConstraintErrors",
    "RcvConstraintErrors": "PortRcvConstraintErrors",
    "LinkIntegrityErrors": "LocalLinkIntegrityErrors",
    "ExcBufOverrunErrors": "ExcessiveBufferOverrunErrors",
    "XmtData": "PortXmitData",
    "RcvData": "PortRcvData",
    "XmtPkts": "PortXmitPkts",
    "RcvPkts": "PortRcvPkts",
    "XmtWait": "PortXmitWait",
    "PortUnicastXmtPkts": "PortUnicastXmitPkts",
    "PortMulticastXmtPkts": "PortMulticastXmitPkts",
}
_BITS = {
    attribute: {c.raw: c.bits for c in LAYOUT[attribute]}
    for attribute in (Pma.PORT_COUNTERS, Pma.PORT_COUNTERS_EXTENDED)
}


@dataclass(slots=True)
class Block:
    """One port's counters. ``values``: raw name to raw value, in the tool's units (words where it says data)."""

    attribute: Pma
    lid: int | None
    port: int
    capability: Capability
    values: dict[str, int] = field(default_factory=dict)


def parse_perfquery(text: str, rejects: Rejects, where: str = "perfquery") -> list[Block]:
    """All blocks of a run. A block whose PortSelect contradicts its heading, or that is cut short, is rejected."""
    blocks: list[Block] = []
    current: Block | None = None
    for number, line in enumerate(text.splitlines(), 1):
        if not line.strip():
            continue
        if line.startswith("#"):
            head = _HEAD.fullmatch(line)
            current = _begin(head) if head is not None else None
            if current is None:
                rejects.add("perfquery_heading", line, f"{where}:{number}")
            else:
                blocks.append(current)
            continue
        found = _LINE.fullmatch(line)
        if found is None:
            rejects.add("perfquery_line", line, f"{where}:{number}")
        elif current is not None and not _take(current, found[1], int(found[2], 0)):
            rejects.add("perfquery_value", line, f"{where}:{number}")
            if found[1] == "PortSelect":
                blocks.remove(current)
                current = None
    return [block for block in blocks if _is_whole(block, rejects, where)]


def _begin(head: re.Match[str]) -> Block | None:
    attribute = Pma.PORT_COUNTERS_EXTENDED if head["extended"] else Pma.PORT_COUNTERS
    port = int(head["port"])
    if port > 255:
        return None
    capability = ASSUMED
    if head["mask"]:
        capability = Capability(int(head["mask"], 16), int(head["mask2"] or "0", 16))
    return Block(attribute, int(head["lid"]) if head["lid"] else None, port, capability)


def _take(block: Block, name: str, value: int) -> bool:
    if name == "PortSelect":
        return value == block.port
    if name in _NOT_COUNTERS:
        return True
    raw = _OLD_NAMES.get(name, name)
    bits = _BITS[block.attribute].get(raw)
    if bits is None or not 0 <= value < 1 << bits or raw in block.values:
        return False
    block.values[raw] = value
    return True


def _is_whole(block: Block, rejects: Rejects, where: str) -> bool:
    """Whether the traffic counters are all there: without them the run broke off inside the block."""
    whole = {"PortXmitData", "PortRcvData", "PortXmitPkts", "PortRcvPkts"} <= set(block.values)
    if not whole:
        rejects.add("perfquery_cut", f"LID {block.lid} port {block.port}", where)
    return whole

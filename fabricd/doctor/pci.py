"""PCI devices of the node: what they are, the bridges above them, their configuration space, the distance between two.

Register offsets and bits: Linux uapi ``linux/pci_regs.h`` (PCI_EXP_DEVCTL, PCI_EXT_CAP_ID_ACS, PCI_EXT_CAP_ID_ATS).
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from fabricd.doctor.tree import Tree

DEVICES = "/sys/bus/pci/devices"
# Where the root helper leaves whole configuration spaces for the unprivileged doctor.
CONFIG_DUMPS = "/run/fabricd/pci"
BDF = re.compile(r"[0-9a-f]{4,8}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]")

CAP_EXPRESS, EXT_ACS, EXT_ATS = 0x10, 0x000D, 0x000F
ACS_BITS = {0: "SV", 1: "TB", 2: "RR", 3: "CR", 4: "UF", 5: "EC", 6: "DT"}
NVIDIA, AMD_GPU, MELLANOX = 0x10DE, 0x1002, 0x15B3


@dataclass(frozen=True, slots=True)
class Config:
    """Configuration space: 256 bytes reach the capabilities, 4096 the extended ones. ``why`` says what is missing."""

    data: bytes
    why: str = ""

    @property
    def extended(self) -> bool:
        return len(self.data) > 256

    def word(self, offset: int) -> int:
        return int.from_bytes(self.data[offset : offset + 2], "little")

    def capability(self, wanted: int) -> int | None:
        """Offset of a capability in the first 256 bytes, following the list at 0x34."""
        if len(self.data) < 256 or not self.word(0x06) & 0x10:
            return None
        at, seen = self.data[0x34] & 0xFC, 0
        while at >= 0x40 and at + 1 < 256 and seen < 48:
            if self.data[at] == wanted:
                return at
            at, seen = self.data[at + 1] & 0xFC, seen + 1
        return None

    def extended_capability(self, wanted: int) -> int | None:
        """Offset of an extended capability, following the list at 0x100."""
        at, seen = 0x100, 0
        while self.extended and 0x100 <= at <= len(self.data) - 8 and seen < 64:
            header = int.from_bytes(self.data[at : at + 4], "little")
            if header & 0xFFFF == wanted:
                return at
            at, seen = header >> 20 & 0xFFC, seen + 1
        return None

    def device_control(self) -> int | None:
        at = self.capability(CAP_EXPRESS)
        return None if at is None else self.word(at + 0x08)

    def max_read_request(self) -> int | None:
        control = self.device_control()
        return None if control is None else 128 << (control >> 12 & 7)

    def max_payload(self) -> int | None:
        control = self.device_control()
        return None if control is None else 128 << (control >> 5 & 7)

    def relaxed_ordering(self) -> bool | None:
        control = self.device_control()
        return None if control is None else bool(control & 0x10)

    def acs_control(self) -> int | None:
        at = self.extended_capability(EXT_ACS)
        return None if at is None else self.word(at + 6)

    def ats_enabled(self) -> bool | None:
        at = self.extended_capability(EXT_ATS)
        return None if at is None else bool(self.word(at + 6) & 0x8000)


def acs_names(control: int) -> str:
    """``RR+CR+UF``, or ``off``."""
    return "+".join(name for bit, name in ACS_BITS.items() if control >> bit & 1) or "off"


def read_config(tree: Tree, bdf: str) -> Config:
    """The helper's dump if there is one, else what this process may read: 64 bytes without CAP_SYS_ADMIN."""
    dumped, _ = tree.read_bytes(f"{CONFIG_DUMPS}/{bdf}")
    if dumped:
        return Config(dumped)
    data, why = tree.read_bytes(f"{DEVICES}/{bdf}/config")
    if data is None:
        return Config(b"", why)
    if len(data) <= 64:
        return Config(data, "configuration space beyond 64 bytes needs CAP_SYS_ADMIN (or the root helper)")
    return Config(data, "" if len(data) > 256 else "no extended configuration space")


@dataclass(frozen=True, slots=True)
class PciDevice:
    """One function. ``chain`` are the PCI addresses from the host bridge down to it; ``root`` is pciDDDD:BB."""

    bdf: str
    vendor: int
    device: int
    pci_class: int
    path: str
    root: str
    chain: tuple[str, ...]
    numa: int | None
    driver: str
    is_vf: bool

    @property
    def upstream(self) -> str | None:
        """Address of the bridge port directly above."""
        return self.chain[-2] if len(self.chain) > 1 else None


def pci_device(tree: Tree, bdf: str) -> PciDevice | None:
    """None when the device or its path is not there."""
    base = f"{DEVICES}/{bdf}"
    path = tree.real(base)
    vendor = tree.read(f"{base}/vendor").integer()
    if path is None or vendor is None:
        return None
    parts = path.split("/")
    root = next((part for part in parts if re.fullmatch(r"pci[0-9a-f]{4,8}:[0-9a-f]{2}", part)), "")
    numa = tree.read(f"{base}/numa_node").integer()
    driver = (tree.real(f"{base}/driver") or "").rsplit("/", 1)[-1] if tree.exists(f"{base}/driver") else ""
    return PciDevice(
        bdf=bdf,
        vendor=vendor,
        device=tree.read(f"{base}/device").integer() or 0,
        pci_class=(tree.read(f"{base}/class").integer() or 0) >> 8,
        path=path,
        root=root,
        chain=tuple(part for part in parts if BDF.fullmatch(part)),
        numa=numa,
        driver=driver,
        is_vf=tree.exists(f"{base}/physfn"),
    )


def distance(a: PciDevice, b: PciDevice) -> str:
    """PIX, PXB, PHB, NODE or SYS, as ``nvidia-smi topo -m`` prints it; ``?`` where the NUMA nodes are unknown and roots differ.

    One common switch (two downstream ports of it) is PIX, more than one bridge level apart PXB, only the host bridge PHB,
    another host bridge of the same NUMA node NODE, another NUMA node SYS.
    """
    if a.root == b.root and a.root:
        shared = 0
        for x, y in zip(a.chain[:-1], b.chain[:-1], strict=False):
            if x != y:
                break
            shared += 1
        if shared == 0:
            return "PHB"
        # Below the last common bridge each side has its own downstream port; anything deeper is another switch.
        deeper = max(len(a.chain), len(b.chain)) - 1 - shared
        if shared == 1 and deeper > 0:
            return "PHB"  # only the root port is common: a root port is part of the host bridge
        return "PIX" if deeper <= 1 else "PXB"
    if a.numa is None or b.numa is None or a.numa < 0 or b.numa < 0:
        return "?"
    return "NODE" if a.numa == b.numa else "SYS"

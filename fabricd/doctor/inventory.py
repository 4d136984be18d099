"""What the node has: GPUs, RDMA devices with their ports and netdevs, platform."""

from __future__ import annotations

import re
from dataclasses import dataclass, field

from fabricd.doctor.pci import AMD_GPU, BDF, DEVICES, NVIDIA, PciDevice, distance, pci_device
from fabricd.doctor.tree import Tree

INFINIBAND = "/sys/class/infiniband"
GPU_CLASSES = (0x0300, 0x0302, 0x1200)  # VGA, 3D controller, processing accelerator
GRACE_CPU_PART = "0xd4f"  # Arm Neoverse V2


@dataclass(frozen=True, slots=True)
class Port:
    number: int
    state: str
    phys_state: str
    rate_gbps: float | None
    link_layer: str
    netdevs: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Nic:
    name: str
    pci: PciDevice | None
    ports: tuple[Port, ...]
    fw: str
    board: str


@dataclass(frozen=True, slots=True)
class Gpu:
    index: int
    pci: PciDevice

    @property
    def name(self) -> str:
        return f"gpu{self.index}"


@dataclass(slots=True)
class Inventory:
    tree: Tree
    gpus: list[Gpu] = field(default_factory=list)
    nics: list[Nic] = field(default_factory=list)
    vm: bool = False
    grace: bool = False

    def nearest(self, gpu: Gpu) -> tuple[Nic | None, str]:
        """The RDMA device nearest to a GPU, and how near."""
        ranked = [
            (DISTANCES.index(distance(gpu.pci, nic.pci)), nic.name, nic)
            for nic in self.nics
            if nic.pci and not nic.pci.is_vf
        ]
        if not ranked:
            return None, "?"
        rank, _, nic = min(ranked, key=lambda entry: entry[:2])
        # Several NICs at one distance: pair in PCI order, as NCCL does, so that every GPU gets its own.
        same = [entry[2] for entry in ranked if entry[0] == rank]
        if len(same) > 1:
            rivals = [g for g in self.gpus if self._rank(g, same) == rank]
            same.sort(key=lambda n: n.pci.path if n.pci else "")
            position = [g.index for g in sorted(rivals, key=lambda g: g.pci.path)].index(gpu.index)
            nic = same[position % len(same)]
        return nic, DISTANCES[rank]

    @staticmethod
    def _rank(gpu: Gpu, nics: list[Nic]) -> int:
        return min(DISTANCES.index(distance(gpu.pci, nic.pci)) for nic in nics if nic.pci)


DISTANCES = ["PIX", "PXB", "PHB", "NODE", "SYS", "?"]


def take_inventory(tree: Tree) -> Inventory:
    """Everything the checks go by. An unreadable device costs only itself."""
    inventory = Inventory(tree, vm=_is_vm(tree), grace=_is_grace(tree))
    functions = [pci_device(tree, bdf) for bdf in tree.names(DEVICES) if BDF.fullmatch(bdf)]
    gpus = [f for f in functions if f and f.vendor in (NVIDIA, AMD_GPU) and f.pci_class in GPU_CLASSES]
    inventory.gpus = [Gpu(i, f) for i, f in enumerate(sorted(gpus, key=lambda f: f.bdf))]
    inventory.nics = [_nic(tree, name) for name in tree.names(INFINIBAND)]
    return inventory


def _nic(tree: Tree, name: str) -> Nic:
    base = f"{INFINIBAND}/{name}"
    real = (tree.real(f"{base}/device") or "").rsplit("/", 1)[-1]
    ports = [
        _port(tree, f"{base}/ports/{number}", int(number)) for number in tree.names(f"{base}/ports") if number.isdigit()
    ]
    return Nic(
        name,
        pci_device(tree, real) if BDF.fullmatch(real) else None,
        tuple(ports),
        tree.read(f"{base}/fw_ver").text or "",
        tree.read(f"{base}/board_id").text or "",
    )


def _port(tree: Tree, base: str, number: int) -> Port:
    def after_colon(name: str) -> str:
        text = tree.read(f"{base}/{name}").text or ""
        return text.partition(":")[2].strip() or text

    rate = re.match(r"([\d.]+)", tree.read(f"{base}/rate").text or "")
    ndevs = {tree.read(f"{base}/gid_attrs/ndevs/{i}").text for i in tree.names(f"{base}/gid_attrs/ndevs")[:64]}
    return Port(
        number,
        after_colon("state"),
        after_colon("phys_state"),
        float(rate[1]) if rate else None,
        tree.read(f"{base}/link_layer").text or "",
        tuple(sorted(name for name in ndevs if name)),
    )


def _is_vm(tree: Tree) -> bool:
    text = tree.read("/proc/cpuinfo").text or ""
    return bool(re.search(r"^flags\s*:.*\bhypervisor\b", text, re.MULTILINE))


def _is_grace(tree: Tree) -> bool:
    text = tree.read("/proc/cpuinfo").text or ""
    return bool(re.search(rf"^CPU part\s*:\s*{GRACE_CPU_PART}\b", text, re.MULTILINE))

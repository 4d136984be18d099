"""Which GPU sits near which NIC, on which rail, and whether the fleet agrees."""

from __future__ import annotations

import hashlib
import json

from fabricd.doctor.checks.registration import EFFECT, NO_GPU, NO_NIC
from fabricd.doctor.inventory import Inventory
from fabricd.doctor.pci import distance
from fabricd.doctor.report import CheckResult, Context, Finding, Outcome

SMALL_BAR = 256 << 20
DATA_CENTRE_BAR = 64 << 30


def pair_table(inventory: Inventory) -> list[tuple[str, str, str]]:
    """(GPU, nearest RDMA device, distance) per GPU, the base of rail numbering."""
    return [
        (gpu.name, nic.name if nic else "", how) for gpu in inventory.gpus for nic, how in (inventory.nearest(gpu),)
    ]


def rails(inventory: Inventory) -> dict[str, int]:
    """RDMA device -> rail: the order of PCI paths of the physical devices that pair with GPUs (NCCL's order), else of all."""
    paired = {nic for _, nic, how in pair_table(inventory) if how in ("PIX", "PXB", "PHB")}
    chosen = [nic for nic in inventory.nics if nic.pci and not nic.pci.is_vf and (not paired or nic.name in paired)]
    return {nic.name: rail for rail, nic in enumerate(sorted(chosen, key=lambda nic: nic.pci.path if nic.pci else ""))}


def pair_distance(context: Context) -> CheckResult:
    inventory = context.inventory
    result = CheckResult(
        "pcie.pair",
        ["realpath /sys/class/infiniband/*/device", "realpath /sys/bus/pci/devices/*"],
        "PIX or PXB for each GPU's nearest NIC (P2C on Grace)",
        "NCCL uses GPUDirect RDMA up to PXB by default (NCCL_NET_GDR_LEVEL)",
        effect=EFFECT,
        do="move the NIC below the GPU's PCIe switch, or set NCCL_NET_GDR_LEVEL=PHB only after measuring it",
        nothing=NO_GPU if not inventory.gpus else NO_NIC,
    )
    if not inventory.nics:
        return result
    for gpu in inventory.gpus:
        nic, how = inventory.nearest(gpu)
        subject = f"{gpu.name}-{nic.name}" if nic else gpu.name
        if nic is None or how == "?":
            result.findings.append(Finding(subject, "unknown", how, "no path between them can be seen"))
        elif how in ("PIX", "PXB"):
            result.findings.append(Finding(subject, "ok", how))
        elif inventory.grace:
            result.findings.append(
                Finding(subject, "ok", f"{how} (P2C by C2C)", "Grace reaches the NIC through its C2C link")
            )
        elif inventory.vm:
            result.findings.append(
                Finding(
                    subject,
                    "unknown",
                    how,
                    "a virtual machine hides PCIe switches: the provider's NCCL topology file is the truth",
                )
            )
        else:
            result.findings.append(
                Finding(subject, "fail", how, "GPUDirect RDMA is off for this pair at NCCL's default level")
            )
    return result


def pairing_hash(context: Context) -> CheckResult:
    result = CheckResult(
        "fleet.pairing",
        ["pcie.pair", "PCI order of RDMA devices"],
        "the same table on every node of the fleet",
        "a node that numbers its devices otherwise puts GPU i on another rail than its peers, silently",
        do="compare with `fabricd doctor --fleet`",
        nothing=NO_GPU if not context.inventory.gpus else NO_NIC,
    )
    if context.inventory.gpus and context.inventory.nics:
        rail = rails(context.inventory)
        table = [[gpu, nic, rail.get(nic), how] for gpu, nic, how in pair_table(context.inventory)]
        digest = hashlib.sha256(json.dumps(table).encode()).hexdigest()[:16]
        result.findings.append(
            Finding(
                "",
                "unknown",
                {"hash": digest, "table": table},
                "one node cannot tell; the fleet view compares the hashes",
            )
        )
    return result


def rail_wiring(context: Context) -> CheckResult:
    result = CheckResult(
        "rail.wiring",
        ["rail order of this node", "leaf of each NIC from the fabric"],
        "NIC i on rail i",
        "a crossed cable sends one rail's traffic over another's leaf",
        do="swap the cables; until then give NCCL the rails in NCCL_IB_HCA",
        cls="C",
        nothing=NO_NIC,
    )
    if context.inventory.nics:
        table = rails(context.inventory)
        result.findings.append(
            Finding("", "unknown", table, "needs the fabric's side: `fabricd doctor --fleet` joins it")
        )
    return result


def numa(context: Context) -> CheckResult:
    inventory = context.inventory
    result = CheckResult(
        "pcie.numa",
        ["/sys/bus/pci/devices/*/numa_node"],
        "the GPU and its NIC on one NUMA node",
        "crossing the socket link costs bandwidth and latency; -1 on a two-socket machine means the firmware does not say",
        do="enable NUMA reporting in the firmware (SRAT), or move the card",
        cls="C",
        nothing=NO_GPU if not inventory.gpus else NO_NIC,
    )
    sockets = [
        name
        for name in context.tree.names("/sys/devices/system/node")
        if name[4:].isdigit() and name.startswith("node")
    ]
    for gpu in inventory.gpus:
        nic, _ = inventory.nearest(gpu)
        if nic is None or nic.pci is None:
            continue
        subject, value = f"{gpu.name}-{nic.name}", [gpu.pci.numa, nic.pci.numa]
        if None in value:
            result.findings.append(Finding(subject, "unknown", value, "numa_node cannot be read"))
        elif -1 in value:
            single = len(sockets) == 1
            verdict: Outcome = "ok" if single else "unknown" if not sockets else "warn"
            result.findings.append(Finding(subject, verdict, value, "" if single else "firmware does not say"))
        else:
            result.findings.append(Finding(subject, "ok" if value[0] == value[1] else "fail", value))
    return result


def bar1(context: Context) -> CheckResult:
    result = CheckResult(
        "gpu.bar1",
        ["/sys/bus/pci/devices/*/resource", "NVML memory size, where the driver is there"],
        "at least the GPU's memory (resizable BAR), or the vendor's default",
        "what does not fit into the window cannot be registered for GPUDirect RDMA",
        do="enable Above 4G Decoding and Resizable BAR in the firmware",
        cls="C",
        nothing=NO_GPU,
    )
    for gpu in context.inventory.gpus:
        reading = context.tree.read(f"/sys/bus/pci/devices/{gpu.pci.bdf}/resource")
        largest = _largest_region(reading.text or "")
        memory = (context.calls.get("nvml", gpu.pci.bdf) or {}).get("memory")
        value = {"largest_region": largest, "gpu_memory": memory}
        if largest is None:
            result.findings.append(Finding(gpu.name, "unknown", value, reading.why or "no region readable"))
        elif memory is not None:
            note = "" if largest >= memory else "the window is smaller than the GPU's memory"
            result.findings.append(Finding(gpu.name, "ok" if largest >= memory else "warn", value, note))
        elif largest <= SMALL_BAR:
            result.findings.append(Finding(gpu.name, "warn", value, "the size of a GPU without resizable BAR"))
        elif largest >= DATA_CENTRE_BAR:
            result.findings.append(
                Finding(gpu.name, "ok", value, "GPU memory not known here; the window is a data-centre GPU's")
            )
        else:
            result.findings.append(Finding(gpu.name, "unknown", value, "GPU memory size is not known without NVML"))
    return result


def _largest_region(text: str) -> int | None:
    sizes = []
    for line in text.splitlines()[:6]:
        cells = line.split()
        try:
            start, end = int(cells[0], 16), int(cells[1], 16)
        except (IndexError, ValueError):
            continue
        if end > start:
            sizes.append(end - start + 1)
    return max(sizes, default=None)


def topology_matrix(inventory: Inventory) -> dict[str, dict[str, str]]:
    """GPU × NIC distances as ``nvidia-smi topo -m`` prints them, for people."""
    return {
        gpu.name: {nic.name: distance(gpu.pci, nic.pci) for nic in inventory.nics if nic.pci} for gpu in inventory.gpus
    }


CHECKS = (pair_distance, pairing_hash, rail_wiring, numa, bar1)

"""What redirects peer-to-peer traffic or bends it: ACS, IOMMU, ATS, MaxReadReq, relaxed ordering, AER. Report only."""

from __future__ import annotations

import re

from fabricd.doctor.checks.registration import EFFECT, NO_NIC
from fabricd.doctor.pci import BDF, DEVICES, MELLANOX, acs_names, pci_device, read_config
from fabricd.doctor.report import CheckResult, Context, Finding, Outcome

REDIRECT = 0x04 | 0x08 | 0x10  # RR, CR, UF
BRIDGE_CLASS = 0x0604
CONNECTX_8_UP = range(0x1023, 0x1030)


def acs(context: Context) -> CheckResult:
    inventory = context.inventory
    result = CheckResult(
        "pcie.acs",
        ["extended capability 0x000D, ACSCtl, of every bridge between a GPU or NIC and its host bridge"],
        "no redirect on bare-metal x86 switches; on Grace with inline ConnectX-8 the per-port values of that platform",
        "with ACS redirect every peer-to-peer transfer climbs to the root complex and back",
        effect=EFFECT,
        do="disable ACS in the firmware (or per bridge) on bare metal only; under a hypervisor it isolates and stays on",
        cls="C",
        nothing="no PCIe bridge above a GPU or NIC can be seen",
    )
    endpoints = [nic.pci for nic in inventory.nics if nic.pci] + [gpu.pci for gpu in inventory.gpus]
    bridges = sorted({bdf for endpoint in endpoints for bdf in endpoint.chain[:-1]})
    functions = [nic.pci for nic in inventory.nics if nic.pci]
    inline = inventory.grace and any(f.vendor == MELLANOX and f.device in CONNECTX_8_UP for f in functions)
    above_nic = {nic.pci.upstream for nic in inventory.nics if nic.pci}
    above_gpu = {gpu.pci.upstream for gpu in inventory.gpus}
    roots = {endpoint.chain[0] for endpoint in endpoints if len(endpoint.chain) > 1}
    for bdf in bridges:
        config = read_config(context.tree, bdf)
        if not config.extended:
            result.findings.append(Finding(bdf, "unknown", None, config.why))
            continue
        control = config.acs_control()
        if control is None:
            result.findings.append(Finding(bdf, "ok", "no ACS capability"))
        elif inventory.vm:
            result.findings.append(
                Finding(bdf, "unknown", acs_names(control), "inside a virtual machine the host decides")
            )
        elif inline:
            wanted = _inline_pattern(bdf, above_nic, above_gpu, roots)
            result.findings.append(_match(bdf, control, wanted))
        elif control & REDIRECT:
            result.findings.append(
                Finding(bdf, "fail", acs_names(control), "redirects peer-to-peer traffic to the root complex")
            )
        else:
            result.findings.append(Finding(bdf, "ok", acs_names(control)))
    return result


def _inline_pattern(bdf: str, above_nic: set[str | None], above_gpu: set[str | None], roots: set[str]) -> str:
    """Bits DT EC UF CR RR TB SV as rdma-core's rdma_topo wants them on Grace platforms; x = any."""
    if bdf in above_nic:
        return "xx110x1"
    if bdf in above_gpu:
        return "xx101x1"
    return "xx111x0" if bdf in roots else "xxxxxxx"


def _match(bdf: str, control: int, pattern: str) -> Finding:
    bits = f"{control & 0x7F:07b}"
    fits = all(p in ("x", b) for p, b in zip(pattern, bits, strict=True))
    return Finding(
        bdf, "ok" if fits else "fail", acs_names(control), "" if fits else f"bits {bits}, platform wants {pattern}"
    )


def iommu(context: Context) -> CheckResult:
    tree = context.tree
    result = CheckResult(
        "pcie.iommu",
        ["/proc/cmdline", "/sys/class/iommu", "/sys/kernel/iommu_groups/*/type"],
        "identity (iommu=pt) or off",
        "translation on the way between GPU and NIC costs bandwidth or breaks peer-to-peer",
        do="boot with iommu=pt (needs a reboot)",
        cls="C",
    )
    groups = tree.names("/sys/kernel/iommu_groups")
    types: dict[str, int] = {}
    for group in groups:
        kind = tree.read(f"/sys/kernel/iommu_groups/{group}/type").text or "unreadable"
        types[kind] = types.get(kind, 0) + 1
    endpoints = [nic.pci for nic in context.inventory.nics if nic.pci] + [gpu.pci for gpu in context.inventory.gpus]
    if not tree.exists("/sys/bus/pci"):
        return result
    if not groups:
        active = tree.names("/sys/class/iommu")
        note = "an IOMMU is there, without groups" if active else ""
        result.findings.append(Finding("", "unknown" if active else "ok", active or "off", note))
        return result
    if not endpoints:
        result.nothing = "no GPU or RDMA device whose group could matter"
        return result
    for endpoint in endpoints:
        group = (tree.real(f"{DEVICES}/{endpoint.bdf}/iommu_group") or "").rsplit("/", 1)[-1]
        reading = tree.read(f"/sys/kernel/iommu_groups/{group}/type") if group.isdigit() else None
        if reading is None or reading.text is None:
            result.findings.append(Finding(endpoint.bdf, "unknown", None, reading.why if reading else "no IOMMU group"))
        elif reading.text == "identity":
            result.findings.append(Finding(endpoint.bdf, "ok", "identity"))
        else:
            verdict: Outcome = "unknown" if context.inventory.vm or context.inventory.grace else "warn"
            result.findings.append(Finding(endpoint.bdf, verdict, reading.text, "translating domain"))
    return result


def ats(context: Context) -> CheckResult:
    result = CheckResult(
        "pcie.ats",
        ["extended capability 0x000F, enable bit"],
        "enabled in virtual machines whose host keeps ACS on; without meaning on bare metal",
        "with ATS the NIC sends translated addresses, which ACS lets pass directly between devices",
        do="set ATS_ENABLED in the NIC firmware from the host (mlxconfig, needs a reboot)",
        cls="C",
        nothing=NO_NIC,
    )
    for nic in context.inventory.nics:
        if nic.pci is None:
            continue
        config = read_config(context.tree, nic.pci.bdf)
        if not config.extended:
            result.findings.append(Finding(nic.name, "unknown", None, config.why))
            continue
        enabled = config.ats_enabled()
        value = "no capability" if enabled is None else "enabled" if enabled else "off"
        bad = context.inventory.vm and not enabled
        result.findings.append(
            Finding(
                nic.name,
                "warn" if bad else "ok",
                value,
                "a virtual machine needs ATS when its host keeps ACS on" if bad else "",
            )
        )
    return result


def read_request(context: Context) -> CheckResult:
    result = CheckResult(
        "pcie.read_request",
        ["PCI Express capability, DevCtl bits 14:12 and 7:5"],
        "equal over the node's NICs (4096 on older ConnectX where the operator set it)",
        "a small MaxReadReq limits how much the NIC reads from GPU memory at once",
        do="setpci -s ADDRESS CAP_EXP+8.w=5000:7000 on a drained node, after noting the old value",
        cls="B",
        nothing=NO_NIC,
    )
    sizes: dict[str, tuple[int, int]] = {}
    for nic in context.inventory.nics:
        if nic.pci is None:
            continue
        config = read_config(context.tree, nic.pci.bdf)
        request, payload = config.max_read_request(), config.max_payload()
        if request is None or payload is None:
            result.findings.append(Finding(nic.name, "unknown", None, config.why or "no PCI Express capability"))
        else:
            sizes[nic.name] = (request, payload)
    common = max(set(sizes.values()), key=list(sizes.values()).count) if sizes else None
    for name, size in sizes.items():
        low = size[0] < 512
        odd = size != common
        note = "differs from the node's other NICs" if odd else "below 512 bytes" if low else ""
        result.findings.append(
            Finding(name, "warn" if odd or low else "ok", {"max_read_request": size[0], "max_payload": size[1]}, note)
        )
    return result


def relaxed_ordering(context: Context) -> CheckResult:
    result = CheckResult(
        "pcie.relaxed_ordering",
        ["PCI Express capability, DevCtl bit 4"],
        "enabled",
        "without it the writes of a NIC wait for each other, most of all on AMD hosts; NCCL asks for it by itself",
        do="mlxconfig PCI_WR_ORDERING=force_relax, or the firmware setting of the vendor (needs a reset)",
        cls="C",
        nothing=NO_NIC,
    )
    for nic in context.inventory.nics:
        if nic.pci is None:
            continue
        config = read_config(context.tree, nic.pci.bdf)
        enabled = config.relaxed_ordering()
        if enabled is None:
            result.findings.append(Finding(nic.name, "unknown", None, config.why or "no PCI Express capability"))
        else:
            result.findings.append(Finding(nic.name, "ok" if enabled else "warn", enabled))
    return result


_TOTAL = re.compile(r"TOTAL_ERR_\w+\s+(\d+)")


def aer(context: Context) -> CheckResult:
    result = CheckResult(
        "pcie.aer",
        [f"{DEVICES}/*/aer_dev_{{correctable,nonfatal,fatal}}"],
        "no uncorrectable errors, correctable ones not growing",
        "a link that corrects errors replays packets; uncorrectable ones lose them",
        do="reseat or replace the card, riser or cable",
        cls="C",
        nothing="no GPU, RDMA device or bridge with AER statistics",
    )
    endpoints = [nic.pci for nic in context.inventory.nics if nic.pci] + [gpu.pci for gpu in context.inventory.gpus]
    for bdf in sorted({bdf for endpoint in endpoints for bdf in endpoint.chain if BDF.fullmatch(bdf)}):
        totals: dict[str, int] = {}
        for kind in ("correctable", "nonfatal", "fatal"):
            match = _TOTAL.search(context.tree.read(f"{DEVICES}/{bdf}/aer_dev_{kind}").text or "")
            if match:
                totals[kind] = int(match[1])
        if not totals:
            device = pci_device(context.tree, bdf)
            if device and device.pci_class != BRIDGE_CLASS:
                result.findings.append(
                    Finding(bdf, "unknown", None, "no AER statistics (kernel before 4.19, or not capable)")
                )
        elif totals.get("nonfatal", 0) or totals.get("fatal", 0):
            result.findings.append(Finding(bdf, "fail", totals))
        elif totals.get("correctable", 0):
            result.findings.append(Finding(bdf, "warn", totals, "corrected since boot; look again whether it grows"))
        else:
            result.findings.append(Finding(bdf, "ok", totals))
    return result


CHECKS = (acs, iommu, ats, read_request, relaxed_ordering, aer)

"""Can the NIC reach GPU memory at all: DMA-BUF, peermem, and which of them is in use."""

from __future__ import annotations

from fabricd.doctor.report import CheckResult, Context, Finding

PEER_CLIENTS = (
    "/sys/kernel/mm/memory_peers/nv_mem/version",
    "/sys/kernel/mm/memory_peers/nv_mem_nc/version",
    "/sys/kernel/mm/memory_peers/amdkfd/version",
)
PEERMEM_MODULE = "/sys/module/nvidia_peermem/version"
EFFECT = "all-reduce 79.7 to 96.1 GB/s on GH200 with GPUDirect RDMA on (nccl issue 1579); 300 to 720 Gb/s bidirectional (imbue)"
NO_GPU = "no GPU on this node"
NO_NIC = "no RDMA device on this node"


def dmabuf(context: Context) -> CheckResult:
    result = CheckResult(
        "gdr.dmabuf",
        ["ibv_reg_dmabuf_mr(fd=-1)"],
        "EBADF: the driver takes DMA-BUF memory",
        "DMA-BUF is the supported way to register GPU memory; the NV-P2P interface behind peermem is deprecated since CUDA 13",
        effect=EFFECT,
        do="use the open GPU kernel module, a kernel of 5.12 or newer and rdma-core 34 or newer",
        nothing=NO_NIC,
    )
    for nic in context.inventory.nics:
        answer = context.calls.get("verbs", nic.name)
        code = answer.get("dmabuf") if answer else None
        if code is None:
            why = (answer or {}).get("why") or "not asked (the capture holds no verbs answers)"
            result.findings.append(Finding(nic.name, "unknown", None, why))
        elif code == "EBADF":
            result.findings.append(Finding(nic.name, "ok", code))
        elif code in ("EOPNOTSUPP", "EPROTONOSUPPORT"):
            # Without it peermem may still serve; gdr.path decides whether the node is broken.
            result.findings.append(Finding(nic.name, "warn", code, "this driver does not take DMA-BUF memory"))
        else:
            result.findings.append(Finding(nic.name, "unknown", code, "an answer that says neither yes nor no"))
    return result


def _peermem(context: Context) -> tuple[str | None, bool]:
    """(registered client's path, module loaded)."""
    registered = next((path for path in PEER_CLIENTS if context.tree.exists(path)), None)
    return registered, context.tree.exists(PEERMEM_MODULE)


def peermem(context: Context) -> CheckResult:
    result = CheckResult(
        "gdr.peermem",
        [*PEER_CLIENTS, PEERMEM_MODULE],
        "an entry in memory_peers, or DMA-BUF instead",
        "a loaded nvidia_peermem module proves nothing: only the entry in memory_peers says it registered with ib_core",
        effect=EFFECT,
        do="load ib_core before nvidia_peermem (softdep), then reload the module on a drained node",
        cls="A",
        nothing=NO_GPU,
    )
    if not context.inventory.gpus:
        return result
    registered, loaded = _peermem(context)
    if registered:
        result.findings.append(Finding("", "ok", registered))
    elif loaded:
        result.findings.append(
            Finding("", "warn", "loaded, not registered", "module is there, ib_core does not know it")
        )
    elif _dmabuf_everywhere(context):
        result.findings.append(Finding("", "ok", "absent", "DMA-BUF serves instead"))
    else:
        result.findings.append(Finding("", "warn", "absent", "no peer memory client is registered"))
    return result


def _dmabuf_everywhere(context: Context) -> bool:
    answers = [context.calls.get("verbs", nic.name) for nic in context.inventory.nics]
    return bool(answers) and all(answer is not None and answer.get("dmabuf") == "EBADF" for answer in answers)


def path_in_use(context: Context) -> CheckResult:
    result = CheckResult(
        "gdr.path",
        ["gdr.dmabuf", "gdr.peermem", "/sys/module/nvidia/version"],
        "DMA-BUF, with peermem as fall-back",
        "without either, every message is staged through host memory",
        effect=EFFECT,
        do="enable DMA-BUF (open GPU kernel module) or load nvidia_peermem after ib_core",
        nothing=NO_GPU if not context.inventory.gpus else NO_NIC,
    )
    if not context.inventory.gpus or not context.inventory.nics:
        return result
    registered, _ = _peermem(context)
    codes = {(context.calls.get("verbs", nic.name) or {}).get("dmabuf") for nic in context.inventory.nics}
    if codes == {"EBADF"}:
        result.findings.append(Finding("", "ok", "DMA-BUF"))
    elif registered:
        result.findings.append(Finding("", "ok", "peermem", "deprecated since CUDA 13; DMA-BUF is the way to go"))
    elif None in codes:
        result.findings.append(
            Finding("", "unknown", None, "DMA-BUF could not be asked and no peer memory client is registered")
        )
    else:
        result.findings.append(Finding("", "fail", "none", "neither DMA-BUF nor a registered peer memory client"))
    return result


def gdrcopy(context: Context) -> CheckResult:
    result = CheckResult(
        "gdr.gdrcopy",
        ["/dev/gdrdrv"],
        "present where small-message libraries use it; optional for NCCL",
        "GDRCopy lowers the latency of small messages; NCCL gains nothing from it (CoreWeave)",
        nothing=NO_GPU,
    )
    if context.inventory.gpus:
        there = context.tree.exists("/dev/gdrdrv")
        result.findings.append(Finding("", "ok", "present" if there else "absent", "" if there else "optional"))
    return result


CHECKS = (dmabuf, peermem, path_in_use, gdrcopy)

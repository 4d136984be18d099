"""What surrounds the job: locked memory, visibility in containers, NCCL settings, an active probe on request."""

from __future__ import annotations

import re

from fabricd.doctor.checks.path import rails
from fabricd.doctor.checks.registration import NO_NIC
from fabricd.doctor.checks.roce import lossless_dscps, roce_netdevs
from fabricd.doctor.processes import rdma_processes
from fabricd.doctor.report import CheckResult, Context, Finding, Outcome

UNLIMITED_ENOUGH = 64 << 30


def memlock(context: Context) -> CheckResult:
    result = CheckResult(
        "limits.memlock",
        ["/proc/self/limits", "/proc/PID/limits of RDMA processes", "/etc/security/limits.d"],
        "unlimited",
        "registering memory counts against locked memory; NCCL fails or falls back when it runs out",
        do="doctor --fix writes limits.d; containers need --ulimit memlock=-1, units LimitMEMLOCK=infinity",
        cls="A",
        nothing=NO_NIC,
    )
    if not context.inventory.nics:
        return result
    for who in ["self", *(str(p.pid) for p in rdma_processes(context.tree))]:
        reading = context.tree.read(f"/proc/{who}/limits")
        match = re.search(r"^Max locked memory\s+(\S+)", reading.text or "", re.MULTILINE)
        subject = "this process" if who == "self" else f"pid {who}"
        if not match:
            result.findings.append(Finding(subject, "unknown", None, reading.why or "no such line"))
        elif match[1] == "unlimited" or (match[1].isdigit() and int(match[1]) >= UNLIMITED_ENOUGH):
            result.findings.append(Finding(subject, "ok", match[1]))
        else:
            verdict: Outcome = "warn" if who == "self" else "fail"
            result.findings.append(
                Finding(subject, verdict, match[1], "a job's limit may differ" if who == "self" else "")
            )
    return result


def container(context: Context) -> CheckResult:
    result = CheckResult(
        "container.verbs",
        ["/dev/infiniband/uverbs*", "libibverbs and its provider", "NCCL_TOPO_FILE of jobs"],
        "device files and provider library visible where jobs run",
        "without them NCCL falls back to sockets without a word (sglang issue 1427, vllm issue 6610)",
        do="mount /dev/infiniband and install the provider (ibverbs-providers) in the image",
        nothing=NO_NIC,
    )
    if not context.inventory.nics:
        return result
    tree = context.tree
    files = [name for name in tree.names("/dev/infiniband") if name.startswith("uverbs")]
    if not tree.live and not tree.exists("/dev"):
        result.findings.append(Finding("device files", "unknown", None, "a capture holds no /dev"))
    else:
        result.findings.append(Finding("device files", "ok" if files else "fail", files))
    providers = sorted(
        {n for d in ("/etc/libibverbs.d", "/usr/etc/libibverbs.d") for n in tree.names(d) if n.endswith(".driver")}
    )
    if providers:
        result.findings.append(Finding("providers", "ok", providers))
    elif tree.exists("/etc"):
        result.findings.append(Finding("providers", "fail", [], "no verbs provider is installed"))
    else:
        result.findings.append(Finding("providers", "unknown", None, "a capture holds no /etc"))
    for process in rdma_processes(tree):
        wanted = process.environment.get("NCCL_TOPO_FILE")
        if wanted:
            there = tree.exists(f"/proc/{process.pid}/root{wanted}") if tree.live else None
            verdict: Outcome = "unknown" if there is None else "ok" if there else "fail"
            note = (
                ""
                if there
                else "cannot be seen from here"
                if there is None
                else "the job's NCCL_TOPO_FILE is not in its container"
            )
            result.findings.append(Finding(f"pid {process.pid}", verdict, wanted, note))
    return result


def nccl(context: Context) -> CheckResult:
    result = CheckResult(
        "nccl.env",
        ["/proc/PID/environ (NCCL_, UCX_, RDMA_ names only)", "/etc/nccl.conf"],
        "an exact list of the compute rails (NCCL_IB_HCA=...), nothing that turns GPUDirect or RDMA off",
        "one wrong variable in a job script silently costs more than any fabric fault",
        do="`fabricd doctor --nccl-conf FILE` writes a recommended file",
        nothing=NO_NIC,
    )
    if not context.inventory.nics:
        return result
    text = context.tree.read("/etc/nccl.conf").text
    sources = {"/etc/nccl.conf": _parse_conf(text)} if text is not None else {}
    sources |= {f"pid {p.pid}": p.environment for p in rdma_processes(context.tree)}
    if not any(any(name.startswith("NCCL_") for name in env) for env in sources.values()):
        result.findings.append(
            Finding(
                "",
                "unknown",
                None,
                "no NCCL setting found: no job runs, it sets none, or its environment may not be read",
            )
        )
    for who, env in sources.items():
        settings = {name: value for name, value in sorted(env.items()) if name.startswith("NCCL_")}
        if not settings:
            continue
        problems = _problems(context, settings)
        verdict: Outcome = "fail" if any(bad for bad, _ in problems) else "warn" if problems else "ok"
        result.findings.append(Finding(who, verdict, settings, "; ".join(text for _, text in problems)))
    return result


def _parse_conf(text: str) -> dict[str, str]:
    pairs = (line.split("#", 1)[0].partition("=") for line in text.splitlines())
    return {name.strip(): value.strip() for name, equals, value in pairs if equals and name.strip()}


def _problems(context: Context, env: dict[str, str]) -> list[tuple[bool, str]]:
    """(is a failure, text) of each setting that hurts."""
    found: list[tuple[bool, str]] = []
    if env.get("NCCL_IB_DISABLE") == "1":
        found.append((True, "NCCL_IB_DISABLE=1 sends everything over TCP"))
    if env.get("NCCL_NET_GDR_LEVEL", "").upper() in ("LOC", "0"):
        found.append((True, "NCCL_NET_GDR_LEVEL turns GPUDirect RDMA off"))
    if env.get("NCCL_NET_GDR_LEVEL", "").upper() in ("SYS", "5"):
        found.append((False, "NCCL_NET_GDR_LEVEL=SYS crosses sockets"))
    if env.get("NCCL_PXN_DISABLE") == "1":
        found.append((False, "NCCL_PXN_DISABLE=1 takes all-to-all off its rails"))
    hcas = env.get("NCCL_IB_HCA")
    if hcas:
        known = {nic.name for nic in context.inventory.nics}
        exact, listed = hcas.startswith("="), [part.split(":")[0] for part in hcas.lstrip("=^").split(",") if part]
        if not hcas.startswith("^"):
            missing = [
                name for name in listed if (name not in known if exact else not any(k.startswith(name) for k in known))
            ]
            if missing:
                found.append((True, f"NCCL_IB_HCA names {', '.join(missing)}, which this node does not have"))
            if exact and any(part.count(":") and part.split(":")[1] == "" for part in hcas.lstrip("=").split(",")):
                found.append((True, "NCCL_IB_HCA has an empty port, which matches nothing"))
            left_out = [name for name in rails(context.inventory) if exact and name not in listed]
            if left_out and not missing:
                found.append((False, f"NCCL_IB_HCA leaves out {', '.join(left_out)}"))
    return found


def recommended_nccl_conf(context: Context) -> str:
    """A settings file for this node: exact rails with port, rail and plane; RoCE class where the lossless class is known."""
    rail = rails(context.inventory)
    ordered = sorted(rail, key=lambda name: rail[name])
    lines = [
        "# NCCL settings for this node. The environment of a job wins over this file.",
        "# device:port:rail:plane; NCCL before 2.30.7 reads device and port and ignores the rest.",
    ]
    if ordered:
        lines.append("NCCL_IB_HCA==" + ",".join(f"{name}:1:{rail[name]}:0" for name in ordered))
    classes = [lossless_dscps(context, netdev) for netdev, nic in roce_netdevs(context) if nic in rail]
    shared = set.intersection(*(c for c in classes if c)) if classes and all(classes) else set()
    if len(shared) == 1:
        dscp = shared.pop()
        lines.append(f"NCCL_IB_TC={dscp << 2}  # DSCP {dscp}, the lossless class of every port")
    elif classes:
        lines.append("# NCCL_IB_TC: the lossless class is not the same, or not known, on every port; set it by hand")
    return "\n".join(lines) + "\n"


def bandwidth(context: Context) -> CheckResult:
    result = CheckResult(
        "probe.bandwidth",
        ["ib_write_bw between each NIC and its GPU (on request: --probe)"],
        "380 Gb/s on a 400 Gb/s NIC, 180 on 200 (Azure's pass marks)",
        "only moving data proves the whole path",
        do="see the other checks for the reason",
        nothing="not asked for: it moves traffic",
    )
    for nic in context.inventory.nics:
        answer = context.calls.get("bandwidth", nic.name)
        if answer is None:
            continue
        reached, line = answer.get("gbps"), next((p.rate_gbps for p in nic.ports if p.rate_gbps), None)
        if reached is None or line is None:
            result.findings.append(Finding(nic.name, "unknown", reached, answer.get("why") or "line rate not known"))
        else:
            share = reached / line
            result.findings.append(
                Finding(nic.name, "ok" if share >= 0.9 else "fail", reached, f"{share:.0%} of {line:g} Gb/s")
            )
    return result


CHECKS = (memlock, container, nccl, bandwidth)

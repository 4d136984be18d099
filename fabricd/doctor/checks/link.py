"""PCIe link speed and width against what both ends can do, and whether they hold over time and under load."""

from __future__ import annotations

import re

from fabricd.doctor.pci import DEVICES, PciDevice
from fabricd.doctor.report import CheckResult, Context, Finding

_SPEED = re.compile(r"([\d.]+)")
MIN_MOVED = 50_000_000  # bytes over the sampling: less is no load
KMSG_FILE = "/fabricd/kmsg-pcie.txt"


def _lane(context: Context, bdf: str, prefix: str) -> tuple[float, int] | None:
    base = f"{DEVICES}/{bdf}/{prefix}_link"
    speed = _SPEED.match(context.tree.read(f"{base}_speed").text or "")
    width = context.tree.read(f"{base}_width").integer()
    return (float(speed[1]), width) if speed and width else None


def _capable(context: Context, device: PciDevice) -> tuple[float, int] | None:
    """The lesser of both ends' maxima; the device's alone where the port above is hidden."""
    own = _lane(context, device.bdf, "max")
    above = _lane(context, device.upstream, "max") if device.upstream else None
    if own is None:
        return None
    return (min(own[0], above[0]), min(own[1], above[1])) if above else own


def _text(lane: tuple[float, int] | None) -> str | None:
    return None if lane is None else f"{lane[0]:g} GT/s x{lane[1]}"


def _subjects(context: Context) -> list[tuple[str, PciDevice, bool]]:
    nics = [(nic.name, nic.pci, False) for nic in context.inventory.nics if nic.pci and not nic.pci.is_vf]
    return nics + [(gpu.name, gpu.pci, True) for gpu in context.inventory.gpus]


def speed(context: Context) -> CheckResult:
    result = CheckResult(
        "pcie.link",
        [f"{DEVICES}/*/{{current,max}}_link_{{speed,width}} of the device and of the port above"],
        "the lesser of both ends' maxima",
        "a link that trained down halves what the NIC can move",
        effect="Gen5 x16 carries 63 GB/s, Gen4 x16 31.5 GB/s (PCIe base specification); 400 Gb/s are 50 GB/s",
        do="reseat the card or riser; check bifurcation in the firmware",
        cls="C",
        nothing="no GPU or RDMA device",
    )
    for name, device, is_gpu in _subjects(context):
        now, capable = _lane(context, device.bdf, "current"), _capable(context, device)
        if now is None or capable is None:
            result.findings.append(Finding(name, "unknown", _text(now), "no link attributes (virtual device)"))
        elif now[0] >= capable[0] and now[1] >= capable[1]:
            result.findings.append(Finding(name, "ok", _text(now)))
        elif is_gpu and now[1] >= capable[1]:
            # GPUs lower their link speed when idle: one sample of an idle GPU proves nothing.
            result.findings.append(
                Finding(name, "unknown", _text(now), f"{_text(capable)} possible; idle GPUs slow down")
            )
        else:
            result.findings.append(Finding(name, "fail", _text(now), f"{_text(capable)} possible"))
    return result


def held(context: Context) -> CheckResult:
    result = CheckResult(
        "pcie.link_samples",
        ["current_link_speed and current_link_width, sampled", "kernel log: available PCIe bandwidth, limited by"],
        "the same at every sample, under load",
        "links that retrain under load do not show in a single reading",
        do="run again while a job moves data; then as for pcie.link",
        cls="C",
        nothing="no GPU or RDMA device",
    )
    limited = [line for line in (context.tree.read(KMSG_FILE).text or "").splitlines() if "limited by" in line]
    for name, device, is_gpu in _subjects(context):
        answer = context.calls.get("links", device.bdf)
        capable = _capable(context, device)
        counts = answer.get("samples") if answer else None
        if not isinstance(counts, dict) or capable is None or not counts:
            result.findings.append(Finding(name, "unknown", None, "not sampled"))
            continue
        moved = answer.get("moved_bytes") if answer else None
        value = {"samples": counts, "moved_bytes": moved}
        loaded = not is_gpu and isinstance(moved, int) and moved >= MIN_MOVED
        below = sum(count for lane, count in counts.items() if not _reaches(lane, capable))
        if any(device.bdf in line for line in limited):
            result.findings.append(Finding(name, "fail", value, "the kernel logged that the link limits the device"))
        elif below and (loaded or (not is_gpu and below == sum(counts.values()))):
            result.findings.append(Finding(name, "fail", value, f"{below} samples below {_text(capable)}"))
        elif below or len(counts) > 1:
            note = "an idle GPU slows its link down" if is_gpu else "the link changed while it was watched"
            result.findings.append(Finding(name, "unknown" if is_gpu else "warn", value, note))
        elif loaded or is_gpu:
            result.findings.append(Finding(name, "ok", value))
        else:
            result.findings.append(Finding(name, "unknown", value, "steady, but there was no load"))
    return result


def _reaches(lane: str, capable: tuple[float, int]) -> bool:
    match = re.match(r"([\d.]+).* x(\d+)$", lane)
    return bool(match) and float(match[1]) >= capable[0] and int(match[2]) >= capable[1] if match else False


CHECKS = (speed, held)

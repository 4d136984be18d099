"""RoCE quality of service on the node: trust, PFC, DSCP map, the class jobs really use, ECN on it."""

from __future__ import annotations

from typing import Any

from fabricd.doctor.inventory import INFINIBAND
from fabricd.doctor.processes import rdma_processes
from fabricd.doctor.report import CheckResult, Context, Finding

CONFIGFS = "/sys/kernel/config/rdma_cm"
NO_ROCE = "no RoCE port"


def roce_netdevs(context: Context) -> list[tuple[str, str]]:
    """(netdev, RDMA device) of every RoCE port."""
    return [
        (netdev, nic.name)
        for nic in context.inventory.nics
        for port in nic.ports
        if port.link_layer == "Ethernet"
        for netdev in port.netdevs
    ]


def trust_pfc(context: Context) -> CheckResult:
    result = CheckResult(
        "roce.trust_pfc",
        ["DCB netlink: PFC, application table"],
        "trust DSCP, PFC on exactly the RoCE priority, one map on all ports",
        "PFC on another priority than the traffic leaves RoCE lossy; PFC on all lets any traffic pause the fabric",
        do="dcb app replace dev NETDEV dscp-prio DSCP:PRIO && dcb pfc set dev NETDEV prio-pfc all:off PRIO:on",
        cls="B",
        nothing=NO_ROCE,
    )
    states: dict[str, Any] = {}
    for netdev, _ in roce_netdevs(context):
        answer = context.calls.get("dcb", netdev)
        if answer is None or answer.get("pfc_enabled") is None:
            result.findings.append(Finding(netdev, "unknown", None, (answer or {}).get("why") or "DCB state not asked"))
            continue
        states[netdev] = answer
    maps = [str(sorted((answer.get("dscp_map") or {}).items())) for answer in states.values()]
    usual = max(set(maps), key=maps.count) if maps else None
    for netdev, answer in states.items():
        enabled, dscp_map = answer["pfc_enabled"], answer.get("dscp_map") or {}
        value = {"pfc": enabled, "trust": "dscp" if dscp_map else "pcp", "dscp_map": dscp_map}
        if not enabled:
            result.findings.append(Finding(netdev, "fail", value, "PFC is on for no priority: RoCE is lossy here"))
        elif len(enabled) > 2:
            result.findings.append(
                Finding(netdev, "warn", value, "PFC on many priorities lets other traffic pause RoCE")
            )
        elif not dscp_map:
            result.findings.append(
                Finding(netdev, "warn", value, "no DSCP map: the port trusts PCP, which routing loses")
            )
        elif not any(int(priority) in enabled for priority in dscp_map.values()):
            result.findings.append(Finding(netdev, "fail", value, "no DSCP leads to a priority with PFC"))
        elif str(sorted(dscp_map.items())) != usual:
            result.findings.append(Finding(netdev, "warn", value, "another DSCP map than the node's other ports"))
        else:
            result.findings.append(Finding(netdev, "ok", value))
    return result


def lossless_dscps(context: Context, netdev: str) -> set[int] | None:
    """DSCPs that lead to a priority with PFC on this netdev; None when not known."""
    answer = context.calls.get("dcb", netdev)
    if answer is None or not answer.get("dscp_map") or answer.get("pfc_enabled") is None:
        return None
    return {int(dscp) for dscp, priority in answer["dscp_map"].items() if int(priority) in answer["pfc_enabled"]}


def traffic_class(context: Context) -> CheckResult:
    result = CheckResult(
        "roce.traffic_class",
        [
            "NCCL_IB_TC of running jobs",
            f"{CONFIGFS}/*/ports/*/default_roce_tos",
            f"{INFINIBAND}/*/tc/*/traffic_class",
        ],
        "traffic class >> 2 is a DSCP of the lossless class",
        "NCCL marks its packets with NCCL_IB_TC only; with another DSCP they travel in a lossy class",
        do="set NCCL_IB_TC to DSCP << 2 of the lossless class in the job (or /etc/nccl.conf)",
        nothing=NO_ROCE,
    )
    netdevs = roce_netdevs(context)
    used = sorted({(p.pid, tc) for p in rdma_processes(context.tree) if (tc := p.traffic_class()) is not None})
    for netdev, nic in netdevs:
        lossless = lossless_dscps(context, netdev)
        forced = context.tree.read(f"{INFINIBAND}/{nic}/tc/1/traffic_class").text
        default = context.tree.read(f"{CONFIGFS}/{nic}/ports/1/default_roce_tos").integer()
        value = {
            "jobs": sorted({tc for _, tc in used}),
            "default_roce_tos": default,
            "forced_traffic_class": forced,
            "lossless_dscp": sorted(lossless) if lossless is not None else None,
        }
        wrong = sorted({tc for _, tc in used if lossless is not None and tc >> 2 not in lossless})
        if lossless is None:
            result.findings.append(Finding(netdev, "unknown", value, "the lossless class of this port is not known"))
        elif wrong:
            result.findings.append(
                Finding(
                    netdev,
                    "fail",
                    value,
                    f"jobs mark DSCP {', '.join(str(tc >> 2) for tc in wrong)}, which is not lossless",
                )
            )
        elif not used:
            result.findings.append(
                Finding(netdev, "unknown", value, "no job that sets NCCL_IB_TC is running (or may be read)")
            )
        else:
            result.findings.append(Finding(netdev, "ok", value))
    return result


def ecn(context: Context) -> CheckResult:
    result = CheckResult(
        "roce.ecn",
        ["/sys/class/net/*/ecn/roce_{np,rp}/enable/*", "debugfs mlx5 cc_params"],
        "on for the RoCE priority, or deliberately off in the whole fleet",
        "without ECN reaction a sender is only stopped by PFC, which spreads congestion",
        do="echo 1 > /sys/class/net/NETDEV/ecn/roce_rp/enable/PRIO (and roce_np)",
        cls="B",
        nothing=NO_ROCE,
    )
    for netdev, _ in roce_netdevs(context):
        base = f"/sys/class/net/{netdev}/ecn"
        if not context.tree.exists(base):
            # The in-tree driver has DCQCN parameters in debugfs (drivers/infiniband/hw/mlx5/cong.c) but no enable switch there.
            result.findings.append(
                Finding(
                    netdev, "unknown", None, "the in-tree driver does not show whether ECN reaction is on per priority"
                )
            )
            continue
        enabled = {
            side: [p for p in range(8) if context.tree.read(f"{base}/roce_{side}/enable/{p}").text == "1"]
            for side in ("np", "rp")
        }
        pfc = (context.calls.get("dcb", netdev) or {}).get("pfc_enabled")
        if pfc is None:
            result.findings.append(Finding(netdev, "unknown", enabled, "the RoCE priority is not known"))
            continue
        missing = [p for p in pfc if p not in enabled["np"] or p not in enabled["rp"]]
        result.findings.append(
            Finding(netdev, "warn" if missing else "ok", enabled, f"off for priority {missing}" if missing else "")
        )
    return result


CHECKS = (trust_pfc, traffic_class, ecn)

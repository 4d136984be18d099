"""The RDMA ports themselves: state, rate, firmware, flaps, MTU, RoCE GIDs."""

from __future__ import annotations

import re

from fabricd.doctor.checks.registration import NO_NIC
from fabricd.doctor.inventory import INFINIBAND, Nic, Port
from fabricd.doctor.report import CheckResult, Context, Finding, Outcome

ROCE_MTU_NETDEV = 4200  # bytes of netdev MTU that a path MTU of 4096 needs with its headers


def _ports(context: Context) -> list[tuple[str, Nic, Port]]:
    return [
        (f"{nic.name}/{port.number}" if len(nic.ports) > 1 else nic.name, nic, port)
        for nic in context.inventory.nics
        for port in nic.ports
    ]


def state(context: Context) -> CheckResult:
    result = CheckResult(
        "port.state",
        [f"{INFINIBAND}/*/ports/*/{{state,phys_state,rate,link_layer}}"],
        "ACTIVE, LinkUp, all compute ports at one rate",
        "a port that is down, or slower than its fellows, holds back every collective of the node",
        do="check cable and switch port; on InfiniBand, whether a subnet manager runs",
        nothing=NO_NIC,
    )
    ports = _ports(context)
    rates = [port.rate_gbps for _, _, port in ports if port.rate_gbps and port.state == "ACTIVE"]
    usual = max(set(rates), key=rates.count) if rates else None
    for name, _, port in ports:
        value = {
            "state": port.state,
            "phys_state": port.phys_state,
            "rate_gbps": port.rate_gbps,
            "link_layer": port.link_layer,
        }
        if not port.state:
            result.findings.append(Finding(name, "unknown", value, "state cannot be read"))
        elif port.state != "ACTIVE" or port.phys_state not in ("LinkUp", ""):
            result.findings.append(Finding(name, "fail", value))
        elif usual and port.rate_gbps and port.rate_gbps < usual and rates.count(usual) > rates.count(port.rate_gbps):
            result.findings.append(Finding(name, "warn", value, f"most ports of this node run at {usual:g} Gb/s"))
        else:
            result.findings.append(Finding(name, "ok", value))
    return result


def firmware(context: Context) -> CheckResult:
    result = CheckResult(
        "nic.firmware",
        [f"{INFINIBAND}/*/{{fw_ver,board_id,hca_type}}"],
        "one firmware per board type, on the node and in the fleet",
        "mixed firmware behaves differently under congestion and is the first thing a vendor asks about",
        do="update the odd one on a drained node",
        cls="C",
        nothing=NO_NIC,
    )
    by_board: dict[str, set[str]] = {}
    for nic in context.inventory.nics:
        by_board.setdefault(nic.board, set()).add(nic.fw)
    for nic in context.inventory.nics:
        value = {"fw_ver": nic.fw, "board_id": nic.board}
        if not nic.fw:
            result.findings.append(Finding(nic.name, "unknown", value, "the driver does not show its firmware"))
        elif len(by_board[nic.board]) > 1:
            result.findings.append(Finding(nic.name, "warn", value, "another NIC of this board runs other firmware"))
        else:
            result.findings.append(Finding(nic.name, "ok", value))
    return result


def flaps(context: Context) -> CheckResult:
    result = CheckResult(
        "port.flaps",
        [f"{INFINIBAND}/*/ports/*/counters/{{link_downed,link_error_recovery}}", f"{INFINIBAND}/*/ports/*/hw_counters"],
        "fewer than 5 in 24 hours (Azure's health checks)",
        "each flap costs every job on the link a retransmission or its life",
        do="reseat or replace cable or transceiver",
        cls="C",
        nothing=NO_NIC,
    )
    uptime = context.tree.read("/proc/uptime").text
    days = max(1.0, float(uptime.split()[0]) / 86400) if uptime and re.match(r"[\d.]+", uptime) else None
    for name, nic, port in _ports(context):
        base = f"{INFINIBAND}/{nic.name}/ports/{port.number}/counters"
        readings = {what: context.tree.read(f"{base}/{what}") for what in ("link_downed", "link_error_recovery")}
        value = {what: reading.integer() for what, reading in readings.items()}
        count = value["link_downed"]
        if count is None:
            result.findings.append(Finding(name, "unknown", value, readings["link_downed"].why or "not a number"))
        elif count >= 255:
            result.findings.append(
                Finding(name, "unknown", value, "the 8-bit counter is saturated: the true number is unknown")
            )
        elif days is None:
            result.findings.append(
                Finding(name, "ok" if count == 0 else "unknown", value, "" if count == 0 else "uptime is not known")
            )
        else:
            rate = count / days
            verdict: Outcome = "fail" if rate >= 5 else "warn" if count else "ok"
            result.findings.append(Finding(name, verdict, value, f"over {days:.1f} days" if count else ""))
    return result


def mtu(context: Context) -> CheckResult:
    result = CheckResult(
        "port.mtu",
        ["active_mtu (ibv_query_port)", "/sys/class/net/*/mtu"],
        f"active MTU 4096; RoCE needs a netdev MTU of at least {ROCE_MTU_NETDEV}",
        "small packets cost packet rate and leave less of the line for data",
        do="ip link set dev NETDEV mtu 9000 (drops packets for a moment; the whole fabric must agree)",
        cls="B",
        nothing=NO_NIC,
    )
    for name, nic, port in _ports(context):
        answer = context.calls.get("verbs", nic.name)
        active = answer.get("active_mtu") if answer else None
        netdev_mtu = {dev: context.tree.read(f"/sys/class/net/{dev}/mtu").integer() for dev in port.netdevs}
        value = {"active_mtu": active, "netdev_mtu": netdev_mtu} if netdev_mtu else {"active_mtu": active}
        small = [dev for dev, size in netdev_mtu.items() if size is not None and size < ROCE_MTU_NETDEV]
        if port.link_layer == "Ethernet" and small:
            result.findings.append(
                Finding(name, "warn", value, f"{', '.join(small)} is too small for a path MTU of 4096")
            )
        elif active is None:
            result.findings.append(Finding(name, "unknown", value, (answer or {}).get("why") or "verbs not asked"))
        else:
            result.findings.append(Finding(name, "ok" if active == 4096 else "warn", value))
    return result


def roce_gid(context: Context) -> CheckResult:
    result = CheckResult(
        "roce.gid",
        [f"{INFINIBAND}/*/ports/*/gid_attrs/{{types,ndevs}}", f"{INFINIBAND}/*/ports/*/gids"],
        "a RoCE v2 GID with an IPv4-mapped address, at the same index on all ports",
        "RoCE v1 cannot be routed and carries no DSCP; differing indices break a fixed NCCL_IB_GID_INDEX",
        do="give the netdev an IPv4 address; leave NCCL_IB_GID_INDEX unset with NCCL 2.21 or newer",
        nothing="no RoCE port",
    )
    indices: dict[str, int] = {}
    for name, nic, port in _ports(context):
        if port.link_layer != "Ethernet":
            continue
        base = f"{INFINIBAND}/{nic.name}/ports/{port.number}"
        table = context.tree.names(f"{base}/gid_attrs/types")
        if not table:
            result.findings.append(Finding(name, "unknown", None, "no GID table can be read"))
            continue
        found = None
        for index in sorted((i for i in table if i.isdigit()), key=int):
            kind = context.tree.read(f"{base}/gid_attrs/types/{index}").text or ""
            gid = context.tree.read(f"{base}/gids/{index}").text or ""
            if kind.replace(" ", "").lower() == "rocev2" and gid.startswith("0000:0000:0000:0000:0000:ffff:"):
                found = int(index)
                break
        if found is None:
            result.findings.append(Finding(name, "fail", None, "no RoCE v2 GID with an IPv4-mapped address"))
        else:
            indices[name] = found
    usual = max(set(indices.values()), key=list(indices.values()).count) if indices else None
    for name, at in indices.items():
        result.findings.append(
            Finding(
                name,
                "ok" if at == usual else "warn",
                at,
                "" if at == usual else f"most ports have it at {usual}",
            )
        )
    return result


CHECKS = (state, firmware, flaps, mtu, roce_gid)

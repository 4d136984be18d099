"""The agent beside a real RDMA device (Soft-RoCE on Debian's kernel): one boot, all the checks."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.vm.machine import run_in_guest

ROOT = Path(__file__).resolve().parents[2]

pytestmark = [pytest.mark.root, pytest.mark.slow, pytest.mark.timeout(420), pytest.mark.xdist_group("vm")]


@pytest.fixture(scope="module")
def guest() -> dict[str, Any]:
    outcome = run_in_guest(f"{sys.executable} -m tests.vm.guest_agent", directory=ROOT, timeout=360)
    assert outcome.status == 0, outcome.stderr[-4000:] + outcome.console[-1000:]
    result: dict[str, Any] = json.loads(outcome.stdout)
    return result


def device(guest: dict[str, Any], name: str) -> dict[str, Any]:
    found: dict[str, Any] = next(d for d in guest["once"]["devices"] if d["name"] == name)
    return found


def test_the_kernels_device_is_described(guest: dict[str, Any]) -> None:
    rxe = device(guest, "rxe0")
    port = rxe["ports"][0]
    assert (rxe["driver"], rxe["role"]) == ("rxe", "software")
    assert rxe["node_guid"] and rxe["node_guid"] != "0x" + "0" * 16
    assert (port["state"], port["phys_state"], port["link_layer"], port["netdev"]) == (
        "ACTIVE",
        "LinkUp",
        "Ethernet",
        "veth0",
    )
    assert port["rate_gbps"] and port["counters"]["rdma_transmit_packets"]["raw"] == "sent_pkts"
    assert all(entry["value"] is not None for entry in port["counters"].values())
    assert guest["once"]["rejects"] == []


def test_netlink_says_what_the_rdma_tool_says(guest: dict[str, Any]) -> None:
    assert guest["netlink"].keys() == guest["rdma"].keys() - {"ifindex", "port"}
    assert "sent_pkts" in guest["netlink"]


def test_the_aggregators_rate_is_the_kernels(guest: dict[str, Any]) -> None:
    rate = guest["rate"]
    assert rate["kernel"] > 10 and rate["intervals"] >= 12
    assert abs(rate["aggregator"] / rate["kernel"] - 1) <= 0.02, rate


def test_driver_reload_under_open_descriptors(guest: dict[str, Any]) -> None:
    unplugged = guest["unplugged"]
    assert "rxe0" in unplugged["before"] and "rxe0" not in unplugged["without"] and "rxe0" in unplugged["again"]
    assert unplugged["gone"].get("device_gone") == 1
    assert unplugged["new_epoch"]


def test_the_doctor_on_a_real_device(guest: dict[str, Any]) -> None:
    """What a software device can show: its port, its MTU and GIDs by verbs and sysfs, a true answer to the DMA-BUF question."""
    checks = guest["doctor"]
    assert len(checks) == 29
    assert checks["port.state"]["verdict"] == "ok"
    (port,) = checks["port.state"]["subjects"]
    assert (port["subject"], port["value"]["link_layer"]) == ("rxe0", "Ethernet")
    (registration,) = checks["gdr.dmabuf"]["subjects"]
    assert registration["value"] in ("EOPNOTSUPP", "EBADF", "EPROTONOSUPPORT")
    (mtu,) = checks["port.mtu"]["subjects"]
    assert mtu["value"]["active_mtu"] == 1024  # a veth of 1500 bytes carries no more
    assert mtu["verdict"] == "warn"
    assert checks["roce.gid"]["verdict"] == "ok"
    for absent in ("gdr.path", "pcie.pair", "pcie.acs", "pcie.link"):
        assert checks[absent]["verdict"] == "unknown", absent

"""Each server people run, and each fault on its own: the verdict changes where it should and nowhere else."""

from pathlib import Path
from typing import Any

import pytest

from fabricd.doctor.run import make_context, report, run_checks
from tests.unit.doctor.trees import CX8, NVIDIA_H100, NodeTree, config_space, h100

ALL_IDS = {
    "gdr.dmabuf", "gdr.peermem", "gdr.path", "gdr.gdrcopy", "pcie.pair", "fleet.pairing", "rail.wiring", "pcie.numa", "gpu.bar1",
    "pcie.acs", "pcie.iommu", "pcie.ats", "pcie.read_request", "pcie.relaxed_ordering", "pcie.aer", "pcie.link",
    "pcie.link_samples", "port.state", "nic.firmware", "port.flaps", "port.mtu", "roce.gid", "roce.trust_pfc",
    "roce.traffic_class", "roce.ecn", "limits.memlock", "container.verbs", "nccl.env", "probe.bandwidth",
}  # fmt: skip
NEVER_DECIDED_ALONE = {"fleet.pairing", "rail.wiring", "probe.bandwidth", "nccl.env"}
ROCE = {"roce.gid", "roce.trust_pfc", "roce.traffic_class", "roce.ecn"}


def verdicts(tree: NodeTree) -> dict[str, str]:
    context = make_context(tree.done())
    return {check["id"]: check["verdict"] for check in report(context, run_checks(context))["checks"]}


def subjects(tree: NodeTree, check: str) -> dict[str, str]:
    result = next(r for r in run_checks(make_context(tree.done())) if r.id == check)
    return {finding.subject: finding.verdict for finding in result.findings}


def test_every_check_is_there_once_and_says_what_it_read(tmp_path: Path) -> None:
    context = make_context(h100(tmp_path).done())
    checks = report(context, run_checks(context))["checks"]
    assert len(checks) == 29
    assert {check["id"] for check in checks} == ALL_IDS
    for check in checks:
        assert check["verdict"] in ("ok", "warn", "fail", "unknown")
        assert check["read"]
        assert check["wanted"]
        assert check["why"]


def test_a_healthy_infiniband_h100(tmp_path: Path) -> None:
    found = verdicts(h100(tmp_path))
    assert {i for i, v in found.items() if v in ("warn", "fail")} == set()
    assert {i for i, v in found.items() if v == "unknown"} == NEVER_DECIDED_ALONE | ROCE


def test_a_healthy_roce_node_with_a_job(tmp_path: Path) -> None:
    tree = h100(tmp_path, ethernet=True)
    hcas = "=" + ",".join(f"mlx5_{i}:1" for i in range(8))
    tree.process(4711, {"NCCL_IB_TC": "104", "NCCL_IB_HCA": hcas, "SECRET_TOKEN": "x"})
    found = verdicts(tree)
    assert {i for i, v in found.items() if v in ("warn", "fail")} == set()
    assert {i for i, v in found.items() if v == "unknown"} == NEVER_DECIDED_ALONE - {"nccl.env"}


def test_without_a_gpu_nothing_about_gpus_is_ok(tmp_path: Path) -> None:
    tree = h100(tmp_path, gpus=False)
    found = verdicts(tree)
    for check in ("gdr.path", "gdr.peermem", "pcie.pair", "fleet.pairing", "gpu.bar1", "pcie.numa", "gdr.gdrcopy"):
        assert found[check] == "unknown", check
    assert found["port.state"] == "ok"


def test_an_empty_node_is_unknown_everywhere(tmp_path: Path) -> None:
    found = verdicts(NodeTree(tmp_path))
    assert set(found.values()) == {"unknown"}


def test_wrong_dscp_is_found_by_the_class_the_job_uses(tmp_path: Path) -> None:
    tree = h100(tmp_path, ethernet=True)
    tree.process(4711, {"NCCL_IB_TC": "0"})
    assert verdicts(tree)["roce.traffic_class"] == "fail"


@pytest.mark.parametrize(
    ("dcb", "verdict"),
    [
        ({"pfc_enabled": [], "dscp_map": {"26": 3}}, "fail"),
        ({"pfc_enabled": [4], "dscp_map": {"26": 3}}, "fail"),
        ({"pfc_enabled": list(range(8)), "dscp_map": {"26": 3}}, "warn"),
        ({"pfc_enabled": [3], "dscp_map": {}}, "warn"),
        ({"pfc_enabled": None, "why": "needs more privilege"}, "unknown"),
    ],
)
def test_pfc_and_map(tmp_path: Path, dcb: dict[str, Any], verdict: str) -> None:
    tree = h100(tmp_path, pairs=1, ethernet=True)
    tree.calls["dcb"]["eth0"] = dcb
    assert verdicts(tree)["roce.trust_pfc"] == verdict


def test_peermem_loaded_but_not_registered(tmp_path: Path) -> None:
    tree = h100(tmp_path)
    (tmp_path / "sys/kernel/mm/memory_peers/nv_mem/version").unlink()
    for answer in tree.calls["verbs"].values():
        answer["dmabuf"] = "EOPNOTSUPP"
    found = verdicts(tree)
    assert (found["gdr.peermem"], found["gdr.dmabuf"], found["gdr.path"]) == ("warn", "warn", "fail")


def test_dmabuf_only_is_fine(tmp_path: Path) -> None:
    tree = h100(tmp_path)
    (tmp_path / "sys/kernel/mm/memory_peers/nv_mem/version").unlink()
    (tmp_path / "sys/module/nvidia_peermem/version").unlink()
    found = verdicts(tree)
    assert (found["gdr.peermem"], found["gdr.dmabuf"], found["gdr.path"]) == ("ok", "ok", "ok")


def test_a_probe_that_was_not_possible_is_never_ok(tmp_path: Path) -> None:
    tree = h100(tmp_path)
    tree.calls["verbs"] = {}
    (tmp_path / "sys/kernel/mm/memory_peers/nv_mem/version").unlink()
    found = verdicts(tree)
    assert (found["gdr.dmabuf"], found["gdr.path"], found["port.mtu"]) == ("unknown", "unknown", "unknown")


def test_acs_on_bare_metal(tmp_path: Path) -> None:
    assert verdicts(h100(tmp_path, acs=0x1D))["pcie.acs"] == "fail"


def test_acs_without_privilege_is_unknown(tmp_path: Path) -> None:
    tree = h100(tmp_path, pairs=1)
    for dump in (tmp_path / "run/fabricd/pci").iterdir():
        dump.write_bytes(dump.read_bytes()[:64])
    found = verdicts(tree)
    for check in ("pcie.acs", "pcie.ats", "pcie.read_request", "pcie.relaxed_ordering"):
        assert found[check] == "unknown", check


def test_acs_in_a_virtual_machine_is_the_hosts_business(tmp_path: Path) -> None:
    tree = h100(tmp_path, pairs=1, acs=0x1D)
    tree.write("/proc/cpuinfo", "flags\t\t: fpu hypervisor\n")
    found = verdicts(tree)
    assert found["pcie.acs"] == "unknown"
    assert found["pcie.ats"] == "warn"


def test_a_virtual_machine_with_hidden_bridges(tmp_path: Path) -> None:
    tree = NodeTree(tmp_path)
    tree.write("/proc/cpuinfo", "flags\t\t: fpu hypervisor\n")
    tree.pci("pci0001:00/0001:00:00.0", "0x10de", NVIDIA_H100, "0x030200")
    tree.pci("pci0101:00/0101:00:00.0", "0x15b3", "0x101e", "0x020700")
    tree.rdma("mlx5_0", "pci0101:00/0101:00:00.0")
    found = verdicts(tree)
    assert found["pcie.pair"] == "unknown"
    assert found["pcie.acs"] == "unknown"


def grace(root: Path, root_acs: int = 0x1C, nic_acs: int = 0x19, gpu_acs: int = 0x15) -> NodeTree:
    """Grace with ConnectX-8: the GPU hangs below the NIC's own switch; ACS bits as that platform wants them."""
    tree = NodeTree(root)
    tree.write("/proc/cpuinfo", "CPU implementer\t: 0x41\nCPU part\t: 0xd4f\n")
    port = "pci0002:00/0002:00:00.0"
    up = f"{port}/0002:01:00.0"
    tree.pci(port, "0x10de", "0x22b8", "0x060400", 0, config_space(acs=root_acs))
    tree.pci(up, "0x15b3", "0x197b", "0x060400", 0, config_space())
    tree.pci(f"{up}/0002:02:00.0", "0x15b3", "0x197b", "0x060400", 0, config_space(acs=nic_acs))
    tree.pci(f"{up}/0002:02:01.0", "0x15b3", "0x197b", "0x060400", 0, config_space(acs=gpu_acs))
    tree.pci(f"{up}/0002:02:00.0/0002:03:00.0", "0x15b3", CX8, "0x020700", 0, config_space(ats=True))
    region = f"0x{1 << 38:016x} 0x{(2 << 38) - 1:016x} 0x14220c\n"
    tree.pci(f"{up}/0002:02:01.0/0002:04:00.0", "0x10de", "0x2941", "0x030200", 0, resource=region)
    tree.rdma("mlx5_0", f"{up}/0002:02:00.0/0002:03:00.0", rate="800 Gb/sec (4X XDR)")
    return tree


def test_grace_wants_its_own_acs_bits(tmp_path: Path) -> None:
    assert subjects(grace(tmp_path / "right"), "pcie.acs")["0002:00:00.0"] == "ok"
    assert verdicts(grace(tmp_path / "also"))["pcie.acs"] == "ok"
    wrong = subjects(grace(tmp_path / "wrong", nic_acs=0), "pcie.acs")
    assert wrong["0002:02:00.0"] == "fail"


def test_a_downtrained_nic(tmp_path: Path) -> None:
    tree = h100(tmp_path)
    nic = next((tmp_path / "sys/class/infiniband/mlx5_2/device").resolve().glob("current_link_width"))
    nic.write_text("8")
    assert subjects(tree, "pcie.link")["mlx5_2"] == "fail"
    assert subjects(tree, "pcie.link")["mlx5_3"] == "ok"


def test_an_idle_gpu_slows_its_link_down_and_is_not_blamed(tmp_path: Path) -> None:
    tree = h100(tmp_path, pairs=1)
    gpu = next(p for p in (tmp_path / "sys/bus/pci/devices").iterdir() if (p / "vendor").read_text() == "0x10de")
    (gpu / "current_link_speed").write_text("2.5 GT/s PCIe")
    tree.calls["links"][gpu.name] = {"samples": {"2.5 GT/s PCIe x16": 12}, "moved_bytes": None}
    assert subjects(tree, "pcie.link")["gpu0"] == "unknown"
    assert subjects(tree, "pcie.link_samples")["gpu0"] == "unknown"


def test_a_link_that_drops_under_load(tmp_path: Path) -> None:
    tree = h100(tmp_path, pairs=1)
    nic = (tmp_path / "sys/class/infiniband/mlx5_0/device").resolve().name
    tree.calls["links"][nic] = {"samples": {"32.0 GT/s PCIe x16": 9, "16.0 GT/s PCIe x16": 3}, "moved_bytes": 10**9}
    assert subjects(tree, "pcie.link_samples")["mlx5_0"] == "fail"
    tree.calls["links"][nic] = {"samples": {"32.0 GT/s PCIe x16": 12}, "moved_bytes": 0}
    assert subjects(tree, "pcie.link_samples")["mlx5_0"] == "unknown"


def test_a_gpu_on_the_wrong_socket(tmp_path: Path) -> None:
    tree = NodeTree(tmp_path)
    tree.pci("pci0000:15/0000:15:01.0/0000:16:00.0", "0x10de", NVIDIA_H100, "0x030200", numa=0)
    tree.pci("pci0000:95/0000:95:01.0/0000:96:00.0", "0x15b3", "0x1021", "0x020700", numa=1)
    tree.rdma("mlx5_0", "pci0000:95/0000:95:01.0/0000:96:00.0")
    found = verdicts(tree)
    assert (found["pcie.pair"], found["pcie.numa"]) == ("fail", "fail")


def test_a_port_that_is_down_and_one_that_is_slow(tmp_path: Path) -> None:
    tree = h100(tmp_path)
    for name, attribute, text in (("mlx5_1", "state", "1: DOWN"), ("mlx5_4", "rate", "200 Gb/sec (4X HDR)")):
        (tmp_path / f"sys/class/infiniband/{name}/ports/1" / attribute).resolve().write_text(text)
    found = subjects(tree, "port.state")
    assert (found["mlx5_1"], found["mlx5_4"], found["mlx5_0"]) == ("fail", "warn", "ok")


@pytest.mark.parametrize(
    ("count", "verdict"), [("0", "ok"), ("3", "warn"), ("80", "fail"), ("255", "unknown"), ("x", "unknown")]
)
def test_flaps(tmp_path: Path, count: str, verdict: str) -> None:
    tree = h100(tmp_path, pairs=1)
    (tmp_path / "sys/class/infiniband/mlx5_0/ports/1/counters/link_downed").resolve().write_text(count)
    assert subjects(tree, "port.flaps")["mlx5_0"] == verdict


def test_nccl_settings_that_hurt(tmp_path: Path) -> None:
    tree = h100(tmp_path)
    tree.process(1, {"NCCL_IB_DISABLE": "1"})
    tree.process(2, {"NCCL_IB_HCA": "=mlx5_0:1,mlx5_9:1"})
    tree.process(3, {"NCCL_IB_HCA": "=mlx5_0:1"})
    tree.process(4, {"NCCL_IB_HCA": "mlx5"})
    found = subjects(tree, "nccl.env")
    assert found == {"pid 1": "fail", "pid 2": "fail", "pid 3": "warn", "pid 4": "ok"}


def test_memlock_of_a_job(tmp_path: Path) -> None:
    tree = h100(tmp_path, pairs=1)
    tree.process(9, {"NCCL_DEBUG": "INFO"}, memlock="65536")
    assert subjects(tree, "limits.memlock")["pid 9"] == "fail"


def test_gids_without_ipv4_and_at_differing_indices(tmp_path: Path) -> None:
    tree = h100(tmp_path, pairs=4, ethernet=True)
    ports = [(tmp_path / f"sys/class/infiniband/mlx5_{i}/ports/1").resolve() for i in range(4)]
    (ports[0] / "gids/3").write_text("fe80:0000:0000:0000:0000:0000:0000:0001")
    (ports[1] / "gid_attrs/types/3").unlink()
    (ports[1] / "gid_attrs/types/5").write_text("RoCE v2")
    (ports[1] / "gids/5").write_text("0000:0000:0000:0000:0000:ffff:0a00:0002")
    assert subjects(tree, "roce.gid") == {"mlx5_0": "fail", "mlx5_1": "warn", "mlx5_2": "ok", "mlx5_3": "ok"}


def test_the_recommended_settings_follow_the_rails(tmp_path: Path) -> None:
    from fabricd.doctor.checks.environment import recommended_nccl_conf

    text = recommended_nccl_conf(make_context(h100(tmp_path, pairs=2, ethernet=True).done()))
    assert "NCCL_IB_HCA==mlx5_0:1:0:0,mlx5_1:1:1:0\n" in text
    assert "NCCL_IB_TC=104" in text

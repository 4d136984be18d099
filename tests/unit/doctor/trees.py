"""Generated node trees: sysfs, proc and captured calls of the servers people run, with one fault at a time."""

from __future__ import annotations

import json
import os
import struct
from pathlib import Path
from typing import Any

NVIDIA_H100, CX7, CX8 = "0x2330", "0x1021", "0x1023"


def config_space(
    *, acs: int | None = None, ats: bool | None = None, read_request: int = 4096, relaxed: bool = True
) -> bytes:
    """4096 bytes: a PCI Express capability at 0x60, then ACS and ATS in the extended list."""
    data = bytearray(4096)
    data[0x06] = 0x10  # capability list present
    data[0x34] = 0x60
    data[0x60], data[0x61] = 0x10, 0
    control = (read_request.bit_length() - 8) << 12 | 2 << 5 | (0x10 if relaxed else 0)
    struct.pack_into("<H", data, 0x68, control)
    blocks: list[tuple[int, int]] = []
    if acs is not None:
        blocks.append((0x000D, acs))
    if ats is not None:
        blocks.append((0x000F, 0x8000 if ats else 0))
    at = 0x100
    if not blocks:
        struct.pack_into("<I", data, at, 0x0001 | 1 << 16)  # only AER
    for i, (identity, value) in enumerate(blocks):
        following = at + 0x40 if i + 1 < len(blocks) else 0
        struct.pack_into("<I", data, at, identity | 1 << 16 | following << 20)
        struct.pack_into("<H", data, at + 6, value)
        at = following
    return bytes(data)


class NodeTree:
    """Builds below ``root``; each method adds one thing."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.calls: dict[str, dict[str, Any]] = {"verbs": {}, "links": {}, "dcb": {}}
        self.write("/proc/cpuinfo", "vendor_id\t: GenuineIntel\nflags\t\t: fpu sse\n")
        self.write("/proc/cmdline", "BOOT_IMAGE=/vmlinuz iommu=pt")
        self.write("/proc/uptime", "864000.0 1.0")
        self.write(
            "/proc/self/limits",
            "Limit  Soft  Hard  Units\nMax locked memory         unlimited            unlimited            bytes\n",
        )
        self.write("/proc/sys/kernel/hostname", "gpu001")
        self.write("/etc/libibverbs.d/mlx5.driver", "driver mlx5")
        self.write("/sys/devices/system/node/node0/cpulist", "0-55")
        self.write("/sys/devices/system/node/node1/cpulist", "56-111")

    def write(self, path: str, text: str | bytes) -> None:
        file = self.root / path.lstrip("/")
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(text if isinstance(text, bytes) else text.encode())

    def link(self, path: str, target: str) -> None:
        file = self.root / path.lstrip("/")
        file.parent.mkdir(parents=True, exist_ok=True)
        file.symlink_to(os.path.relpath(self.root / target.lstrip("/"), file.parent))

    def pci(
        self, path: str, vendor: str, device: str, cls: str, numa: int = 0, config: bytes | None = None, **attrs: str
    ) -> str:
        """A function at ``path`` below /sys/devices; returns its address."""
        bdf, base = path.rsplit("/", 1)[-1], f"/sys/devices/{path}"
        values = {
            "vendor": vendor, "device": device, "class": cls, "numa_node": str(numa),
            "current_link_speed": "32.0 GT/s PCIe", "max_link_speed": "32.0 GT/s PCIe",
            "current_link_width": "16", "max_link_width": "16",
            "aer_dev_correctable": "Receiver Error 0\nTOTAL_ERR_COR 0\n",
            "aer_dev_nonfatal": "TOTAL_ERR_NONFATAL 0\n", "aer_dev_fatal": "TOTAL_ERR_FATAL 0\n", **attrs,
        }  # fmt: skip
        for name, text in values.items():
            self.write(f"{base}/{name}", text)
        self.link(f"/sys/bus/pci/devices/{bdf}", base)
        self.write(f"/run/fabricd/pci/{bdf}", config if config is not None else config_space())
        group = str(len(list((self.root / "sys/bus/pci/devices").iterdir())))
        self.write(f"/sys/kernel/iommu_groups/{group}/type", "identity")
        self.link(f"{base}/iommu_group", f"/sys/kernel/iommu_groups/{group}")
        self.calls["links"][bdf] = {"samples": {"32.0 GT/s PCIe x16": 12}, "moved_bytes": 10**9}
        return bdf

    def rdma(
        self, name: str, pci_path: str, *, ethernet: bool = False, rate: str = "400 Gb/sec (4X NDR)", **port: str
    ) -> None:
        base = f"/sys/devices/{pci_path}/infiniband/{name}"
        self.write(f"{base}/fw_ver", port.pop("fw_ver", "28.39.1002"))
        self.write(f"{base}/board_id", "MT_0000000838")
        self.link(f"/sys/class/infiniband/{name}", base)
        self.link(f"{base}/device", f"/sys/devices/{pci_path}")
        at = f"{base}/ports/1"
        values = {
            "state": "4: ACTIVE",
            "phys_state": "5: LinkUp",
            "rate": rate,
            "link_layer": "Ethernet" if ethernet else "InfiniBand",
        }
        for key, text in {**values, **port}.items():
            self.write(f"{at}/{key}", text)
        for counter in ("link_downed", "link_error_recovery"):
            self.write(f"{at}/counters/{counter}", "0")
        self.write(f"/dev/infiniband/uverbs{len(self.calls['verbs'])}", "")
        self.calls["verbs"][name] = {"dmabuf": "EBADF", "active_mtu": 4096, "why": ""}
        if ethernet:
            netdev = f"eth{name[-1]}"
            self.write(f"{at}/gid_attrs/types/0", "IB/RoCE v1")
            self.write(f"{at}/gid_attrs/types/3", "RoCE v2")
            self.write(f"{at}/gid_attrs/ndevs/3", netdev)
            self.write(f"{at}/gids/0", "fe80:0000:0000:0000:0000:0000:0000:0001")
            self.write(f"{at}/gids/3", "0000:0000:0000:0000:0000:ffff:0a00:0001")
            self.write(f"/sys/class/net/{netdev}/mtu", "9000")
            for side in ("np", "rp"):
                self.write(f"/sys/class/net/{netdev}/ecn/roce_{side}/enable/3", "1")
            self.calls["dcb"][netdev] = {"pfc_enabled": [3], "dscp_map": {"26": 3}, "why": ""}

    def process(self, pid: int, environment: dict[str, str], memlock: str = "unlimited") -> None:
        self.write(f"/proc/{pid}/environ", "\0".join(f"{k}={v}" for k, v in environment.items()) + "\0")
        self.write(
            f"/proc/{pid}/limits", f"Max locked memory         {memlock}            {memlock}            bytes\n"
        )

    def done(self) -> str:
        self.write("/fabricd/calls.json", json.dumps(self.calls))
        return str(self.root)


def h100(root: Path, *, pairs: int = 8, ethernet: bool = False, acs: int | None = 0, gpus: bool = True) -> NodeTree:
    """Each pair of GPU and ConnectX-7 below a PCIe switch of its own; half of them on each socket."""
    tree = NodeTree(root)
    for i in range(pairs):
        numa, bus = i * 2 // pairs, 0x15 + 0x10 * i
        host = f"pci0000:{bus:02x}/0000:{bus:02x}:01.0"
        up = f"{host}/0000:{bus + 1:02x}:00.0"
        for path in (host, up, f"{up}/0000:{bus + 2:02x}:00.0", f"{up}/0000:{bus + 2:02x}:01.0"):
            tree.pci(path, "0x1000", "0xc030", "0x060400", numa, config_space(acs=acs))
        if gpus:
            memory = 1 << 37
            region = f"0x{memory:016x} 0x{2 * memory - 1:016x} 0x000000000014220c\n"
            tree.pci(
                f"{up}/0000:{bus + 2:02x}:00.0/0000:{bus + 3:02x}:00.0",
                "0x10de",
                NVIDIA_H100,
                "0x030200",
                numa,
                resource=region,
            )
        nic = f"{up}/0000:{bus + 2:02x}:01.0/0000:{bus + 4:02x}:00.0"
        tree.pci(nic, "0x15b3", CX7, "0x020700", numa, config_space(ats=False))
        tree.rdma(f"mlx5_{i}", nic, ethernet=ethernet)
    tree.write("/sys/kernel/mm/memory_peers/nv_mem/version", "1.3")
    tree.write("/sys/module/nvidia_peermem/version", "550.54")
    return tree

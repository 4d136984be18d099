"""Generated /sys trees with RDMA devices of any vendor, and a file system that fails where it is told to."""

from __future__ import annotations

import os
import shutil
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

from fabricd.sources.files import OsFiles

IB_COUNTERS = {
    "VL15_dropped": 0, "excessive_buffer_overrun_errors": 0, "link_downed": 1, "link_error_recovery": 0,
    "local_link_integrity_errors": 0, "multicast_rcv_packets": 11, "multicast_xmit_packets": 12,
    "port_rcv_constraint_errors": 0, "port_rcv_data": 1000, "port_rcv_errors": 0, "port_rcv_packets": 300,
    "port_rcv_remote_physical_errors": 0, "port_rcv_switch_relay_errors": 0, "port_xmit_constraint_errors": 0,
    "port_xmit_data": 2000, "port_xmit_discards": 3, "port_xmit_packets": 400, "port_xmit_wait": 77, "symbol_error": 0,
    "unicast_rcv_packets": 289, "unicast_xmit_packets": 388,
}  # fmt: skip

HW_COUNTERS: dict[str, dict[str, int]] = {
    "mlx5_core": {
        "np_ecn_marked_roce_packets": 5, "np_cnp_sent": 4, "rp_cnp_handled": 3, "rp_cnp_ignored": 0, "out_of_sequence": 9,
        "packet_seq_err": 8, "local_ack_timeout_err": 2, "out_of_buffer": 1, "roce_adp_retrans": 6, "lifespan": 10,
    },
    "mlx4_core": {"rq_num_oos": 3, "sq_num_to": 2, "rq_num_udsdprd": 1, "lifespan": 10},
    "bnxt_en": {"tx_cnp_pkts": 4, "rx_cnp_pkts": 3, "rx_ecn_marked_pkts": 5, "active_qps": 2, "tx_bytes": 999, "lifespan": 10},
    "ice": {"cnpSent": 4, "cnpHandled": 3, "cnpIgnored": 0, "RxECNMrkd": 5, "lifespan": 10},
    "ionic": {"tx_rdma_cnp_pkts": 4, "rx_rdma_cnp_pkts": 3, "resp_rx_outouf_seq": 9, "tx_rdma_ucast_bytes": 999, "lifespan": 10},
    "efa": {"tx_bytes": 999, "rx_drops": 1, "retrans_pkts": 7, "lifespan": 10},
    "hfi1": {"RxBufOvfl,32": 3, "TxWords": 99, "RcvHdrOvr,32": 1, "lifespan": 10},
    "rxe": {"sent_pkts": 10, "rcvd_pkts": 11, "out_of_seq_request": 1, "lifespan": 10},
    "siw": {},
    "erdma": {"tx_bytes_cnt": 999, "rx_packets_cnt": 5, "lifespan": 10},
    "hns3": {"rx_cnp_pkt": 3, "tx_pkt": 8, "lifespan": 10},
}  # fmt: skip

HAS_PMA = ("mlx5_core", "mlx4_core", "hfi1", "hns3")
SOFTWARE = ("rxe", "siw")


class SysfsTree:
    """Files below ``root`` as the kernel lays them out: class directories with links into devices."""

    def __init__(self, root: Path) -> None:
        self.root = root
        for part in ("class/infiniband", "class/net", "devices"):
            (root / part).mkdir(parents=True, exist_ok=True)

    def write(self, path: str, text: object) -> Path:
        file = self.root / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(f"{text}\n")
        return file

    def function(
        self, address: str, driver: str, *, vendor: int = 0, device: int = 0, physfn: str | None = None
    ) -> Path:
        """A PCI function; made once however often it is asked for."""
        path = self.root / "devices/pci" / address
        if not path.exists():
            path.mkdir(parents=True)
            drivers = self.root / "bus/pci/drivers" / driver
            drivers.mkdir(parents=True, exist_ok=True)
            (path / "driver").symlink_to(drivers)
            self.write(f"devices/pci/{address}/vendor", f"0x{vendor:04x}")
            self.write(f"devices/pci/{address}/device", f"0x{device:04x}")
            if physfn is not None:
                (path / "physfn").symlink_to(self.root / "devices/pci" / physfn)
        return path

    def device(
        self,
        name: str,
        driver: str,
        *,
        guid: int | None = None,
        address: str | None = None,
        ports: int = 1,
        link_layer: str = "Ethernet",
        state: str = "4: ACTIVE",
        phys_state: str = "5: LinkUp",
        rate: str = "400 Gb/sec (4X NDR)",
        counters: dict[str, int] | None = None,
        hw_counters: dict[str, int] | None = None,
        netdev: str | None = None,
        vendor: int = 0,
        pci_device: int = 0,
        physfn: str | None = None,
    ) -> Path:
        """An RDMA device. Software drivers have no PCI function; ``netdev`` names the first port's interface."""
        function = None
        if driver not in SOFTWARE:
            number = abs(hash(name)) % 200
            address = address or f"0000:{number:02x}:00.0"
            function = self.function(address, driver, vendor=vendor, device=pci_device, physfn=physfn)
        home = (function or self.root / "devices/virtual") / "infiniband" / name
        home.mkdir(parents=True)
        link = self.root / "class/infiniband" / name
        link.symlink_to(home)
        if function is not None:
            (home / "device").symlink_to(function)
        where = str(home.relative_to(self.root))
        guid = guid if guid is not None else 0x0C42_A103_0000_0000 + sum(name.encode()) * 257
        text = f"{guid:016x}"
        self.write(f"{where}/node_guid", ":".join(text[i : i + 4] for i in range(0, 16, 4)))
        self.write(f"{where}/fw_ver", "28.39.1002")
        self.write(f"{where}/board_id", "MT_0000000838")
        self.write(f"{where}/node_type", "1: CA")
        self.write(f"{where}/node_desc", f"host {name}")
        for port in range(1, ports + 1):
            at = f"{where}/ports/{port}"
            self.write(f"{at}/link_layer", link_layer)
            self.write(f"{at}/state", state)
            self.write(f"{at}/phys_state", phys_state)
            self.write(f"{at}/rate", rate)
            self.write(f"{at}/lid", "0x0" if link_layer == "Ethernet" else f"0x{port + 16:x}")
            self.write(f"{at}/gids/0", f"fe80:0000:0000:0000:{':'.join(text[i : i + 4] for i in range(0, 16, 4))}")
            has = IB_COUNTERS if driver in HAS_PMA else {}
            for counter, value in (has if counters is None else counters).items():
                self.write(f"{at}/counters/{counter}", value)
            known = HW_COUNTERS.get(driver, {})
            for counter, value in (known if hw_counters is None else hw_counters).items():
                self.write(f"{at}/hw_counters/{counter}", value)
            if netdev is not None and port == 1:
                self.write(f"{at}/gid_attrs/ndevs/0", netdev)
        return link

    def netdev(
        self,
        name: str,
        *,
        address: str | None = None,
        driver: str = "mlx5_core",
        mac: str = "0c:42:a1:00:00:01",
        speed: int = 400_000,
        slaves: str | None = None,
        phys_port_name: str | None = None,
    ) -> Path:
        home = (self.function(address, driver) / "net" if address else self.root / "devices/virtual/net") / name
        home.mkdir(parents=True)
        (self.root / "class/net" / name).symlink_to(home)
        if address:
            (home / "device").symlink_to(self.root / "devices/pci" / address)
        where = str(home.relative_to(self.root))
        self.write(f"{where}/address", mac)
        self.write(f"{where}/operstate", "up")
        self.write(f"{where}/speed", speed)
        for direction in ("rx", "tx"):
            for what, value in (("bytes", 5000), ("packets", 50), ("errors", 0), ("dropped", 2)):
                self.write(f"{where}/statistics/{direction}_{what}", value)
        self.write(f"{where}/statistics/collisions", 0)
        if slaves is not None:
            self.write(f"{where}/bonding/slaves", slaves)
        if phys_port_name is not None:
            self.write(f"{where}/phys_port_name", phys_port_name)
        return home

    def remove(self, name: str) -> None:
        """Unplug an RDMA device."""
        link = self.root / "class/infiniband" / name
        home = link.resolve()
        link.unlink()
        shutil.rmtree(home)

    def port_file(self, name: str, file: str, port: int = 1) -> str:
        return str(self.root / "class/infiniband" / name / f"ports/{port}" / file)


@dataclass
class FaultyFiles(OsFiles):
    """The real file system with injected errors, by path: ``open_errno`` and ``read_errno``. Counts opens and reads."""

    open_errno: dict[str, int] = field(default_factory=dict)
    read_errno: dict[str, int] = field(default_factory=dict)
    texts: dict[str, bytes] = field(default_factory=dict)
    opens: Counter[str] = field(default_factory=Counter)
    reads: Counter[str] = field(default_factory=Counter)
    paths: dict[int, str] = field(default_factory=dict)

    def open(self, path: str) -> int:
        self.opens[path] += 1
        if path in self.open_errno:
            raise OSError(self.open_errno[path], os.strerror(self.open_errno[path]), path)
        fd = super().open(path)
        self.paths[fd] = path
        return fd

    def pread(self, fd: int, size: int, offset: int, /) -> bytes:  # type: ignore[override]
        path = self.paths[fd]
        self.reads[path] += 1
        if path in self.read_errno:
            raise OSError(self.read_errno[path], os.strerror(self.read_errno[path]), path)
        return self.texts[path][:size] if path in self.texts else os.pread(fd, size, offset)

    def close(self, fd: int) -> None:
        del self.paths[fd]
        super().close(fd)

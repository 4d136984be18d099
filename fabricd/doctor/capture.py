"""A capture: what the checks read, as a tree in a tar file, so that another machine can run them. Secrets stay out.

Only listed paths are taken; of process environments only NCCL_, UCX_ and RDMA_ names; of /etc/security/limits.d only the
memlock lines. Links are kept as links, so that PCI paths resolve inside the tree.
"""

from __future__ import annotations

import io
import json
import lzma
import os
import re
import tarfile
import tempfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from fabricd.doctor.calls import CALLS_FILE
from fabricd.doctor.checks.link import KMSG_FILE
from fabricd.doctor.checks.registration import PEER_CLIENTS, PEERMEM_MODULE
from fabricd.doctor.inventory import INFINIBAND
from fabricd.doctor.pci import CONFIG_DUMPS, DEVICES, read_config
from fabricd.doctor.processes import rdma_processes
from fabricd.doctor.report import Context
from fabricd.errors import FabricdError, UsageError

PCI_FILES = (
    "vendor", "device", "class", "numa_node", "local_cpulist", "resource", "current_link_speed", "current_link_width",
    "max_link_speed", "max_link_width", "aer_dev_correctable", "aer_dev_nonfatal", "aer_dev_fatal",
)  # fmt: skip
PORT_FILES = ("state", "phys_state", "rate", "link_layer", "lid", "sm_lid")
FIXED_FILES = (
    "/proc/cmdline", "/proc/uptime", "/proc/self/limits", "/proc/sys/kernel/hostname", "/proc/net/netstat", "/etc/nccl.conf",
    "/sys/module/nvidia/version", PEERMEM_MODULE, *PEER_CLIENTS,
)  # fmt: skip
CPU_LINES = re.compile(r"^(vendor_id|cpu family|model|model name|flags|CPU implementer|CPU part)\s*:.*$", re.MULTILINE)


class _Writer:
    """Adds files, directories and links to the tar once each."""

    def __init__(self, archive: tarfile.TarFile, context: Context) -> None:
        self.archive, self.tree = archive, context.tree
        self.done: set[str] = set()

    def put(self, path: str, data: bytes) -> None:
        if path not in self.done:
            self.done.add(path)
            info = tarfile.TarInfo(path.lstrip("/"))
            info.size, info.mode = len(data), 0o644
            self.archive.addfile(info, io.BytesIO(data))

    def copy(self, path: str) -> None:
        data, _ = self.tree.read_bytes(path)
        if data is not None:
            self.put(path, data)

    def link(self, path: str, target: str) -> None:
        """A relative link from ``path`` to the absolute ``target``."""
        if path not in self.done and path != target:
            self.done.add(path)
            info = tarfile.TarInfo(path.lstrip("/"))
            info.type, info.linkname = tarfile.SYMTYPE, os.path.relpath(target, str(Path(path).parent))
            self.archive.addfile(info)

    def empty(self, path: str) -> None:
        """Something whose mere presence is read (a device file)."""
        self.put(path, b"")


def write_capture(context: Context, file: str) -> int:
    """Write a ``.tar.gz``; returns the number of entries. Raises FabricdError when the file cannot be written."""
    try:
        with tarfile.open(file, "w:gz") as archive:
            writer = _Writer(archive, context)
            _pci(context, writer)
            _rdma(context, writer)
            _host(context, writer)
            return len(writer.done)
    except OSError as error:
        raise FabricdError(f"{file}: {error.strerror}") from None


def _pci(context: Context, writer: _Writer) -> None:
    endpoints = [nic.pci for nic in context.inventory.nics if nic.pci] + [gpu.pci for gpu in context.inventory.gpus]
    for bdf in sorted({bdf for endpoint in endpoints for bdf in endpoint.chain}):
        real = context.tree.real(f"{DEVICES}/{bdf}")
        if real is None:
            continue
        writer.link(f"{DEVICES}/{bdf}", real)
        for name in PCI_FILES:
            writer.copy(f"{real}/{name}")
        for name in ("driver", "iommu_group", "physfn"):
            target = context.tree.real(f"{real}/{name}") if context.tree.exists(f"{real}/{name}") else None
            if target:
                writer.link(f"{real}/{name}", target)
                if name == "iommu_group":
                    writer.copy(f"{target}/type")
        config = read_config(context.tree, bdf)
        if config.data:
            writer.put(f"{CONFIG_DUMPS}/{bdf}", config.data)


def _rdma(context: Context, writer: _Writer) -> None:
    tree = context.tree
    for nic in context.inventory.nics:
        base = tree.real(f"{INFINIBAND}/{nic.name}") or f"{INFINIBAND}/{nic.name}"
        writer.link(f"{INFINIBAND}/{nic.name}", base)
        device = tree.real(f"{base}/device")
        if device and device != base:
            writer.link(f"{base}/device", device)
        for name in ("fw_ver", "board_id", "hca_type", "node_guid"):
            writer.copy(f"{base}/{name}")
        writer.copy(f"{base}/tc/1/traffic_class")
        for port in nic.ports:
            at = f"{base}/ports/{port.number}"
            for name in PORT_FILES:
                writer.copy(f"{at}/{name}")
            for name in ("link_downed", "link_error_recovery", "port_xmit_data", "port_rcv_data"):
                writer.copy(f"{at}/counters/{name}")
            for index in tree.names(f"{at}/gid_attrs/types"):
                for folder in ("gid_attrs/types", "gid_attrs/ndevs", "gids"):
                    writer.copy(f"{at}/{folder}/{index}")
            for netdev in port.netdevs:
                writer.copy(f"/sys/class/net/{netdev}/mtu")
                for side in ("np", "rp"):
                    for priority in range(8):
                        writer.copy(f"/sys/class/net/{netdev}/ecn/roce_{side}/enable/{priority}")
            writer.copy(f"/sys/kernel/config/rdma_cm/{nic.name}/ports/{port.number}/default_roce_tos")


def _host(context: Context, writer: _Writer) -> None:
    tree = context.tree
    for path in FIXED_FILES:
        writer.copy(path)
    cpu = tree.read("/proc/cpuinfo").text or ""
    seen = dict.fromkeys(match[0] for match in CPU_LINES.finditer(cpu))
    writer.put("/proc/cpuinfo", "\n".join(seen).encode() + b"\n")
    for node in tree.names("/sys/devices/system/node"):
        if re.fullmatch(r"node\d+", node):
            writer.copy(f"/sys/devices/system/node/{node}/cpulist")
    for name in tree.names("/etc/security/limits.d"):
        lines = [
            line for line in (tree.read(f"/etc/security/limits.d/{name}").text or "").splitlines() if "memlock" in line
        ]
        if lines:
            writer.put(f"/etc/security/limits.d/{name}", "\n".join(lines).encode())
    for name in tree.names("/etc/libibverbs.d"):
        writer.empty(f"/etc/libibverbs.d/{name}")
    for name in tree.names("/dev/infiniband"):
        writer.empty(f"/dev/infiniband/{name}")
    if tree.exists("/dev/gdrdrv"):
        writer.empty("/dev/gdrdrv")
    for process in rdma_processes(tree):
        kept = "\0".join(f"{name}={value}" for name, value in process.environment.items())
        writer.put(f"/proc/{process.pid}/environ", kept.encode())
        writer.copy(f"/proc/{process.pid}/limits")
    log = tree.read(KMSG_FILE).text if not tree.live else _kernel_log()
    if log:
        writer.put(KMSG_FILE, log.encode())
    writer.put(CALLS_FILE, json.dumps(context.calls.data).encode())


def _kernel_log() -> str:
    """Lines of the kernel log about limited PCIe bandwidth; empty where it may not be read."""
    try:
        fd = os.open("/dev/kmsg", os.O_RDONLY | os.O_NONBLOCK)
    except OSError:
        return ""
    lines: list[str] = []
    try:
        while True:
            try:
                record = os.read(fd, 8192).decode(errors="replace")
            except BrokenPipeError:  # records were overwritten meanwhile; the next read goes on after them
                continue
            if "available PCIe bandwidth" in record:
                lines.append(record.partition(";")[2].strip())
    except OSError:  # EAGAIN: the end of the log
        pass
    finally:
        os.close(fd)
    return "\n".join(lines)


@contextmanager
def opened_root(path: str) -> Iterator[str]:
    """``--root``: a directory as it is, or a capture file unpacked into a temporary one. Raises UsageError."""
    if Path(path).is_dir():
        yield path
        return
    with tempfile.TemporaryDirectory(prefix="fabricd-doctor-") as folder:
        try:
            with tarfile.open(path, "r:*") as archive:
                archive.extractall(folder, filter="data")
        except OSError as error:
            raise UsageError(f"--root {path}: {error.strerror or error}") from None
        except (tarfile.TarError, EOFError, zlib.error, lzma.LZMAError, ValueError) as error:
            # tarfile's own words for "no known compression" are several lines.
            why = str(error).splitlines()[0] if str(error) else type(error).__name__
            raise UsageError(f"--root {path}: neither a directory nor a capture: {why}") from None
        yield folder

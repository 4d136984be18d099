"""A real Linux kernel with real RDMA devices, for one test: Debian's kernel in qemu, on the root file system of this machine.

The guest boots from a small initrd (busybox and the modules it needs), mounts the host's ``/`` over 9p, enters it and runs one script
as root; booting takes some ten seconds. ``rxe0`` is Soft-RoCE on one end of a veth pair, whose
other end is in the namespace ``peer``. Needs root, qemu, cpio, kmod and busybox; the kernel package is fetched once by apt.
"""

from __future__ import annotations

import shutil
import subprocess
import tempfile
from dataclasses import dataclass
from pathlib import Path

CACHE = Path("/var/cache/fabricd-test-vm")
MODULES = (
    "virtio_pci", "9pnet_virtio", "9p", "veth", "crc32_generic", "rdma_rxe", "ib_uverbs", "ib_umad", "rdma_ucm",
)  # fmt: skip
_MEMORY_MB = 1536

_INIT = """#!/bin/busybox sh
b=/bin/busybox
$b mkdir -p /proc /sys /dev /host
$b mount -t proc proc /proc; $b mount -t sysfs sys /sys; $b mount -t devtmpfs dev /dev
for m in $($b cat /modules.order); do $b insmod /modules/$m || echo "insmod $m failed"; done
$b mount -t 9p -o trans=virtio,version=9p2000.L,msize=1048576,cache=loose root /host
for d in proc sys dev; do $b mount --bind /$d /host/$d; done
$b mount -t tmpfs tmpfs /host/run; $b mount -t tmpfs tmpfs /host/var/lib
$b chroot /host /bin/bash "$($b cat /script.path)"
$b sync; $b poweroff -f
"""

_SETUP = """export PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin HOME=/root
ip link set lo up
ip netns add peer
ip link add veth0 type veth peer name veth1
ip link set veth1 netns peer
ip addr add 10.9.0.1/24 dev veth0; ip link set veth0 up
ip -n peer addr add 10.9.0.2/24 dev veth1; ip -n peer link set veth1 up
rdma link add rxe0 type rxe netdev veth0
for _ in $(seq 100); do rdma link show rxe0/1 | grep -q ACTIVE && break; sleep 0.1; done
"""


class MachineError(Exception):
    """The guest could not be made or did not finish; the message ends with its console."""


@dataclass(frozen=True)
class Outcome:
    status: int
    stdout: str
    stderr: str
    console: str


def run_in_guest(command: str, *, directory: Path, timeout: float = 240) -> Outcome:
    """Boot, run a shell command in ``directory`` (the host's files), power off. Raises MachineError."""
    kernel, modules = _kernel()
    work = Path(tempfile.mkdtemp(prefix="fabricd-vm-", dir="/tmp"))
    try:
        script = work / "script"
        script.write_text(
            f"{_SETUP}cd {directory}\n( {command} ) >{work}/stdout 2>{work}/stderr\necho $? >{work}/status\n"
        )
        _make_initrd(work, modules, script)
        try:
            subprocess.run(
                _qemu(kernel, work), stdin=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=False, timeout=timeout
            )
        except subprocess.TimeoutExpired:
            pass  # the missing status says so
        console = _text(work / "console")
        if not (work / "status").exists():
            raise MachineError(
                f"the guest did not finish within {timeout} s:\n{console[-3000:]}{_text(work / 'stderr')[-3000:]}"
            )
        return Outcome(int(_text(work / "status")), _text(work / "stdout"), _text(work / "stderr"), console)
    finally:
        shutil.rmtree(work, ignore_errors=True)


def _text(path: Path) -> str:
    return path.read_text(errors="replace") if path.exists() else ""


def _qemu(kernel: Path, work: Path) -> list[str]:
    # Always software emulation: under a nested hypervisor KVM may be offered, start, and hang in the BIOS.
    return [
        "qemu-system-x86_64", "-accel", "tcg", "-cpu", "max", "-m", str(_MEMORY_MB), "-nographic",
        "-no-reboot", "-nic", "none", "-serial", f"file:{work}/console", "-monitor", "none", "-display", "none",
        "-kernel", str(kernel), "-initrd", f"{work}/initrd", "-append", "console=ttyS0 quiet panic=-1",
        "-virtfs", "local,path=/,mount_tag=root,security_model=none,multidevs=remap",
    ]  # fmt: skip


def _kernel() -> tuple[Path, Path]:
    """(kernel image, module directory) of Debian's current kernel, fetched once."""
    image = CACHE / "vmlinuz"
    if not image.exists():
        CACHE.mkdir(parents=True, exist_ok=True)
        tree = Path(tempfile.mkdtemp(prefix="kernel-", dir=CACHE))
        depends = subprocess.run(
            ["apt-cache", "depends", "linux-image-amd64"], check=True, capture_output=True, text=True
        ).stdout
        package = next(line.split()[-1] for line in depends.splitlines() if "Depends:" in line)
        subprocess.run(["apt-get", "download", "-qq", package], cwd=tree, check=True)
        (archive,) = tree.glob("*.deb")
        subprocess.run(["dpkg", "-x", str(archive), str(tree)], check=True)
        archive.unlink()
        (release,) = (tree / "lib/modules").iterdir()
        subprocess.run(["depmod", "-b", str(tree), release.name], check=True)
        final = CACHE / "tree"
        if not final.exists():
            tree.rename(final)
        (found,) = (final / "boot").glob("vmlinuz-*")
        part = CACHE / f"vmlinuz.{tree.name}"
        shutil.copy(found, part)
        part.rename(image)
    (modules,) = (CACHE / "tree/lib/modules").iterdir()
    return image, modules


def _make_initrd(work: Path, modules: Path, script: Path) -> None:
    root = work / "root"
    for part in ("bin", "modules"):
        (root / part).mkdir(parents=True)
    shutil.copy("/bin/busybox", root / "bin/busybox")
    order: list[str] = []
    for name in MODULES:
        shown = subprocess.run(
            ["modprobe", "-d", str(CACHE / "tree"), "-S", modules.name, "--show-depends", name],
            check=True, capture_output=True, text=True,
        ).stdout  # fmt: skip
        for line in shown.splitlines():
            if line.startswith("insmod ") and (path := Path(line.split()[1])).name not in order:
                shutil.copy(path, root / "modules")
                order.append(path.name)
    (root / "modules.order").write_text("\n".join(order) + "\n")
    (root / "script.path").write_text(str(script))
    init = root / "init"
    init.write_text(_INIT)
    init.chmod(0o755)
    subprocess.run("find . | cpio -o -H newc --quiet | gzip -1 >../initrd", shell=True, cwd=root, check=True)

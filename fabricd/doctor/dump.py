"""The root helper: copies PCI configuration spaces to /run/fabricd/pci, so that the doctor itself needs no privilege.

Beyond byte 64 the kernel shows configuration space only to CAP_SYS_ADMIN. This is all that capability is used for.
"""

from __future__ import annotations

import logging
from pathlib import Path

from fabricd.doctor.inventory import take_inventory
from fabricd.doctor.pci import CONFIG_DUMPS, DEVICES
from fabricd.doctor.tree import Tree
from fabricd.errors import FabricdError

log = logging.getLogger(__name__)


def dump_configs(target: str = CONFIG_DUMPS, root: str = "/") -> int:
    """Write one file per GPU, NIC and bridge above them; returns how many. A device that refuses costs only itself.

    Raises FabricdError when all refuse (no privilege) or the directory cannot be written.
    """
    tree = Tree(root)
    inventory = take_inventory(tree)
    endpoints = [nic.pci for nic in inventory.nics if nic.pci] + [gpu.pci for gpu in inventory.gpus]
    folder = Path(target)
    count = 0
    refused: list[str] = []
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for bdf in sorted({bdf for endpoint in endpoints for bdf in endpoint.chain}):
            data, why = tree.read_bytes(f"{DEVICES}/{bdf}/config")
            if data is None or len(data) <= 64:
                refused.append(f"{bdf}: {why or 'only 64 bytes readable: needs CAP_SYS_ADMIN'}")
                continue
            partial = folder / f".{bdf}"
            partial.write_bytes(data)
            partial.replace(folder / bdf)
            count += 1
    except OSError as error:
        raise FabricdError(f"{target}: {error.strerror}") from None
    if refused and not count:
        raise FabricdError("; ".join(refused[:3]))
    for line in refused:
        log.warning("%s", line)
    return count

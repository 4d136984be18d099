"""Directory trees of all hosts, kept up to date from the fabric's readings.

``DIR/<host>`` stands for that host's ``/sys``: ``class/infiniband/mlx5_N`` with ports, counters and hardware counters,
``class/net``, the PCI functions they hang on, and ``ethtool/`` and ``dcb/`` with what the kernel tells by other ways.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np

from fabricd.twin import links
from fabricd.twin.face import U64, Counters, Fabric, PlanNode
from fabricd.twin.faults import TelemetryFaults
from fabricd.twin.sysfs import layout
from fabricd.twin.sysfs.files import FileWriter
from fabricd.twin.sysfs.statistics import bridging, interface_statistics
from fabricd.twin.wiring import interface

ADAPTERS_A_SLICE = 8  # written before the event loop gets its turn again
PERIOD_S = 0.1
LARGE_PERIOD_S = 0.5
LARGE = 200  # adapters
FIRMWARE = "28.43.1000"
BOARD = "MT_0000000838"

Flags = np.ndarray[tuple[int, int], np.dtype[np.bool_]]


class Trees:
    """Writes and refreshes the trees of one fabric below ``root`` (best on tmpfs).

    ``lids``: LID of each adapter (InfiniBand); ``pfc``: ``[adapters, lanes]`` flow control switches; ``faults``: hosts
    whose files are renewed less often.
    """

    def __init__(
        self,
        fabric: Fabric,
        root: Path,
        lids: Callable[[PlanNode], int],
        pfc: Callable[[], Flags],
        seed: int = 0,
        faults: TelemetryFaults | None = None,
    ) -> None:
        self._fabric, self.root, self._lids, self._pfc = fabric, root, lids, pfc
        plan = fabric.plan
        self._adapters = plan.adapters
        self._roce = plan.technology == "ethernet"
        self._rows = np.array([node.first_row for node in self._adapters], np.int64)
        self._gbps = plan.row_gbps[self._rows]
        self._files = FileWriter()
        hardware = layout.QUEUE_COUNTERS + (layout.CONGESTION_COUNTERS if self._roce else ())
        self._groups = (("counters", layout.COUNTERS), ("hw_counters", hardware))
        rng = np.random.default_rng((seed, 32))
        self._bases: dict[str, U64] = {
            file.name: rng.integers(0, 1 << 32, len(self._rows)).astype(np.uint64) for file in hardware if file.aged
        }
        self._shown: dict[tuple[str, str], U64] = {}
        self._state: list[tuple[str, str, str, str]] = []
        self._ports = [self._port_path(node) for node in self._adapters]
        self._hosts = _by_host(self._adapters)
        paces = [faults.pace_s(self._adapters[indices[0]].host) if faults else None for indices in self._hosts]
        self._pace = [pace for pace in paces if pace is not None]  # seconds, one per host or none at all
        self._due = [0.0] * len(self._pace)

    def _port_path(self, node: PlanNode) -> str:
        return f"{self.root}/{node.host}/class/infiniband/mlx5_{node.nic}/ports/1"

    # -- creation ------------------------------------------------------------------------------------------------

    def create(self) -> None:
        """Make all directories and files. Raises OSError when that is not possible."""
        counters = self._fabric.read()
        state = self._states(counters)
        values = self._values(counters)
        for index, node in enumerate(self._adapters):
            self._create_device(node, state[index])
            for (group, name), numbers in values.items():
                directory = Path(self._ports[index]) / group
                directory.mkdir(exist_ok=True)
                self._files.create(f"{directory}/{name}", f"{numbers[index]}\n")
            self._files.create(f"{self._ports[index]}/hw_counters/lifespan", "10\n")
        self._shown, self._state = values, state
        if self._roce:
            self._write_statistics(counters, range(len(self._adapters)))

    def _create_device(self, node: PlanNode, state: tuple[str, str, str, str]) -> None:
        host = self.root / node.host
        name, netdev = f"mlx5_{node.nic}", self.netdev(node)
        function = host / "devices" / "pci0000:00" / f"0000:{0x17 + node.nic * 0x10:02x}:00.0"
        device, port = function / "infiniband" / name, function / "infiniband" / name / "ports" / "1"
        interface = function / "net" / netdev
        driver = host / "bus" / "pci" / "drivers" / "mlx5_core"
        for directory in (port / "gids", port / "gid_attrs" / "ndevs", port / "gid_attrs" / "types", port / "pkeys",
                          interface, driver, host / "class" / "infiniband", host / "class" / "net"):  # fmt: skip
            directory.mkdir(parents=True, exist_ok=True)
        _link(function / "driver", driver)
        _link(device / "device", function)
        _link(interface / "device", function)
        _link(host / "class" / "infiniband" / name, device)
        _link(host / "class" / "net" / netdev, interface)
        texts = {
            function / "vendor": "0x15b3",
            function / "device": "0x1021",
            function / "numa_node": str(node.nic // 4),
            function / "uevent": f"DRIVER=mlx5_core\nPCI_SLOT_NAME={function.name}",
            device / "node_guid": _colons(node.guid),
            device / "sys_image_guid": _colons(node.guid),
            device / "node_type": "1: CA",
            device / "node_desc": f"{node.host} {name}",
            device / "fw_ver": FIRMWARE,
            device / "board_id": BOARD,
            device / "hca_type": "MT4129",
            device / "hw_rev": "0",
            port / "lid_mask_count": "0",
            port / "sm_lid": "0x1",
            port / "sm_sl": "0",
            port / "cap_mask": "0x2651e848",
            port / "link_layer": "Ethernet" if self._roce else "InfiniBand",
            port / "gids" / "0": self._gid(node),
            port / "gid_attrs" / "ndevs" / "0": netdev,
            port / "gid_attrs" / "types" / "0": "RoCE v2" if self._roce else "IB/RoCE v1",
            port / "pkeys" / "0": "0xffff",
            interface / "address": _mac(node.guid) if self._roce else "00:00:10:49:" + _gid_bytes(node.guid),
            interface / "operstate": "up",
            interface / "mtu": "9000" if self._roce else "4092",
            interface / "speed": str(int(self._gbps[0] * 1000)),
            interface / "phys_port_name": "p0",
            interface / "dev_port": "0",
        }
        for path, text in texts.items():
            self._files.create(str(path), f"{text}\n")
        for file, text in zip(("state", "phys_state", "rate", "lid"), state, strict=True):
            self._files.create(f"{self._port_path(node)}/{file}", f"{text}\n")

    def netdev(self, node: PlanNode) -> str:
        """Name of an adapter's network interface."""
        return interface(node, 1) if self._roce else f"ib{node.nic}"

    def _gid(self, node: PlanNode) -> str:
        raw = (0xFE80 << 112) | node.guid
        return ":".join(f"{raw >> shift & 0xFFFF:04x}" for shift in range(112, -1, -16))

    # -- refreshing ----------------------------------------------------------------------------------------------

    async def run(self) -> None:
        """Keep the files up to date until cancelled, half a period away from whole seconds, when agents read."""
        period = LARGE_PERIOD_S if len(self._adapters) > LARGE else PERIOD_S
        try:
            while True:
                now = time.time()
                await asyncio.sleep(period - (now + period / 2) % period)
                for _ in self.refresh():
                    await asyncio.sleep(0)
        finally:
            self._files.close()

    def refresh(self) -> Iterator[None]:
        """Write what changed since the last time, some hosts at each step of the iteration, all from one reading."""
        counters = self._fabric.read()
        values, state = self._values(counters), self._states(counters)
        written = self._whose_turn(time.monotonic())
        frozen = np.ones(len(self._adapters), np.bool_)
        frozen[written] = False
        changed: list[list[tuple[str, str, int]]] = [[] for _ in self._adapters]
        for key, numbers in values.items():
            numbers[frozen] = self._shown[key][frozen]
            where = np.flatnonzero(numbers != self._shown[key])
            for index, number in zip(where.tolist(), numbers[where].tolist(), strict=True):
                changed[index].append((*key, number))
        previous = self._state
        for index in np.flatnonzero(frozen).tolist():
            state[index] = previous[index]
        self._shown, self._state = values, state
        for start in range(0, len(written), ADAPTERS_A_SLICE):
            indices = written[start : start + ADAPTERS_A_SLICE]
            for index in indices:
                path = self._ports[index]
                for group, name, number in changed[index]:
                    self._files.write(f"{path}/{group}/{name}", f"{number}\n")
                if state[index] != previous[index]:
                    for file, text in zip(("state", "phys_state", "rate", "lid"), state[index], strict=True):
                        self._files.write(f"{path}/{file}", f"{text}\n")
            if self._roce:
                self._write_statistics(counters, indices)
            yield

    def _whose_turn(self, now: float) -> list[int]:
        """Adapters whose files are renewed this time; states wait with the counters."""
        if not self._pace:
            return list(range(len(self._adapters)))
        turn: list[int] = []
        for host, indices in enumerate(self._hosts):
            if now >= self._due[host]:
                self._due[host] = now + self._pace[host]
                turn.extend(indices)
        return turn

    def _values(self, counters: Counters) -> dict[tuple[str, str], U64]:
        reading = layout.Reading(counters, self._rows, self._gbps)
        return {
            (group, file.name): layout.show(file, file.values(reading), self._bases.get(file.name))
            for group, files in self._groups
            for file in files
        }

    def _states(self, counters: Counters) -> list[tuple[str, str, str, str]]:
        """(state, phys_state, rate, lid) of every adapter port as text."""
        up, gbps = counters.up[self._rows].tolist(), counters.gbps[self._rows].tolist()
        out = []
        for node, is_up, present, nominal in zip(self._adapters, up, gbps, self._gbps.tolist(), strict=True):
            full = links.nearest(nominal)
            setting = full if present >= nominal * 0.999 else links.degraded(full, present)
            lid = "0x0" if self._roce else f"0x{self._lids(node):x}"
            state = ("4: ACTIVE", "5: LinkUp") if is_up else ("1: DOWN", "3: Disabled" if self._roce else "2: Polling")
            out.append((*state, f"{setting.gbps:g} Gb/sec ({setting.lanes}X {setting.speed})", lid))
        return out

    def _write_statistics(self, counters: Counters, indices: range | list[int]) -> None:
        chosen = list(indices)
        reading = layout.Reading(counters, self._rows[chosen], self._gbps[chosen])
        pfc = self._pfc()[chosen]
        for position, (index, table) in enumerate(zip(chosen, interface_statistics(reading, pfc), strict=True)):
            node = self._adapters[index]
            host, netdev = self.root / node.host, self.netdev(node)
            _replace(host / "ethtool" / f"{netdev}.json", {"driver": "mlx5_core", "statistics": table})
            _replace(host / "dcb" / f"{netdev}.json", bridging(pfc[position], table))


def _by_host(adapters: tuple[PlanNode, ...]) -> list[list[int]]:
    hosts: dict[str, list[int]] = {}
    for index, node in enumerate(adapters):
        hosts.setdefault(node.host, []).append(index)
    return list(hosts.values())


def _replace(path: Path, document: object) -> None:
    """Readers open these files anew each time, so they see the old or the new one, never half of it."""
    path.parent.mkdir(exist_ok=True)
    temporary = path.with_suffix(".new")
    temporary.write_text(json.dumps(document, separators=(",", ":")), encoding="utf-8")
    temporary.rename(path)


def _link(path: Path, target: Path) -> None:
    if not path.is_symlink():
        path.symlink_to(target)


def _colons(guid: int) -> str:
    return ":".join(f"{guid >> shift & 0xFFFF:04x}" for shift in (48, 32, 16, 0))


def _mac(guid: int) -> str:
    raw = guid.to_bytes(8, "big")
    return ":".join(f"{byte:02x}" for byte in (*raw[:3], *raw[5:]))


def _gid_bytes(guid: int) -> str:
    raw = (0xFE80 << 112 | guid).to_bytes(16, "big")
    return ":".join(f"{byte:02x}" for byte in raw)

"""Per-priority statistics of a RoCE interface as ``ethtool -S`` names them for mlx5, and its DCB state, as JSON files.

An agent that reads a directory instead of this machine's ``/sys`` takes them from ``ethtool/<netdev>.json`` there.
Pause counters of a priority are listed only while flow control is on for it, as the driver does.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from fabricd.twin.sysfs.layout import Reading

PRIORITIES = 8
NS_PER_US = 1000


def interface_statistics(
    reading: Reading, pfc_on: np.ndarray[tuple[int, int], np.dtype[np.bool_]]
) -> list[dict[str, int]]:
    """One table of counters per adapter port."""
    taken = {
        name: reading.port(name)
        for name in (
            "tx_bytes", "rx_bytes", "tx_packets", "rx_packets", "pause_rx_frames", "pause_tx_frames", "pause_rx_ns",
            "pause_tx_ns", "marked", "drops",
        )
    }  # fmt: skip
    lists = {name: values.tolist() for name, values in taken.items()}
    lanes = taken["tx_bytes"].shape[1]
    tables: list[dict[str, int]] = []
    for index in range(len(reading.rows)):
        table: dict[str, int] = {
            "rx_packets_phy": sum(lists["rx_packets"][index]),
            "tx_packets_phy": sum(lists["tx_packets"][index]),
            "rx_bytes_phy": sum(lists["rx_bytes"][index]),
            "tx_bytes_phy": sum(lists["tx_bytes"][index]),
            "rx_discards_phy": 0,
            "tx_discards_phy": sum(lists["drops"][index]),
            "rx_out_of_buffer": 0,
        }
        for priority in range(PRIORITIES):
            known = priority < lanes

            def value(name: str, known: bool = known, priority: int = priority, index: int = index) -> int:
                return int(lists[name][index][priority]) if known else 0

            table[f"rx_prio{priority}_bytes"] = value("rx_bytes")
            table[f"rx_prio{priority}_packets"] = value("rx_packets")
            table[f"rx_prio{priority}_discards"] = 0
            table[f"tx_prio{priority}_bytes"] = value("tx_bytes")
            table[f"tx_prio{priority}_packets"] = value("tx_packets")
            if not (known and pfc_on[index, priority]):
                continue
            table[f"rx_prio{priority}_pause"] = value("pause_rx_frames")
            table[f"rx_prio{priority}_pause_duration"] = value("pause_rx_ns") // NS_PER_US
            table[f"rx_prio{priority}_pause_transition"] = value("pause_rx_frames") // 2
            table[f"tx_prio{priority}_pause"] = value("pause_tx_frames")
            table[f"tx_prio{priority}_pause_duration"] = value("pause_tx_ns") // NS_PER_US
        tables.append(table)
    return tables


def bridging(pfc_on: np.ndarray[tuple[int], np.dtype[np.bool_]], table: dict[str, int]) -> dict[str, Any]:
    """The DCB state of one interface: flow control by priority, requests sent and indications received, classes."""
    lanes = len(pfc_on)
    return {
        "pfc_enabled": [bool(p < lanes and pfc_on[p]) for p in range(PRIORITIES)],
        "requests": [table.get(f"tx_prio{p}_pause", 0) for p in range(PRIORITIES)],
        "indications": [table.get(f"rx_prio{p}_pause", 0) for p in range(PRIORITIES)],
        "priority_to_class": list(range(PRIORITIES)),
        "dscp_to_priority": {str(dscp): dscp // 8 for dscp in range(64)},
    }

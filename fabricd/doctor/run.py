"""The whole doctor: inventory, calls, every check, one report."""

from __future__ import annotations

import socket
from datetime import UTC, datetime
from typing import Any

from fabricd.doctor.calls import captured_calls, live_calls
from fabricd.doctor.checks import ALL_CHECKS
from fabricd.doctor.checks.path import topology_matrix
from fabricd.doctor.inventory import take_inventory
from fabricd.doctor.report import CheckResult, Context, worst
from fabricd.doctor.tree import Tree

SCHEMA = "fabricd.doctor/1"


def make_context(root: str = "/") -> Context:
    """Everything the checks are given. On the live node this takes about a second (link samples)."""
    tree = Tree(root)
    inventory = take_inventory(tree)
    calls = live_calls(inventory) if tree.live else captured_calls(tree)
    return Context(tree, inventory, calls)


def run_checks(context: Context) -> list[CheckResult]:
    return [check(context) for check in ALL_CHECKS]


def report(context: Context, results: list[CheckResult]) -> dict[str, Any]:
    """The JSON of ``fabricd doctor --json``."""
    inventory = context.inventory
    node = context.tree.read("/proc/sys/kernel/hostname").text or (socket.gethostname() if context.tree.live else "")
    return {
        "schema": SCHEMA,
        "node": node,
        "time": datetime.now(UTC).isoformat(timespec="seconds"),
        "platform": {
            "vm": inventory.vm,
            "grace": inventory.grace,
            "gpus": [gpu.pci.bdf for gpu in inventory.gpus],
            "rdma_devices": [nic.name for nic in inventory.nics],
            "distances": topology_matrix(inventory),
        },
        "verdict": worst(results),
        "checks": [result.to_json() for result in results],
    }

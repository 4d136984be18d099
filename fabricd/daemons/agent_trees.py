"""Agents for many nodes in one process: each directory below a root stands for the ``/sys`` of the node it is named after."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from pathlib import Path

import msgspec

from fabricd.config.root import Config
from fabricd.daemons.agent import Agent
from fabricd.errors import UsageError

log = logging.getLogger(__name__)


def agents_of(config: Config, root: Path) -> list[Agent]:
    """One agent per directory that has RDMA devices. Raises UsageError when there is none."""
    trees = sorted(path.parent.parent for path in root.glob("*/class/infiniband")) if root.is_dir() else []
    if not trees:
        raise UsageError(f"{root}: no directory below it has class/infiniband")
    agents = []
    for tree in trees:
        settings = msgspec.structs.replace(
            config.agent, sysfs=str(tree), spool_dir=f"{config.agent.spool_dir}/{tree.name}", metrics_listen=""
        )
        agents.append(Agent(msgspec.structs.replace(config, agent=settings), node=tree.name))
    return agents


async def run_agents(config: Config, root: Path, ready: Callable[[str], None]) -> None:
    """All agents until cancelled. Raises UsageError, and FabricdError when a spool cannot be used."""
    agents = agents_of(config, root)
    if not log.isEnabledFor(logging.DEBUG):
        # Dozens of agents that each say the same: one line for all of them is enough.
        for quiet in ("fabricd.transport.publisher", "fabricd.daemons.agent"):
            logging.getLogger(quiet).setLevel(logging.WARNING)
    log.info("%d nodes below %s", len(agents), root)
    async with asyncio.TaskGroup() as group:
        for agent in agents:
            group.create_task(agent.run(log.debug))
        ready(f"{len(agents)} nodes below {root}")

"""One reading of a node, for people and programs; no broker, no spool."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

from fabricd.config.root import Config
from fabricd.daemons.agent_reader import NodeReader
from fabricd.daemons.identity import node_id
from fabricd.errors import UsageError
from fabricd.model.rejects import Rejects


def read_once(config: Config) -> dict[str, Any]:
    """The document of ``fabricd agent --once --json``. Raises UsageError when the directory for ``/sys`` is not there."""
    if not Path(config.agent.sysfs).is_dir():
        raise UsageError(f"agent.sysfs = {config.agent.sysfs!r}: no such directory")
    reader = NodeReader(config.agent, node_id(config.agent.node), Rejects(keep=10_000))
    try:
        reader.search()
        reader.read(0, time.monotonic_ns())
        if reader.search_if_due():  # the first reading showed that something is not what it seemed
            reader.read(0, time.monotonic_ns())
        return reader.to_json()
    finally:
        reader.close()

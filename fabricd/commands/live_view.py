"""The fabric as it is now, for commands with ``live``: from the running api, else discovered with ``ibnetdiscover``."""

from __future__ import annotations

import subprocess
from typing import TYPE_CHECKING

from fabricd.errors import FabricdError

if TYPE_CHECKING:
    from fabricd.config.root import Config
    from fabricd.placement.live import LiveView


def live_view(config: Config) -> LiveView:
    """Raises FabricdError when nothing answers or the fabric has no rail groups."""
    from fabricd.placement.live import LiveView
    from fabricd.placement.read import parse_topology

    try:
        done = subprocess.run(
            ["ibnetdiscover"], capture_output=True, text=True, timeout=120, check=False, errors="replace"
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise FabricdError(f"--topology live: no api answers and ibnetdiscover cannot be run: {error}") from None
    if done.returncode and not done.stdout.strip():
        raise FabricdError(f"--topology live: ibnetdiscover: {done.stderr.strip()[:200] or done.returncode}")
    topology = parse_topology(done.stdout, "live")
    if not topology.rails:
        raise FabricdError("--topology live: no host adapter is cabled to a switch, so there are no rail groups")
    return LiveView(topology)

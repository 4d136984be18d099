"""The adapters the configuration names. Each is a module of this package with ``open_adapter(config)``, imported when it is used.

Opening an adapter reads its secrets and connects to nothing; ``probe`` does.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable

from fabricd.config.control import ControlConfig
from fabricd.control.adapters.base import Adapter
from fabricd.errors import UsageError

NAMES = ("opensm", "ufm", "snmp")


def open_adapters(config: ControlConfig) -> dict[str, Adapter]:
    """By name. Raises UsageError for a name that is none, and for unusable credential files."""
    out: dict[str, Adapter] = {}
    for name in config.adapters:
        if name not in NAMES:
            raise UsageError(f"control.adapters = {name!r}: there are {', '.join(NAMES)}")
        out[name] = _opener(name)(config)
    if config.dry_run:
        wrap: Callable[[Adapter], Adapter] = importlib.import_module(f"{__package__}.dry_run").DryRun
        out = {name: wrap(adapter) for name, adapter in out.items()}
    return out


def _opener(name: str) -> Callable[[ControlConfig], Adapter]:
    opener: Callable[[ControlConfig], Adapter] = importlib.import_module(f"{__package__}.{name}").open_adapter
    return opener

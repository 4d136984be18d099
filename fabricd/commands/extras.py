"""What to say when a package is missing that only an extra of the installation brings."""

from __future__ import annotations

import re
from importlib import metadata

_EXTRA = re.compile(r"([A-Za-z0-9._-]+)[^;]*;.*\bextra\s*==\s*['\"]([A-Za-z0-9_-]+)['\"]")
_PACKAGE_OF = {"yaml": "pyyaml"}  # modules whose package has another name
_NOT_FOR_USERS = {"dev"}
_OWN = {"agent": "metrics", "place": "placement"}  # the extra meant for a command, where several would do


def what_is_missing(module: str, command: str) -> str:
    """One line for the user: which package ``command`` lacks and which extras of fabricd bring it."""
    top = module.split(".")[0]
    package = _PACKAGE_OF.get(top, top.lower().replace("_", "-"))
    extras = _extras_with(package)
    if not extras:
        return f"{command} needs the Python package {package}, which is not installed"
    extras.sort(key=lambda extra: extra != _OWN.get(command))
    words = " or ".join(extras)
    return (
        f"{command} needs the Python package {package}, which the plain install leaves out: install fabricd with the "
        f"extra {words} (from its source: pip install '.[{extras[0]}]')"
    )


def _extras_with(package: str) -> list[str]:
    try:
        required = metadata.requires("fabricd") or []
    except metadata.PackageNotFoundError:
        return []
    found = [match for line in required if (match := _EXTRA.match(line)) and match[1].lower() == package]
    return list(dict.fromkeys(match[2] for match in found if match[2] not in _NOT_FOR_USERS))

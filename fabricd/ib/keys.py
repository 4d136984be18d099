"""Key files of hardened fabrics: M_Keys for subnet management, PM_Keys for performance management.

The format is that of opensm's ``guid2mkey`` file: a GUID and a key per line; a line with a key alone is for every other node.
The keys themselves are never printed.
"""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from pathlib import Path

from fabricd.errors import UsageError
from fabricd.model.ident import parse_guid


@dataclass(frozen=True, slots=True)
class Keys:
    default: int = 0
    by_guid: dict[int, int] = field(default_factory=dict, repr=False)

    def __call__(self, guid: int) -> int:
        """The key of a node; 0 where none is needed."""
        return self.by_guid.get(guid, self.default)


def read_keys(name: str | None) -> Keys:
    """Read a key file. A bare name is looked up among systemd's credentials. Raises UsageError naming file and line."""
    if name is None:
        return Keys()
    directory = os.environ.get("CREDENTIALS_DIRECTORY", "")
    path = Path(directory, name) if directory and "/" not in name else Path(name)
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"key file {path}: {getattr(error, 'strerror', None) or 'not text'}") from None
    default, by_guid = 0, {}
    for number, line in enumerate(lines, 1):
        words = line.split("#", 1)[0].split()
        try:
            if len(words) == 1:
                default = _key(words[0])
            elif len(words) == 2:
                by_guid[parse_guid(words[0])] = _key(words[1])
            elif words:
                raise ValueError
        except ValueError:
            raise UsageError(
                f"key file {path}, line {number}: expected a GUID and a 64-bit key, or a key alone"
            ) from None
    return Keys(default, by_guid)


def _key(text: str) -> int:
    key = int(text, 0)
    if not 0 <= key < 1 << 64:
        raise ValueError(text)
    return key

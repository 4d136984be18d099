"""Files that other programs read while we write them."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

from fabricd.errors import FabricdError


def write_atomically(path: str, text: str) -> None:
    """A reader sees the old file or the new one, never a part. Mode and link target are kept. Raises FabricdError."""
    target = Path(path).resolve()
    try:
        mode = target.stat().st_mode & 0o777 if target.exists() else 0o644
        handle, name = tempfile.mkstemp(dir=target.parent, prefix=f".{target.name}.")
        try:
            with os.fdopen(handle, "w", encoding="utf-8") as file:
                file.write(text)
                file.flush()
                os.fsync(file.fileno())
            Path(name).chmod(mode)
            Path(name).replace(target)
        except OSError:
            Path(name).unlink(missing_ok=True)
            raise
    except OSError as error:
        raise FabricdError(f"{path}: {error.strerror}") from None

"""What the clients of outside systems share: their errors, and secrets that do not show themselves."""

from __future__ import annotations

import os
import stat
from pathlib import Path

from fabricd.errors import FabricdError, UsageError

MOST_SECRET_BYTES = 64 << 10


class DeviceError(FabricdError):
    """A device or manager did not do what was asked. ``reached``: a write may have taken effect (unknown counts as yes)."""

    def __init__(self, message: str, *, reached: bool = False) -> None:
        super().__init__(message)
        self.reached = reached


class DeviceUnreachable(DeviceError):
    """No answer at all. ``reached`` as above: a request that was sent and not answered may have been carried out."""


class DeviceChanged(DeviceError):
    """Somebody else changed or holds what was to be written."""


class Secret:
    """A password, key or token: ``reveal`` gives it; everything that prints shows stars."""

    __slots__ = ("_value",)

    def __init__(self, value: str) -> None:
        self._value = value

    def reveal(self) -> str:
        return self._value

    def __repr__(self) -> str:
        return "***"

    __str__ = __repr__

    def __format__(self, spec: str) -> str:
        return "***"

    def __reduce__(self) -> tuple[type[Secret], tuple[str]]:
        """Worker processes get it through a pipe of ours, never by way of a text."""
        return Secret, (self._value,)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Secret) and other._value == self._value

    def __hash__(self) -> int:
        return hash(self._value)


def credential_path(name: str) -> Path:
    """A bare file name is looked up among systemd's credentials (``LoadCredential=``) when there are any."""
    directory = os.environ.get("CREDENTIALS_DIRECTORY", "")
    return Path(directory, name) if directory and os.sep not in name else Path(name)


def read_secret(path: str, key: str) -> Secret:
    """The first line of a credential file. ``key`` is the setting that names it, for the message.

    Raises UsageError when it cannot be read, is empty, or may be read by every user of the machine.
    """
    return Secret(read_secret_text(path, key).splitlines()[0].strip())


def read_secret_text(path: str, key: str) -> str:
    """A whole credential file, under the same conditions."""
    try:
        with credential_path(path).open("rb") as file:
            if stat.S_IMODE(os.fstat(file.fileno()).st_mode) & stat.S_IROTH:
                raise UsageError(f"{key} = {path}: readable by all users of this machine (chmod o-r)")
            data = file.read(MOST_SECRET_BYTES + 1)
        text = data.decode("utf-8")
    except OSError as error:
        raise UsageError(f"{key} = {path}: {error.strerror}") from None
    except UnicodeDecodeError:
        raise UsageError(f"{key} = {path}: not UTF-8 text") from None
    if len(data) > MOST_SECRET_BYTES:
        raise UsageError(f"{key} = {path}: longer than {MOST_SECRET_BYTES} bytes, not a credential file")
    if not text.strip():
        raise UsageError(f"{key} = {path}: empty")
    return text.lstrip()

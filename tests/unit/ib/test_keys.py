"""Key files: opensm's format, defaults, credentials, and errors that name file and line but no key."""

from __future__ import annotations

from pathlib import Path

import pytest

from fabricd.errors import UsageError
from fabricd.ib.keys import read_keys


def test_keys_by_guid_and_default(tmp_path: Path) -> None:
    path = tmp_path / "keys"
    path.write_text("# keys\n0x0002c90300000001 0x11\n\n0x99  # all others\n")
    keys = read_keys(str(path))
    assert keys(0x2C90300000001) == 0x11 and keys(5) == 0x99
    assert "0x11" not in repr(keys) and "17" not in repr(keys)
    assert read_keys(None)(7) == 0


def test_a_bare_name_is_a_credential(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "pm").write_text("0x7")
    monkeypatch.setenv("CREDENTIALS_DIRECTORY", str(tmp_path))
    assert read_keys("pm")(1) == 7


@pytest.mark.parametrize("text", ["secretword", "0x1 0x2 0x3", "0x1 -4", "0x1 0x10000000000000000", "zz 0x1"])
def test_bad_lines(tmp_path: Path, text: str) -> None:
    path = tmp_path / "keys"
    path.write_text(f"0x1 0x2\n{text}\n")
    with pytest.raises(UsageError, match="line 2") as error:
        read_keys(str(path))
    assert "secretword" not in str(error.value).replace(str(path), "")
    with pytest.raises(UsageError, match="No such file"):
        read_keys(str(tmp_path / "absent"))

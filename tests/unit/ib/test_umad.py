"""Where there is no umad: said before the library says it in its own way."""

from __future__ import annotations

from pathlib import Path

import pytest

from fabricd.cli import main
from fabricd.ib import umad


def test_no_kernel_module_is_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(umad, "_MODULE", tmp_path / "none")
    monkeypatch.delenv("LD_PRELOAD", raising=False)
    assert main(["sweep", "--json"]) == 1
    said = capfd.readouterr()
    assert said.out == ""
    assert said.err == "fabricd: no InfiniBand management datagrams here: the kernel module ib_umad is not loaded\n"

"""The root helper: one device that refuses costs only itself."""

from __future__ import annotations

from pathlib import Path

import pytest

from fabricd.doctor.dump import dump_configs
from fabricd.errors import FabricdError
from tests.unit.doctor.trees import h100


def devices(root: Path, short: int) -> list[str]:
    """A captured node whose devices show 256 bytes, the first ``short`` of them only 64."""
    h100(root, pairs=1).done()
    names = sorted(path.name for path in (root / "run/fabricd/pci").iterdir())
    for number, bdf in enumerate(names):
        (root / "sys/bus/pci/devices" / bdf / "config").resolve().write_bytes(bytes(64 if number < short else 256))
    return names


def test_what_can_be_read_is_written(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    names = devices(tmp_path / "root", short=1)
    assert dump_configs(str(tmp_path / "out"), str(tmp_path / "root")) == len(names) - 1
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == names[1:]
    assert [record.getMessage() for record in caplog.records] == [
        f"{names[0]}: only 64 bytes readable: needs CAP_SYS_ADMIN"
    ]


def test_without_privilege_it_fails(tmp_path: Path) -> None:
    devices(tmp_path / "root", short=1000)
    with pytest.raises(FabricdError, match="needs CAP_SYS_ADMIN"):
        dump_configs(str(tmp_path / "out"), str(tmp_path / "root"))

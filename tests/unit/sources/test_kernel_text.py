from __future__ import annotations

from array import array
from pathlib import Path

import pytest

from fabricd.model.rejects import Rejects
from fabricd.sources.files import OsFiles
from fabricd.sources.kernel_text import IpEcn

HEAD = "IpExt: InNoRoutes InTruncatedPkts InNoECTPkts InECT1Pkts InECT0Pkts InCEPkts ReasmOverlaps\n"


def read(procfs: Path) -> tuple[dict[str, int | None], Rejects]:
    rejects = Rejects()
    group = IpEcn(OsFiles(), str(procfs), rejects)
    values, flags = array("Q", bytes(32)), bytearray(4)
    group.read(values, flags, 0, 0)
    group.close()
    return {c.raw: v if f & 1 else None for c, v, f in zip(group.columns, values, flags, strict=True)}, rejects


def write(tmp_path: Path, text: str) -> Path:
    (tmp_path / "net").mkdir()
    (tmp_path / "net/netstat").write_text(text)
    return tmp_path


def test_the_kernels_own_file() -> None:
    found, rejects = read(Path("/proc"))
    assert all(value is not None and value >= 0 for value in found.values())
    assert rejects.total == 0


def test_by_name_not_by_place(tmp_path: Path) -> None:
    found, _ = read(write(tmp_path, f"TcpExt: A B\nTcpExt: 1 2\n{HEAD}IpExt: 0 0 5 6 7 8 0\n"))
    assert found == {"InNoECTPkts": 5, "InECT1Pkts": 6, "InECT0Pkts": 7, "InCEPkts": 8}


@pytest.mark.parametrize(
    ("text", "kinds"),
    [
        ("IpExt: InNoECTPkts\nIpExt: 5\n", set()),
        (f"{HEAD}IpExt: 1 2\n", set()),
        (f"{HEAD}IpExt: 0 0 -1 x 7\n", set()),
        (HEAD, {"netstat_text"}),
        ("", {"netstat_text"}),
    ],
)
def test_what_is_not_there_is_missing(tmp_path: Path, text: str, kinds: set[str]) -> None:
    found, rejects = read(write(tmp_path, text))
    assert found["InCEPkts"] is None
    assert set(rejects.counts) == kinds

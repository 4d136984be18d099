"""UFM's CSV: columns by name, units by header, holes, repeated headers, hostile text."""

from __future__ import annotations

import contextlib
import gzip
import tempfile
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fabricd.errors import FabricdError, UsageError
from fabricd.model.series import History
from fabricd.sources.pm_columns import counter_column, reading
from fabricd.sources.ufm_csv import instant_ns, read

US = 1_764_000_000_000_000
GUID = 0xB83FD2030080302E


def values(history: History) -> dict[tuple[int | None, int, str], list[tuple[int, float]]]:
    return {(s.owner.guid, s.owner.port, s.counter): list(zip(s.t_ns, s.values, strict=True)) for s in history.series}


def read_text(text: str, directory: Path, name: str = "ufm.csv") -> History:
    (directory / name).write_text(text)
    return read(directory / name)


def test_words_become_bytes_and_holes_stay_holes(tmp_path: Path) -> None:
    history = read_text(
        "timestamp,source_id,node_guid,port_guid,port_num,node_description,lid,PortXmitDataExtended,PortXmitWaitExtended,PortRcvErrors\n"
        f"{US},x,0x{GUID:x},0x{GUID:x},31,leaf,4,100,7,0\n"
        f"{US + 30_000_000},x,0x{GUID:x},0x{GUID:x},31,leaf,4,,9,0\n",
        tmp_path,
    )
    assert values(history) == {
        (GUID, 31, "port_transmit_data_bytes"): [(US * 1000, 400.0)],
        (GUID, 31, "port_transmit_wait"): [(US * 1000, 7.0), (US * 1000 + 30 * 10**9, 9.0)],
    }
    assert not history.rejects.total


@pytest.mark.parametrize(
    "head",
    [
        "timestamp,node_guid,port_num,Infiniband_XmitWait_u_Ticks,Infiniband_CBW_f_u_Gbps,Infiniband_MBOut",
        "Timestamp(us);Node GUID;Port Number;PortXmitWaitExt;hist0;port_xmit_data_extended",
        "Time\tPort_GUID\tPortNum\tInfiniband_XmitWait\tInfiniband_Normalized_CBW_f_u_Percent\tPortXmitDataExtended",
    ],
)
def test_header_variants(head: str, tmp_path: Path) -> None:
    mark = next(c for c in ",;\t" if c in head)
    row = mark.join([str(US), f"{GUID:016x}", "2", "11", "0.5", "25"])
    assert values(read_text(f"\ufeff{head}\r\n{row}\r\n", tmp_path)) == {
        (GUID, 2, "port_transmit_wait"): [(US * 1000, 11.0)],
        (GUID, 2, "port_transmit_data_bytes"): [(US * 1000, 100.0)],
    }


def test_a_header_in_between_moves_the_columns(tmp_path: Path) -> None:
    history = read_text(
        f"timestamp,node_guid,port_num,PortXmitWaitExtended\n{US},{GUID:x},1,5\n"
        f"timestamp,node_guid,PortXmitWaitExtended,port_num\n{US + 1},{GUID:x},6,1\n",
        tmp_path,
    )
    assert values(history) == {(GUID, 1, "port_transmit_wait"): [(US * 1000, 5.0), (US * 1000 + 1000, 6.0)]}


def test_a_bad_line_costs_itself(tmp_path: Path) -> None:
    history = read_text(
        "timestamp,node_guid,port_num,PortXmitWaitExtended\n"
        f"{US},{GUID:x},1,5\n{US},{GUID:x},1\n{US},nonsense,1,5\nnever,{GUID:x},1,5\n{US},{GUID:x},9999,5\n"
        f"{US + 1},{GUID:x},1,-5\n{US + 2},{GUID:x},1,1.5\n{US + 3},{GUID:x},1,N/A\n{US + 4},{GUID:x},1,8\n",
        tmp_path,
    )
    assert [v for _, v in values(history)[GUID, 1, "port_transmit_wait"]] == [5.0, 8.0]
    assert dict(history.rejects.counts) == {"csv_line": 1, "csv_key": 3, "csv_number": 2}


def test_directories_and_compressed_files(tmp_path: Path) -> None:
    head = "timestamp,source_id,PortXmitWaitExtended\n"
    (tmp_path / "a.csv").write_text(f"{head}{US},0x{GUID:x}_7,1\n")
    (tmp_path / "b.csv.gz").write_bytes(gzip.compress(f"{head}{US + 1},0x{GUID:x}_7,2\n".encode()))
    assert [v for _, v in values(read(tmp_path))[GUID, 7, "port_transmit_wait"]] == [1.0, 2.0]


def test_refusals(tmp_path: Path) -> None:
    with pytest.raises(FabricdError, match="No such file"):
        read(tmp_path / "none.csv")
    with pytest.raises(UsageError, match="line 1 is no header"):
        read_text("a,b,c\n1,2,3\n", tmp_path)
    with pytest.raises(FabricdError, match="no row with a counter"):
        read_text("timestamp,node_guid,port_num,PortXmitWait\n", tmp_path)
    (tmp_path / "torn.csv.gz").write_bytes(gzip.compress(b"x" * 100)[:-12])
    with pytest.raises(FabricdError):
        read(tmp_path / "torn.csv.gz")


def test_what_a_column_counts() -> None:
    for name in (
        "Infiniband_MBOutRate",
        "Infiniband_NormalizedXW",
        "Infiniband_RcvErrors_Delta",
        "Infiniband_MBOut_u_Gb",
        "lid",
        "hist3",
    ):
        assert counter_column(name) is None, name
    narrow, wide = counter_column("PortXmitWait"), counter_column("PortXmitWaitExt")
    assert narrow is not None and wide is not None
    assert reading("0xffffffff", narrow.counter) is None  # 32 bits at their top: the value is not known
    assert reading("4294967295", wide.counter) == 4294967295


@pytest.mark.parametrize(
    ("text", "ns"),
    [
        ("1764000000", 1_764_000_000 * 10**9),
        ("1764000000.5", 1_764_000_000_500_000_000),
        ("1764000000123", 1_764_000_000_123_000_000),
        ("1764000000123456", 1_764_000_000_123_456_000),
        ("1764000000123456789", 1_764_000_000_123_456_789),
        ("2025-11-24 16:00:00", 1_764_000_000 * 10**9),
        ("2025-11-24T17:00:00+01:00", 1_764_000_000 * 10**9),
    ],
)
def test_times(text: str, ns: int) -> None:
    assert abs(instant_ns(text) - ns) < 1000


@given(st.text(max_size=300) | st.lists(st.sampled_from(
    ["timestamp,node_guid,port_num,PortXmitWait,MBOut\n", f"{US},{GUID:x},1,2,3\n", '"', ",,,,\n", "nan,inf,1e400,-1,x\n", "\0", "\r",
     "9" * 400, ";", "0x,0x,0x,0x,0x\n", f"{US},{GUID:x},1,1e308,{'9' * 30}\n"]
), max_size=12).map("".join))  # fmt: skip
def test_hostile_text(text: str) -> None:
    with tempfile.TemporaryDirectory() as name, contextlib.suppress(FabricdError):
        (Path(name) / "x.csv").write_bytes(text.encode("utf-8", "surrogatepass"))
        history = read(Path(name) / "x.csv")
        assert all(0 <= v < 2.0**66 for series in history.series for v in series.values)
        assert all(t > 0 for series in history.series for t in series.t_ns)


@given(st.lists(st.tuples(st.integers(0, 3), st.integers(1, 4), st.integers(0, 2**62)), min_size=1, max_size=40))
def test_what_is_written_is_read(readings: list[tuple[int, int, int]]) -> None:
    wanted: dict[tuple[int | None, int, str], dict[int, float]] = {}
    lines = ["timestamp,node_guid,port_num,PortXmitWaitExtended"]
    for step, port, value in readings:
        lines.append(f"{US + step},{GUID:x},{port},{value}")
        wanted.setdefault((GUID, port, "port_transmit_wait"), {})[(US + step) * 1000] = float(value)
    with tempfile.TemporaryDirectory() as name:
        found = values(read_text("\n".join(lines), Path(name)))
    assert found == {key: sorted(series.items()) for key, series in wanted.items()}

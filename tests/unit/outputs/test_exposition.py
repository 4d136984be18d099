"""/metrics: names, units, escapes, and what must not be there."""

from __future__ import annotations

import subprocess
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fabricd.model.frame import Column
from fabricd.model.sample import Flag
from fabricd.outputs.exposition import label_text, render
from fabricd.store.ingest import Ingest
from fabricd.store.store import Store
from tests.unit.store.frames import FABRIC, announcement, frame, message, schema

HOUR = 3600 * 10**9
BYTES = Column(name="port_transmit_data_bytes", unit="bytes", raw="port_xmit_data", source="counters")
PAUSE = Column(name="pfc_receive_pause", unit="ns", priority=3)
GAUGE = Column(name="some_state", kind="state")
TIME = Column(name="read_offset", kind="time", unit="ns")


def page(ingest: Ingest, stale_ns: int = HOUR) -> list[str]:
    return render(ingest.store, ingest, stale_ns).decode().splitlines()


def filled(columns: list[Column], values: list[int], flags: list[int] | None = None, **labels: str) -> Ingest:
    ingest = Ingest(Store(FABRIC), FABRIC)
    s = schema(columns, rows=len(values) // len(columns), **labels)  # type: ignore[arg-type]
    ingest.batch([announcement(s), message(s, frame(s, 0, values, flags))])
    return ingest


def test_canonical_names_units_and_labels() -> None:
    lines = page(filled([BYTES, PAUSE, GAUGE, TIME], [1000, 2_500_000_000, 4, 7]))
    labels = 'fabric="f",node="n",device="dev0",port="1",guid="0x0000000000000064"'
    assert f"fabricd_port_transmit_data_bytes_total{{{labels}}} 1000" in lines
    assert "# TYPE fabricd_port_transmit_data_bytes_total counter" in lines
    assert any(
        line.startswith("# HELP fabricd_port_transmit_data_bytes_total Bytes sent by the port") for line in lines
    )
    with_priority = labels.replace(",guid", ',priority="3",guid')
    assert f"fabricd_pfc_receive_pause_seconds_total{{{with_priority}}} 2.5" in lines
    assert f"fabricd_some_state{{{labels}}} 4" in lines
    assert "# TYPE fabricd_some_state gauge" in lines
    assert not any("read_offset" in line for line in lines)


def test_values_of_64_bits_are_exact() -> None:
    lines = page(filled([BYTES], [2**64 - 1]))
    assert any(line.endswith(" 18446744073709551615") for line in lines)


def test_missing_values_have_no_line() -> None:
    lines = page(filled([BYTES], [5, 0, 0], [Flag.VALID, 0, Flag.NOT_OBSERVABLE]))
    assert sum(line.startswith("fabricd_port_transmit_data_bytes_total{") for line in lines) == 1


def test_stale_series_vanish_and_the_node_is_down() -> None:
    ingest = filled([BYTES], [5])
    assert any(line.startswith("fabricd_port_transmit_data_bytes_total{") for line in page(ingest))
    time.sleep(0.02)
    lines = page(ingest, stale_ns=10_000_000)
    assert not any("fabricd_port_" in line for line in lines)
    assert 'fabricd_node_up{fabric="f",node="n"} 0' in lines


def test_a_series_reported_twice_has_one_line() -> None:
    ingest = Ingest(Store(FABRIC), FABRIC)
    one, two = schema([BYTES], stream=0), schema([BYTES, GAUGE], stream=1)
    ingest.batch(
        [announcement(one), announcement(two), message(one, frame(one, 0, [1])), message(two, frame(two, 1, [1, 1]))]
    )
    series = [line.rsplit(" ", 1)[0] for line in page(ingest) if not line.startswith("#")]
    assert len(series) == len(set(series))


def test_counters_understood_differently_by_drivers_share_a_family() -> None:
    """Two columns of one canonical name: each row has a value in one of them."""
    other = Column(name=BYTES.name, unit="bytes", raw="other_name", source="hw_counters")
    lines = page(filled([BYTES, other], [1, 0, 0, 2], [1, 0, 0, 1]))
    assert sum(line.startswith("fabricd_port_transmit_data_bytes_total{") for line in lines) == 2
    assert sum(line.startswith("# TYPE fabricd_port_transmit_data_bytes_total ") for line in lines) == 1


@given(st.text(alphabet=st.characters(exclude_categories=["Cs"]), min_size=1))
def test_label_values_cannot_break_out(value: str) -> None:
    text = label_text((("a", value), ("b", "")))
    assert "\n" not in text
    inside = text.removeprefix('{a="').removesuffix('"}')
    back, escaped = "", False
    for char in inside:
        if escaped:
            back += {"n": "\n", "\\": "\\", '"': '"'}[char]
            escaped = False
        elif char == "\\":
            escaped = True
        else:
            assert char != '"'
            back += char
    assert back == value


@pytest.mark.parametrize("device", ["mlx5_", 'evil"\\\n', "größe"])
def test_promtool_accepts_the_page(device: str) -> None:
    ingest = filled(
        [BYTES, PAUSE, GAUGE, Column(name="unknown_thing", raw="unknown_thing")],
        [1, 2, 3, 4, 5, 6, 7, 8],
        device=device,
    )
    ingest.rejects.add("frame_crc", "x")
    text = "\n".join(page(ingest)) + "\n"
    done = subprocess.run(["promtool", "check", "metrics"], input=text, capture_output=True, text=True)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")

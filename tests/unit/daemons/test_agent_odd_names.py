"""Names and files a node may have and a tidy one never shows: bytes that are no text, a pipe where a counter is expected."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from fabricd.cli import main
from fabricd.model.frame import Column, Row, Schema, decode_schema

ODD = os.fsdecode(b"mlx\xff5_0")


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    port = tmp_path / "sys/class/infiniband" / ODD / "ports/1"
    (port / "counters").mkdir(parents=True)
    for name, text in {
        "../../node_guid": "0002:c903:00aa:0001", "state": "4: ACTIVE", "phys_state": "5: LinkUp", "rate": "100 Gb/sec (4X EDR)",
        "counters/port_xmit_data": "5", os.fsdecode(b"counters/b\xffd"): "7",
    }.items():  # fmt: skip
        (port / name).write_text(text + "\n")
    os.mkfifo(port / "counters/port_rcv_data")
    return tmp_path / "sys"


def test_one_reading(tree: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["agent", "--once", "--json", "--sysfs", str(tree)]) == 0
    document = json.loads(capsys.readouterr().out)
    counters = document["devices"][0]["ports"][0]["counters"]
    assert counters["port_transmit_data_bytes"]["value"] == 20
    assert counters["port_receive_data_bytes"]["value"] is None
    assert [(r["kind"], r["what"]) for r in document["rejects"] if "rcv_data" in r["where"]] == [
        ("file_error", "ESPIPE")
    ]
    assert all(reject["where"].isascii() for reject in document["rejects"])


def test_a_schema_with_odd_names_goes_over_the_wire() -> None:
    row = Row(guid=1, port=1, device=ODD, netdev=os.fsdecode(b"eth\xfe"), labels={"parent": ODD, "city": "Köln"})
    schema = Schema(
        node="n", fabric="f", stream=0, boot=1, rows=(row,), columns=(Column(name="b_d", raw=os.fsdecode(b"b\xffd")),)
    )
    back = decode_schema(schema.encode())
    assert back.id == schema.id
    assert (back.rows[0].device, back.rows[0].netdev) == ("mlx\\xff5_0", "eth\\xfe")
    assert back.rows[0].labels == {"parent": "mlx\\xff5_0", "city": "Köln"}
    assert back.columns[0].raw == "b\\xffd"

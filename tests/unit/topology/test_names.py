"""What node descriptions say, faceplate labels, node-name-maps, speeds."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fabricd.model.rejects import Rejects
from fabricd.model.topology import AGGREGATION, CA, SWITCH, Node
from fabricd.topology.names import (
    NAME_BYTES,
    apply_names,
    clean_name,
    faceplate,
    is_factory_name,
    node_type,
    parse_adapter_name,
    parse_name_map,
    short_name,
    split_lane,
)
from fabricd.topology.speeds import LANE_GBPS, parse_width_speed, rate_gbps, speed_of


@pytest.mark.parametrize(
    ("description", "host", "device", "index"),
    [
        ("gpu001 mlx5_0", "gpu001", "mlx5_0", 0),
        ("gpu001 HCA-1", "gpu001", "HCA-1", 0),
        ("gpu001 HCA-5", "gpu001", "HCA-5", 4),
        ("rack 3 node 7 mlx5_2", "rack 3 node 7", "mlx5_2", 2),
        ("gpu001 ibp12s0f1", "gpu001", "ibp12s0f1", None),
        ("gpu001", "gpu001", "", None),
        ("ib01", "ib01", "", None),
        ("mlx5_0", "", "mlx5_0", None),
        ("localhost mlx5_3", "", "mlx5_3", 3),
        ("MT4129 ConnectX7   Mellanox Technologies", "", "", None),
        ("", "", "", None),
        ("localhost", "", "", None),
    ],
)
def test_adapter_names(description: str, host: str, device: str, index: int | None) -> None:
    parsed = parse_adapter_name(description)
    assert (parsed.host, parsed.device, parsed.index) == (host, device, index)


@given(st.text())
def test_any_description_is_read_and_cleaned(text: str) -> None:
    name = clean_name(text)
    assert len(name.encode()) <= NAME_BYTES
    assert name == "" or name.isprintable()
    parse_adapter_name(text)
    is_factory_name(text)


def test_sharp_nodes_are_no_adapters() -> None:
    assert node_type(CA, "Mellanox Technologies Aggregation Node") == AGGREGATION
    assert node_type(CA, "gpu001 mlx5_0") == CA
    assert node_type(SWITCH, "Aggregation Node 1") == SWITCH


def test_switch_names() -> None:
    node = Node(1, SWITCH, "MF0;LEAF-01:MQM9700/U1")
    apply_names(node)
    assert (short_name(node), node.labels["model"], node.labels["asic"]) == ("LEAF-01", "MQM9700", "U1")
    plain = Node(1, SWITCH, "leaf01")
    apply_names(plain)
    assert short_name(plain) == "leaf01"
    assert short_name(Node(0xAB, SWITCH, "")) == "00000000000000ab"


@pytest.mark.parametrize(
    ("device", "ports", "port", "label", "lane"),
    [
        (0xD2F2, 65, 31, "1/16/1", ""),
        (0xD2F2, 65, 32, "1/16/2", ""),
        (0xD2F2, 65, 65, None, ""),
        (0xD2F2, 129, 62, "1/16/1/2", "2"),
        (0xD2F2, 129, 129, None, ""),
        (0xD2F0, 41, 16, "1/16", ""),
        (0xD2F0, 81, 32, "1/16/2", "2"),
        (0xD2F0, 41, 41, None, ""),
        (0xCB20, 36, 36, "1/36", ""),
        (0x1234, 36, 3, None, ""),
        (0xD2F2, 65, 0, None, ""),
    ],
)
def test_faceplates(device: int, ports: int, port: int, label: str | None, lane: str) -> None:
    assert faceplate(device, ports, port) == label
    assert split_lane(label or "", device) == lane


def test_every_front_port_has_a_label_of_its_own() -> None:
    for device, ports in ((0xD2F2, 64), (0xD2F2, 128), (0xD2F0, 40), (0xD2F0, 80), (0xCB20, 36)):
        labels = [faceplate(device, ports, port) for port in range(1, ports + 1)]
        assert None not in labels
        assert len(set(labels)) == ports


def test_name_map() -> None:
    rejects = Rejects()
    names = parse_name_map(
        '# comment\n0x0002c902400c0c18 "SW1 \'core\'"\n0002c902400c0c19 leaf-2 # by the door\nnonsense\n\n0x5 "say "hi""\n',
        rejects,
        "map",
    )
    assert names == {0x0002C902400C0C18: "SW1 'core'", 0x0002C902400C0C19: "leaf-2", 0x5: 'say "hi"'}
    assert rejects.counts == {"name_map_line": 1}
    assert rejects.recent[0].where == "map:4"


@given(st.text())
def test_any_name_map_is_read(text: str) -> None:
    parse_name_map(text, Rejects(), "map")


def test_rates_by_width_and_speed() -> None:
    assert rate_gbps(4, "NDR") == 400
    assert rate_gbps(2, "NDR") == 200
    assert rate_gbps(0, "NDR") == rate_gbps(4, "") == 0
    for width in (1, 2, 4, 8, 12):
        for speed in LANE_GBPS:
            assert parse_width_speed(f"{width}x{speed}") == (width, speed)
            assert rate_gbps(width, speed_of(width, rate_gbps(width, speed))) == rate_gbps(width, speed)
    with pytest.raises(ValueError, match="not a link width"):
        parse_width_speed("4 lanes")

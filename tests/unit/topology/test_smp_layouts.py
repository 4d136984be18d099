"""Layouts of the subnet management attributes, field by field."""

from __future__ import annotations

import struct

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fabricd.ib.smp import (
    decode_node_description,
    decode_node_info,
    decode_port_infos,
    decode_sl_to_vl,
    decode_switch_info,
    decode_vl_arbitration,
)


@given(st.binary(min_size=40, max_size=64))
def test_node_info(data: bytes) -> None:
    info = decode_node_info(data)
    assert (info.kind, info.num_ports, info.local_port) == (data[2], data[3], data[36])
    assert info.node_guid == int.from_bytes(data[12:20], "big")
    assert info.port_guid == int.from_bytes(data[20:28], "big")
    assert info.device_id == int.from_bytes(data[30:32], "big")
    assert info.vendor_id == int.from_bytes(data[37:40], "big")


def test_short_answers_are_refused() -> None:
    with pytest.raises(ValueError, match="NodeInfo of 39"):
        decode_node_info(bytes(39))
    with pytest.raises(ValueError, match="SwitchInfo of 19"):
        decode_switch_info(bytes(19))


def test_switch_info() -> None:
    data = bytearray(20)
    struct.pack_into(">HHHH", data, 0, 49152, 0, 4096, 77)
    data[11], data[16] = 0b10010100, 8
    info = decode_switch_info(bytes(data))
    assert (info.lft_cap, info.lft_top, info.port_state_change, info.enhanced_port0) == (49152, 77, True, True)


def test_port_info() -> None:
    data = np.zeros((2, 64), np.uint8)
    data[1, 16:18] = (0x12, 0x34)
    data[1, 31], data[1, 32], data[1, 33], data[1, 34], data[1, 35], data[1, 62] = 2, 0x74, 0x52, 0xC3, 0x41, 0x8F
    ports = decode_port_infos(data)
    row = (
        ports.lid[1],
        ports.width[1],
        ports.state[1],
        ports.phys_state[1],
        ports.lmc[1],
        ports.speed[1],
        ports.ext_speed[1],
    )
    assert row == (0x1234, 2, 4, 5, 3, 4, 8)
    assert (ports.lid[0], ports.state[0]) == (0, 0)


@given(st.binary(max_size=64))
def test_descriptions_of_any_bytes(data: bytes) -> None:
    assert "\0" not in decode_node_description(data)
    assert decode_node_description(b"gpu001 mlx5_0\0junk") == "gpu001 mlx5_0"


def test_quality_of_service_tables() -> None:
    assert decode_sl_to_vl(bytes([0x01, 0x23, 0x45, 0x67, 0x89, 0xAB, 0xCD, 0xEF])) == list(range(16))
    table = decode_vl_arbitration(bytes([0xF1, 64, 0, 0] * 16))
    assert table[:2] == [(1, 64), (0, 0)]
    assert len(table) == 32

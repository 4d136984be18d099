"""UFM's list of ports as a topology."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fabricd.model.topology import CA, SWITCH
from fabricd.topology.load import load_topology
from fabricd.topology.ufm import looks_like_ufm_ports, parse_ufm_ports


def port(guid: str, number: Any, peer: str | None, **more: Any) -> dict[str, Any]:
    row: dict[str, Any] = {
        "name": f"{guid}_{number}", "guid": guid, "number": number, "dname": "1/16/1", "description": "Switch IB Port",
        "systemID": guid, "system_name": "leaf-01", "node_description": "leaf-01:1/16/1", "lid": 12, "active_speed": "NDR",
        "active_width": "4x", "fec_mode": "RS_FEC (257,272)", "effective_ber": "1.5E-254", "peer": peer, "peer_node_name": "N/A",
    }  # fmt: skip
    return {**row, **more}


LEAF, SPINE, HCA = "b83fd2030080302e", "b83fd20300aabb01", "b83fd20300cc0001"
ROWS = [
    port(LEAF, 31, f"{SPINE}_1"),
    port(SPINE, "1", f"{LEAF}_31", node_description="spine-01:1/1/1", dname="1/1/1", lid="3"),
    port(
        LEAF, 1, f"{HCA}_1", dname="1", active_width="IB_2x", cable_info={"serial_number": "MT22", "part_number": "N/A"}
    ),
    port(
        HCA,
        1,
        f"{LEAF}_1",
        description="Computer IB Port",
        node_description="gpu001 mlx5_0",
        dname="HCA-1/1",
        effective_ber="N/A",
    ),
    port(LEAF, 2, None),
]


def test_wiring_rates_labels() -> None:
    topology = parse_ufm_ports(ROWS)
    assert topology.rejects.total == 0
    leaf, spine, hca = (int(guid, 16) for guid in (LEAF, SPINE, HCA))
    assert {(frozenset((link.a, link.b)), link.rate_gbps) for link in topology.links} == {
        (frozenset({(leaf, 31), (spine, 1)}), 400.0),
        (frozenset({(leaf, 1), (hca, 1)}), 200.0),
    }
    assert (topology.nodes[leaf].type, topology.nodes[hca].type) == (SWITCH, CA)
    assert topology.nodes[hca].host == "gpu001"
    assert topology.port_name(leaf, 31) == "leaf-01 1/16/1"
    assert topology.port_name(leaf, 1) == "leaf-01 1"
    assert topology.nodes[spine].lids == {0: 3}
    uplink = next(link for link in topology.links if link.b == (spine, 1))
    assert uplink.labels["ber_effective_a"] == "1.5E-254"
    assert uplink.labels["fec"] == "RS_FEC (257,272)"
    cable = next(link for link in topology.links if hca in (link.a[0], link.b[0]))
    assert cable.labels["cable_serial"] == "MT22"
    assert "cable_part" not in cable.labels


def test_a_port_seen_from_one_side_only_still_is_a_link() -> None:
    topology = parse_ufm_ports({"data": ROWS[:1]})
    assert len(topology.links) == 1
    assert len(topology.nodes) == 2


def test_bad_entries_cost_only_themselves() -> None:
    topology = parse_ufm_ports(
        [*ROWS, 7, {}, {"guid": "x", "number": 1}, port(LEAF, "N/A", None), port(LEAF, 3, "nonsense")]
    )
    assert topology.rejects.counts == {"ufm_port": 5}
    assert len(topology.links) == 2


@pytest.mark.parametrize("wrap", [lambda rows: rows, lambda rows: {"data": rows}])
def test_told_by_its_content(tmp_path: Path, wrap: Any) -> None:
    path = tmp_path / "ports.json"
    path.write_text(json.dumps(wrap(ROWS)))
    topology = load_topology(path)
    assert topology.source == "ufm"
    assert len(topology.links) == 2


VALUES = st.none() | st.integers() | st.text(max_size=6) | st.lists(st.integers(), max_size=2)


@given(st.lists(st.dictionaries(st.sampled_from(sorted(ROWS[0])), VALUES)))
def test_any_list_is_read(rows: list[dict[str, Any]]) -> None:
    looks_like_ufm_ports(rows)
    parse_ufm_ports(rows).to_json()

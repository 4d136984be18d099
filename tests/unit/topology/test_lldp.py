"""RoCE fabrics: the links file, both JSON forms of lldpcli, routes from configuration."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fabricd.model.ident import guid_from_mac
from fabricd.model.topology import CA, SWITCH
from fabricd.topology.lldp import guid_of_name, parse_links_file, parse_lldp
from fabricd.topology.load import load_roce

DATA = Path(__file__).parents[2] / "data" / "topology"
LEAF1 = guid_from_mac("e8:eb:d3:00:00:01")
LEAF2 = guid_from_mac("e8:eb:d3:00:00:02")
GPU01 = guid_from_mac("b8:3f:d2:00:00:01")


def test_a_links_file_with_what_lldp_heard() -> None:
    topology, routes = load_roce(DATA / "roce.toml")
    assert topology.rejects.total == 0
    assert topology.faults == []
    assert topology.fabric == "roce-lab"
    assert sorted(node.type for node in topology.nodes.values()) == [CA] * 2 + [SWITCH] * 4
    assert topology.nodes[LEAF1].labels == {"rack": "r1", "mac": "e8:eb:d3:00:00:01"}
    assert topology.nodes[GPU01].host == "gpu01"
    ends = {(link.a, link.b) for link in topology.links}
    assert ((GPU01, 1), (LEAF1, 1)) in ends or ((LEAF1, 1), (GPU01, 1)) in ends
    assert len(ends) == 6
    assert {link.rate_gbps for link in topology.links} == {400.0, 800.0}
    assert topology.port_name(LEAF1, 65) == "leaf1 Ethernet64"
    assert any(link.labels.get("cable_serial") == "CBL-1" for link in topology.links)
    assert routes is not None
    gpu02 = next(guid for guid, node in topology.nodes.items() if node.host == "gpu02")
    assert routes.egress(LEAF1, gpu02) == [73]  # as configured
    assert routes.egress(LEAF2, GPU01) == [65, 73]  # assumed
    assert routes.sources[routes.frame.switch_index[LEAF1]] == "config"
    assert routes.source == "mixed"


def test_both_forms_of_lldpcli_tell_the_same() -> None:
    import json

    plain = list(parse_lldp(json.loads((DATA / "lldp" / "leaf1.json").read_text())))
    assert [(n.interface, n.name, n.port, n.bridge) for n in plain] == [
        ("Ethernet0", "gpu01", "b8:3f:d2:00:00:01", False),
        ("Ethernet64", "spine1", "Ethernet0", True),
    ]
    (other,) = parse_lldp(json.loads((DATA / "lldp" / "gpu01.json").read_text()))
    assert (other.interface, other.name, other.chassis, other.port, other.bridge) == (
        "eth2",
        "leaf1",
        "e8:eb:d3:00:00:01",
        "Ethernet0",
        True,
    )


def test_one_interface_is_not_in_a_list() -> None:
    document = {
        "lldp": {"interface": {"eth0": {"chassis": {"sw": {}}, "port": {"id": {"type": "ifname", "value": "swp3"}}}}}
    }
    assert [n.name for n in parse_lldp(document)] == ["sw"]


def test_a_file_that_contradicts_lldp_is_a_fault() -> None:
    text = '[[switch]]\nname="s"\n[[switch]]\nname="t"\n[[link]]\na="s:swp1"\nb="t:swp1"\n'
    heard = {"s": {"lldp": {"interface": [{"swp1": {"chassis": {"t": {}}, "port": {"id": {"value": "swp2"}}}}]}}}
    topology, _ = parse_links_file(text, heard)
    assert [fault.kind for fault in topology.faults] == ["two_neighbours"]
    assert len(topology.links) == 1


def test_bad_entries_cost_only_themselves() -> None:
    text = (
        '[[switch]]\nname="s"\n[[switch]]\nmac="zz"\nname="t"\n[[switch]]\n[[link]]\na="s:swp1"\nb="h1:eth0"\n[[link]]\na="s"\nb="h2:eth0"\n'
        '[[link]]\na="s:swp9"\nb="h9:eth0"\nrate_gbps="fast"\n[[route]]\nswitch="s"\nto=["h1"]\nvia=["nope"]\n'
    )
    topology, routes = parse_links_file(text, {"s": {"lldp": 3}, "x": {"lldp": {"interface": [7]}}})
    assert topology.rejects.counts == {"bad_switch": 2, "bad_link": 2, "lldp_document": 2, "bad_route": 1}
    assert len(topology.links) == 1
    assert routes is not None
    assert routes.source == "assumed"


def test_two_devices_with_one_address_are_refused() -> None:
    text = '[[switch]]\nname="a"\nmac="e8:eb:d3:00:00:01"\n[[switch]]\nname="b"\nmac="e8:eb:d3:00:00:01"\n'
    topology, _ = parse_links_file(text)
    assert [node.name for node in topology.nodes.values()] == ["a"]
    assert topology.rejects.counts == {"bad_switch": 1}
    assert "b has the address of a" in topology.rejects.recent[0].what


def test_port_numbers_by_name_or_by_order() -> None:
    text = '[[switch]]\nname="s"\n' + "".join(
        f'[[link]]\na="s:{name}"\nb="h{i}:eth0"\n' for i, name in enumerate(["et-0/0/1", "et-1/0/1", "mgmt"])
    )
    topology, _ = parse_links_file(text)
    guid = guid_of_name("s")
    assert {port: topology.port_label(guid, port) for port in (1, 2, 3)} == {1: "et-0/0/1", 2: "et-1/0/1", 3: "mgmt"}
    assert guid >> 56 == 0xFD


JSONS = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(["lldp", "interface", "chassis", "port", "id", "name", "value", "eth0", "capability"]),
            inner,
            max_size=4,
        )
    ),
    max_leaves=20,
)


@settings(max_examples=150, deadline=None)
@given(JSONS)
def test_any_document_is_read_or_refused(document: Any) -> None:
    topology, _ = parse_links_file('[[switch]]\nname="s"\n', {"s": {"lldp": document}})
    assert topology.nodes


def test_text_that_is_not_toml() -> None:
    with pytest.raises(ValueError, match="line 1"):
        parse_links_file("= 3")

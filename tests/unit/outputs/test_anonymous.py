"""What leaves the house names nobody, and is still one thing."""

from __future__ import annotations

import json

from hypothesis import given
from hypothesis import strategies as st

from fabricd.model.topology import CA, SWITCH, Link, Node, Topology
from fabricd.outputs.anonymous import Anonymiser

LEAF, NIC, PORT = 0xB83FD2030080302E, 0xB83FD20300AABB01, 0xB83FD20300AABB02


def fabric() -> Topology:
    topology = Topology("prod-west")
    topology.nodes[LEAF] = Node(
        LEAF, SWITCH, "MF0;leaf-01:MQM9700/U1", 64, labels={"short": "leaf-01", "rack": "r7", "model": "MQM9700"}
    )
    topology.nodes[NIC] = Node(
        NIC, CA, "gpu1 mlx5_0", 1, port_guids={1: PORT}, host="gpu1", labels={"device": "mlx5_0"}
    )
    topology.links = [Link((LEAF, 1), (NIC, 1), 400.0, labels={"cable_part": "MCP7", "cable_serial": "MT22X"})]
    topology.port_labels[LEAF, 1] = "1/1/1"
    return topology


def test_a_topology_keeps_its_shape_and_loses_its_names() -> None:
    names = Anonymiser(fabric(), b"key")
    new = names.topology(fabric())
    text = json.dumps(new.to_json())
    for word in ("leaf-01", "gpu1", "r7", "MT22X", "prod-west", "b83fd203"):
        assert word not in text
    for word in ("MQM9700", "mlx5_0", "MCP7"):  # what a vendor needs to know
        assert word in text
    link = new.links[0]
    assert {link.a[0], link.b[0]} == set(new.nodes) and link.rate_gbps == 400.0
    assert sorted(map(names.guid, (LEAF, NIC, PORT))) == [names.guid(g) for g in (LEAF, NIC, PORT)]
    adapter = new.nodes[names.guid(NIC)]
    assert adapter.name == f"{adapter.host} mlx5_0" and adapter.port_guids == {1: names.guid(PORT)}


def test_text_speaks_of_the_same_things() -> None:
    names = Anonymiser(fabric(), b"key")
    leaf = names.topology(fabric()).nodes[names.guid(LEAF)].name
    text = names.text(
        f"leaf-01:3 waits for gpu1, not for gpu12; 0x{LEAF:016x} and {NIC:016x}_1; ann@ops 10.1.2.3 b8:3f:d2:00:00:01"
    )
    assert text.startswith(f"{leaf}:3 waits for host-")
    assert "gpu12" in text  # another name, not of this fabric
    assert f"0x{names.guid(LEAF):016x} and {names.guid(NIC):016x}_1" in text
    for word in ("ann@ops", "10.1.2.3", "b8:3f"):
        assert word not in text


def test_documents_are_renamed_to_the_bottom() -> None:
    names = Anonymiser(fabric(), b"key")
    found = names.document({"gpu1": [LEAF, 5, True, None, {"why": "leaf-01 is full"}], "links": [[NIC, 1]]})
    assert LEAF not in found[names.text("gpu1")] and found["links"] == [[names.guid(NIC), 1]]
    assert found[names.text("gpu1")][1:4] == [5, True, None]
    assert "leaf-01" not in json.dumps(found)


def test_keys() -> None:
    same, again, other = (Anonymiser(fabric(), key).text("leaf-01") for key in (b"a", b"a", b"b"))
    assert same == again != other


@given(st.text(max_size=60), st.binary(max_size=80))
def test_any_text_and_any_key(text: str, key: bytes) -> None:
    names = Anonymiser(fabric(), key)
    assert "leaf-01:" not in names.text(f"{text} leaf-01:1")
    assert names.text(text) == names.text(text)

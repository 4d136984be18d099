"""Not every device is a port of the fabric: functions, bonds, planes and interfaces that are somebody else's."""

from __future__ import annotations

import errno
from pathlib import Path
from typing import Any

import pytest

from fabricd.model.frame import Row
from tests.unit.daemons.test_agent_reader import Node

BLUEFIELD3 = 0xA2DC


@pytest.fixture
def node(tmp_path: Path) -> Node:
    return Node(tmp_path / "sys")


def rows(node: Node) -> list[Row]:
    return [planned.row for stream in node.reader.streams for planned in stream.rows if planned.row.device]


def test_virtual_function(node: Node) -> None:
    node.tree.function("0000:01:00.0", "mlx5_core")
    node.tree.device("mlx5_2", "mlx5_core", address="0000:01:00.2", physfn="0000:01:00.0")
    assert node.read()["devices"][0]["role"] == "virtual_function"
    assert rows(node)[0].labels["role"] == "virtual_function"


def test_skipped_roles_are_listed_and_not_read(tmp_path: Path) -> None:
    node = Node(tmp_path / "sys", skip_roles=["virtual_function"])
    node.tree.function("0000:01:00.0", "mlx5_core")
    node.tree.device("mlx5_2", "mlx5_core", address="0000:01:00.2", physfn="0000:01:00.0")
    assert node.port("mlx5_2")["counters"] == {}
    assert rows(node) == []


def test_representors_are_ports_of_the_uplink(node: Node) -> None:
    node.tree.device("mlx5_0", "mlx5_core", address="0000:01:00.0", ports=3, netdev="p0")
    node.tree.netdev("p0", address="0000:01:00.0", phys_port_name="p0")
    for port, name in ((2, "pf0vf1"), (3, "c1pf0hpf")):
        node.tree.netdev(f"rep{port}", address="0000:01:00.0", phys_port_name=name, mac=f"0c:42:a1:00:00:0{port}")
        path = Path(node.tree.port_file("mlx5_0", "gid_attrs/ndevs", port))
        path.mkdir(parents=True)
        (path / "0").write_text(f"rep{port}\n")
    assert [p["role"] for p in node.read()["devices"][0]["ports"]] == ["physical", "representor", "representor"]


def test_bond_capacity_from_the_netdev_and_figures_from_the_members(node: Node) -> None:
    node.tree.device(
        "mlx5_bond_0", "mlx5_core", address="0000:01:00.0", netdev="bond0", rate="200 Gb/sec (4X HDR)", guid=77
    )
    node.tree.netdev("bond0", slaves="eth1 eth0", speed=400_000)
    node.tree.netdev("eth0", address="0000:01:00.0", speed=200_000)
    node.tree.netdev("eth1", address="0000:01:00.1", speed=200_000)
    port, first, second = node.read()["devices"][0]["ports"]
    assert (port["role"], port["netdev"], port["rate_gbps"]) == ("bond", "bond0", 400.0)
    assert [(m["role"], m["netdev"], m["rate_gbps"], m["plane"]) for m in (first, second)] == [
        ("bond_member", "eth0", 200.0, 1), ("bond_member", "eth1", 200.0, 2),
    ]  # fmt: skip
    assert first["counters"]["netdev_receive_bytes"]["value"] == 5000
    keys = [(r.guid, r.plane, r.port) for r in rows(node)]
    assert sorted(keys) == [(77, 0, 1), (77, 1, 1), (77, 2, 1)]
    stream = next(s for s in node.reader.streams if any(c.name == "link_rate" for c in s.columns))
    rate = next(i for i, c in enumerate(stream.columns) if c.name == "link_rate")
    assert stream.values[rate] == 50_000_000_000


def test_planes_stay_apart_under_their_parent(node: Node) -> None:
    node.tree.device(
        "mlx5_0", "mlx5_core", address="0000:01:00.0", guid=5, link_layer="InfiniBand", rate="800 Gb/sec (4X XDR)"
    )
    sub = node.tree.device(
        "smi1",
        "mlx5_core",
        address="0000:01:00.0",
        guid=5,
        ports=4,
        link_layer="InfiniBand",
        rate="200 Gb/sec (1X XDR)",
    )
    (sub / "ports/3/state").write_text("1: DOWN\n")
    (sub / "ports/3/phys_state").write_text("2: Polling\n")
    document = node.read()
    parent, planes = document["devices"]
    assert (parent["name"], parent["role"]) == ("mlx5_0", "physical")
    assert (planes["name"], planes["role"], planes["parent"]) == ("smi1", "plane", "mlx5_0")
    assert [(p["plane"], p["state"]) for p in planes["ports"]] == [
        (1, "ACTIVE"),
        (2, "ACTIVE"),
        (3, "DOWN"),
        (4, "ACTIVE"),
    ]
    assert sorted((r.guid, r.plane, r.port) for r in rows(node)) == [(5, plane, 1) for plane in range(5)]
    assert node.rejects.total == 0


def test_netdev_in_another_namespace(node: Node) -> None:
    """The GID table names an interface that this namespace does not have: its figures are elsewhere, not 0."""
    node.tree.device("mlx5_0", "mlx5_core", address="0000:01:00.0", netdev="eth7")
    port = node.port()
    assert (port["netdev"], port["visible_only_from"]) == ("eth7", "another network namespace")
    assert not [name for name in port["counters"] if name.startswith(("netdev", "pfc"))]
    assert rows(node)[0].labels["visible_only_from"] == "another network namespace"


def test_another_interface_of_the_same_name(node: Node) -> None:
    node.tree.device("mlx5_0", "mlx5_core", address="0000:01:00.0", netdev="eth0")
    node.tree.netdev("eth0", address="0000:09:00.0", driver="virtio_net")
    assert node.port()["visible_only_from"] == "another network namespace"


def test_active_ethernet_port_without_any_interface_here(node: Node) -> None:
    node.tree.device("mlx5_0", "mlx5_core", address="0000:01:00.0")
    node.tree.device("mlx5_1", "mlx5_core", address="0000:02:00.0", state="1: DOWN", phys_state="3: Disabled")
    assert node.port()["visible_only_from"] == "another network namespace"
    assert "visible_only_from" not in node.port("mlx5_1")


def test_interface_of_this_namespace(node: Node) -> None:
    node.tree.device("mlx5_0", "mlx5_core", address="0000:01:00.0", netdev="eth0")
    node.tree.netdev("eth0", address="0000:01:00.0")
    assert "visible_only_from" not in node.port()


def test_empty_gid_slots_say_einval(node: Node) -> None:
    node.tree.device("mlx5_0", "mlx5_core", address="0000:01:00.0")
    node.tree.netdev("eth0", address="0000:01:00.0")
    table = Path(node.tree.port_file("mlx5_0", "gid_attrs/ndevs"))
    table.mkdir(parents=True)
    for slot in range(4):
        (table / str(slot)).write_text("eth0\n" if slot == 2 else "")
        if slot != 2:
            node.files.read_errno[str(table / str(slot))] = errno.EINVAL
    assert node.port()["netdev"] == "eth0"
    assert node.rejects.total == 0


def test_old_kernel_without_gid_table(node: Node) -> None:
    node.tree.device("mlx4_0", "mlx4_core", address="0000:01:00.0", ports=2)
    for number in (0, 1):
        home = node.tree.netdev(f"eth{number}", address="0000:01:00.0", mac=f"0c:42:a1:00:00:0{number}")
        (home / "dev_port").write_text(f"{number}\n")
    assert [p["netdev"] for p in node.read()["devices"][0]["ports"]] == ["eth0", "eth1"]


def test_software_device_names_its_parent(node: Node) -> None:
    link = node.tree.device("rxe0", "rxe")
    (link / "parent").write_text("veth0\n")
    node.tree.netdev("veth0", driver="")
    document = node.read()["devices"][0]
    assert (document["driver"], document["role"], document["ports"][0]["netdev"]) == ("rxe", "software", "veth0")


@pytest.mark.parametrize("counters", [{}, {"port_xmit_data": 0, "symbol_error": 0}])
def test_port_owned_by_the_dpu(node: Node, counters: dict[str, int]) -> None:
    node.tree.device(
        "mlx5_0",
        "mlx5_core",
        address="0000:01:00.0",
        vendor=0x15B3,
        pci_device=BLUEFIELD3,
        counters=counters,
        netdev="eth0",
    )
    node.tree.netdev("eth0", address="0000:01:00.0")
    for name in counters:
        node.files.read_errno[node.tree.port_file("mlx5_0", f"counters/{name}")] = errno.EINVAL
    node.read()  # what refuses is known after the first reading
    port = node.port()
    assert port["visible_only_from"] == "the DPU's own side"
    assert [e["value"] for n, e in port["counters"].items() if e["source"] == "sysfs"] == [None] * len(counters)


@pytest.mark.parametrize(("product", "readable"), [("BlueField SoC", True), ("BlueField SoC", False), ("Server", True)])
def test_port_that_is_our_own(node: Node, product: str, readable: bool) -> None:
    node.tree.write("class/dmi/id/product_name", product)
    node.tree.device(
        "mlx5_0", "mlx5_core", address="0000:01:00.0", vendor=0x15B3, pci_device=BLUEFIELD3,
        counters=None if readable else {}, netdev="p0",
    )  # fmt: skip
    node.tree.netdev("p0", address="0000:01:00.0")
    assert "visible_only_from" not in node.port()


def test_switch_management_functions_are_not_touched(node: Node) -> None:
    link = node.tree.device("mlx5_4", "mlx5_core", address="0000:05:00.0")
    (link.resolve() / "device/vpd").write_bytes(b"\x82\x20\x00NVIDIA\x90\x10\x00V3\x06SW_MNG\x78")
    node.tree.device("mlx5_0", "mlx5_core", address="0000:01:00.0")
    document = node.read()
    by_name: dict[str, Any] = {d["name"]: d for d in document["devices"]}
    assert by_name["mlx5_4"]["role"] == "switch_management"
    assert by_name["mlx5_4"]["ports"][0]["counters"] == {}
    assert not [p for p in node.files.opens if "mlx5_4" in p and "counters" in p]


def test_aggregation_node_and_switch(node: Node) -> None:
    node.tree.device("an0", "mlx5_core", guid=1)
    (node.tree.root / "class/infiniband/an0/node_desc").write_text("Mellanox Technologies Aggregation Node\n")
    node.tree.device("sw0", "mlx5_core", guid=2)
    (node.tree.root / "class/infiniband/sw0/node_type").write_text("2: switch\n")
    roles = {d["name"]: (d["role"], bool(d["ports"][0]["counters"])) for d in node.read()["devices"]}
    assert roles == {"an0": ("aggregation_node", False), "sw0": ("switch", True)}


def test_driver_by_vendor_name_and_uevent(node: Node) -> None:
    for name, vendor in (("rocep65s0", 0x14E4), ("mlx5_7", 0), ("strange0", 0)):
        link = node.tree.device(name, "x", address=f"0000:0{len(name)}:00.0", vendor=vendor, guid=len(name))
        (link.resolve() / "device/driver").unlink()
    (node.tree.root / "class/infiniband/strange0/device/uevent").write_text("DRIVER=ionic\nPCI_CLASS=20000\n")
    assert {d["name"]: d["driver"] for d in node.read()["devices"]} == {
        "rocep65s0": "bnxt_en", "mlx5_7": "mlx5_core", "strange0": "ionic",
    }  # fmt: skip

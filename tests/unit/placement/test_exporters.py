"""Every export format: content, schemas, stable names, separate fabrics, dirty input."""

from __future__ import annotations

import re
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st
from jsonschema import Draft202012Validator

from fabricd.config.placement import PlacementConfig
from fabricd.errors import UsageError
from fabricd.jobs.hostlist import expand
from fabricd.model.topology import CA, Fault, RailGroup, Topology
from fabricd.placement.exporters import FORMATS, export
from fabricd.placement.exporters.labels import label_value, object_name
from fabricd.placement.exporters.names import NameBook, load_names, save_names
from fabricd.placement.exporters.slurm import block_sizes
from fabricd.topology.railfaults import check_rails
from fabricd.topology.rails import recover_rails
from tests.fabrics import rail_fabric, three_tier
from tests.unit.placement import schemas


def railed(**shape: int) -> Topology:
    topology = rail_fabric(**{"units": 3, "hosts": 4, "rails": 4, **shape})
    check_rails(topology)
    return topology


def documents(text: str) -> list[dict[str, Any]]:
    return list(yaml.safe_load_all(text))


def test_every_format_is_there_and_deterministic() -> None:
    wanted = {"slurm-tree", "slurm-block", "slurm-yaml", "k8s-labels", "kueue", "volcano", "kai", "nccl"}
    assert set(FORMATS) == wanted
    for name in FORMATS:
        assert export(railed(), name) == export(railed(), name) != ""


def test_tree_has_one_switch_per_rail_group() -> None:
    text = export(railed(), "slurm-tree")
    lines = [line for line in text.splitlines() if not line.startswith("#")]
    assert lines == [
        "SwitchName=su1 Nodes=gpu[001-004]",
        "SwitchName=su2 Nodes=gpu[005-008]",
        "SwitchName=su3 Nodes=gpu[009-012]",
        "SwitchName=pod1 Switches=su[1-3]",
    ]
    assert "# su2=0xb8599f0300100100," in text  # its leaves, for people


def test_three_tiers_get_a_core_switch() -> None:
    topology = three_tier(pods=2, leaves=2, hosts=2)
    recover_rails(topology)
    lines = [line for line in export(topology, "slurm-tree").splitlines() if not line.startswith("#")]
    assert lines[-1] == "SwitchName=core1 Switches=pod[1-2]"
    assert [line.split()[0] for line in lines[-3:-1]] == ["SwitchName=pod1", "SwitchName=pod2"]
    hyper = documents(export(topology, "volcano"))
    assert [d["spec"]["tier"] for d in hyper] == [1, 1, 1, 1, 2, 2, 3]
    schemas.check_hypernode_tree(hyper)


def test_block_and_yaml_agree_with_the_tree() -> None:
    topology = railed(units=4)
    block = export(topology, "slurm-block")
    assert "BlockName=su4 Nodes=gpu[013-016]" in block and "BlockSizes=4,8,16" in block
    tree, blocks = yaml.safe_load(export(topology, "slurm-yaml"))[:2]
    assert tree["cluster_default"] is True and blocks["cluster_default"] is False
    assert tree["tree"]["switches"][0] == {"switch": "pod1", "children": "su[1-4]"}
    assert {s["switch"]: s["nodes"] for s in tree["tree"]["switches"][1:]} == {
        b["block"]: b["nodes"] for b in blocks["block"]["blocks"]
    }
    assert blocks["block"]["block_sizes"] == [4, 8, 16]


@given(st.lists(st.integers(1, 64), min_size=1, max_size=40))
def test_block_sizes_double(counts: list[int]) -> None:
    sizes = block_sizes(counts)
    assert sizes[0] == min(counts) and all(b == 2 * a for a, b in pairwise(sizes))
    assert sizes[-1] <= min(counts) * len(counts) < 2 * sizes[-1]


def test_nvlink_domains_are_blocks_and_a_level() -> None:
    topology = railed()
    for node in topology.nodes.values():
        if node.type == CA and node.host:
            node.labels["nvlink_domain"] = "nvl-a" if int(node.host[3:]) % 2 else "nvl-b"
    assert "BlockName=nvl-a Nodes=gpu[001,003,005,007,009,011]" in export(topology, "slurm-block")
    by_group = export(topology, "slurm-block", PlacementConfig(block_level="rail-group"))
    assert "BlockName=su1" in by_group and "nvl" not in by_group
    levels = documents(export(topology, "kai"))[0]["spec"]["levels"]
    assert levels[-2:] == [{"nodeLabel": "accelerator.topograph.run/domain"}, {"nodeLabel": "kubernetes.io/hostname"}]
    labels = documents(export(topology, "k8s-labels"))[0]["metadata"]["labels"]
    assert labels["accelerator.topograph.run/domain"] == "nvl-a"


@pytest.mark.parametrize(
    ("config", "keys"),
    [
        (PlacementConfig(), ["fabric.topograph.run/tier-0", "fabric.topograph.run/tier-1"]),
        (
            PlacementConfig(label_preset="topograph-v0"),
            ["network.topology.nvidia.com/leaf", "network.topology.nvidia.com/spine"],
        ),
        (PlacementConfig(label_preset="custom", fabric_labels=["example.com/su"]), ["example.com/su"]),
    ],
)
def test_label_keys_are_configuration(config: PlacementConfig, keys: list[str]) -> None:
    node = documents(export(railed(), "k8s-labels", config))[5]
    values = [node["metadata"]["labels"][key] for key in keys]
    assert values == ["su2", "pod1"][: len(keys)]
    levels = [level["nodeLabel"] for level in documents(export(railed(), "kueue", config))[0]["spec"]["levels"]]
    assert levels == [*reversed(keys), "kubernetes.io/hostname"]


def test_custom_labels_without_keys_name_the_key() -> None:
    with pytest.raises(UsageError, match=r"placement\.fabric_labels"):
        export(railed(), "k8s-labels", PlacementConfig(label_preset="custom"))


def test_objects_satisfy_the_resource_schemas() -> None:
    topology = railed(units=5)
    topology.rails[0].name = "SU/1 (the first) " + "x" * 80  # names nobody should choose, but somebody will
    topology.rails[1].name = "SU_2"
    kueue = documents(export(topology, "kueue"))
    Draft202012Validator(schemas.KUEUE_TOPOLOGY).validate(kueue[0])
    Draft202012Validator(schemas.KUEUE_FLAVOR).validate(kueue[1])
    kai = documents(export(topology, "kai"))
    Draft202012Validator(schemas.KAI_TOPOLOGY).validate(kai[0])
    for topology_object in (kueue[0], kai[0]):
        schemas.check_level_rules(topology_object)
    hyper = documents(export(topology, "volcano"))
    for document in hyper:
        Draft202012Validator(schemas.HYPERNODE).validate(document)
    schemas.check_hypernode_tree(hyper)
    labels = documents(export(topology, "k8s-labels"))
    key = "fabric.topograph.run/tier-0"
    wanted = {
        d["spec"]["members"][0]["selector"]["labelMatch"]["matchLabels"][key] for d in hyper if d["spec"]["tier"] == 1
    }
    assert wanted == {d["metadata"]["labels"][key] for d in labels}
    assert all(re.match(schemas.LABEL_VALUE, value) and len(value) <= 63 for value in wanted)


def test_the_schemas_do_refuse() -> None:
    """The control: a wrong field is noticed."""
    bad = documents(export(railed(), "volcano"))[0]
    bad["spec"]["members"][0]["selector"]["exactMatch"] = {"name": "x"}
    assert list(Draft202012Validator(schemas.HYPERNODE).iter_errors(bad))
    kueue = documents(export(railed(), "kueue"))[0]
    kueue["spec"]["levels"].append({"nodelabel": "x"})
    assert list(Draft202012Validator(schemas.KUEUE_TOPOLOGY).iter_errors(kueue))


def test_storage_and_management_hosts_are_told_apart() -> None:
    topology = railed()
    topology.rails.append(RailGroup("storage", ["stor1", "stor2"], [], "storage"))
    topology.rails.append(RailGroup("su1-management", ["head1"], [], "management"))
    text = export(topology, "slurm-tree")
    assert "# storage (not in the topology): stor[1-2]" in text
    assert not re.search(r"^SwitchName.*(stor|head)", text, re.M)
    roles = {d["metadata"]["name"]: d["metadata"]["labels"] for d in documents(export(topology, "k8s-labels"))}
    assert roles["stor1"] == {"kubernetes.io/hostname": "stor1", "fabricd.io/role": "storage"}
    assert roles["head1"]["fabricd.io/role"] == "management"
    assert roles["gpu001"]["fabricd.io/rail-state"] == "ok"


def test_rail_state_label_says_what_is_wrong() -> None:
    topology = railed()
    topology.faults.append(Fault("crossed_rail", "gpu002", "mlx5_0 is on rail 2", []))
    state = {
        d["metadata"]["name"]: d["metadata"]["labels"]["fabricd.io/rail-state"]
        for d in documents(export(topology, "k8s-labels"))
    }
    assert state["gpu002"] == "crossed-rail" and state["gpu001"] == "ok"


def test_nccl_list_has_port_rail_and_plane() -> None:
    topology = railed()
    assert "NCCL_IB_HCA==mlx5_0:1:0:0,mlx5_1:1:1:0,mlx5_2:1:2:0,mlx5_3:1:3:0\n" in export(topology, "nccl")


def test_nccl_follows_the_cable_of_a_crossed_host_and_counts_hca_from_one() -> None:
    topology = railed()
    mine = sorted((n for n in topology.nodes.values() if n.host == "gpu002"), key=lambda n: n.name)
    for node in mine:
        index = int(node.labels.pop("device", node.name.split()[-1]).rsplit("_", 1)[1])
        node.name = f"gpu002 HCA-{index + 1}"
        node.labels.clear()
    one, two = (next(k for k in topology.links if n.guid in (k.a[0], k.b[0])) for n in mine[:2])
    a, b = one.peer(mine[0].guid, 1), two.peer(mine[1].guid, 1)
    assert a and b
    topology.links = [link for link in topology.links if link not in (one, two)]
    topology.links += [type(one)((mine[0].guid, 1), b, 400.0), type(one)((mine[1].guid, 1), a, 400.0)]
    text = export(topology, "nccl", node="gpu002")
    assert "NCCL_IB_HCA==mlx5_1:1:0:0,mlx5_0:1:1:0,mlx5_2:1:2:0,mlx5_3:1:3:0\n" in text
    fleet = export(topology, "nccl")
    assert "# gpu002: NCCL_IB_HCA==mlx5_1:1:0:0," in fleet and "\nNCCL_IB_HCA==mlx5_0:1:0:0," in fleet
    with pytest.raises(UsageError, match="--node nobody"):
        export(topology, "nccl", node="nobody")


def test_names_survive_a_group_that_vanishes(tmp_path: Path) -> None:
    path = str(tmp_path / "names.json")
    book = load_names(path)
    first = railed(units=4)
    book.apply(first)
    assert [group.name for group in first.rails] == ["su1", "su2", "su3", "su4"]
    save_names(path, book)
    later = railed(units=4)
    gone = {leaf for rail in later.rails[0].leaves for leaf in rail}
    later.links = [k for k in later.links if k.a[0] not in gone and k.b[0] not in gone]
    later.rails, later.faults = [], []
    check_rails(later)
    assert [g.name for g in later.rails if len(g.hosts) == 4] == ["su1", "su2", "su3"]  # discovery has renumbered
    load_names(path).apply(later)
    text = export(later, "slurm-tree")
    assert "SwitchName=su4 Nodes=gpu[013-016]" in text and "SwitchName=su1 " not in text


@given(st.lists(st.sets(st.integers(1, 30), min_size=1, max_size=6), max_size=6), st.data())
def test_printed_names_are_unique(sets: list[set[int]], data: st.DataObject) -> None:
    book = NameBook()
    for _ in range(3):
        order = data.draw(st.permutations(sets))
        topology = Topology(
            rails=[RailGroup(f"su{i + 1}", [f"h{i}"], [[leaf] for leaf in s]) for i, s in enumerate(order)]
        )
        book.apply(topology)
        assert len({group.name for group in topology.rails}) == len(order)


@given(st.text(max_size=100))
def test_label_values_and_names_are_accepted_by_kubernetes(text: str) -> None:
    value = label_value(text)
    assert len(value) <= 63 and re.match(schemas.LABEL_VALUE, value)
    name = object_name(text)
    assert len(name) <= 63 and re.match(schemas.DNS_NAME, name)


def test_label_value_hash_is_fnv64a() -> None:
    assert label_value("a" * 64) == "x" + f"{_fnv(b'a' * 64):016x}"


def _fnv(data: bytes) -> int:
    value = 14695981039346656037
    for byte in data:
        value = ((value ^ byte) * 1099511628211) % 2**64
    return value


def test_expand_of_every_tree_line_is_the_group() -> None:
    topology = railed(units=2, hosts=5)
    lines = re.findall(r"SwitchName=(su\d+) Nodes=(\S+)", export(topology, "slurm-tree"))
    assert {name: expand(nodes) for name, nodes in lines} == {g.name: g.hosts for g in topology.rails}

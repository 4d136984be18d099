"""opensm's and ibdiagnet's files: real dumps of a simulated fabric, small hand-made ones for what needs hardware."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fabricd.config.topology import TopologyConfig
from fabricd.errors import UsageError
from fabricd.model.rejects import Rejects
from fabricd.model.topology import Topology
from fabricd.topology.golden import full_json, golden_json
from fabricd.topology.ibdiagnet import apply_db_csv, apply_net_dump_ext, parse_db_csv, parse_far
from fabricd.topology.ibnetdiscover import parse_ibnetdiscover
from fabricd.topology.live import take_picture
from fabricd.topology.load import (
    apply_ibdiagnet_dir,
    apply_name_map,
    apply_racks,
    load_ibnetdiscover,
    load_topology,
    parse_topology,
)
from fabricd.topology.opensm_files import parse_lfts, parse_saquery, parse_subnet_lst
from fabricd.topology.tables import routes_from_lfts

DATA = Path(__file__).parents[2] / "data" / "topology"


def text(name: str) -> str:
    return (DATA / name).read_text()


def wiring(topology: Topology) -> tuple[object, ...]:
    nodes = sorted(
        (n.guid, n.type, n.name, n.num_ports, tuple(sorted(n.lids.items()))) for n in topology.nodes.values()
    )
    return nodes, sorted((link.a, link.b, link.width, link.speed) for link in topology.links)


def test_subnet_lst_is_the_fabric_ibnetdiscover_saw() -> None:
    topology = parse_subnet_lst(text("opensm-subnet.lst"))
    assert wiring(topology) == wiring(parse_ibnetdiscover(text("ibnetdiscover.txt")))
    assert topology.rejects.total == 0


def test_saquery_records_are_the_fabric_ibnetdiscover_saw() -> None:
    topology = parse_saquery(text("saquery.txt"))
    assert wiring(topology) == wiring(parse_ibnetdiscover(text("ibnetdiscover.txt")))
    assert topology.rejects.total == 0


def test_lst_numbers_are_hexadecimal_and_speeds_known() -> None:
    line = (
        "{ CA-SM Ports:01 SystemGUID:0000000000000001 NodeGUID:0000000000000001 PortGUID:0000000000000001 VenID:000002C9 "
        "DevID:101B0000 Rev:00000000 {a } LID:{ b} LID:001F PN:01 } "
        "{ SW Ports:29 SystemGUID:0000000000000002 NodeGUID:0000000000000002 "
        "PortGUID:0000000000000002 VenID:000002C9 DevID:D2F00000 Rev:000000A0 {sw} LID:0010 PN:1F } PHY=4x LOG=ACT SPD=50\n"
    )
    topology = parse_subnet_lst(line + line.replace("SPD=50", "SPD=7") + "{ nonsense }\n")
    assert topology.nodes[1].name == "a } LID:{ b"
    assert (topology.nodes[2].num_ports, topology.nodes[2].device_id, topology.nodes[1].lids) == (41, 0xD2F0, {1: 31})
    (link,) = topology.links
    assert (link.b, link.rate_gbps) == ((2, 31), 200.0)
    assert topology.rejects.counts == {"width_speed": 1, "line": 1}


@pytest.mark.parametrize("name", ["dump_lfts.txt", "opensm-lfts.dump", "opensm.fdbs"])
def test_every_form_of_forwarding_tables(name: str) -> None:
    rejects = Rejects()
    tables = parse_lfts(text(name), rejects)
    assert rejects.total == 0
    if name == "dump_lfts.txt":
        assert len(tables) == 5
        assert tables[0x200002].tolist() == [255, 3, 3, 3, 0, 4, 3, 4, 3, 4, 1, 2]
    else:
        assert {guid: table.tolist() for guid, table in tables.items()} == {
            0x200000: [255, 1, 0, 3, 3, 2, 3, 3],
            0x200001: [255, 3, 3, 0, 3, 3, 1, 2],
            0x200002: [255, 1, 1, 2, 0, 1, 2, 2],
        }


def test_bad_rows_of_forwarding_tables_cost_only_themselves() -> None:
    rejects = Rejects()
    dump = (
        "0x0001 001\nUnicast lids [0-7] of switch Lid 2 guid 0x0000000000200000 ('leaf00'):\n0x0001 001 # x\n0x0000 003\n0xffff 003\n"
        "0x0002 999\n0x00\nUnicast lids of nobody\n0x0003 004\n7 lids dumped\n"
    )
    tables = parse_lfts(dump, rejects)
    assert {guid: table.tolist() for guid, table in tables.items()} == {0x200000: [255, 1]}
    assert rejects.counts == {"row_without_switch": 2, "lft_row": 3, "line": 2}


def test_unreachable_rows_of_fdbs() -> None:
    tables = parse_lfts(
        "dump_ucast_routes: Switch 0x10\nLID    : Port : Hops : Optimal\n0x0001 : UNREACHABLE\n0x0002 : 004  : 01   : yes\n",
        Rejects(),
    )
    assert tables[0x10].tolist() == [255, 255, 4]


def test_routes_of_a_dump_follow_it_and_adaptive_groups_replace_single_ports() -> None:
    topology = parse_ibnetdiscover(text("ibnetdiscover.txt"))
    rejects = Rejects()
    tables = parse_lfts(text("dump_lfts.txt"), rejects)
    adaptive = parse_far(text("ibdiagnet2.far"), rejects)
    assert rejects.total == 0
    routes = routes_from_lfts(topology, tables)
    assert routes.source == "lft"
    assert routes.egress(0x200002, 0x100000) == [3]
    assert routes.egress(0x200002, 0x100008) == [1]
    spread = routes_from_lfts(topology, tables, adaptive)
    lid_of = {node.lids[1]: guid for guid, node in topology.nodes.items() if 1 in node.lids}
    assert spread.source == "mixed"
    assert spread.egress(0x200000, lid_of[8]) == [3, 4]  # a group
    assert spread.egress(0x200000, lid_of[9]) == [3, 4]  # its sub-groups together
    assert spread.egress(0x200000, lid_of[10]) == [3]  # an empty group: the static port
    assert spread.egress(0x200000, lid_of[5]) == [2]
    assert spread.egress(0x200002, 0x100000) == [3]


def test_switches_without_a_table_are_assumed() -> None:
    topology = parse_ibnetdiscover(text("ibnetdiscover.txt"))
    tables = parse_lfts(text("dump_lfts.txt"), Rejects())
    del tables[0x200000]
    routes = routes_from_lfts(topology, tables)
    assert routes.source == "mixed"
    assert routes.sources[routes.frame.switch_index[0x200000]] == "assumed"
    assert routes.egress(0x200000, 0x10000A) == [3, 4]


def test_lids_of_one_port_make_one_set() -> None:
    topology = parse_ibnetdiscover(text("ibnetdiscover.txt"))
    node = topology.nodes[0x10000A]
    node.lids, node.labels["lmc"] = {1: 16}, "1"
    table = np.full(18, 255, np.uint8)
    table[[16, 17]] = [3, 4]
    routes = routes_from_lfts(topology, {0x200000: table})
    assert routes.egress(0x200000, 0x10000A) == [3, 4]


def test_db_csv() -> None:
    topology = parse_db_csv(text("ibdiagnet2.db_csv"))
    assert topology.rejects.counts == {"nodes_row": 1, "link_of_unknown_node": 1, "short_row": 1}
    assert topology.nodes[0x21].host == "gpu,002"
    assert [(link.b, link.rate_gbps) for link in topology.links] == [((0x20, 1), 400.0), ((0x21, 1), 200.0)]
    assert topology.links[0].labels["cable_serial"] == "MT2231VS01"
    assert topology.links[0].labels["cable_length"] == "1 m"
    assert "cable_serial" not in topology.links[1].labels
    assert topology.port_label(0x10, 1) == "1/1/1"
    assert topology.port_label(0x10, 2) == "1/1/2/1"
    assert topology.nodes[0x10].lids == {0: 3}


def test_bit_error_rates_and_fec_by_end() -> None:
    topology = parse_db_csv(text("ibdiagnet2.db_csv"))
    before = topology.rejects.total
    apply_net_dump_ext(topology, text("ibdiagnet2.net_dump_ext"))
    labels = topology.links[0].labels
    assert labels["fec"] == "RS_FEC_544_514_PLR"
    assert (labels["ber_raw_a"], labels["ber_raw_b"]) == ("1e-07", "2e-08")
    assert labels["ber_effective_a"] == "15e-255"
    assert "ber_effective_b" not in labels
    assert topology.rejects.total == before + 1


def test_a_directory_of_ibdiagnet_completes_a_topology(tmp_path: Path) -> None:
    topology = parse_db_csv(text("ibdiagnet2.db_csv"))
    topology.links[0].labels.clear()
    apply_ibdiagnet_dir(topology, DATA)
    assert topology.links[0].labels["cable_part"] == "MCP7Y00-N001"
    apply_ibdiagnet_dir(topology, tmp_path)
    with pytest.raises(UsageError, match="not a directory"):
        apply_ibdiagnet_dir(topology, tmp_path / "absent")


@pytest.mark.parametrize(
    ("name", "nodes"),
    [
        ("ibnetdiscover.txt", 11),
        ("ibnetdiscover_p.txt", 11),
        ("opensm-subnet.lst", 11),
        ("saquery.txt", 11),
        ("ibdiagnet2.db_csv", 3),
    ],
)
def test_any_file_is_told_by_its_content(name: str, nodes: int) -> None:
    assert len(load_topology(DATA / name).nodes) == nodes


def test_what_is_no_topology_is_said_in_one_line(tmp_path: Path) -> None:
    for content in ("hello", "", "{", "{}", "[1]", "a = 1"):
        path = tmp_path / "file"
        path.write_text(content)
        with pytest.raises(UsageError) as caught:
            load_topology(path)
        assert "\n" not in str(caught.value)
        assert "file" in str(caught.value)
    with pytest.raises(UsageError, match="no line of it"):
        load_ibnetdiscover(path)
    with pytest.raises(UsageError, match="No such file"):
        load_topology(tmp_path / "absent")


def test_name_map_and_racks() -> None:
    topology = parse_ibnetdiscover(text("ibnetdiscover_traps.txt"))
    assert any(fault.kind == "factory_name" for fault in topology.faults)
    apply_name_map(topology, '0xb8599f030000010c "gpu006 mlx5_0"\n0xb8599f0300000100 "leaf-a"\nbad\n', "map")
    assert topology.nodes[0xB8599F030000010C].host == "gpu006"
    assert topology.port_name(0xB8599F0300000100, 1) == "leaf-a 1/1/1"
    assert topology.nodes[0xB8599F0300000100].labels["description"] == "MF0;IBLEAF-01-01:MQM9701/U1"
    assert not any(fault.kind == "factory_name" for fault in topology.faults)
    apply_racks(topology, "gpu00[12] rack-a # by host\nIBLEAF-* rack-b\nthree words here\n", "racks")
    assert topology.nodes[0xB8599F0300000106].labels["rack"] == "rack-a"
    assert topology.nodes[0xB8599F0300000101].labels["rack"] == "rack-b"
    assert "rack" not in topology.nodes[0xB8599F030000010A].labels
    assert topology.rejects.counts == {"name_map_line": 1, "rack_line": 1}


def test_a_hardened_fabric_from_what_its_subnet_manager_dumped(tmp_path: Path) -> None:
    config = TopologyConfig(source=str(DATA / "opensm-subnet.lst"), lft_file=str(DATA / "dump_lfts.txt"))
    picture = take_picture(config)
    assert picture.routes is not None
    assert picture.routes.source == "lft"
    assert picture.routes.egress(0x200002, 0x100000) == [3]
    config.ibdiagnet_dir = str(DATA)
    mixed = take_picture(config).routes
    assert mixed is not None
    assert "ar" in mixed.sources
    config.lft_file, config.ibdiagnet_dir = "", str(tmp_path)
    (tmp_path / "ibdiagnet2.fdbs").write_text("dump_ucast_routes: Switch 0x200002\n0x0001 : 004  : 01   : yes\n")
    fdbs = take_picture(config).routes
    assert fdbs is not None
    assert fdbs.egress(0x200002, 0x100000) == [4]
    assert fdbs.source == "mixed"
    with pytest.raises(UsageError, match="absent"):
        take_picture(TopologyConfig(source=str(DATA / "opensm-subnet.lst"), lft_file="/absent"))


def test_a_golden_file_is_checked_and_its_rails_are_kept(tmp_path: Path) -> None:
    topology = load_topology(DATA / "ibnetdiscover_traps.txt")
    topology.rails[0].name = "blue"
    path = tmp_path / "golden.json"
    path.write_text(golden_json(topology))
    again = load_topology(path)
    assert [rail.name for rail in again.rails] == ["blue", "su2"]
    assert {fault.kind for fault in again.faults} == {"crossed_rail", "short_uplinks"}
    path.write_text(json.dumps(full_json(topology)))
    assert len(load_topology(path).faults) == len(topology.faults)


SAMPLES = sorted(path.name for path in DATA.iterdir() if path.is_file())


@settings(max_examples=120, deadline=None)
@given(st.sampled_from(SAMPLES), st.data())
def test_damaged_files_never_raise_more_than_a_usage_error(name: str, data: st.DataObject) -> None:
    content = (DATA / name).read_text()
    start = data.draw(st.integers(0, len(content)))
    length = data.draw(st.integers(0, 60))
    damaged = content[:start] + data.draw(st.text(max_size=20)) + content[start + length :]
    rejects = Rejects()
    parse_far(damaged, rejects)
    parse_lfts(damaged, rejects)
    parse_saquery(damaged)
    parse_subnet_lst(damaged)
    topology = parse_db_csv(damaged)
    apply_db_csv(topology, damaged)
    apply_net_dump_ext(topology, damaged)
    try:
        parse_topology(damaged, name)
    except UsageError:
        pass

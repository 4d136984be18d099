"""The two texts of ibnetdiscover: real ones, odd ones, hostile ones."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from fabricd.model.topology import AGGREGATION, CA, ROUTER, SWITCH, Topology
from fabricd.topology.ibnetdiscover import looks_like_ibnetdiscover, parse_ibnetdiscover

DATA = Path(__file__).parents[2] / "data" / "topology"
HEAD = "vendid=0x2c9\ndevid=0xd2f2\nsysimgguid=0x10\nswitchguid=0x10(10)\n"


def switch(name: str, *lines: str) -> str:
    return (
        HEAD + f'Switch\t65 "S-0000000000000010"\t\t# "{name}" enhanced port 0 lid 3 lmc 0\n' + "\n".join(lines) + "\n"
    )


def port_line(port: int, name: str, rate: str = "4xNDR", guid: int = 0x20, far: int = 1, lid: int = 9) -> str:
    return f'[{port}]\t"H-{guid:016x}"[{far}]({guid:x}) \t\t# "{name}" lid {lid} {rate}'


def facts(topology: Topology) -> tuple[object, ...]:
    nodes = sorted((n.type, n.name, tuple(sorted(n.lids.items()))) for n in topology.nodes.values())
    ends = sorted(
        (*sorted((topology.nodes[guid].name, port) for guid, port in (link.a, link.b)), link.rate_gbps)
        for link in topology.links
    )
    return nodes, ends


def test_both_forms_of_one_real_fabric_tell_the_same() -> None:
    full = parse_ibnetdiscover((DATA / "ibnetdiscover.txt").read_text())
    ports = parse_ibnetdiscover((DATA / "ibnetdiscover_p.txt").read_text())
    assert facts(full) == facts(ports)
    assert len(full.nodes) == 11
    assert len(full.links) == 12
    assert full.rejects.total == ports.rejects.total == 0
    assert {link.rate_gbps for link in full.links} == {10.0}


def test_traps_of_a_production_fabric() -> None:
    topology = parse_ibnetdiscover((DATA / "ibnetdiscover_traps.txt").read_text())
    kinds = [node.type for node in topology.nodes.values()]
    assert (kinds.count(SWITCH), kinds.count(CA), kinds.count(AGGREGATION)) == (6, 7, 4)
    hosts = {node.host for node in topology.nodes.values()}
    assert hosts == {"", "gpu001", "gpu002", "gpu005"}
    sharp = [link for link in topology.links if link.labels.get("internal") == "sharp"]
    assert len(sharp) == 4
    assert topology.port_label(0xB8599F0300000100, 61) == "1/31/1"
    assert topology.rejects.total == 0


@pytest.mark.parametrize(
    "name",
    [
        "",
        " ",
        '"',
        'a"b',
        "it's",
        "(x)",
        "a - b",
        "' - '",
        "a # b",
        '"x" lid 1 4xNDR',
        "[1]",
        "ü",
        "x" * 64,
        "S-0000000000000010",
    ],
)
def test_any_name_survives_in_the_full_form(name: str) -> None:
    topology = parse_ibnetdiscover(switch("leaf", port_line(1, name)))
    assert topology.nodes[0x20].name == name.strip()
    assert [(link.a, link.b) for link in topology.links] == [((0x10, 1), (0x20, 1))]
    assert topology.rejects.total == 0


@pytest.mark.parametrize(
    ("local", "remote"),
    [("a", "b"), ("", ""), ("it's", "(x)"), ("a' - 'b", "c"), ("a", "b' - 'c"), ("x' - 'x", "x' - 'x")],
)
def test_any_pair_of_names_survives_in_the_port_form(local: str, remote: str) -> None:
    text = (
        f"SW     4  2 0x0000000000000010 4x HDR - CA    11  1 0x0000000000000020 ( '{local}' - '{remote}' )\n"
        f"CA    11  1 0x0000000000000020 4x HDR - SW     4  2 0x0000000000000010 ( '{remote}' - '{local}' )\n"
    )
    topology = parse_ibnetdiscover(text)
    assert (topology.nodes[0x10].name, topology.nodes[0x20].name) == (local, remote)
    assert [link.rate_gbps for link in topology.links] == [200.0]


@pytest.mark.parametrize(
    ("rate", "gbps", "rejects"),
    [("4xSDR", 10, 0), ("1xSDR", 2.5, 0), ("2xHDR", 100, 0), ("8xEDR", 200, 0), ("12xQDR", 120, 0), ("4xFDR10", 40, 0),
     ("4xXDR", 800, 0), ("??x???", 0, 0), ("4x???", 0, 0), ("4xZDR", 0, 1), ("3xNDR", 0, 1), ("fast", 0, 1)],
)  # fmt: skip
def test_rates(rate: str, gbps: float, rejects: int) -> None:
    topology = parse_ibnetdiscover(switch("leaf", port_line(1, "h", rate)))
    assert [link.rate_gbps for link in topology.links] == [gbps]
    assert topology.rejects.total == rejects


@pytest.mark.parametrize(
    ("columns", "gbps"),
    [("4x SDR", 10), ("12x EDR", 300), ("2x HDR", 100), ("8x XDR", 1600), ("?? ???", 0), ("4x ???", 0)],
)
def test_rates_of_the_port_form(columns: str, gbps: float) -> None:
    line = f"SW     4  2 0x0000000000000010 {columns} - CA    11  1 0x0000000000000020 ( 'leaf' - 'h' )"
    topology = parse_ibnetdiscover(line + f"\nSW     4  3 0x0000000000000010 {columns}" + " " * 36 + "'leaf'\n")
    assert [link.rate_gbps for link in topology.links] == [gbps]
    assert topology.rejects.total == 0
    assert topology.nodes[0x10].num_ports == 3


def test_one_bad_line_costs_only_itself() -> None:
    text = switch(
        "leaf", port_line(1, "a", guid=0x21), '[2]\t"H-00000000000000', "garbage", port_line(4, "d", guid=0x24)
    )
    topology = parse_ibnetdiscover(text)
    assert {link.b[0] for link in topology.links} == {0x21, 0x24}
    assert dict(topology.rejects.counts) == {"line": 2}


def test_ports_under_a_broken_heading_are_not_given_to_the_node_before() -> None:
    text = switch("leaf", port_line(1, "a")) + 'Switch\tx "S-0000000000000030"\n' + port_line(2, "b", guid=0x40) + "\n"
    topology = parse_ibnetdiscover(text)
    assert [link.b for link in topology.links] == [(0x20, 1)]
    assert topology.rejects.counts["port_without_node"] == 1


def test_port_past_the_last_one_and_guid_zero_are_refused() -> None:
    topology = parse_ibnetdiscover(switch("leaf", port_line(66, "a"), port_line(1, "b", guid=0), port_line(255, "c")))
    assert topology.links == []
    assert topology.rejects.total == 3


def test_external_ports_of_a_chassis_and_a_router() -> None:
    line = '[3][ext 12]\t"S-0000000000000030"[20][ext 3]\t\t# "other" lid 4 4xQDR'
    router = '[4]\t"R-0000000000000050"[1](50) \t\t# "gateway" lid 6 4xEDR'
    topology = parse_ibnetdiscover("Chassis 1 (guid 0x1)\n" + switch("leaf", line, router))
    assert {(link.a, link.b) for link in topology.links} == {((0x10, 3), (0x30, 20)), ((0x10, 4), (0x50, 1))}
    assert topology.nodes[0x50].type == ROUTER


def test_two_cables_to_one_port_are_a_duplicate_guid() -> None:
    other = (
        switch("leaf2", port_line(5, "twin")).replace("0000000000000010", "0000000000000011").replace("0x10", "0x11")
    )
    adapter = (
        "vendid=0x2c9\ndevid=0x1021\nsysimgguid=0x20\ncaguid=0x20\n"
        'Ca\t1 "H-0000000000000020"\t\t# "twin"\n[1](20) \t"S-0000000000000010"[1]\t\t# lid 9 lmc 0 "leaf" lid 3 4xNDR\n'
    )
    topology = parse_ibnetdiscover(switch("leaf", port_line(1, "twin")) + other + adapter)
    (fault,) = topology.faults
    assert (fault.kind, fault.where) == ("duplicate_guid", "0x0000000000000020")
    assert topology.links == []
    assert topology.nodes[0x20].labels["duplicate_guid"] == "yes"


def test_two_descriptions_of_one_guid_are_a_duplicate_guid() -> None:
    topology = parse_ibnetdiscover(switch("one", port_line(1, "a")) + switch("two"))
    assert [fault.kind for fault in topology.faults] == ["duplicate_guid"]


def test_crlf_bom_and_ends_that_disagree() -> None:
    adapter = (
        'Ca\t1 "H-0000000000000020"\t\t# "h"\n[1](20) \t"S-0000000000000010"[2]\t\t# lid 9 lmc 0 "leaf" lid 3 4xNDR\n'
    )
    text = "\ufeff" + (switch("leaf", port_line(1, "h")) + adapter).replace("\n", "\r\n")
    topology = parse_ibnetdiscover(text)
    assert topology.rejects.total == 0
    assert {fault.kind for fault in topology.faults} == {"asymmetric_link"}


def test_factory_and_missing_names_are_faults() -> None:
    topology = parse_ibnetdiscover(switch("Quantum Mellanox Technologies", port_line(1, "")))
    assert {fault.kind for fault in topology.faults} == {"factory_name"}
    assert len(topology.faults) == 2


def test_recognised_by_its_content() -> None:
    assert looks_like_ibnetdiscover((DATA / "ibnetdiscover.txt").read_text())
    assert looks_like_ibnetdiscover((DATA / "ibnetdiscover_p.txt").read_text())
    assert not looks_like_ibnetdiscover("root:x:0:0")


LINES = (DATA / "ibnetdiscover_traps.txt").read_text().splitlines() + (
    DATA / "ibnetdiscover_p.txt"
).read_text().splitlines()


@settings(max_examples=150, deadline=None)
@given(st.lists(st.one_of(st.sampled_from(LINES), st.text(max_size=80)), max_size=40))
@example(['[1]\t"H-0"[1](0) \t\t# "x" lid 1 4xNDR'])
def test_no_text_raises_and_every_link_has_its_nodes(lines: list[str]) -> None:
    topology = parse_ibnetdiscover("\n".join(lines))
    ends = [ref for link in topology.links for ref in (link.a, link.b)]
    assert all(guid in topology.nodes for guid, _ in ends)
    assert len(set(ends)) == len(ends)
    topology.to_json()


@settings(max_examples=60, deadline=None)
@given(st.integers(0, len(LINES) - 1), st.data())
def test_a_damaged_line_costs_at_most_its_own_link(number: int, data: st.DataObject) -> None:
    text = (DATA / "ibnetdiscover_p.txt").read_text().splitlines()
    number %= len(text)
    cut = data.draw(st.integers(0, len(text[number])))
    text[number] = text[number][:cut] + data.draw(st.sampled_from(["", "\x00", "'", "zz"]))
    assert len(parse_ibnetdiscover("\n".join(text)).links) >= 10

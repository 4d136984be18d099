"""Discovery, forwarding tables and QoS tables against the real tools on simulated fabrics under a real opensm."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from fabricd.config.topology import TopologyConfig
from fabricd.ib.ibsim import SimTransport
from fabricd.ib.limits import Limits
from fabricd.model.rejects import Rejects
from fabricd.model.topology import SWITCH, Topology
from fabricd.topology.discovery import Discoverer, port_states, to_topology
from fabricd.topology.ibnetdiscover import parse_ibnetdiscover
from fabricd.topology.live import take_picture
from fabricd.topology.load import load_topology
from fabricd.topology.opensm_files import parse_lfts, parse_subnet_lst
from fabricd.topology.tables import read_lfts, read_qos
from tests.ibsim import Fabric, dragonfly, leaf_spine, three_tier, torus

PATIENT = Limits(timeout_ms=5000)  # a simulator on a busy machine may be slow; that is not what is tested here
NETS = {
    "fat tree": lambda: leaf_spine(6, 3, hosts=5),
    "three tiers": lambda: three_tier(2, 3, 2, 4, hosts=3, ports=16, leaf_links=2),
    "dragonfly": lambda: dragonfly(4, 3, hosts=2),
    "torus": lambda: torus((3, 3, 3)),
}


@pytest.fixture(scope="module", params=list(NETS))
def fabric(request: pytest.FixtureRequest) -> Iterator[Fabric]:
    with Fabric(NETS[request.param]()) as running:
        yield running


@pytest.fixture
def transport(fabric: Fabric) -> Iterator[SimTransport]:
    opened = SimTransport(fabric.socket_name, fabric.hosts[1])
    yield opened
    opened.close()


def facts(topology: Topology) -> tuple[object, ...]:
    nodes = sorted(
        (
            n.guid,
            n.type,
            n.name,
            n.num_ports,
            n.system_guid,
            n.device_id,
            n.vendor_id,
            sorted(n.lids.items()),
            sorted(n.port_guids.items()),
        )
        for n in topology.nodes.values()
    )
    return nodes, sorted((link.a, link.b, link.width, link.speed, link.rate_gbps) for link in topology.links)


def test_discovery_equals_ibnetdiscover(fabric: Fabric, transport: SimTransport) -> None:
    topology = to_topology(Discoverer(transport, PATIENT).discover())
    assert topology.rejects.total == 0
    assert facts(topology) == facts(parse_ibnetdiscover(fabric.run("ibnetdiscover").stdout))
    assert len(topology.nodes) == len(fabric.net.switches) + len(fabric.net.hosts)  # type: ignore[union-attr]
    assert len(topology.links) == len(fabric.net.links) // 2  # type: ignore[union-attr]


def test_forwarding_tables_equal_dump_lfts(fabric: Fabric, transport: SimTransport) -> None:
    rejects = Rejects()
    snapshot = Discoverer(transport, PATIENT).discover()
    ours = read_lfts(transport, snapshot, PATIENT, rejects=rejects)
    theirs = parse_lfts(fabric.run("dump_lfts").stdout, rejects)
    assert rejects.total == 0
    assert set(ours) == set(theirs) == {g for g, found in snapshot.nodes.items() if found.switch is not None}
    for guid, table in theirs.items():
        assert ours[guid][: len(table)].tolist() == table.tolist()
        assert set(ours[guid][len(table) :].tolist()) <= {255}


def test_routes_lead_every_host_to_every_host(fabric: Fabric) -> None:
    picture = take_picture(TopologyConfig(mad_socket=fabric.socket_name, mad_host=fabric.hosts[0]), limits=PATIENT)
    routes = picture.routes
    assert routes is not None
    assert routes.source == "lft"
    frame = routes.frame
    for source in range(len(routes.destinations)):
        for destination in range(len(routes.destinations)):
            last = routes.walk(source, destination)[-1]
            assert last[:2] == (int(frame.attach_switch[destination]), int(frame.attach_port[destination]))


def test_the_subnet_managers_own_list_is_the_same_fabric(fabric: Fabric, transport: SimTransport) -> None:
    listed = parse_subnet_lst((fabric.directory / "opensm-subnet.lst").read_text())
    found = to_topology(Discoverer(transport, PATIENT).discover())
    assert sorted((link.a, link.b, link.rate_gbps) for link in listed.links) == sorted(
        (link.a, link.b, link.rate_gbps) for link in found.links
    )


def test_known_descriptions_are_not_asked_again(fabric: Fabric, transport: SimTransport) -> None:
    first = Discoverer(transport, PATIENT).discover()
    known = {guid: found.description or "" for guid, found in first.nodes.items()}
    again = Discoverer(transport, PATIENT).discover(known)
    assert first.counts["sent"] - again.counts["sent"] == len(known)
    assert facts(to_topology(again)) == facts(to_topology(first))


def test_quality_of_service_tables_equal_smpquery(fabric: Fabric, transport: SimTransport) -> None:
    snapshot = Discoverer(transport, PATIENT).discover()
    guid, found = next((g, f) for g, f in snapshot.nodes.items() if f.switch is not None)
    lid = int(found.ports.lid[0]) if found.ports is not None else 0
    sl_to_vl, arbitration = read_qos(transport, snapshot, guid, [1], PATIENT)[1]
    lines = fabric.run("smpquery", "sl2vl", str(lid), "1").stdout.splitlines()
    row = next(line for line in lines if line.startswith("ports: in  0, out  1:"))
    assert [int(cell) for cell in row.split("|")[1:-1]] == sl_to_vl
    low = fabric.run("smpquery", "vlarb", str(lid), "1").stdout.splitlines()
    cells = [line for line in low if line.startswith(("VL", "WEIGHT"))]
    lanes = [int(cell, 16) for cell in cells[0].split(":")[1].strip(" |").split("|")]
    weights = [int(cell, 16) for cell in cells[1].split(":")[1].strip(" |").split("|")]
    assert arbitration[: len(lanes)] == list(zip(lanes, weights, strict=True))


def test_a_link_that_goes_down_is_gone_and_its_ports_say_so(fabric: Fabric, transport: SimTransport) -> None:
    before = to_topology(Discoverer(transport, PATIENT).discover())
    link = next(link for link in before.links if all(before.nodes[guid].type == SWITCH for guid, _ in (link.a, link.b)))
    name = before.nodes[link.a[0]].name
    earlier = Discoverer(transport, PATIENT).discover()
    assert Discoverer(transport, PATIENT).changed_ports(earlier) == []
    fabric.console(f'Unlink "{name}"[{link.a[1]}]')
    try:
        assert {link.a, link.b} & set(Discoverer(transport, PATIENT).changed_ports(earlier))
        snapshot = Discoverer(transport, PATIENT).discover()
        after = to_topology(snapshot)
        assert {(x.a, x.b) for x in before.links} - {(x.a, x.b) for x in after.links} == {(link.a, link.b)}
        assert port_states(snapshot)[link.a][1] != "link-up"
    finally:
        fabric.console(f'ReLink "{name}"[{link.a[1]}]')


def test_the_command_on_a_live_fabric(fabric: Fabric, tmp_path: Path) -> None:
    def topo(*arguments: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "fabricd", "topo", *arguments, "--mad-socket", fabric.socket_name]
        return subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)

    golden = tmp_path / "golden.json"
    assert topo("export", "--format", "golden", "--output", str(golden)).returncode == 0
    assert len(load_topology(golden).nodes) == len(fabric.net.switches) + len(fabric.net.hosts)  # type: ignore[union-attr]
    same = topo("diff", str(golden))
    assert (same.returncode, same.stdout) == (0, "as in the golden file\n")
    shown = topo("show")
    assert shown.returncode == 0
    assert shown.stdout.startswith("fabric default: ")


def test_through_the_real_umad_interface(fabric: Fabric) -> None:
    """The same command as a process of the fabric: libibumad, its device, its ABI."""
    result = subprocess.run(
        [sys.executable, "-m", "fabricd", "topo", "export", "--format", "golden"],
        env={**fabric.env(fabric.hosts[2]), "PYTHONPATH": str(Path.cwd()), "FABRICD_TOPOLOGY__CACHE": ""},
        cwd=fabric.directory,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert result.returncode == 0, result.stderr
    path = fabric.directory / "umad.json"
    path.write_text(result.stdout)
    ours, theirs = load_topology(path), parse_ibnetdiscover(fabric.run("ibnetdiscover").stdout)
    assert sorted((link.a, link.b, link.rate_gbps) for link in ours.links) == sorted(
        (link.a, link.b, link.rate_gbps) for link in theirs.links
    )

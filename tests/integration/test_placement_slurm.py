"""A real slurmctld loads the exported tree and prints the same switches; node weights are written and taken back."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from fabricd.cli import main
from fabricd.config.placement import PlacementConfig
from fabricd.errors import FabricdError
from fabricd.jobs.hostlist import expand
from fabricd.model.topology import Topology
from fabricd.placement.exporters import export
from fabricd.placement.fabric import compile_fabric
from fabricd.placement.slurm_weights import Scontrol, apply_heat, undo
from fabricd.topology.golden import topology_from_json
from fabricd.topology.railfaults import check_rails
from tests.fabrics import rail_fabric, three_tier
from tests.slurmctld import slurmctld


def switches(text: str) -> dict[str, tuple[set[str], set[str]]]:
    """Name -> (nodes, child switches) of SwitchName lines, ours or scontrol's."""
    out: dict[str, tuple[set[str], set[str]]] = {}
    for line in text.splitlines():
        if match := re.search(r"SwitchName=(\S+)", line):
            fields = dict(re.findall(r"\b(Nodes|Switches)=(\S+)", line))
            out[match[1]] = (set(expand(fields.get("Nodes", ""))), set(expand(fields.get("Switches", ""))))
    return out


def joined(one: Topology, other: Topology) -> Topology:
    """Two fabrics with no cable between them."""
    one.nodes.update(other.nodes)
    one.links += other.links
    return one


def shifted(topology: Topology, offset: int, prefix: str) -> Topology:
    """The same fabric with other GUIDs and host names."""
    text = json.dumps(topology.to_json())
    text = re.sub(r"0x([0-9a-f]{16})", lambda m: f"0x{int(m[1], 16) + offset:016x}", text).replace("gpu", prefix)
    return topology_from_json(json.loads(text))


@pytest.mark.parametrize("shape", ["one pod", "two fabrics", "three tiers"])
def test_slurmctld_prints_the_switches_we_wrote(shape: str, tmp_path: Path) -> None:
    if shape == "one pod":
        topology = rail_fabric(units=4, hosts=8, rails=4)
    elif shape == "two fabrics":
        topology = joined(rail_fabric(2, 4, 4), shifted(rail_fabric(3, 4, 4), 1 << 32, "cpu"))
    else:
        topology = three_tier(pods=2, leaves=3, hosts=3)
    check_rails(topology)
    text = export(topology, "slurm-tree")
    fabric = compile_fabric(topology)
    with slurmctld(tmp_path, ",".join(fabric.hosts), text) as slurm:
        printed = switches(slurm.run("show", "topology"))
        log = slurm.log.read_text()
    written = switches(text)
    assert printed.keys() == written.keys()
    for name, (nodes, children) in written.items():
        assert printed[name][1] == children
        if nodes:
            assert printed[name][0] == nodes
    assert "Multiple leaf switches" not in log
    assert not [line for line in log.splitlines() if "error" in line and "topo" in line.lower()]
    leaves = [nodes for nodes, _ in written.values() if nodes]
    assert sorted(host for nodes in leaves for host in nodes) == sorted(fabric.hosts)
    roots = written.keys() - {child for _, children in written.values() for child in children}
    assert len(roots) == fabric.roots == (2 if shape == "two fabrics" else 1)


def test_a_leaf_per_rail_would_make_slurm_warn(tmp_path: Path) -> None:
    """The control: the oracle does complain about the form that the exporter avoids."""
    bad = "SwitchName=l1 Nodes=n[1-2]\nSwitchName=l2 Nodes=n[1-2]\nSwitchName=top Switches=l[1-2]\n"
    with slurmctld(tmp_path, "n[1-2]", bad) as slurm:
        assert "Multiple leaf switches" in slurm.log.read_text()


def test_heat_becomes_weights_and_is_taken_back(tmp_path: Path) -> None:
    topology = rail_fabric(units=2, hosts=4, rails=2)
    check_rails(topology)
    fabric = compile_fabric(topology)
    state = str(tmp_path / "weights.json")
    config = PlacementConfig(slurm_weight_enabled=True, slurm_weight_step=10)
    with slurmctld(tmp_path / "slurm", ",".join(fabric.hosts), export(topology, "slurm-tree")) as slurm:
        wrapper = tmp_path / "scontrol"
        wrapper.write_text(f'#!/bin/sh\nSLURM_CONF={slurm.conf} exec scontrol "$@"\n')
        wrapper.chmod(0o755)
        control = Scontrol(str(wrapper))
        before = control.weights()
        heat = {"su2": 0.8}
        shown = apply_heat(fabric, heat, control, state, config, write=False)
        assert [change.result for change in shown] == ["planned"] and control.weights() == before
        with pytest.raises(FabricdError, match="slurm_weight_enabled"):
            apply_heat(fabric, heat, control, state, PlacementConfig(), write=True)
        apply_heat(fabric, heat, control, state, config, write=True, now=1000.0)
        hot = {host: weight for host, weight in control.weights().items() if weight != before[host]}
        assert hot == {f"gpu{n:03d}": before["gpu005"] + 8 for n in range(5, 9)}
        with pytest.raises(FabricdError, match="due in"):
            apply_heat(fabric, {}, control, state, config, write=True, now=1100.0)
        slurm.run("update", "NodeName=gpu005", "Weight=77")  # somebody else
        changes = apply_heat(fabric, {"su2": 0.4}, control, state, config, write=True, now=2000.0)
        assert {change.result: change.nodes for change in changes}["conflict"] == ["gpu005"]
        assert control.weights()["gpu005"] == 77 and control.weights()["gpu006"] == before["gpu006"] + 4
        undo(control, state)
        assert control.weights() == {**before, "gpu005": 77}
        assert undo(control, state) == []


def test_the_command_shows_what_it_would_write(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    topology = rail_fabric(units=2, hosts=4, rails=2)
    check_rails(topology)
    file, heat = tmp_path / "topology.json", tmp_path / "heat.json"
    file.write_text(json.dumps(topology.to_json()))
    heat.write_text('{"su1": 1.0}')
    fabric = compile_fabric(topology)
    with slurmctld(tmp_path / "slurm", ",".join(fabric.hosts), export(topology, "slurm-tree")) as slurm:
        wrapper = tmp_path / "scontrol"
        wrapper.write_text(f'#!/bin/sh\nSLURM_CONF={slurm.conf} exec scontrol "$@"\n')
        wrapper.chmod(0o755)
        words = ["place", "weights", "--topology", str(file), "--heat", str(heat), "--state", str(tmp_path / "s")]
        assert main([*words, "--scontrol", str(wrapper), "--json"]) == 0
        shown = json.loads(capsys.readouterr().out)
        assert shown == {
            "written": False,
            "changes": [{"nodes": "gpu[001-004]", "before": 1, "after": 11, "result": "planned"}],
        }
        assert main([*words, "--scontrol", str(wrapper), "--apply"]) == 1  # off by default
        assert "slurm_weight_enabled" in capsys.readouterr().err

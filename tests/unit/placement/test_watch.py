"""Watch mode: writes only what settled, seldom, whole, and says what changed and why."""

from __future__ import annotations

import argparse
import json
from pathlib import Path

import pytest

from fabricd.commands.topo_keep import watch_export
from fabricd.config.placement import PlacementConfig
from fabricd.errors import FabricdError
from fabricd.model.topology import Topology
from fabricd.placement.exporters import export
from fabricd.placement.files import write_atomically
from fabricd.placement.watch import Watcher
from fabricd.topology.railfaults import check_rails
from tests.fabrics import rail_fabric


def fabric(without: frozenset[str] = frozenset()) -> Topology:
    topology = rail_fabric(units=2, hosts=6, rails=2)
    gone = {guid for guid, node in topology.nodes.items() if node.host in without}
    topology.nodes = {guid: node for guid, node in topology.nodes.items() if guid not in gone}
    topology.links = [link for link in topology.links if link.a[0] not in gone and link.b[0] not in gone]
    check_rails(topology)
    return topology


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def watcher(tmp_path: Path, clock: Clock) -> Watcher:
    config = PlacementConfig(export_min_interval_s=60)
    return Watcher("slurm-tree", str(tmp_path / "topology.conf"), config, clock=clock)


def test_first_look_writes_and_an_unchanged_fabric_does_not(watcher: Watcher) -> None:
    first = watcher.look(fabric())
    assert first is not None and first["changes"] == [{"what": "first export", "nodes": 12}]
    assert Path(watcher.out).read_text() == export(fabric(), "slurm-tree")
    stamp = Path(watcher.out).stat().st_mtime_ns
    assert watcher.look(fabric()) is None and Path(watcher.out).stat().st_mtime_ns == stamp


def test_a_change_is_written_when_it_lasts_with_what_and_why(watcher: Watcher, clock: Clock) -> None:
    watcher.look(fabric())
    clock.now = 1000
    changed = frozenset({"gpu003"})
    assert watcher.look(fabric(changed)) is None  # seen once
    assert watcher.look(fabric()) is None  # it was a flap
    assert watcher.look(fabric(changed)) is None
    record = watcher.look(fabric(changed))
    assert record is not None
    assert record["changes"] == [{"what": "left", "nodes": "gpu003", "from": "su1"}]
    assert "ca gone: gpu003 mlx5_0" in record["why"]
    assert "gpu003" not in Path(watcher.out).read_text()


def test_writes_are_rate_limited(watcher: Watcher, clock: Clock) -> None:
    watcher.look(fabric())
    changed = fabric(frozenset({"gpu003"}))
    clock.now = 59
    assert [watcher.look(changed) for _ in range(3)] == [None, None, None]
    clock.now = 60
    assert watcher.look(changed) is not None


def test_a_fabric_seen_badly_is_not_written(watcher: Watcher, clock: Clock) -> None:
    watcher.look(fabric())
    clock.now = 1000
    text = Path(watcher.out).read_text()
    few = fabric(frozenset(f"gpu{n:03d}" for n in range(1, 5)))
    assert [watcher.look(few) for _ in range(3)] == [
        {"refused": "4 of 12 hosts are gone; placement.export_max_loss = 0.2", "format": "slurm-tree"}
    ] * 3
    assert watcher.look(Topology()) == {"refused": "no compute host is seen", "format": "slurm-tree"}
    assert Path(watcher.out).read_text() == text


def test_a_restart_goes_on_from_the_file(watcher: Watcher, clock: Clock) -> None:
    watcher.look(fabric())
    again = Watcher("slurm-tree", watcher.out, watcher.config, clock=clock)
    assert again.look(fabric()) is None
    changed = fabric(frozenset({"gpu003"}))
    assert again.look(changed) is None and again.look(changed) is not None


def test_the_command_reports_each_write(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    args = argparse.Namespace(
        output=str(tmp_path / "t.conf"),
        every=0.1,
        format="slurm-tree",
        config=None,
        names=str(tmp_path / "n"),
        json=True,
    )
    views = iter([fabric(), FabricdError("no answer"), fabric()])

    def read() -> Topology:
        view = next(views)
        if isinstance(view, FabricdError):
            raise view
        return view

    assert watch_export(args, read, looks=3) == 0
    lines = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert lines[0]["written"] == args.output and lines[1] == {"refused": "no answer", "format": "slurm-tree"}
    assert len(lines) == 2 and json.loads(Path(args.names).read_text())["groups"].keys() == {"su1", "su2"}


def test_atomic_write_keeps_mode_and_link(tmp_path: Path) -> None:
    real, link = tmp_path / "real", tmp_path / "link"
    real.write_text("old")
    real.chmod(0o640)
    link.symlink_to(real)
    write_atomically(str(link), "new")
    assert link.is_symlink() and real.read_text() == "new" and real.stat().st_mode & 0o777 == 0o640
    assert sorted(p.name for p in tmp_path.iterdir()) == ["link", "real"]
    with pytest.raises(FabricdError, match="nowhere"):
        write_atomically(str(tmp_path / "nowhere" / "x"), "y")

"""Which means a sweep takes, and what is said when there is none."""

from __future__ import annotations

import stat
import sys
from pathlib import Path

import pytest

from fabricd.config.collector import CollectorConfig
from fabricd.daemons.sweep_process import shard_of
from fabricd.daemons.sweeping import find_targets, find_topology, make_sweeper, open_transport
from fabricd.errors import FabricdError
from fabricd.ib.limits import TidSpace
from fabricd.ib.transport import TransportError
from fabricd.sources.perfquery import PerfquerySweeper

SUBNET = """\
vendid=0x0
devid=0x0
sysimgguid=0x200000
switchguid=0x200000(200000)
Switch	4 "S-0000000000200000"		# "leaf" enhanced port 0 lid 3 lmc 0
[1]	"H-0000000000100000"[1](100001) 		# "host1" lid 4 4xSDR

vendid=0x0
devid=0x0
sysimgguid=0x100000
caguid=0x100000
Ca	1 "H-0000000000100000"		# "host1"
[1](100001) 	"S-0000000000200000"[1]		# lid 4 lmc 0 "leaf" lid 3 4xSDR
"""


def tool(directory: Path, name: str, body: str) -> None:
    path = directory / name
    path.write_text(f"#!{sys.executable}\n{body}\n")
    path.chmod(path.stat().st_mode | stat.S_IXUSR)


def test_without_infiniband_the_device_is_named() -> None:
    with pytest.raises(TransportError, match="umad"):
        open_transport(CollectorConfig(device="mlx5_9"))
    with pytest.raises(TransportError, match="MAD socket 'nobody-there'"):
        open_transport(CollectorConfig(mad_socket="nobody-there"))


def test_a_prefix_makes_perfquery_the_means_and_discovery_takes_it_too(tmp_path: Path) -> None:
    (tmp_path / "net").write_text(SUBNET)
    tool(tmp_path, "sudo", "import os, sys; os.execv(sys.argv[1], sys.argv[1:])")
    tool(tmp_path, "ibnetdiscover", f"print(open({str(tmp_path / 'net')!r}).read())")
    tool(tmp_path, "perfquery", "import sys; sys.exit(1)")
    config = CollectorConfig(device="mlx5_9", perfquery_command=[str(tmp_path / "sudo"), str(tmp_path / "perfquery")])
    assert open_transport(config) is None
    topology, here = find_topology(config, None, "f", TidSpace())
    targets, _ = find_targets(config, topology)
    assert here is None and [(t.name, t.lid, t.ports) for t in targets] == [("leaf", 3, (1, 2, 3, 4))]
    assert isinstance(make_sweeper(config, None, targets, TidSpace()), PerfquerySweeper)


def test_a_discovery_tool_that_fails_is_quoted(tmp_path: Path) -> None:
    tool(tmp_path, "ibnetdiscover", "import sys; sys.exit('ibpanic: no such port')")
    config = CollectorConfig(source="perfquery", perfquery_command=[str(tmp_path / "perfquery")])
    with pytest.raises(FabricdError, match="ibpanic: no such port"):
        find_topology(config, None, "f", TidSpace())
    with pytest.raises(FabricdError, match="No such file"):
        find_topology(CollectorConfig(source="perfquery", perfquery_command=["/none/perfquery"]), None, "f", TidSpace())


def test_a_topology_file_replaces_discovery(tmp_path: Path) -> None:
    (tmp_path / "net").write_text(SUBNET)
    config = CollectorConfig(topology_file=str(tmp_path / "net"), adapters=True)
    targets, _ = find_targets(config, find_topology(config, None, "f", TidSpace())[0])
    assert [(t.kind, t.lid) for t in targets] == [("switch", 3), ("ca", 4)]


def test_shards_divide_all_switches_evenly_enough() -> None:
    counts = [0] * 4
    for guid in range(1000):
        counts[shard_of(0x248A070300F88F40 + guid * 4, 4)] += 1
    assert sum(counts) == 1000 and min(counts) > 180

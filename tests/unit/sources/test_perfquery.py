"""perfquery's text, whole, broken off and hostile; and sweeps by a stand-in command that fails as the tool fails."""

from __future__ import annotations

import stat
import sys
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fabricd.errors import FabricdError
from fabricd.ib.mad import Pma
from fabricd.model.rejects import Rejects
from fabricd.model.sample import Flag
from fabricd.sources.perfquery import PerfquerySweeper
from fabricd.sources.perfquery_text import parse_perfquery
from fabricd.sources.pma_reading import COLUMNS
from fabricd.sources.pma_targets import Target

EXTENDED = """\
# Port extended counters: Lid 3 port 8 (CapMask: 0x5300 CapMask2: 0x0000002)
PortSelect:......................8
CounterSelect:...................0x0000
PortXmitData:....................18446744073709551615
PortRcvData:.....................20
PortXmitPkts:....................30
PortRcvPkts:.....................40
PortUnicastXmitPkts:.............0
PortUnicastRcvPkts:..............0
PortMulticastXmitPkts:...........76
PortMulticastRcvPkts:............0
CounterSelect2:..................0x00000000
SymbolErrorCounter:..............5
PortXmitWait:....................12345678901
"""
BASIC = """\
# Port counters: Lid 3 port 1 (CapMask: 0x1300)
PortSelect:......................1
CounterSelect:...................0x0000
SymbolErrorCounter:..............65535
LinkErrorRecoveryCounter:........1
CounterSelect2:..................0x00
LocalLinkIntegrityErrors:........15
PortXmitData:....................4294967295
PortRcvData:.....................20
PortXmitPkts:....................30
PortRcvPkts:.....................40
PortXmitWait:....................7
"""
VALID, SATURATED = int(Flag.VALID), int(Flag.SATURATED)


def test_whole_blocks() -> None:
    rejects = Rejects()
    wide, basic = parse_perfquery(EXTENDED + "\n" + BASIC, rejects)
    assert not rejects.total
    assert (wide.attribute, wide.lid, wide.port) == (Pma.PORT_COUNTERS_EXTENDED, 3, 8)
    assert wide.capability.mask == 0x5300 and wide.capability.mask2 == 2
    assert wide.values["PortXmitWait"] == 12345678901 and wide.values["PortXmitData"] == 2**64 - 1
    assert basic.attribute is Pma.PORT_COUNTERS and basic.values["LocalLinkIntegrityErrors"] == 15


def test_a_run_that_broke_off_keeps_the_ports_before() -> None:
    rejects = Rejects()
    blocks = parse_perfquery(BASIC + "\n" + "\n".join(EXTENDED.splitlines()[:5]), rejects)
    assert [block.port for block in blocks] == [1]
    assert rejects.counts["perfquery_cut"] == 1


def test_names_of_older_tools() -> None:
    text = "# Port counters: Lid 6 port 2\nXmtData:.....4\nRcvData:.....5\nXmtPkts:.....6\nRcvPkts:.....7\nXmtDiscards:..8\n"
    (block,) = parse_perfquery(text, Rejects())
    assert block.values["PortXmitDiscards"] == 8 and not block.capability.known


@pytest.mark.parametrize(
    ("line", "kind"),
    [
        ("PortRcvErrors:...65536", "perfquery_value"),  # wider than its field
        ("PortRcvErrors:...-1", "perfquery_value"),
        ("PortXmitWait:....8", "perfquery_value"),  # twice
        ("SomethingNew:....8", "perfquery_value"),
        ("PortSelect:......2", "perfquery_value"),  # of another port
        ("ibwarn: [1] mad_rpc: _do_madrpc failed; dport (Lid 3)", "perfquery_line"),
        ("# what is this", "perfquery_heading"),
    ],
)
def test_odd_lines_cost_only_themselves(line: str, kind: str) -> None:
    rejects = Rejects()
    blocks = parse_perfquery(BASIC + line + "\n" + EXTENDED, rejects)
    assert rejects.counts[kind] == 1
    assert blocks[-1].port == 8


@given(st.text(alphabet=st.sampled_from("#PortSelctXmiDa :.0123456789x()LidCapMk\n-\x00é"), max_size=400))
def test_any_text_is_survived(text: str) -> None:
    for block in parse_perfquery(text + "\n" + BASIC, Rejects()):
        assert all(0 <= value < 2**64 for value in block.values.values())


@given(st.integers(0, len(EXTENDED) - 1))
def test_cut_anywhere(at: int) -> None:
    whole, *rest = parse_perfquery(BASIC + EXTENDED[:at], Rejects())
    assert whole.port == 1
    for block in rest:
        assert block.values["PortRcvPkts"] in (4, 40)


def stand_in(directory: Path, body: str) -> list[str]:
    """A perfquery in Python: ``ports`` and ``extended`` are what it was asked for."""
    path = directory / "perfquery"
    path.write_text(
        f"#!{sys.executable}\nimport sys, time\n"
        f"open({str(directory / 'calls')!r}, 'a').write(' '.join(sys.argv[1:]) + chr(10))\n"
        "if '--version' in sys.argv: sys.exit(0)\n"
        "extended = '-x' in sys.argv\nlid = int(sys.argv[-2])\nports = list(map(int, sys.argv[-1].split(',')))\n"
        "def block(port, mask2=0, data=1000, errors=7):\n"
        "    kind = 'extended counters' if extended else 'counters'\n"
        "    caps = f'CapMask: 0x1300 CapMask2: 0x{mask2:07x}' if extended else 'CapMask: 0x1300'\n"
        "    print(f'# Port {kind}: Lid {lid} port {port} ({caps})')\n"
        "    print(f'PortSelect:.....{port}')\n"
        "    for name in ('PortXmitData', 'PortRcvData', 'PortXmitPkts', 'PortRcvPkts'): print(f'{name}:....{data + port}')\n"
        "    print(f'SymbolErrorCounter:....{0 if extended and not mask2 else errors}')\n" + body
    )
    path.chmod(path.stat().st_mode | stat.S_IXUSR)
    return [str(path)]


def target(lid: int, ports: int = 4) -> Target:
    return Target(0x100 + lid, lid, tuple(range(1, ports + 1)), f"sw{lid}")


def test_a_sweep_of_two_kinds_of_switches(tmp_path: Path) -> None:
    command = stand_in(tmp_path, "for p in ports: block(p, mask2=2 if lid == 1 else 0)\n")
    sweeper = PerfquerySweeper([target(1), target(2)], command)
    sweeper.prepare()
    sweep = sweeper.sweep()
    assert sweep.answered == 8 and not sweep.rejects.total
    errors = COLUMNS.index("SymbolErrorCounter")
    for row, (guid, port) in enumerate(zip(sweep.table.guid.tolist(), sweep.table.port.tolist(), strict=True)):
        assert sweep.values[row, 0] == (1000 + port) * 4
        assert sweep.values[row, errors] == 7, guid  # never the zero an old tool prints for what it cannot know
        assert sweep.flags[row, errors] == VALID
    calls = (tmp_path / "calls").read_text().splitlines()
    assert len(calls) == 1 + 3  # version; one for the wide switch, two for the other
    assert not any(option in line.split() for line in calls for option in ("-r", "-R", "--reset_only", "-a"))
    again = sweeper.sweep()
    assert again.table is sweep.table


def test_the_port_that_ends_a_run_costs_only_itself(tmp_path: Path) -> None:
    command = stand_in(
        tmp_path,
        "for p in ports:\n    if p == 2:\n        sys.stdout.flush(); sys.exit('perfquery: iberror: failed: smp query')\n"
        "    block(p, mask2=2)\n",
    )
    sweep = PerfquerySweeper([target(1)], command).sweep()
    assert sorted(sweep.table.port[sweep.flags[:, 0] == VALID].tolist()) == [1, 3, 4]
    assert sweep.answered == 3
    assert sweep.rejects.counts["perfquery_failed"] == 1 and sweep.rejects.counts["perfquery_port"] == 1


def test_a_hanging_tool_keeps_what_it_printed(tmp_path: Path) -> None:
    command = stand_in(
        tmp_path,
        "for p in ports:\n    if lid == 1 and p == 3:\n        sys.stdout.flush(); time.sleep(60)\n    block(p, mask2=2)\n",
    )
    sweep = PerfquerySweeper([target(1), target(2)], command, timeout=1.0).sweep()
    of_first = sweep.table.guid == 0x101
    assert (sweep.flags[~of_first, 0] == VALID).all()
    assert sorted(sweep.table.port[of_first & (sweep.flags[:, 0] == VALID)].tolist()) == [1, 2, 4]
    assert sweep.rejects.counts["perfquery_timeout"] >= 1


def test_a_switch_that_stops_answering_is_silent_and_its_table_stays(tmp_path: Path) -> None:
    dead = tmp_path / "dead"
    command = stand_in(
        tmp_path,
        f"import os\nif lid == 1 and os.path.exists({str(dead)!r}): sys.exit(1)\nfor p in ports: block(p, mask2=2)\n",
    )
    sweeper = PerfquerySweeper([target(1), target(2)], command)
    first = sweeper.sweep()
    dead.touch()
    second = sweeper.sweep()
    assert second.table is first.table and second.answered == 4
    assert [t.name for t in sweeper.silent] == ["sw1"]
    assert not (second.flags[second.table.guid == 0x101] & VALID).any()


def test_a_tool_that_is_not_there() -> None:
    with pytest.raises(FabricdError, match="no-such-perfquery: No such file"):
        PerfquerySweeper([target(1)], ["no-such-perfquery"]).prepare()


def test_full_counters_are_saturated(tmp_path: Path) -> None:
    command = stand_in(tmp_path, "for p in ports: block(p, data=2**64 - 2 - p if extended else 0, errors=65535)\n")
    sweep = PerfquerySweeper([target(1, 1)], command).sweep()
    assert sweep.flags[0, COLUMNS.index("SymbolErrorCounter")] == VALID | SATURATED
    assert sweep.flags[0, 0] == VALID | SATURATED  # more words than bytes fit into 64 bits
    assert np.uint64(sweep.values[0, 0]) > 2**63

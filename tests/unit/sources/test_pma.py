"""The sweep over devices of every kind: capability, saturation, details, probes, redirects, keys, silence."""

from __future__ import annotations

import numpy as np
import pytest

from fabricd.ib.limits import Limits
from fabricd.ib.mad import Pma, Reply
from fabricd.model.sample import Flag
from fabricd.sources.pma import PmaSweeper, SweepOptions
from fabricd.sources.pma_reading import COLUMNS, Sweep
from fabricd.sources.pma_targets import Target
from tests.unit.ib.fake_fabric import FakeFabric, Fate
from tests.unit.sources.fake_agents import QP1, XMIT_WAIT, Agents, Switch

EXT, PC = Pma.PORT_COUNTERS_EXTENDED, Pma.PORT_COUNTERS
VALID, SATURATED, RESET, HIDDEN = (int(f) for f in (Flag.VALID, Flag.SATURATED, Flag.RESET, Flag.NOT_OBSERVABLE))


def fabric_of(*switches: Switch) -> tuple[FakeFabric, list[Target]]:
    agents = Agents(dict(enumerate(switches, 1)))
    targets = [Target(0x100 + lid, lid, (1, 2, 3), f"sw{lid}", device=(2, 54002, 0)) for lid in agents.at]
    return FakeFabric(agents), targets


def sweeper(fabric: FakeFabric, targets: list[Target], **options: object) -> PmaSweeper:
    return PmaSweeper(fabric, targets, Limits(), SweepOptions(**options), clock=fabric.clock)  # type: ignore[arg-type]


def cell(sweep: Sweep, guid: int, port: int, raw: str) -> tuple[int, int]:
    row = np.flatnonzero((sweep.table.guid == guid) & (sweep.table.port == port))[0]
    column = COLUMNS.index(raw)
    return int(sweep.values[row, column]), int(sweep.flags[row, column])


def test_wide_errors_come_from_one_request_narrow_ones_from_a_second() -> None:
    wide, narrow = Switch(mask2=2), Switch()
    wide.set(EXT, 1, PortXmitData=10, PortXmitWait=2**40, SymbolErrorCounter=70_000)
    narrow.set(
        EXT, 1, PortXmitData=20, PortXmitWait=99, SymbolErrorCounter=98
    )  # decoder zeros on hardware: not to be read
    narrow.set(PC, 1, PortXmitWait=2**32 - 1, SymbolErrorCounter=7, LocalLinkIntegrityErrors=15)
    fabric, targets = fabric_of(wide, narrow)
    sweep = sweeper(fabric, targets).sweep()
    assert sweep.answered == 6
    assert cell(sweep, 0x101, 1, "PortXmitData") == (40, VALID)  # words become bytes
    assert cell(sweep, 0x101, 1, "PortXmitWait") == (2**40, VALID)
    assert cell(sweep, 0x101, 1, "SymbolErrorCounter") == (70_000, VALID)
    assert cell(sweep, 0x102, 1, "PortXmitData") == (80, VALID)
    assert cell(sweep, 0x102, 1, "PortXmitWait") == (2**32 - 1, VALID | SATURATED)
    assert cell(sweep, 0x102, 1, "SymbolErrorCounter") == (7, VALID)
    assert cell(sweep, 0x102, 1, "LocalLinkIntegrityErrors") == (15, VALID | SATURATED)
    assert fabric.asked[1, PC, 1] == 0 and fabric.asked[2, PC, 1] == 1


def test_zeros_without_the_capability_are_not_observable() -> None:
    plain = Switch(mask=1 << 10)  # extended without the counters by cast, no XmitWait, no QP1Dropped
    plain.set(EXT, 2, PortUnicastXmitPkts=5, PortXmitPkts=6)
    fabric, targets = fabric_of(plain, Switch(mask=XMIT_WAIT | QP1 | 1 << 9))
    sweep = sweeper(fabric, targets).sweep()
    assert cell(sweep, 0x101, 2, "PortXmitPkts") == (6, VALID)
    for raw in ("PortUnicastXmitPkts", "PortXmitWait", "QP1Dropped"):
        assert cell(sweep, 0x101, 2, raw) == (0, HIDDEN)
        assert cell(sweep, 0x102, 2, raw) == (0, VALID)


def test_a_device_without_extended_counters() -> None:
    old = Switch(mask=XMIT_WAIT)
    old.has.discard(int(EXT))
    old.set(PC, 1, PortXmitData=2**32 - 1, PortRcvPkts=12)
    fabric, targets = fabric_of(old)
    sweep = sweeper(fabric, targets).sweep()
    assert sweep.answered == 3 and fabric.asked[1, EXT, 1] == 0
    assert cell(sweep, 0x101, 1, "PortXmitData") == ((2**32 - 1) * 4, VALID | SATURATED)
    assert cell(sweep, 0x101, 1, "PortRcvPkts") == (12, VALID)
    assert cell(sweep, 0x101, 1, "PortUnicastXmitPkts") == (0, HIDDEN)
    assert sweep.table.definitions(0)[0].width == 32


def test_a_device_that_claims_extended_and_refuses_it_is_read_the_old_way() -> None:
    fabric, targets = fabric_of(Switch())
    fabric.plan = lambda lid, attribute, port, again: Fate(status=0x0C if attribute == EXT else 0)
    sweeps = sweeper(fabric, targets)
    first = sweeps.sweep()
    assert first.rejects.counts["unsupported"] == 1 and first.answered == 0
    assert sweeps.sweep().answered == 3
    assert fabric.asked[1, EXT, 1] == 1


def test_details_are_asked_only_of_ports_whose_errors_moved() -> None:
    switch = Switch()
    switch.set(PC, 2, PortRcvErrors=4)
    switch.set(Pma.RCV_ERROR_DETAILS, 2, PortMalformedPktErrors=4)
    switch.set(Pma.XMIT_DISCARD_DETAILS, 3, PortSwHOQLifetimeLimitDiscards=9)
    fabric, targets = fabric_of(switch)
    sweeps = sweeper(fabric, targets)
    first = sweeps.sweep()
    assert first.details is not None and first.table.port[first.details.rows].tolist() == [2]
    names = [d.name for d in first.details.definitions]
    assert first.details.values[0, names.index("receive_malformed_packet_errors")] == 4
    assert sweeps.sweep().details is None
    switch.set(PC, 3, PortXmitDiscards=9)
    switch.set(PC, 1, PortXmitWait=1000)  # waiting is not an error
    third = sweeps.sweep()
    assert third.details is not None and third.table.port[third.details.rows].tolist() == [3]
    assert third.details.values[0, names.index("transmit_hoq_lifetime_discards")] == 9


def test_a_decrease_is_a_reset_by_someone_else() -> None:
    switch = Switch()
    switch.set(EXT, 1, PortXmitPkts=100)
    fabric, targets = fabric_of(switch)
    sweeps = sweeper(fabric, targets)
    assert sweeps.sweep().counts["resets"] == 0
    switch.set(EXT, 1, PortXmitPkts=3)
    sweep = sweeps.sweep()
    assert sweep.counts["resets"] == 1
    assert cell(sweep, 0x101, 1, "PortXmitPkts") == (3, VALID | RESET)


def test_optional_attributes_are_probed_once_per_device_type_and_read_in_turns() -> None:
    rich = Switch()
    rich.has |= {int(Pma.VL_XMIT_WAIT), int(Pma.RCV_CON_CTRL), int(Pma.SAMPLES_CONTROL)}
    rich.set(Pma.VL_XMIT_WAIT, 2, PortVLXmitWait3=65535, PortVLXmitWait4=8)
    fabric, targets = fabric_of(rich, *(Switch(has=set(rich.has)) for _ in range(3)))
    fabric.agent.at[1] = rich  # type: ignore[attr-defined]
    sweeps = sweeper(fabric, targets, slow_sweeps=2)
    seen: dict[int, int] = {}
    for _ in range(2):
        for side in sweeps.sweep().slow:
            assert side.attributes == (Pma.VL_XMIT_WAIT, Pma.RCV_CON_CTRL)
            names = [f"{d.name}_{d.priority}" for d in side.definitions]
            for row, values, flags in zip(side.rows.tolist(), side.values, side.flags, strict=True):
                seen[row] = seen.get(row, 0) + 1
                if row == 1:
                    assert values[names.index("vl_transmit_wait_3")] == 65535
                    assert flags[names.index("vl_transmit_wait_3")] == VALID | SATURATED
                    assert values[names.index("vl_transmit_wait_4")] == 8
    assert sorted(seen) == list(range(12)) and set(seen.values()) == {1}
    assert sum(count for (_, attribute, _), count in fabric.asked.items() if attribute == Pma.SL_RCV_FECN) <= 2
    assert sweeps.traits[2, 54002, 0].tick == 7
    assert sweeps.wait_tick_bytes(targets[0], 1) == 8


def test_a_silent_agent_is_refused_or_keyed_never_gone() -> None:
    dead = Switch(dead=True)
    fabric, targets = fabric_of(Switch(), dead)
    sweeps = sweeper(fabric, targets)
    sweep = sweeps.sweep()
    assert sweep.answered == 3 and [t.name for t in sweeps.silent] == ["sw2"]
    assert len(sweep.table) == 6
    assert sweep.rejects.counts["refused_or_keyed"] >= 1
    assert not any("gone" in reject.what for reject in sweep.rejects.recent)
    dead.dead = False
    dead.mask2 = 2
    dead.set(EXT, 1, PortXmitWait=2**50)
    sweeps.sweep()  # answers the probe; what it can show is not known yet
    healed = sweeps.sweep()
    assert healed.answered == 6 and cell(healed, 0x102, 1, "PortXmitWait") == (2**50, VALID)


def test_a_key_opens_a_keyed_agent() -> None:
    fabric, targets = fabric_of(Switch(key=0xABCD), Switch())
    closed = sweeper(fabric, targets).sweep()
    assert closed.answered == 3
    keyed = PmaSweeper(fabric, targets, pm_keys=lambda guid: 0xABCD if guid == 0x101 else 0, clock=fabric.clock)
    assert keyed.sweep().answered == 6


def test_a_redirect_is_followed_from_the_next_sweep_on() -> None:
    home, away = Switch(), Switch()
    away.set(EXT, 1, PortXmitPkts=77)
    fabric, targets = fabric_of(home)
    fabric.agent = Agents({1: home, 9: away})
    sweeps = sweeper(fabric, targets)
    assert sweeps.sweep().answered == 3
    home.redirect = (9, 1, 0x80010000)
    plain = fabric.agent.answer if hasattr(fabric.agent, "answer") else fabric.agent
    fabric.plan = lambda lid, attribute, port, again: Fate(status=2 if lid == 1 else 0)
    fabric.agent = lambda lid, mad: home.class_port_info() if lid == 1 else plain(lid, mad)
    moved = sweeps.sweep()
    assert moved.rejects.counts["redirect"] == 2  # one for each of the two attributes
    sweep = sweeps.sweep()
    assert sweep.answered == 3 and cell(sweep, 0x101, 1, "PortXmitPkts") == (77, VALID)


def test_busy_agents_are_asked_again_at_the_end() -> None:
    fabric, targets = fabric_of(Switch(), Switch())
    fabric.plan = lambda lid, attribute, port, again: Fate(
        status=1 if attribute == EXT and port == 2 and not again else 0
    )
    sweep = sweeper(fabric, targets).sweep()
    assert sweep.answered == 6 and sweep.counts["busy"] == 2


def test_a_port_the_device_has_not_is_asked_once() -> None:
    fabric, targets = fabric_of(Switch())
    fabric.plan = lambda lid, attribute, port, again: Fate(status=0x1C if port == 3 and attribute != 1 else 0)
    sweeps = sweeper(fabric, targets)
    first = sweeps.sweep()
    assert first.answered == 2 and first.rejects.counts["invalid"] >= 1
    assert len(sweeps.sweep().table) == 2 and fabric.asked[1, EXT, 3] == 1


def test_an_answer_with_another_ports_number_is_not_taken() -> None:
    fabric, targets = fabric_of(Switch())
    inner = fabric.agent

    def confused(lid: int, mad: bytes) -> bytes | None:
        data = inner(lid, mad)
        if data is None or mad[65] != 2:
            return data
        return data[:1] + b"\x03" + data[2:]

    fabric.agent = confused
    sweep = sweeper(fabric, targets).sweep()
    assert sweep.answered == 2
    assert not (sweep.flags[sweep.table.port == 2] & VALID).any()


def test_dropped_management_datagrams_are_counted() -> None:
    switch = Switch(mask=1 << 9 | QP1)
    fabric, targets = fabric_of(switch)
    sweeps = sweeper(fabric, targets)
    assert sweeps.sweep().qp1_dropped == 0
    switch.set(PC, 1, QP1Dropped=30)
    switch.set(PC, 2, QP1Dropped=12)
    assert sweeps.sweep().qp1_dropped == 42


def test_new_targets_keep_what_is_known_and_a_replaced_device_is_learnt_anew() -> None:
    fabric, targets = fabric_of(Switch(mask2=2), Switch())
    sweeps = sweeper(fabric, targets)
    sweeps.sweep()
    asked = fabric.asked[1, 1, 0]
    sweeps.set_targets([targets[0]])
    assert len(sweeps.sweep().table) == 3 and fabric.asked[1, 1, 0] == asked
    other = Target(0x101, 1, (1, 2, 3), "sw1", device=(2, 54000, 1))
    sweeps.set_targets([other])
    sweeps.sweep()
    assert fabric.asked[1, 1, 0] == asked + 1


def test_nothing_is_ever_set() -> None:
    fabric, targets = fabric_of(Switch())
    methods: set[int] = set()
    inner = fabric.agent

    def watch(lid: int, mad: bytes) -> bytes | None:
        methods.add(mad[3])
        return inner(lid, mad)

    fabric.agent = watch
    sweeps = sweeper(fabric, targets, slow_sweeps=1)
    sweeps.sweep()
    sweeps.sweep()
    assert methods == {0x01}


def test_readings_have_their_own_times() -> None:
    fabric, targets = fabric_of(*(Switch() for _ in range(40)))
    sweep = sweeper(fabric, targets).sweep()
    assert (sweep.reply == Reply.OK).all() and len(set(sweep.when_ns.tolist())) > 1
    assert int(sweep.when_ns.max()) <= sweep.seconds * 1e9 + 1


@pytest.mark.parametrize("count", [0, 1])
def test_few_targets(count: int) -> None:
    fabric, targets = fabric_of(*(Switch() for _ in range(count)))
    assert sweeper(fabric, targets).sweep().answered == 3 * count

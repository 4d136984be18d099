"""Sweeps as frames: what the store decodes is what was read, in chunks, with times, epochs and flags."""

from __future__ import annotations

import numpy as np

from fabricd.ib.limits import Limits
from fabricd.ib.mad import Pma
from fabricd.model.frame import Column, Row, Schema, decode_schema, read_header
from fabricd.model.sample import Flag
from fabricd.sources.pma import PmaSweeper, SweepOptions
from fabricd.sources.pma_frames import FrameMaker
from fabricd.sources.pma_reading import COLUMNS, Sweep
from fabricd.sources.pma_targets import Target
from fabricd.store.decode import view_frame
from fabricd.store.store import Store
from tests.unit.ib.fake_fabric import FakeFabric
from tests.unit.sources.fake_agents import Agents, Switch

EXT, PC = Pma.PORT_COUNTERS_EXTENDED, Pma.PORT_COUNTERS
VALID = int(Flag.VALID)


def setting(*switches: Switch, slow: int = 0) -> PmaSweeper:
    fabric = FakeFabric(Agents(dict(enumerate(switches, 1))))
    targets = [
        Target(
            0x100 + lid,
            lid,
            (1, 2, 3),
            f"sw{lid}",
            rates={1: 400.0},
            labels={1: {"peer": "h", "peer_guid": "", "width": "4"}},
        )
        for lid in range(1, len(switches) + 1)
    ]
    return PmaSweeper(fabric, targets, Limits(), SweepOptions(slow_sweeps=slow), clock=fabric.clock)


def publish(maker: FrameMaker, sweep: Sweep) -> tuple[dict[int, Schema], list[tuple[int, bytes]]]:
    """What goes out: schemas by id, and frames, each after its schema."""
    schemas = {schema.id: schema for schema in maker.schemas(sweep.table)}
    frames = []
    for fresh, sequence, frame in maker.frames(sweep):
        if fresh is not None:
            schemas[fresh.id] = fresh
        frames.append((sequence, frame))
    return schemas, frames


def test_every_cell_arrives() -> None:
    wide, narrow, dead = Switch(mask2=2), Switch(), Switch(dead=True)
    wide.set(EXT, 2, PortXmitData=5, PortXmitWait=2**40)
    narrow.set(PC, 3, PortXmitWait=2**32 - 1)
    sweep = setting(wide, narrow, dead).sweep()
    maker = FrameMaker("c1", "f", 7, rows_per_frame=2)
    maker.ticks = {(0x101, 1): 8}
    schemas, frames = publish(maker, sweep)
    assert len(frames) == 2 + 3  # three wide ports in twos, six others in twos
    seen: dict[tuple[int, int, str], tuple[int, int]] = {}
    for sequence, frame in frames:
        header = read_header(frame)
        assert header.seq == sequence and header.boot == 7 and header.mono_ns == sweep.mono_ns
        schema = decode_schema(schemas[header.schema_id].encode())
        assert schema.kind == "switch" and schema.fabric == "f" and schema.stream == header.stream
        view = view_frame(frame, header)
        for row, values, flags in zip(schema.rows, view.values, view.flags, strict=True):
            for column, value, flag in zip(schema.columns, values.tolist(), flags.tolist(), strict=True):
                seen[row.guid, row.port, column.name] = (value, flag)
                if column.name == "port_transmit_wait":
                    assert column.width == (64 if row.guid == 0x101 else 32) and column.sticky
    assert seen[0x101, 2, "port_transmit_data_bytes"] == (20, VALID)
    assert seen[0x101, 2, "port_transmit_wait"] == (2**40, VALID)
    assert seen[0x102, 3, "port_transmit_wait"] == (2**32 - 1, VALID | int(Flag.SATURATED))
    assert seen[0x103, 1, "port_transmit_data_bytes"] == (0, 0)  # no answer: missing, not zero
    assert seen[0x103, 1, "read_offset"] == (0, 0)
    assert seen[0x101, 1, "read_offset"][1] == VALID
    row = next(r for s in schemas.values() for r in s.rows if (r.guid, r.port) == (0x101, 1))
    assert row.rate_gbps == 400.0 and row.labels == {"peer": "h", "width": "4", "lid": "1", "wait_tick_bytes": "8"}


def test_schemas_are_published_once_and_sequences_go_on() -> None:
    sweeper = setting(Switch(), Switch())
    maker = FrameMaker("c1", "f", 7)
    _, first = publish(maker, sweeper.sweep())
    schemas, second = publish(maker, sweeper.sweep())
    assert not schemas
    assert [s for s, _ in first + second] == list(range(1, len(first + second) + 1))


def test_details_and_optional_counters_have_streams_of_their_own() -> None:
    switch = Switch()
    switch.has |= {int(Pma.VL_XMIT_WAIT)}
    switch.set(PC, 2, PortRcvErrors=3)
    switch.set(Pma.RCV_ERROR_DETAILS, 2, PortVLMappingErrors=3)
    switch.set(Pma.VL_XMIT_WAIT, 1, PortVLXmitWait5=9)
    sweeper = setting(switch, slow=1)
    schemas, frames = publish(FrameMaker("c1", "f", 7), sweeper.sweep())
    by_rows = {
        (
            tuple(r.port for r in schemas[read_header(f).schema_id].rows),
            len(schemas[read_header(f).schema_id].columns),
        ): f
        for _, f in frames
    }
    assert set(by_rows) == {((1, 2, 3), 2 + len(COLUMNS)), ((2,), 2 + 10), ((1, 2, 3), 2 + 16)}
    frame = by_rows[(1, 2, 3), 18]
    header = read_header(frame)
    columns = [(c.name, c.priority) for c in schemas[header.schema_id].columns]
    view = view_frame(frame, header)
    assert view.values[0, columns.index(("vl_transmit_wait", 5))] == 9
    streams = [read_header(f).stream for _, f in frames]
    assert len(set(streams)) == 3


def test_a_port_seen_from_both_sides_is_one_port() -> None:
    """An adapter port that the sweep reads in-band and the agent on its host reads from sysfs."""
    fabric = FakeFabric(Agents({5: Switch()}))
    sweeper = PmaSweeper(fabric, [Target(0xAA, 5, (1,), "host1 HCA-1", kind="ca")], clock=fabric.clock)
    store = Store("f")
    maker = FrameMaker("c1", "f", 7)
    for schema in maker.schemas(sweeper.sweep().table):
        store.open_stream(store.node("c1"), schema, schema.id)
    agent = Schema(
        node="host1",
        fabric="f",
        stream=0,
        boot=1,
        rows=(Row(guid=0xAA, port=1, device="mlx5_0"),),
        columns=(Column(name="port_transmit_wait"),),
    )
    store.open_stream(store.node("host1"), agent, agent.id)
    assert len(store.ports) == 1 and not store.ports.contested()


def test_a_restarted_switch_begins_a_new_epoch_and_is_nobodys_reset() -> None:
    switch = Switch()
    switch.set(EXT, 1, PortXmitPkts=500)
    sweeper = setting(switch, Switch())
    before = sweeper.sweep()
    switch.dead = True
    sweeper.sweep()
    switch.dead = False
    switch.set(EXT, 1, PortXmitPkts=2)
    after = sweeper.sweep()
    first = after.table.guid == 0x101
    assert after.counts["resets"] == 0 and not (after.flags & int(Flag.RESET)).any()
    assert (after.epoch[first] != before.epoch[first]).all()
    assert np.array_equal(after.epoch[~first], before.epoch[~first])

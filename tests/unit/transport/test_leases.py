"""Leases: contenders that see one ordered log agree on one holder; files are freed by the kernel."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fabricd.errors import FabricdError
from fabricd.transport.lease_table import LeaseMessage, LeaseTable
from fabricd.transport.leases import FileLeases

TTL = 10.0


class Broker:
    """Delivers every message to all, in one order, and keeps the last of each shard for newcomers."""

    def __init__(self) -> None:
        self.now = 0.0
        self.members: dict[str, LeaseTable] = {}
        self.retained: dict[int, LeaseMessage] = {}

    def clock(self) -> float:
        return self.now

    def join(self, name: str, shards: int) -> LeaseTable:
        table = LeaseTable(name, shards, TTL, self.clock)
        table.connected()
        for shard, message in self.retained.items():
            table.message(shard, message)
        self.members[name] = table
        return table

    def turn(self, names: list[str], step: float = TTL / 4) -> None:
        """Everyone alive says what is due; the log then reaches all."""
        for name in names:
            for table in self.members.values():
                table.peer(name)
        said = [(shard, message) for name in names for shard, message in self.members[name].due()]
        for shard, message in said:
            self.retained[shard] = message
            for table in self.members.values():
                table.message(shard, message)
        self.now += step

    def check_exclusive(self, names: list[str]) -> None:
        held = [shard for name in names for shard in self.members[name].held]
        assert len(held) == len(set(held)), {name: self.members[name].held for name in names}


def test_the_first_claim_wins_and_the_holder_keeps_it() -> None:
    broker = Broker()
    a, b = broker.join("a", 1), broker.join("b", 1)
    for _ in range(12):
        broker.turn(["a", "b"])
        broker.check_exclusive(["a", "b"])
    assert a.held == {0} and b.held == frozenset() and b.others == {0: "a"}


def test_a_dead_holder_is_replaced_after_its_time() -> None:
    broker = Broker()
    broker.join("a", 1)
    for _ in range(3):
        broker.turn(["a"])
    b = broker.join("b", 1)
    broker.turn(["b"])
    assert b.held == frozenset()  # what is retained gets a whole ttl
    for _ in range(6):
        broker.turn(["b"])
    assert b.held == {0}


def test_a_released_shard_is_taken_at_once() -> None:
    broker = Broker()
    a, b = broker.join("a", 1), broker.join("b", 1)
    for _ in range(3):
        broker.turn(["a", "b"])
    assert a.held == {0}
    for table in broker.members.values():
        table.message(0, LeaseMessage("release", "a"))
    broker.turn(["b"], step=0.1)
    assert b.held == {0}


def test_shards_are_shared_out_fairly() -> None:
    broker = Broker()
    broker.join("a", 8)
    for _ in range(3):
        broker.turn(["a"])
    assert len(broker.members["a"].held) == 8
    broker.join("b", 8)
    for _ in range(8):
        broker.turn(["a", "b"])
        broker.check_exclusive(["a", "b"])
    assert len(broker.members["a"].held) == len(broker.members["b"].held) == 4


def test_without_a_broker_the_fabric_is_watched_all_the_same() -> None:
    now = [0.0]
    table = LeaseTable("a", 2, TTL, lambda: now[0])
    assert table.held == frozenset()
    now[0] = TTL / 2
    assert table.held == {0, 1}
    table.connected()
    assert table.held == frozenset()  # from here on the log decides
    table.message(0, LeaseMessage("claim", "a"))
    table.disconnected()
    now[0] += 10 * TTL
    assert table.held == {0}  # what was held is kept while nothing can be heard


@settings(max_examples=80, deadline=None)
@given(seed=st.integers(0, 10**6), shards=st.integers(1, 6), members=st.integers(2, 4))
def test_never_two_holders_whoever_comes_and_goes(seed: int, shards: int, members: int) -> None:
    rng = random.Random(seed)
    broker = Broker()
    names = [f"m{i}" for i in range(members)]
    alive: list[str] = []
    for _ in range(60):
        for name in names:
            if name not in alive and rng.random() < 0.2:
                broker.join(name, shards)
                alive.append(name)
            elif name in alive and rng.random() < 0.05:
                alive.remove(name)  # dies without a word
                del broker.members[name]
        order = rng.sample(alive, len(alive))
        broker.turn(order, step=rng.uniform(0.1, TTL / 3))
        broker.check_exclusive(alive)
    for _ in range(20):
        broker.turn(alive)
    if alive:
        assert sum(len(broker.members[name].held) for name in alive) == shards


async def until(condition: Callable[[], bool]) -> None:
    for _ in range(2000):
        if condition():
            return
        await asyncio.sleep(0.01)
    raise TimeoutError


def test_files(tmp_path: Path) -> None:
    async def run() -> None:
        first, second = (FileLeases(tmp_path / "leases", name, 2, retry_s=0.02) for name in ("one", "two"))
        seen: list[frozenset[int]] = []
        task = asyncio.create_task(first.run(seen.append))
        await until(lambda: first.held == {0, 1})
        other = asyncio.create_task(second.run(lambda held: None))
        await until(lambda: second.others == {0: "one", 1: "one"})
        assert second.held == frozenset() and seen[-1] == {0, 1}
        task.cancel()
        await until(lambda: second.held == {0, 1})
        assert not second.others
        other.cancel()
        await asyncio.gather(task, other, return_exceptions=True)

    asyncio.run(asyncio.wait_for(run(), 20))


def test_a_directory_that_cannot_be_used(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(FabricdError, match="lease_dir"):
        asyncio.run(FileLeases(tmp_path / "file", "x", 1).run(lambda held: None))

"""The publisher without a broker: what it keeps, counts and remembers over restarts."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

import msgspec
import pytest

from fabricd.config.broker import BrokerConfig
from fabricd.model.frame import Column, Row, Schema
from fabricd.transport.embedded import free_port
from fabricd.transport.publisher import Publisher, _SchemaShelf


def schema(*names: str, boot: int = 1) -> Schema:
    columns = tuple(Column(name=name) for name in names)
    return Schema(node="n", fabric="f", stream=0, boot=boot, rows=(Row(guid=1, port=1),), columns=columns)


def test_schemas_that_spooled_frames_need_come_before_the_current_one(tmp_path: Path) -> None:
    shelf = _SchemaShelf(tmp_path)
    for names in (("a",), ("a", "b")):
        shelf.put(schema(*names), "topic")
    again = _SchemaShelf(tmp_path)
    again.put(schema("a", "b", "c", boot=2), "topic")
    got = [(len(msgspec.json.decode(payload, type=Schema).columns), retain) for _, payload, retain in again.in_order()]
    assert got == [(1, False), (2, False), (3, True)]
    again.forget(keep_old=True)
    assert len(again.in_order()) == 3
    again.forget(keep_old=False)
    assert [retain for _, _, retain in again.in_order()] == [True]
    assert len(list(tmp_path.glob("schema-*.json"))) == 1


def test_restarts_with_one_schema_leave_one_file(tmp_path: Path) -> None:
    for boot in range(20):
        shelf = _SchemaShelf(tmp_path)
        shelf.put(schema("a", boot=boot), "topic")
        assert [retain for _, _, retain in shelf.in_order()] == [True]
    assert len(list(tmp_path.glob("schema-*.json"))) == 1


def test_without_a_broker_frames_wait_on_disk_and_failures_are_counted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def run() -> dict[str, int]:
        publisher = Publisher(BrokerConfig(port=free_port(), spool_mb=1, reconnect_max=0.1), "f", "n", tmp_path, boot=1)
        task = asyncio.create_task(publisher.run())
        publisher.publish_schema(schema("a"))
        publisher.publish_status({"version": "1"})
        for seq in range(300):
            publisher.publish_frame(seq, bytes(8000))
        async with asyncio.timeout(30):
            while True:
                if publisher.stats()["connect_failures"] >= 2:
                    break
                await asyncio.sleep(0.02)

        def refuse(fd: int, parts: object) -> int:
            raise OSError(28, "No space left on device")

        with monkeypatch.context() as patch:
            patch.setattr(os, "writev", refuse)
            publisher.publish_frame(300, b"x")
        stats = publisher.stats()
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        return stats

    stats = asyncio.run(run())
    assert stats["connected"] == 0
    assert 100 < stats["spool_frames"] < 132
    assert stats["dropped"] == 300 - stats["spool_frames"]
    assert (stats["spool_errors"], stats["lost"]) == (1, 1)

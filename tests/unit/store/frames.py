"""Frames for tests of the store."""

from __future__ import annotations

from array import array
from collections.abc import Sequence

from fabricd.model import topics
from fabricd.model.frame import Column, Row, Schema, encode_frame
from fabricd.model.sample import Flag

SECOND = 1_000_000_000
FABRIC = "f"


def schema(
    columns: Sequence[Column] = (Column(name="c"),), rows: int = 1, node: str = "n", stream: int = 0, boot: int = 1,
    guid: int = 100, device: str = "dev", kind: str = "node",
) -> Schema:  # fmt: skip
    return Schema(
        node=node, fabric=FABRIC, stream=stream, boot=boot, columns=tuple(columns),
        rows=tuple(Row(guid=guid + r, port=1, device=f"{device}{r}", driver="mlx5_core", rate_gbps=400) for r in range(rows)),
        kind=kind,  # type: ignore[arg-type]
    )  # fmt: skip


def frame(
    s: Schema,
    seq: int,
    values: Sequence[int],
    flags: Sequence[int] | None = None,
    mono: int | None = None,
    wall: int | None = None,
) -> bytes:
    """One a second unless told otherwise, all valid."""
    mono = (seq + 1) * SECOND if mono is None else mono
    bits = bytes(flags if flags is not None else [Flag.VALID] * len(values))
    return encode_frame(
        s, s.id, seq, mono, 1_700_000_000 * SECOND + mono if wall is None else wall, array("Q", values), bits
    )


def message(s: Schema, payload: bytes, kind: str = "frames", mid: int = 0) -> tuple[bytes, memoryview, bool, int]:
    topic = topics.frames(FABRIC, s.node) if kind == "frames" else topics.backlog(FABRIC, s.node)
    return topic.encode(), memoryview(payload), False, mid


def announcement(s: Schema) -> tuple[bytes, memoryview, bool, int]:
    return topics.schema(FABRIC, s.node, s.stream).encode(), memoryview(s.encode()), True, 0

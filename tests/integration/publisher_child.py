"""A node for tests, as a process of its own that can be killed: publishes numbered frames through the real publisher.

``python -m tests.integration.publisher_child PORT SPOOL NODE RATE SPOOL_MB``. Prints ``boot B`` and then each sequence it handed to
the publisher. SIGUSR1 ends the frames; it goes on delivering what is in its spool.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import time
from array import array
from pathlib import Path

from fabricd.config.broker import BrokerConfig
from fabricd.model.frame import Column, Row, Schema, encode_frame
from fabricd.transport.publisher import Publisher

FABRIC = "default"
COLUMNS = 100


async def main() -> None:
    port, spool, node, rate, spool_mb = sys.argv[1:6]
    boot = int.from_bytes(os.urandom(7), "little")
    broker = BrokerConfig(
        port=int(port),
        spool_mb=int(spool_mb),
        reconnect_max=0.5,
        resend_after=1.0,
        backlog_kb_per_s=50_000,
        keepalive=5,
    )
    publisher = Publisher(broker, FABRIC, node, Path(spool), boot=boot)
    schema = Schema(
        node=node, fabric=FABRIC, stream=0, boot=boot,
        rows=tuple(Row(guid=hash(node) & 0xFFFFFF | 1 << 30, port=p, device="mlx5_0", driver="mlx5_core") for p in (1, 2)),
        columns=tuple(Column(name=f"counter_{c}") for c in range(COLUMNS)),
    )  # fmt: skip
    publisher.publish_schema(schema)
    publisher.publish_status({"version": "test"})
    running = asyncio.create_task(publisher.run())
    ended = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGUSR1, ended.set)
    print("boot", boot, flush=True)
    schema_id, seq = schema.id, 0
    while not ended.is_set():
        values = array("Q", [seq * 10 + c for c in range(2 * COLUMNS)])
        publisher.publish_frame(
            seq,
            encode_frame(schema, schema_id, seq, time.monotonic_ns(), time.time_ns(), values, b"\1" * (2 * COLUMNS)),
        )
        print(seq, flush=True)
        seq += 1
        await asyncio.sleep(1 / float(rate))
    await running


asyncio.run(main())

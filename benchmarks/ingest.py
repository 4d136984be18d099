"""Ingest against mosquitto_sub: CPU per 8 kB frame, both on one mosquitto, in one run.

``mosquitto_sub`` only receives and prints. Ours receives, checks every frame's crc, keeps the ledger, and takes it into the columns
with movements and flags. Three cases: QoS 0 without the recording (``aggregator.qos = 0, record = false``), QoS 0 with it, and QoS 1
with every frame on disk before it is acknowledged (the default). One publisher process sends the same frames at the same pace to
each subscriber in turn. CPU is user + system of the whole subscriber process from the end of a warm-up (two frames a node, which
open the streams) to the end of the run.

    python -m benchmarks.ingest [--frames N] [--rate N] [--rounds N] [--json]
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import resource
import shutil
import statistics
import struct
import subprocess
import sys
import tempfile
import threading
import time
from array import array
from pathlib import Path

from fabricd.model import topics
from fabricd.model.frame import Column, Row, Schema, encode_frame
from fabricd.transport.embedded import free_port

FABRIC = "bench"
ROWS, COLUMNS = 8, 112  # 896 cells of 9 bytes: 8136 bytes a frame
# name: (QoS, with recording, budget as a multiple of mosquitto_sub or None)
CASES: dict[str, tuple[int, bool, float | None]] = {
    "qos0_live": (0, False, 2.0),
    "qos0_recorded": (0, True, None),
    "qos1_stored": (1, True, 3.0),
}


def schema_of(node: int, boot: int) -> Schema:
    return Schema(
        node=f"host{node:05d}",
        fabric=FABRIC,
        stream=0,
        boot=boot,
        rows=tuple(Row(guid=(node + 1) << 16 | r, port=1, device=f"mlx5_{r}", driver="mlx5_core") for r in range(ROWS)),
        columns=tuple(Column(name=f"counter_{c}", unit="bytes") for c in range(COLUMNS)),
    )


def _publish(port: int, qos: int, frames: int, nodes: int, rate: float, boot: int) -> None:
    """Child: encode everything first, then send at ``rate`` frames a second; waits for a line on stdin in between."""
    schemas = [schema_of(n, boot) for n in range(nodes)]
    names = [topics.frames(FABRIC, s.node).encode() for s in schemas]
    packets = []
    for i in range(frames):
        schema = schemas[i % nodes]
        now = 1_000_000_000 * (1 + i // nodes)
        values = array("Q", range(i, i + ROWS * COLUMNS))
        frame = encode_frame(schema, schema.id, i // nodes, now, time.time_ns(), values, b"\1" * (ROWS * COLUMNS))
        packets.append(_packet(names[i % nodes], frame, qos, i % 65535 + 1))
    import socket

    link = socket.create_connection(("127.0.0.1", port))
    link.sendall(b"\x10\x0f\x00\x04MQTT\x04\x02\x00\x00\x00\x03pub")
    link.recv(4)
    for schema in schemas:
        topic = topics.schema(FABRIC, schema.node, 0).encode()
        link.sendall(_packet(topic, schema.encode(), 0, 0))

    def drain() -> None:
        while link.recv(65536):
            pass

    threading.Thread(target=drain, daemon=True).start()
    print("ready", flush=True)
    sys.stdin.readline()
    for first, last in ((0, 2 * nodes), (2 * nodes, frames)):
        began = time.perf_counter()
        step = max(1, int(rate / 500))
        for at in range(first, last, step):
            link.sendall(b"".join(packets[at : min(at + step, last)]))
            ahead = began + (at - first) / rate - time.perf_counter()
            if ahead > 0:
                time.sleep(ahead)
        print("sent", flush=True)
        sys.stdin.readline()


def _packet(topic: bytes, payload: bytes, qos: int, mid: int) -> bytes:
    body = struct.pack(">H", len(topic)) + topic + (struct.pack(">H", mid) if qos else b"") + payload
    length, out = len(body), bytearray()
    while True:
        length, low = length >> 7, length & 127
        out.append(low | (128 if length else 0))
        if not length:
            break
    return bytes([0x30 | qos << 1]) + bytes(out) + body


async def _ingest(port: int, qos: int, frames: int, directory: str, record: bool) -> None:
    """Child: the aggregator's own receiver, until ``frames`` are stored."""
    from fabricd.config.aggregator import AggregatorConfig
    from fabricd.config.broker import BrokerConfig
    from fabricd.store.ingest import Ingest
    from fabricd.store.receiver import Receiver
    from fabricd.store.recording import Recording
    from fabricd.store.store import Store

    store = Store(FABRIC)
    ingest = Ingest(store, FABRIC)
    recording = Recording(Path(directory), 8 << 30, ingest.preamble, 256 << 20) if record else None
    ingest.recording = recording
    done = "stored" if record else "frames"
    receiver = Receiver(BrokerConfig(port=port), AggregatorConfig(qos=qos), ingest, recording, f"bench-{qos}")
    task = asyncio.create_task(receiver.run())
    while True:
        if receiver.connected:
            break
        await asyncio.sleep(0.02)
    print("ready", flush=True)
    began = None
    while ingest.counts[done] < frames:
        if began is None and ingest.counts[done]:
            began = time.monotonic()
        if began is not None and time.monotonic() - began > 120:
            break
        await asyncio.sleep(0.05)
    await asyncio.sleep(0.3)
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    used = resource.getrusage(resource.RUSAGE_SELF)
    taken = sum(stream.seq >= 0 for node in store.nodes.values() for stream in node.streams.values())
    print(
        json.dumps(
            {
                "cpu": used.ru_utime + used.ru_stime, "stored": ingest.counts[done], "streams": taken,
                "rejects": ingest.rejects.total, "rss_mb": used.ru_maxrss / 1024,
            }
        ),
        flush=True,
    )  # fmt: skip


def _cpu(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def _run_one(
    subscriber: str, port: int, case: str, frames: int, nodes: int, rate: float, scratch: str, turn: int
) -> dict[str, float]:
    qos, record, _ = CASES[case]
    me = [sys.executable, "-m", "benchmarks.ingest"]
    shape = [str(port), str(qos), str(frames)]
    publisher = subprocess.Popen(
        [*me, "--publish", *shape, str(nodes), str(rate), str(turn)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert publisher.stdin and publisher.stdout
    publisher.stdout.readline()
    if subscriber == "mosquitto_sub":
        wanted = topics.of_all_nodes(FABRIC, "frames")
        child = subprocess.Popen(
            ["mosquitto_sub", "-p", str(port), "-q", str(qos), "-t", wanted, "-C", str(frames)],
            stdout=subprocess.DEVNULL,
        )
        time.sleep(1)
    else:
        child = subprocess.Popen(
            [*me, "--ingest", *shape, f"{scratch}/{turn}", str(int(record))], stdout=subprocess.PIPE, text=True
        )
        assert child.stdout
        child.stdout.readline()
        time.sleep(0.5)
    publisher.stdin.write("warm up\n")
    publisher.stdin.flush()
    publisher.stdout.readline()
    time.sleep(1)
    before = _cpu(child.pid)
    publisher.stdin.write("go\n")
    publisher.stdin.flush()
    result: dict[str, float] = {}
    if subscriber == "mosquitto_sub":
        _, _, used = os.wait4(child.pid, 0)
        result["cpu"] = used.ru_utime + used.ru_stime
    else:
        result = json.loads(child.communicate(timeout=300)[0])
        if result["stored"] != frames or result["rejects"]:
            raise SystemExit(f"only {result['stored']} of {frames} frames stored, {result['rejects']} rejects")
    publisher.communicate("end\n")
    shutil.rmtree(f"{scratch}/{turn}", ignore_errors=True)
    result["us_per_frame"] = (result["cpu"] - before) / (frames - 2 * nodes) * 1e6
    return result


def measure(frames: int, nodes: int, rate: float, rounds: int) -> dict[str, object]:
    with tempfile.TemporaryDirectory(prefix="fabricd-bench-", dir="/var/tmp") as scratch:
        port = free_port()
        conf = Path(scratch) / "mosquitto.conf"
        conf.write_text(
            f"listener {port} 127.0.0.1\nallow_anonymous true\nmax_inflight_messages 0\nmax_queued_messages 0\n"
        )
        broker = subprocess.Popen(["mosquitto", "-c", str(conf)], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        try:
            time.sleep(0.5)
            out: dict[str, object] = {
                "frames": frames,
                "frame_bytes": 8136,
                "nodes": nodes,
                "rate": rate,
                "rounds": rounds,
            }
            turn = 0
            for case, (_, _, budget) in CASES.items():
                cpu: dict[str, list[float]] = {"mosquitto_sub": [], "fabricd": []}
                memory = 0.0
                for _ in range(rounds):
                    for subscriber, found in cpu.items():
                        turn += 1
                        one = _run_one(subscriber, port, case, frames, nodes, rate, scratch, turn)
                        found.append(one["us_per_frame"])
                        memory = max(memory, one.get("rss_mb", 0.0))
                theirs, ours = statistics.median(cpu["mosquitto_sub"]), statistics.median(cpu["fabricd"])
                out[case] = {
                    "mosquitto_sub_us": round(theirs, 2), "fabricd_us": round(ours, 2), "ratio": round(ours / theirs, 2),
                    "budget": budget, "ok": budget is None or ours / theirs <= budget, "rss_mb": round(memory),
                    "all_us": {name: [round(v, 2) for v in values] for name, values in cpu.items()},
                }  # fmt: skip
            return out
        finally:
            broker.terminate()
            broker.wait()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--frames", type=int, default=22_000)
    parser.add_argument("--nodes", type=int, default=1000)
    parser.add_argument("--rate", type=float, default=5000, help="frames a second (1000 nodes at 5 Hz, 5000 at 1 Hz)")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--publish", nargs=6, help=argparse.SUPPRESS)
    parser.add_argument("--ingest", nargs=5, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.publish:
        port, qos, frames, nodes, rate, boot = args.publish
        _publish(int(port), int(qos), int(frames), int(nodes), float(rate), int(boot))
        return
    if args.ingest:
        port, qos, frames, directory, record = args.ingest
        asyncio.run(_ingest(int(port), int(qos), int(frames), directory, record == "1"))
        return
    result = measure(args.frames, args.nodes, args.rate, args.rounds)
    if args.json:
        print(json.dumps(result))
        return
    for case, (_, _, budget) in CASES.items():
        one = result[case]
        assert isinstance(one, dict)
        allowed = f"budget {budget}x" if budget is not None else "no budget"
        print(
            f"{case}: {one['fabricd_us']} us a frame, mosquitto_sub {one['mosquitto_sub_us']}: {one['ratio']}x ({allowed})"
        )


if __name__ == "__main__":
    main()

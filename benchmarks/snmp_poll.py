"""Rows a second of the SNMP poller beside net-snmp's snmpbulkwalk on the same agents and objects, SNMPv3 with privacy.

python -m benchmarks.snmp_poll [--agents N] [--ports N] [--workers N] [--json]
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from contextlib import ExitStack
from pathlib import Path

PFC = "1.3.6.1.4.1.9.9.813.1.2.1"  # CISCO-PFC-EXT-MIB: requests .2, indications .3, by port and priority


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--agents", type=int, default=4)
    parser.add_argument("--ports", type=int, default=128)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--json", action="store_true")
    args = parser.parse_args(arguments)
    sys.path.insert(0, str(Path(__file__).parents[1]))
    from fabricd.devices.snmp.targets import load_targets
    from fabricd.sources.snmp_poll import SnmpPoller
    from tests.integration import snmp_bench
    from tests.integration.twin_tools import TOOLS_PATH

    lines = [
        f"override .{PFC}.{column}.{port}.{priority} counter {port * 8 + priority}"
        for column in (2, 3) for port in range(1, args.ports + 1) for priority in range(8)
    ]  # fmt: skip
    with ExitStack() as stack:
        agents = []
        for number in range(args.agents):
            agent = snmp_bench.Snmpd(Path(stack.enter_context(tempfile.TemporaryDirectory())))
            with agent.file.open("a") as file:
                file.write("\n".join(lines) + "\n")
            agent.start()
            stack.callback(agent.stop)
            agents.append((f"sw{number}", agent))
        directory = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        rows = {
            name: (f"127.0.0.1:{agent.port}", "cisco", f'user = "fabmon"\nguid = "0x{number + 1:016x}"')
            for number, (name, agent) in enumerate(agents)
        }
        targets = load_targets(*snmp_bench.write_targets(directory, rows))
        poller = stack.enter_context(SnmpPoller(targets.values(), "bench", "default", 1, workers=args.workers))
        poller.poll()  # starts the workers, identifies, finds missing objects
        polls = [poller.poll() for _ in range(3)]
        best = min(polls, key=lambda poll: poll.seconds)
        keys = (
            "-v3",
            "-l",
            "authPriv",
            "-u",
            "fabmon",
            "-a",
            "SHA-256",
            "-A",
            snmp_bench.AUTH,
            "-x",
            "AES",
            "-X",
            snmp_bench.PRIVACY,
        )
        before, start = resource.getrusage(resource.RUSAGE_CHILDREN), time.monotonic()
        walked = 0
        for _, agent in agents:
            done = subprocess.run(
                ["snmpbulkwalk", "-Cr25", "-On", *keys, f"127.0.0.1:{agent.port}", PFC],
                env=os.environ | {"PATH": TOOLS_PATH, "MIBS": ""}, capture_output=True, text=True, timeout=120, check=True,
            )  # fmt: skip
            walked += done.stdout.count("\n")
        seconds, after = time.monotonic() - start, resource.getrusage(resource.RUSAGE_CHILDREN)
    document = {
        "agents": args.agents,
        "workers": args.workers,
        "rows": best.rows,
        "poller_rows_per_s": round(best.rows / best.seconds),
        "snmpbulkwalk_rows_per_s": round(walked / seconds),
        "snmpbulkwalk_cpu_s": round(after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime, 3),
        "ratio": round(best.rows / best.seconds / (walked / seconds), 2),
    }
    print(json.dumps(document) if args.json else "\n".join(f"{key}: {value}" for key, value in document.items()))
    return 0


if __name__ == "__main__":
    sys.exit(main())

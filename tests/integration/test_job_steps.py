"""The step time of a job, observed live: agents read trees whose counters move in steps, the api names the period."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from tests.integration.pipeline import wait_for
from tests.integration.test_up import Up, get
from tests.sysfs_tree import SysfsTree

STEP_S, BURST_S, RATE = 1.6, 0.6, 40e9
INTERVAL_S = 0.1


def sent_words(elapsed: float) -> int:
    steps, inside = divmod(elapsed, STEP_S)
    return int((steps * BURST_S + min(inside, BURST_S)) * RATE) // 4


@pytest.mark.timeout(300)
@pytest.mark.parametrize("step_sampling", [True, False])
def test_a_step_is_found_only_with_readings_between(tmp_path: Path, step_sampling: bool) -> None:
    jobs = tmp_path / "jobs.toml"
    jobs.write_text('[[jobs]]\nid = "llm"\nnodes = ["gpu1", "gpu2"]\n')
    config = tmp_path / "up.toml"
    config.write_text(f'[jobs]\nsource = "file"\nfile = "{jobs}"\npoll_s = 0.04\n')
    trees = {}
    for name in ("gpu1", "gpu2"):
        trees[name] = SysfsTree(tmp_path / name)
        trees[name].device("mlx5_0", "mlx5_core", guid=int(name[-1]), address="0000:01:00.0")
    files = [Path(tree.port_file("mlx5_0", "counters/port_xmit_data")) for tree in trees.values()]
    stop, began = threading.Event(), time.monotonic()

    def move() -> None:
        while not stop.wait(0.01):
            for file in files:
                file.write_text(f"{sent_words(time.monotonic() - began)}\n")

    mover = threading.Thread(target=move)
    mover.start()
    up = Up("--json", "--config", str(config))
    agents = []
    try:
        found: dict[str, Any] = json.loads(up.line())
        port = found["broker"].rsplit(":", 1)[1]
        for name, tree in trees.items():
            settings = tmp_path / f"{name}.toml"
            settings.write_text(
                f'[broker]\nport = {port}\n[agent]\nnode = "{name}"\nsysfs = "{tree.root}"\ninterval = {INTERVAL_S}\n'
                f'spool_dir = "{tmp_path / f"spool-{name}"}"\nstep_sampling = {str(step_sampling).lower()}\n'
            )
            agents.append(subprocess.Popen([sys.executable, "-m", "fabricd", "agent", "--config", str(settings)]))

        def step() -> dict[str, Any]:
            jobs_seen = json.loads(get(f"{found['api']}/jobs"))["jobs"]
            return (jobs_seen and jobs_seen[0]["step"]) or {"seconds": None, "reason": ""}

        if step_sampling:
            wait_for(lambda: step()["seconds"] is not None, "a step time is found", 200)
            assert step()["seconds"] == pytest.approx(STEP_S, rel=0.05)
        else:
            wait_for(lambda: "second sampling" in step()["reason"], "it says what is missing", 60)
    finally:
        for agent in agents:
            agent.terminate()
        for agent in agents:
            agent.wait(10)
        up.stop(15)
        stop.set()
        mover.join()

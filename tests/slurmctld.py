"""A real slurmctld on loopback with nodes that exist only in its configuration; no munge, no slurmd."""

from __future__ import annotations

import os
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Slurm:
    conf: Path
    log: Path

    def run(self, *words: str, check: bool = True) -> str:
        """``scontrol`` against this controller."""
        done = subprocess.run(
            ["scontrol", *words], env=self.environ, capture_output=True, text=True, timeout=30, check=False
        )
        assert not check or done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    @property
    def environ(self) -> dict[str, str]:
        return {**os.environ, "SLURM_CONF": str(self.conf)}


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@contextmanager
def slurmctld(directory: Path, nodes: str, topology: str, plugin: str = "topology/tree") -> Iterator[Slurm]:
    """Start the controller with a topology.conf; it is up when scontrol answers."""
    for name in ("state", "spool"):
        (directory / name).mkdir(parents=True, exist_ok=True)
    (directory / "topology.conf").write_text(topology)
    conf = directory / "slurm.conf"
    conf.write_text(
        f"""ClusterName=test
SlurmctldHost={socket.gethostname().split(".")[0]}(127.0.0.1)
SlurmctldPort={free_port()}
SlurmdPort={free_port()}
AuthType=auth/none
CredType=cred/none
SlurmUser=root
StateSaveLocation={directory}/state
SlurmdSpoolDir={directory}/spool
SlurmctldPidFile={directory}/ctld.pid
SlurmctldLogFile={directory}/ctld.log
TopologyPlugin={plugin}
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SelectType=select/linear
MpiDefault=none
NodeName={nodes} NodeAddr=127.0.0.1 CPUs=1 State=UNKNOWN
PartitionName=all Nodes=ALL Default=YES State=UP
"""
    )
    slurm = Slurm(conf, directory / "ctld.log")
    daemon = subprocess.Popen(
        ["slurmctld", "-D", "-f", str(conf)], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, env=slurm.environ
    )
    try:
        deadline = time.monotonic() + 60
        while "is UP" not in slurm.run("ping", check=False):
            assert daemon.poll() is None, slurm.log.read_text()[-2000:]
            assert time.monotonic() < deadline, "slurmctld did not come up"
            time.sleep(0.1)
        yield slurm
    finally:
        # Its orderly shutdown waits for threads that do not exist here; the state is thrown away with the directory.
        daemon.kill()
        daemon.wait()

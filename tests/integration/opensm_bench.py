"""A real opensm on a twin's subnet with the adapter beside it, for tests and for the benchmark."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from fabricd.control.adapters.opensm import OpenSmAdapter
from fabricd.devices.base import DeviceUnreachable
from fabricd.devices.opensm.host import LocalHost
from fabricd.ib.gets import GetRequest, build
from fabricd.ib.ibsim import SimTransport
from fabricd.ib.limits import Limits
from fabricd.ib.scheduler import Scheduler
from fabricd.model.action import Change, Lever
from tests.integration.twin_tools import OpenSm, Tools, running_twin

QOS = "qos TRUE\nmax_op_vls 3\nqos_max_vls 4\nqos_high_limit 4\nqos_vlarb_high 1:32\nqos_vlarb_low 0:64,1:64\nqos_sl2vl {}\n"
LEVELS = "0,1,0,1,0,1,0,1,0,1,0,1,0,1,0,1"


class DirectGetter:
    """The reader seam straight onto the twin's MAD socket, without a collector."""

    def __init__(self, base: str, host: str) -> None:
        self._transport = SimTransport(base, host)
        self._scheduler = Scheduler(self._transport, Limits())

    def __call__(self, attribute: str, lid: int, port: int, in_port: int, block: int) -> bytes:
        answers = []
        request = build(GetRequest(attribute, lid, port, in_port, block))
        self._scheduler.submit(request, answers.append)
        self._scheduler.run()
        if not answers[0].ok:
            raise DeviceUnreachable(f"{attribute} of LID {lid}: {answers[0].reply.name}")
        return bytes(answers[0].data[:64])

    def close(self) -> None:
        self._transport.close()


class Bench:
    """``manager`` is opensm, ``adapter`` ours; ``extra`` options may name files by ``{dir}``."""

    def __init__(self, addresses: dict[str, Any], directory: Path, extra: str = "") -> None:
        self.tools, self.directory = Tools(addresses["mad_socket"], directory), directory
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self.console = int(probe.getsockname()[1])
        self.policy, self.partitions = directory / "qos-policy.conf", directory / "partitions.conf"
        self.policy.write_text("")
        self.partitions.write_text("Default=0x7fff, ipoib : ALL=full, SELF=full ;\n")
        self.options = (
            f"console loopback\nconsole_port {self.console}\nlfts_file {directory / 'lfts.conf'}\n"
            f"qos_policy_file {self.policy}\npartition_config_file {self.partitions}\n{QOS.format(LEVELS)}{extra}"
        )
        self.home = directory / "opensm"
        self.start()
        # At another host than the manager, whose answers would else come to both.
        hosts = [line.split()[2] for line in self.tools.run("ibhosts").splitlines() if line.startswith("Ca")]
        self.getter = DirectGetter(addresses["mad_socket"], f"H-{int(hosts[-1], 16):016x}")
        self.adapter = OpenSmAdapter(
            self.host(), str(self.conf), str(self.home), self.getter, console=True, hangup=True, within_s=30
        )

    def start(self) -> None:
        """A (new) opensm with files as they were at first: UFM too writes opensm.conf anew at every start."""
        if self.home.exists():
            self.manager.stop()
            self.home.rename(self.directory / f"before-{self.manager._process.pid}")
        self.manager = OpenSm(self.tools, self.home, self.options)
        self.manager.wait_up()
        self.pid_file.write_text(f"{self.manager._process.pid}\n")

    @property
    def conf(self) -> Path:
        return self.home / "opensm.conf"

    @property
    def pid_file(self) -> Path:
        return self.directory / "opensm.pid"

    def host(self) -> LocalHost:
        return LocalHost(
            log=self.home / "opensm.log",
            pid_file=self.pid_file,
            console_address=("127.0.0.1", self.console),
            directories=(self.home, self.directory),
        )

    def change(self, name: str, key: str, new: Any, device: str = "sm") -> Change:
        """A change from what the lever holds now."""
        lever = Lever(adapter="opensm", device=device, name=name, key=key)
        return Change(lever=lever, old=self.adapter.read(lever), new=new)

    def close(self) -> None:
        self.manager.stop()
        self.getter.close()


@contextmanager
def opensm_bench(directory: Path, *, hosts: int = 8, extra: str = "", scenario: str = "quiet") -> Iterator[Bench]:
    with running_twin(scenario, "--kind", "infiniband", "--hosts", str(hosts), "--no-manager") as addresses:
        bench = Bench(addresses, directory, extra)
        try:
            yield bench
        finally:
            bench.close()

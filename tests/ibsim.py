"""A simulated InfiniBand fabric for tests: .net generators, and a context manager that runs ibsim with opensm on one.

    with Fabric(leaf_spine(4, 2, hosts=4)) as fabric:
        fabric.run("ibnetdiscover")                      # any unmodified tool, under ibsim-run
        fabric.console('PerformanceSet "leaf00"[1] PortCounters.PortXmitWait=7')
        SimTransport(fabric.socket_name, host=fabric.hosts[1])

Each fabric has a socket name of its own, so several may run side by side; everything is stopped by process id. ibsim accepts
ten clients at once (compiled in), and the tools write a ``sys-PID`` directory into their working directory: it is on tmpfs.
"""

from __future__ import annotations

import contextlib
import math
import os
import shutil
import subprocess
import tempfile
import time
import uuid
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import combinations, product
from pathlib import Path
from types import TracebackType

PRELOAD = "/usr/lib/x86_64-linux-gnu/umad2sim/libumad2sim.so"


@dataclass
class Net:
    """A fabric as ibsim reads it. Ports are handed out from 1 upwards unless given."""

    switches: dict[str, int] = field(default_factory=dict)  # name -> number of ports
    hosts: dict[str, int] = field(default_factory=dict)
    links: dict[tuple[str, int], tuple[str, int]] = field(default_factory=dict)  # both directions

    def switch(self, name: str, ports: int) -> str:
        self.switches[name] = ports
        return name

    def host(self, name: str, ports: int = 1) -> str:
        self.hosts[name] = ports
        return name

    def link(self, a: str, b: str, port_a: int | None = None, port_b: int | None = None) -> None:
        """Connect two nodes; raises ValueError when a node has no such free port."""
        end_a = (a, port_a or self._free(a))
        end_b = (b, port_b or self._free(b))
        for end in (end_a, end_b):
            if end in self.links or end[1] > self._ports(end[0]):
                raise ValueError(f"no free port {end}")
        self.links[end_a] = end_b
        self.links[end_b] = end_a

    def _ports(self, name: str) -> int:
        return self.switches.get(name) or self.hosts[name]

    def _free(self, name: str) -> int:
        return next(p for p in range(1, self._ports(name) + 2) if (name, p) not in self.links)

    @property
    def switch_ports(self) -> int:
        return sum(self.switches.values())

    def text(self) -> str:
        """The .net file. The first node is the first host: opensm sits there."""
        first, *others = self.hosts
        order = [
            ("Hca", first, self.hosts[first]),
            *(("Switch", name, ports) for name, ports in self.switches.items()),
            *(("Hca", name, self.hosts[name]) for name in others),
        ]
        by_node: dict[str, list[str]] = {}
        for (name, port), (peer, peer_port) in sorted(self.links.items()):
            by_node.setdefault(name, []).append(f'[{port}] "{peer}"[{peer_port}]')
        return "\n".join(
            "\n".join([f'{kind} {ports} "{name}"', *by_node.get(name, []), ""]) for kind, name, ports in order
        )


def _digits(count: int) -> int:
    return max(2, len(str(count - 1)))


class _HostNames:
    def __init__(self, total: int) -> None:
        self.width = max(3, len(str(total)))
        self.next = 0

    def take(self) -> str:
        self.next += 1
        return f"h{self.next - 1:0{self.width}d}"


def leaf_spine(leaves: int, spines: int, hosts: int, uplinks: int | None = None, ports: int | None = None) -> Net:
    """A two-level fat tree: ``hosts`` per leaf, ``uplinks`` per leaf spread over the spines (default: one to each)."""
    net = Net()
    uplinks = spines if uplinks is None else uplinks
    size = ports or max(hosts + uplinks, math.ceil(leaves * uplinks / spines))
    leaf_names = [net.switch(f"leaf{i:0{_digits(leaves)}d}", size) for i in range(leaves)]
    spine_names = [net.switch(f"spine{i:0{_digits(spines)}d}", size) for i in range(spines)]
    names = _HostNames(leaves * hosts)
    for leaf in leaf_names:
        for _ in range(hosts):
            net.link(leaf, net.host(names.take()))
        for up in range(uplinks):
            net.link(leaf, spine_names[up % spines])
    return net


def three_tier(
    pods: int, leaves: int, aggs: int, cores: int, hosts: int, ports: int, leaf_links: int = 1, core_links: int = 1
) -> Net:
    """A three-level fat tree: per pod ``leaves`` × ``aggs`` fully meshed; agg i of each pod to its own share of the cores."""
    net = Net()
    core_names = [net.switch(f"core{i:0{_digits(cores)}d}", ports) for i in range(cores)]
    names = _HostNames(pods * leaves * hosts)
    share = cores // aggs
    for pod in range(pods):
        agg_names = [net.switch(f"agg{pod:02d}x{i:02d}", ports) for i in range(aggs)]
        for i in range(leaves):
            leaf = net.switch(f"leaf{pod:02d}x{i:02d}", ports)
            for _ in range(hosts):
                net.link(leaf, net.host(names.take()))
            for up in range(aggs * leaf_links):
                net.link(leaf, agg_names[up % aggs])
        for i, agg in enumerate(agg_names):
            for up in range(share * core_links):
                net.link(agg, core_names[i * share + up % share])
    return net


def dragonfly(groups: int, routers: int, hosts: int) -> Net:
    """Groups of fully meshed routers; one global link between each two groups, spread over the routers."""
    net = Net()
    size = hosts + (routers - 1) + math.ceil((groups - 1) / routers) + 1
    names = _HostNames(groups * routers * hosts)
    members = [[net.switch(f"g{g:02d}r{r:02d}", size) for r in range(routers)] for g in range(groups)]
    for group in members:
        for router in group:
            for _ in range(hosts):
                net.link(router, net.host(names.take()))
        for a, b in combinations(group, 2):
            net.link(a, b)
    for a, b in combinations(range(groups), 2):
        net.link(members[a][(b - 1) % routers], members[b][a % routers])
    return net


def torus(dims: Sequence[int], hosts: int = 1) -> Net:
    """An n-dimensional torus, one switch per point; a dimension of length 2 has a single link."""
    net = Net()
    points = list(product(*(range(d) for d in dims)))
    names = _HostNames(len(points) * hosts)
    switch = {p: net.switch("t" + "x".join(map(str, p)), hosts + 2 * len(dims)) for p in points}
    for p in points:
        for _ in range(hosts):
            net.link(switch[p], net.host(names.take()))
    for p in points:
        for axis, length in enumerate(dims):
            if length < 2 or (length == 2 and p[axis] == 1):
                continue
            q = (*p[:axis], (p[axis] + 1) % length, *p[axis + 1 :])
            net.link(switch[p], switch[q])
    return net


def _wait(what: str, condition: Iterator[bool], process: subprocess.Popen[bytes], log: Path, deadline: float) -> None:
    for ready in condition:
        if ready:
            return
        if process.poll() is not None or time.monotonic() > deadline:
            raise RuntimeError(f"{what}: exit status {process.returncode}; {log.read_text(errors='replace')[-600:]}")
        time.sleep(0.02)


def _contains(path: Path, text: str) -> Iterator[bool]:
    while True:
        yield path.exists() and text in path.read_text(errors="replace")


class Fabric:
    """ibsim on ``net``, and opensm on its first host (``opensm=False`` leaves it out). A context manager."""

    def __init__(
        self, net: Net | str, *, opensm: bool = True, opensm_args: Sequence[str] = (), timeout: float = 90
    ) -> None:
        self.net = net
        self.socket_name = f"fabricd-{uuid.uuid4().hex[:12]}"
        self.directory = Path(tempfile.mkdtemp(prefix="fabricd-ibsim-", dir="/dev/shm"))
        self._with_opensm = opensm
        self._opensm_args = list(opensm_args)
        self._timeout = timeout
        self._processes: list[subprocess.Popen[bytes]] = []
        self.ibsim_pid = 0

    @property
    def hosts(self) -> list[str]:
        """Names of the hosts, in file order; clients attach to one by its name."""
        assert isinstance(self.net, Net)
        return list(self.net.hosts)

    def env(self, host: str | None = None) -> dict[str, str]:
        """The environment of a client attached at ``host`` (default: the first host) through the umad interface."""
        env = {**os.environ, "LD_PRELOAD": PRELOAD, "IBSIM_SOCKNAME": self.socket_name}
        env["SIM_HOST"] = host if host is not None else self.hosts[0] if isinstance(self.net, Net) else ""
        return env

    def run(
        self, *command: str, host: str | None = None, timeout: float = 60, check: bool = True
    ) -> subprocess.CompletedProcess[str]:
        """Run a tool on the fabric, in the fabric's directory on tmpfs."""
        return subprocess.run(
            command,
            env=self.env(host),
            cwd=self.directory,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=timeout,
            check=check,
        )

    def console(self, *commands: str) -> None:
        """Commands for ibsim's console; returns when it has taken them all."""
        ibsim = self._processes[0]
        assert ibsim.stdin is not None
        out = self.directory / "ibsim.out"
        # ibsim complains on its output about a file it cannot open: that line marks the end of what came before it.
        missing = self.directory / f"absent-{uuid.uuid4().hex}"
        ibsim.stdin.write("".join(f"{c}\n" for c in commands).encode() + f"!{missing}\n".encode())
        ibsim.stdin.flush()
        _wait("ibsim console", _contains(out, missing.name), ibsim, out, time.monotonic() + self._timeout)

    def __enter__(self) -> Fabric:
        try:
            self._start()
        except BaseException:
            self.stop()
            raise
        return self

    def _start(self) -> None:
        deadline = time.monotonic() + self._timeout
        file = self.directory / "fabric.net"
        file.write_text(self.net if isinstance(self.net, str) else self.net.text())
        limits: list[str] = []
        if isinstance(self.net, Net):
            nodes = len(self.net.switches) + len(self.net.hosts)
            ports = self.net.switch_ports + len(self.net.switches) + sum(self.net.hosts.values()) * 2
            limits = ["-S", str(max(256, len(self.net.switches))), "-N", str(max(2048, nodes))]
            limits += ["-P", str(max(13312, ports + 64))]
        out = self.directory / "ibsim.out"
        with out.open("wb") as sink:
            ibsim = subprocess.Popen(
                ["ibsim", "-s", *limits, str(file)],
                env={**os.environ, "IBSIM_SOCKNAME": self.socket_name},
                cwd=self.directory,
                stdin=subprocess.PIPE,
                stdout=sink,
                stderr=subprocess.STDOUT,
            )
        self._processes.append(ibsim)
        self.ibsim_pid = ibsim.pid
        _wait("ibsim", _contains(out, "simulator ready"), ibsim, out, deadline)
        if self._with_opensm:
            self._start_opensm(deadline)

    def _start_opensm(self, deadline: float) -> None:
        log = self.directory / "opensm.log"
        env = {**self.env(), "OSM_CACHE_DIR": str(self.directory), "OSM_TMP_DIR": str(self.directory)}
        opensm = subprocess.Popen(
            ["opensm", "-s", "0", "-d", "2", "-f", str(log), *self._opensm_args],  # -d 2: unbuffered log
            env=env,
            cwd=self.directory,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        self._processes.append(opensm)
        _wait("opensm", _contains(log, "SUBNET UP"), opensm, log, deadline)

    def stop(self) -> None:
        for process in reversed(self._processes):
            process.terminate()
            try:
                process.wait(5)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
            if process.stdin is not None:
                with contextlib.suppress(BrokenPipeError):
                    process.stdin.close()
        self._processes.clear()
        shutil.rmtree(self.directory, ignore_errors=True)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

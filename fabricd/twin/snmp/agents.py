"""net-snmp's snmpd for each switch, on a loopback port of its own, with a sub-agent behind it."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import shutil
import socket
from dataclasses import dataclass
from pathlib import Path

from fabricd.errors import FabricdError
from fabricd.twin.face import Fabric, PlanNode
from fabricd.twin.snmp.agentx import Oid
from fabricd.twin.snmp.objects import SwitchObjects
from fabricd.twin.snmp.subagent import SubAgent

log = logging.getLogger(__name__)

READ_COMMUNITY, WRITE_COMMUNITY = "public", "private"
READ_USER, WRITE_USER = "fabmon", "fabctl"
AUTH_PASSPHRASE, PRIVACY_PASSPHRASE = "authpass-0123456789", "privpass-0123456789"
START_WITHIN_S = 20.0
POLL_S = 0.05
# What snmpd would otherwise tell of this machine instead of the switch: not loaded, or not in anyone's view.
OWN_MODULES = ("ifTable", "ifXTable", "interface", "interfaces", "mibII/interfaces", "at", "ip", "ipv4", "ipv6", "icmp",
               "tcp", "tcpTable", "tcpConnectionTable", "tcpListenerTable", "udp", "udpTable", "udpEndpointTable",
               "etherStatsTable", "dot3StatsTable", "lldp", "host", "hr_system", "hr_proc", "hr_storage", "hr_device",
               "hr_network", "hrh_storage", "hrh_filesys", "hrSWRunTable", "hrSWInstalledTable", "hrSWRunPerfTable",
               "swrun", "swinst", "inetNetToMediaTable", "ipAddressTable", "inetCidrRouteTable")  # fmt: skip
SYSTEM = "1.3.6.1.2.1.1"
DESCRIPTION = "fabricd twin, simulated switch"


@dataclass(slots=True)
class _Running:
    process: asyncio.subprocess.Process
    serving: asyncio.Task[None]


class SnmpAgents:
    """Agents of all switches of a fabric. ``directory`` holds configurations and sockets."""

    def __init__(self, fabric: Fabric, directory: Path) -> None:
        self._fabric, self._directory = fabric, directory
        self._running: list[_Running] = []
        self.addresses: dict[str, str] = {}

    async def start(self) -> None:
        """Start them all. Raises FabricdError when snmpd is missing or does not come up."""
        if not snmpd_is_installed():
            raise FabricdError("snmpd is not installed: the switches' SNMP agents need it (Debian package snmpd)")
        switches = self._fabric.plan.switches
        results = await asyncio.gather(*(self._start(switch) for switch in switches), return_exceptions=True)
        for result in results:
            if isinstance(result, BaseException):
                await self.stop()
                raise result

    async def _start(self, switch: PlanNode) -> None:
        home = self._directory / switch.name.replace("/", "_")
        home.mkdir(parents=True, exist_ok=True)
        port = _free_port()
        master = home / "agentx"
        objects = SwitchObjects(self._fabric, switch)
        configuration = home / "snmpd.conf"
        configuration.write_text(_configuration(switch, port, master, objects.subtrees), encoding="utf-8")
        configuration.chmod(0o600)
        hidden = ",".join(f"-{module}" if index == 0 else module for index, module in enumerate(OWN_MODULES))
        with (home / "snmpd.log").open("wb") as output:
            process = await asyncio.create_subprocess_exec(
                "snmpd", "-f", "-Lo", "-C", "-c", str(configuration), "-I", hidden,
                stdin=asyncio.subprocess.DEVNULL, stdout=output, stderr=output, start_new_session=True,
                env=os.environ | {"PATH": _path(), "SNMP_PERSISTENT_DIR": str(home / "var"), "MIBS": ""},
            )  # fmt: skip
        agent = SubAgent(switch.name, objects.table, objects.subtrees, self._fabric.read)
        try:
            async with asyncio.timeout(START_WITHIN_S):
                streams = await self._connect(agent, master, process)
        except TimeoutError:
            process.kill()
            raise FabricdError(f"snmpd of {switch.name} did not come up within {START_WITHIN_S:g} s") from None
        serving = asyncio.create_task(agent.serve(*streams))
        serving.add_done_callback(lambda task: _tell(switch.name, task))
        self._running.append(_Running(process, serving))
        self.addresses[switch.name] = f"127.0.0.1:{port}"

    async def _connect(
        self, agent: SubAgent, master: Path, process: asyncio.subprocess.Process
    ) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        while True:
            if process.returncode is not None:
                raise FabricdError(f"snmpd ended with status {process.returncode}: see {master.with_name('snmpd.log')}")
            try:
                return await agent.connect(str(master))
            except OSError:  # not listening yet: there is no event to wait for
                await asyncio.sleep(POLL_S)

    async def stop(self) -> None:
        """End all agents."""
        for running in self._running:
            running.serving.cancel()
            with contextlib.suppress(ProcessLookupError):
                running.process.terminate()
        for running in self._running:
            try:
                await asyncio.wait_for(running.process.wait(), 2)
            except TimeoutError:
                running.process.kill()
        self._running.clear()


def snmpd_is_installed() -> bool:
    return shutil.which("snmpd", path=_path()) is not None


def _tell(name: str, task: asyncio.Task[None]) -> None:
    """A sub-agent that ended with an error is said, not only seen in its switch's silence."""
    if not task.cancelled() and task.exception() is not None:
        log.error("SNMP sub-agent of %s ended: %r", name, task.exception())


def _configuration(switch: PlanNode, port: int, master: Path, subtrees: tuple[Oid, ...]) -> str:
    return "\n".join(
        [
            f"agentAddress udp:127.0.0.1:{port}",
            "master agentx",
            f"agentXSocket {master}",
            "agentXTimeout 5",
            f"sysName {switch.name}",
            f"sysDescr {DESCRIPTION}",
            "sysServices 2",
            *(f"view switch included .{tree}" for tree in (SYSTEM, *(".".join(map(str, oid)) for oid in subtrees))),
            f"rocommunity {READ_COMMUNITY} 127.0.0.1 -V switch",
            f"rwcommunity {WRITE_COMMUNITY} 127.0.0.1 -V switch",
            *(
                f'createUser {user} SHA-256 "{AUTH_PASSPHRASE}" AES "{PRIVACY_PASSPHRASE}"'
                for user in (READ_USER, WRITE_USER)
            ),
            f"rouser {READ_USER} priv -V switch",
            f"rwuser {WRITE_USER} priv -V switch",
            "",
        ]
    )


def _free_port() -> int:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def _path() -> str:
    return f"{os.environ.get('PATH', '')}:/usr/sbin:/sbin"

"""Running jobs from the scheduler and their NICs' readings from the store, into the job watch."""

from __future__ import annotations

import asyncio
import logging

from fabricd.config.root import Config
from fabricd.errors import FabricdError
from fabricd.jobs.running import running_jobs
from fabricd.jobs.watch import JobWatch, Nic
from fabricd.model.sample import Flag
from fabricd.outputs.jobs_view import JobsView
from fabricd.store.store import Store

log = logging.getLogger(__name__)

SAMPLINGS = ("port_transmit_data_bytes", "port_transmit_data_bytes_between")


async def follow_jobs(config: Config, store: Store, view: JobsView) -> None:
    """Until cancelled; a scheduler that does not answer is said in the view, and its last answer stays."""
    if config.jobs.source == "none":
        return
    async with asyncio.TaskGroup() as group:
        group.create_task(_ask(config, view))
        group.create_task(_read(store, view.watch, config.jobs.poll_s))


async def _ask(config: Config, view: JobsView) -> None:
    while True:
        try:
            view.watch.set_jobs(await asyncio.to_thread(running_jobs, config.jobs, view.rejects))
            view.problem = ""
        except FabricdError as error:
            if not view.problem:
                log.warning("jobs: %s", error)
            view.problem = str(error)
        await asyncio.sleep(config.jobs.interval_s)


async def _read(store: Store, watch: JobWatch, pause: float) -> None:
    seen: tuple[int, set[str]] = (-1, set())
    while True:
        # New ports, or jobs on other hosts: either brings NICs that were not followed before.
        now = (len(store.ports), {host for job in watch.jobs.values() for host in job.nodes})
        if now != seen:
            seen = now
            watch.set_nics(nics_of(store, now[1]))
        take_readings(store, watch)
        await asyncio.sleep(pause)


def nics_of(store: Store, hosts: set[str]) -> dict[str, Nic]:
    """NIC ports of the jobs' hosts. Rail = place of the device in the order of its node's device names (of links that are fast).

    A scheduler may name a host shorter than its agent does (gpu1 for gpu1.example): names are matched up to the first dot.
    """
    short = {host.partition(".")[0]: host for host in hosts}
    devices: dict[str, set[str]] = {}
    places: list[tuple[int, str, str, float]] = []
    for number, labels in enumerate(store.ports.labels):
        host = labels.node if labels.node in hosts else short.get(labels.node.partition(".")[0])
        if host is not None and labels.device:
            devices.setdefault(host, set()).add(labels.device)
            places.append((number, host, labels.device, labels.rate_gbps))
    order = {host: {device: rail for rail, device in enumerate(sorted(names))} for host, names in devices.items()}
    return {str(number): Nic(host, order[host][device], rate * 1e9 / 8) for number, host, device, rate in places}


def take_readings(store: Store, watch: JobWatch) -> None:
    """The newest reading of every watched NIC, by the agents' regular schedule and by their readings between."""
    if not watch.jobs:
        return
    for sampling, name in enumerate(SAMPLINGS):
        reading = store.read(name)
        valid = (reading.flags & int(Flag.VALID)) != 0
        for port, value, at in zip(
            reading.port[valid].tolist(), reading.value[valid].tolist(), reading.at[valid].tolist(), strict=True
        ):
            watch.observe(str(port), at / 1e9, float(value), sampling=sampling)

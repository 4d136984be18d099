"""Doctor reports from the broker into the fleet view."""

from __future__ import annotations

from fabricd.config.root import Config
from fabricd.model import topics
from fabricd.outputs.doctor_view import DoctorReports
from fabricd.transport.watch import watch


async def follow_doctors(config: Config, reports: DoctorReports) -> None:
    """Until cancelled."""

    def take(topic: str, payload: bytes) -> None:
        parts = topics.split(topic)
        if parts is not None:
            reports.put(parts[2], payload)

    await watch(config.broker, [topics.of_all_nodes(config.fabric.name, "doctor")], take)

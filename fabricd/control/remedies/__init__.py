"""Every remedy by name. Policy chooses and orders; what a remedy does and when it is possible is here, in Python."""

from __future__ import annotations

from fabricd.control.remedies import hosts, qos, routing
from fabricd.control.remedies.base import Remedy

REMEDIES: dict[str, Remedy] = {remedy.name: remedy for remedy in (*routing.REMEDIES, *hosts.REMEDIES, *qos.REMEDIES)}

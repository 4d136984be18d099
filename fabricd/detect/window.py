"""What the detector reads in one interval: rates per port and priority, each with the time it covers and its age."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]

#: Names of the rates, as the traces and the store call them, and their unit.
COLUMNS = {
    "tx_bytes": "bytes/s",
    "rx_bytes": "bytes/s",
    "tx_pkts": "packets/s",
    "xmit_wait_ns": "share of the time",
    "paused_ns": "share of the time",
    "pfc_tx": "XOFF frames/s",
    "pfc_rx": "XOFF frames/s",
    "pfc_xon_tx": "XON frames/s",
    "link_downed": "times/s",
    "ecn_marked": "packets/s",
}


@dataclass(slots=True)
class Window:
    """One interval that ends at ``t_ns``.

    ``rates[name]`` is (P, Q) over ports and priorities, nan = not observable or no fresh sample; a name may be absent.
    ``age`` (P, Q): intervals since the cell's newest sample (0 = fresh). ``rate_bps`` (P,): speed the device reports now
    (nan = does not say). ``pausing`` (P, Q): 1 where the port's last word to its peer was XOFF, nan where it cannot be told.
    """

    t_ns: int
    interval_ns: float
    rates: dict[str, Floats]
    age: Floats
    rate_bps: Floats
    pausing: Floats | None = None
    resets: int = 0
    notes: list[str] = field(default_factory=list)

    def rate(self, name: str) -> Floats | None:
        return self.rates.get(name)

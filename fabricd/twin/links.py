"""Link rates as PortInfo codes: width and speed bits for a rate in Gb/s, and back.

Speeds are the InfiniBand names by lane rate; XDR is not known to the tools of the day, so an 800 Gb/s port shows
itself as 8X NDR, which has the same rate.
"""

from __future__ import annotations

from dataclasses import dataclass

WIDTHS = {1: 1, 2: 16, 4: 2, 8: 4, 12: 8}  # lanes -> LinkWidth code
LANES = {code: lanes for lanes, code in WIDTHS.items()}
# (name, Gb/s a lane, LinkSpeed code, LinkSpeedExt code); an extended speed has LinkSpeed 4 (QDR) beside it
SPEEDS = (
    ("SDR", 2.5, 1, 0),
    ("DDR", 5.0, 2, 0),
    ("QDR", 10.0, 4, 0),
    ("FDR", 14.0625, 4, 1),
    ("EDR", 25.78125, 4, 2),
    ("HDR", 53.125, 4, 4),
    ("NDR", 106.25, 4, 8),
)
NAMED_GBPS = {"SDR": 2.5, "DDR": 5.0, "QDR": 10.0, "FDR": 14.0, "EDR": 25.0, "HDR": 50.0, "NDR": 100.0}


@dataclass(frozen=True, slots=True)
class Link:
    """One negotiated (or possible) setting of a link."""

    lanes: int
    speed: str
    speed_code: int
    extended_code: int

    @property
    def width_code(self) -> int:
        return WIDTHS[self.lanes]

    @property
    def gbps(self) -> float:
        """Nominal rate as the tools print it: lanes times the speed's name."""
        return self.lanes * NAMED_GBPS[self.speed]


def _choices(lanes: tuple[int, ...]) -> list[Link]:
    return [Link(n, name, code, ext) for n in lanes for name, _, code, ext in SPEEDS]


_NORMAL = _choices((4, 8, 2, 1))


def nearest(gbps: float) -> Link:
    """The usual setting for a nominal rate: 4X at the speed of that rate, else the setting with the nearest rate."""
    return min(_NORMAL, key=lambda link: (abs(link.gbps - gbps), _NORMAL.index(link)))


def degraded(full: Link, gbps: float) -> Link:
    """What a link of setting ``full`` fell back to when it now carries ``gbps``: fewer lanes first, then a lower speed.

    Rates between two settings (a link that loses a share of its time to retransmission) keep the next setting above.
    """
    below = [link for link in _choices((full.lanes, 4, 2, 1)) if link.gbps <= full.gbps and link.lanes <= full.lanes]
    fitting = [link for link in below if link.gbps >= gbps * 0.999]
    if not fitting:
        return min(below, key=lambda link: link.gbps)
    return min(fitting, key=lambda link: (link.gbps, link.speed != full.speed))


def below_and_equal(full: Link) -> tuple[int, int, int]:
    """(LinkWidthSupported, LinkSpeedSupported, LinkSpeedExtSupported) of a port whose best setting is ``full``."""
    widths = sum(code for lanes, code in WIDTHS.items() if lanes <= full.lanes and lanes != 2)
    extended = 0
    bit = 1
    while bit <= full.extended_code:
        extended |= bit
        bit <<= 1
    speeds = sum(bit for bit in (1, 2, 4) if bit <= full.speed_code)
    return widths, speeds, extended


def from_codes(width_code: int, speed_code: int, extended_code: int) -> Link:
    """The setting that PortInfo's active codes name. Raises KeyError on codes that are none."""
    lanes = LANES[width_code]
    for name, _, code, ext in SPEEDS:
        if ext == extended_code and (ext or code == speed_code):
            return Link(lanes, name, code, ext)
    raise KeyError((speed_code, extended_code))

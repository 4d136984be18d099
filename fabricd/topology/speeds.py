"""Link widths and speeds of InfiniBand: names, lanes, data rates.

Lane rates as the Linux kernel prints them (drivers/infiniband/core/sysfs.c): nominal, no encoding overhead taken off beyond that.
Codes of PortInfo: LinkWidthActive, LinkSpeedActive, LinkSpeedExtActive (InfiniBand Architecture Specification 14.2.5.6).
"""

from __future__ import annotations

LANE_GBPS = {
    "SDR": 2.5,
    "DDR": 5.0,
    "QDR": 10.0,
    "FDR10": 10.0,
    "FDR": 14.0,
    "EDR": 25.0,
    "HDR": 50.0,
    "NDR": 100.0,
    "XDR": 200.0,
}
WIDTHS = (1, 2, 4, 8, 12)
WIDTH_OF_CODE = {1: 1, 2: 4, 4: 8, 8: 12, 16: 2}
SPEED_OF_CODE = {1: "SDR", 2: "DDR", 4: "QDR"}
SPEED_OF_EXT_CODE = {1: "FDR", 2: "EDR", 4: "HDR", 8: "NDR", 16: "XDR"}


def rate_gbps(width: int, speed: str) -> float:
    """Data rate of a link; 0 when width or speed is not known."""
    return width * LANE_GBPS.get(speed, 0.0)


def parse_width_speed(text: str) -> tuple[int, str]:
    """``4xNDR`` -> (4, "NDR"). What the tools could not tell (``??``, ``???``) becomes 0 and "". Raises ValueError on other text."""
    width, cross, speed = text.strip().partition("x")
    if not cross:
        if set(text) <= {"?", " "}:
            return 0, ""
        raise ValueError(f"not a link width and speed: {text!r}")
    speed = speed.strip()
    if speed not in LANE_GBPS and set(speed) - {"?"}:
        raise ValueError(f"unknown link speed: {text!r}")
    lanes = 0 if set(width) <= {"?"} else int(width)
    if lanes and lanes not in WIDTHS:
        raise ValueError(f"unknown link width: {text!r}")
    return lanes, speed if speed in LANE_GBPS else ""


def speed_of(width: int, gbps: float) -> str:
    """The speed name of a data rate over ``width`` lanes, "" when there is none (or two: QDR and FDR10 count as QDR)."""
    if not width:
        return ""
    return next((name for name, lane in LANE_GBPS.items() if abs(lane * width - gbps) < 0.01), "")

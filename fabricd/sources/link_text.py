"""The words sysfs uses for a link's state and rate, of all kernel generations."""

from __future__ import annotations

import re

_RATE = re.compile(r"(\d{1,6}(?:\.\d{1,3})?)\s*Gb/sec\b")
_STATE = re.compile(r"(\d{1,3})\s*:\s*(\S.*)")

ACTIVE = 4
LINK_UP = 5


def parse_rate(text: str) -> float | None:
    """Gb/s of ``100 Gb/sec (4X EDR)``, ``2.5 Gb/sec (1X SDR)``, ``10 Gb/sec (4X)``; None when the text is of another form or 0.

    The number is already that of the whole link: lanes and lane speed in parentheses are not to be multiplied again.
    """
    match = _RATE.match(text.strip())
    if match is None:
        return None
    return float(match[1]) or None


def parse_state(text: str) -> tuple[int, str] | None:
    """(number, word) of ``4: ACTIVE`` or ``5: LinkUp``; None when the text is of another form."""
    match = _STATE.fullmatch(text.strip())
    return (int(match[1]), match[2].strip()) if match else None

"""Identity: fabric + plane + GUID + port. Names and LIDs are labels, never keys."""

from __future__ import annotations

from typing import NamedTuple

GUID_MAX = (1 << 64) - 1


class PortKey(NamedTuple):
    """The key of a port everywhere in fabricd. ``guid`` is the node GUID (switch) or port GUID's node GUID (HCA)."""

    fabric: str
    plane: int
    guid: int
    port: int


def printable(name: str) -> str:
    """A name of the kernel's as it may be published. Interface names may hold any bytes; Python keeps those that are not UTF-8 as
    lone surrogates, which no JSON encoder takes: they become ``\\xff``."""
    return name if name.isascii() else name.encode("utf-8", "surrogateescape").decode("utf-8", "backslashreplace")


def format_guid(guid: int) -> str:
    """``0x`` and sixteen hexadecimal digits, as the InfiniBand tools print a GUID."""
    return f"0x{guid:016x}"


def parse_guid(text: str) -> int:
    """Read a GUID as the tools and sysfs write it: ``0x248a070300f88f40``, ``248a:0703:00f8:8f40``, ``S-248a…``.

    Raises ValueError when it is not 1 to 16 hexadecimal digits.
    """
    digits = text.strip().lower()
    for prefix in ("s-", "h-", "r-"):
        digits = digits.removeprefix(prefix)
    digits = digits.removeprefix("0x").replace(":", "")
    if not 1 <= len(digits) <= 16 or not all(c in "0123456789abcdef" for c in digits):
        raise ValueError(f"not a GUID: {text!r}")
    return int(digits, 16)


def guid_from_mac(mac: str) -> int:
    """The EUI-64 of a MAC address (ff:fe in the middle, universal/local bit flipped), as IPv6 and RoCE GIDs form it."""
    octets = mac.strip().lower().split(":")
    if len(octets) != 6 or not all(len(o) == 2 and all(c in "0123456789abcdef" for c in o) for o in octets):
        raise ValueError(f"not a MAC address: {mac!r}")
    raw = [int(o, 16) for o in octets]
    return int.from_bytes(bytes([raw[0] ^ 2, raw[1], raw[2], 0xFF, 0xFE, *raw[3:]]), "big")

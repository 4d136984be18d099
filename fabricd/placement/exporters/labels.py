"""Label keys of the network levels, from the configuration, and values that Kubernetes accepts."""

from __future__ import annotations

import re

from fabricd.config.placement import PlacementConfig
from fabricd.errors import UsageError

# Closest level first (tier-0 is the rail group). Keys: topograph's own, before and after its 1.0.0.
PRESETS: dict[str, tuple[str, ...]] = {
    "topograph-v1": tuple(f"fabric.topograph.run/tier-{i}" for i in range(3)),
    "topograph-v0": tuple(f"network.topology.nvidia.com/{level}" for level in ("leaf", "spine", "core")),
}
ACCELERATOR = {
    "topograph-v1": "accelerator.topograph.run/domain",
    "topograph-v0": "network.topology.nvidia.com/accelerator",
}
HOSTNAME = "kubernetes.io/hostname"
_LABEL_VALUE = re.compile(r"^[A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?$")
_NAME = re.compile(r"[^a-z0-9-]+")


def level_keys(config: PlacementConfig) -> tuple[str, ...]:
    """Label keys of rail group, pod and core, as many as the configuration has."""
    if config.label_preset != "custom":
        return PRESETS[config.label_preset]
    if not config.fabric_labels:
        raise UsageError(
            "placement.fabric_labels = []: label_preset custom needs at least one key, closest level first"
        )
    return tuple(config.fabric_labels)


def accelerator_key(config: PlacementConfig) -> str:
    """Label key of the NVLink domain; "" for none."""
    return config.accelerator_label if config.label_preset == "custom" else ACCELERATOR[config.label_preset]


def fnv64a(text: str) -> int:
    """The 64-bit FNV-1a hash."""
    value = 0xCBF29CE484222325
    for byte in text.encode("utf-8", "surrogatepass"):
        value = (value ^ byte) * 0x100000001B3 & 0xFFFFFFFFFFFFFFFF
    return value


def label_value(text: str) -> str:
    """The text if Kubernetes takes it as a label value (63 characters), else ``x`` and its hash, as topograph does."""
    if len(text) <= 63 and _LABEL_VALUE.match(text):
        return text
    return f"x{fnv64a(text):016x}"


def object_name(text: str) -> str:
    """A DNS label from any name: lower case; a hash is added when something was lost."""
    name = _NAME.sub("-", text.lower()).strip("-")
    if name and name == text and len(name) <= 63:
        return name
    return f"{name[:46].strip('-') or 'x'}-{fnv64a(text):016x}"

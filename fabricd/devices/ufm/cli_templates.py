"""The few command lines fabricd may have UFM run on a managed switch. Fixed words with typed places: nothing else can be sent."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass

from fabricd.devices.base import DeviceError

_LABEL = re.compile(r"\d{1,3}(?:/\d{1,3}){0,2}")


def port_label(value: object) -> str:
    """A port as the switch prints it: ``17``, ``1/17`` or ``1/9/1``. Raises DeviceError for anything else."""
    if not isinstance(value, str) or not _LABEL.fullmatch(value):
        raise DeviceError(f"{value!r} is not a port's label")
    return value


@dataclass(frozen=True, slots=True)
class Template:
    """``lines`` with ``{name}`` for each parameter; a parameter's type makes its text or refuses it."""

    lines: tuple[str, ...]
    parameters: dict[str, Callable[[object], str]]

    def fill(self, **values: object) -> list[str]:
        """The command lines. Raises DeviceError for a missing, unknown or wrong value."""
        if set(values) != set(self.parameters):
            raise DeviceError(f"command template: needs {', '.join(self.parameters)}")
        texts = {name: kind(values[name]) for name, kind in self.parameters.items()}
        return [line.format(**texts) for line in self.lines]


_ENTER = ("enable", "configure terminal")
TEMPLATES = {
    "port_down": Template((*_ENTER, "interface ib {port}", "shutdown"), {"port": port_label}),
    "port_up": Template((*_ENTER, "interface ib {port}", "no shutdown"), {"port": port_label}),
}

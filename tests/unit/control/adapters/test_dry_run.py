"""The dry run: the whole life of a change without a write."""

from __future__ import annotations

import pytest

from fabricd.config.control import ControlConfig
from fabricd.control.adapters.base import Conflict
from fabricd.control.adapters.dry_run import DryRun
from fabricd.control.adapters.registry import open_adapters
from fabricd.devices.base import DeviceError
from fabricd.devices.ufm.cli_templates import TEMPLATES
from fabricd.errors import UsageError
from fabricd.model.action import Change
from tests.unit.control.device import MemoryAdapter, lever


def test_a_change_lives_without_being_sent() -> None:
    inner = MemoryAdapter({"a": 1})
    dry = DryRun(inner)
    assert (dry.name, dry.time_limit_s) == (inner.name, inner.time_limit_s)
    ack = dry.push(Change(lever=lever("a"), old=1, new=2))
    assert "set a 2" in ack.answer and inner.writes == []
    assert dry.read(lever("a")) == dry.read_back(lever("a")) == 2
    assert "already" in dry.push(Change(lever=lever("a"), old=2, new=1)).answer
    assert dry.read(lever("a")) == 1 and inner.writes == []


def test_somebody_else_s_write_is_seen() -> None:
    inner = MemoryAdapter({"a": 1})
    dry = DryRun(inner)
    with pytest.raises(Conflict):
        dry.push(Change(lever=lever("a"), old=5, new=2))
    dry.push(Change(lever=lever("a"), old=1, new=2))
    inner.values["a"] = 7
    assert dry.read(lever("a")) == 7
    with pytest.raises(Conflict):
        dry.push(Change(lever=lever("a"), old=2, new=1))


def test_the_configuration_opens_adapters_and_names_mistakes() -> None:
    assert open_adapters(ControlConfig()) == {}
    opened = open_adapters(ControlConfig(adapters=["opensm"], dry_run=True))
    assert isinstance(opened["opensm"], DryRun)
    for settings, said in (
        ({"adapters": ["cisco"]}, "cisco"),
        ({"adapters": ["ufm"]}, "ufm_url"),
        ({"adapters": ["snmp"]}, "snmp_targets"),
        ({"adapters": ["opensm"], "opensm_console": "10.0.0.1:10000"}, "loopback"),
        ({"adapters": ["opensm"], "opensm_console": "10000"}, "host:port"),
    ):
        with pytest.raises(UsageError, match=said):
            open_adapters(ControlConfig(**settings))  # type: ignore[arg-type]


@pytest.mark.parametrize("label", ["1/9; reload", "", "1/2/3/4", "ib1", "1\nreload", 3, None])
def test_a_command_template_takes_a_port_label_only(label: object) -> None:
    assert TEMPLATES["port_down"].fill(port="1/16/1")[-2:] == ["interface ib 1/16/1", "shutdown"]
    with pytest.raises(DeviceError):
        TEMPLATES["port_down"].fill(port=label)
    with pytest.raises(DeviceError):
        TEMPLATES["port_up"].fill()

"""Interface statistics as files: read like the driver's, rejected without harm when they are broken."""

from __future__ import annotations

import json
from array import array
from pathlib import Path

import pytest

from fabricd.sources.base import LayoutChanged, SourceGone
from fabricd.sources.statistics_files import open_statistics


def write(directory: Path, statistics: object) -> None:
    (directory / "eth0.json").write_text(json.dumps({"driver": "mlx5_core", "statistics": statistics}))


def test_known_names_become_columns_and_values_follow(tmp_path: Path) -> None:
    write(tmp_path, {"rx_prio3_pause": 5, "rx_prio3_pause_duration": 7, "nobody_knows_this": 1})
    group = open_statistics(tmp_path, "eth0", "mlx5_core", lambda name: False)
    assert group is not None and len(group.columns) == 2
    values, flags = array("Q", bytes(16)), bytearray(2)
    write(tmp_path, {"rx_prio3_pause": 6, "rx_prio3_pause_duration": 8, "nobody_knows_this": 1})
    group.read(values, flags, 0, 1)
    assert list(values) == [6, 8000] and all(flags)


def test_names_that_come_and_go_are_a_new_layout(tmp_path: Path) -> None:
    write(tmp_path, {"rx_prio3_pause": 5})
    group = open_statistics(tmp_path, "eth0", "mlx5_core", lambda name: False)
    assert group is not None
    write(tmp_path, {"rx_prio3_pause": 5, "rx_prio4_pause": 5})
    with pytest.raises(LayoutChanged):
        group.read(array("Q", bytes(8)), bytearray(1), 0, 1)


def test_a_file_that_is_gone_is_a_source_that_is_gone(tmp_path: Path) -> None:
    assert open_statistics(tmp_path, "eth0", "mlx5_core", lambda name: False) is None
    write(tmp_path, {"rx_prio3_pause": 5})
    group = open_statistics(tmp_path, "eth0", "mlx5_core", lambda name: False)
    assert group is not None
    (tmp_path / "eth0.json").unlink()
    with pytest.raises(SourceGone):
        group.read(array("Q", bytes(8)), bytearray(1), 0, 1)


@pytest.mark.parametrize("statistics", [None, [1, 2], {"rx_prio3_pause": -1}, {"rx_prio3_pause": "many"}])
def test_a_broken_file_is_an_error_of_reading(tmp_path: Path, statistics: object) -> None:
    write(tmp_path, statistics)
    with pytest.raises(OSError, match="not a statistics file"):
        open_statistics(tmp_path, "eth0", "mlx5_core", lambda name: False)

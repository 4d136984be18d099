"""Rates as PortInfo codes and back."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fabricd.twin import links


@pytest.mark.parametrize(
    ("gbps", "lanes", "speed"),
    [
        (400, 4, "NDR"),
        (200, 4, "HDR"),
        (100, 4, "EDR"),
        (56, 4, "FDR"),
        (40, 4, "QDR"),
        (800, 8, "NDR"),
        (10, 4, "SDR"),
    ],
)
def test_usual_rates_are_four_lanes(gbps: float, lanes: int, speed: str) -> None:
    link = links.nearest(gbps)
    assert (link.lanes, link.speed) == (lanes, speed)


@given(st.sampled_from([40.0, 56.0, 100.0, 200.0, 400.0, 800.0]), st.floats(0.01, 1.0))
def test_a_degraded_link_is_no_faster_than_before_and_carries_what_it_carries(gbps: float, share: float) -> None:
    full = links.nearest(gbps)
    fallen = links.degraded(full, gbps * share)
    assert fallen.lanes <= full.lanes and fallen.gbps <= full.gbps
    assert fallen.gbps >= min(gbps * share, full.gbps) * 0.99


def test_a_quarter_of_the_rate_is_one_lane() -> None:
    assert links.degraded(links.nearest(400), 100) == links.Link(1, "NDR", 4, 8)


@given(st.sampled_from(sorted(links.WIDTHS)), st.sampled_from(links.SPEEDS))
def test_codes_name_one_setting(lanes: int, speed: tuple[str, float, int, int]) -> None:
    link = links.Link(lanes, speed[0], speed[2], speed[3])
    assert links.from_codes(link.width_code, link.speed_code, link.extended_code) == link

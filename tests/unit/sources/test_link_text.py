import pytest
from hypothesis import given
from hypothesis import strategies as st

from fabricd.sources.link_text import parse_rate, parse_state


@pytest.mark.parametrize(
    ("text", "gbps"),
    [
        ("2.5 Gb/sec (1X SDR)", 2.5),
        ("10 Gb/sec (4X)", 10),  # kernels that had no word for the first generation
        ("10 Gb/sec (4X SDR)", 10),
        ("40 Gb/sec (4X QDR)", 40),
        ("40 Gb/sec (4X FDR10)", 40),
        ("56 Gb/sec (4X FDR)", 56),
        ("100 Gb/sec (4X EDR)", 100),
        ("100 Gb/sec (2X HDR)", 100),
        ("400 Gb/sec (4X NDR)", 400),
        ("800 Gb/sec (8X NDR)", 800),
        ("800 Gb/sec (4X XDR)\n", 800),
        ("1200 Gb/sec (12X NDR)", 1200),
        ("0 Gb/sec (4X SDR)", None),
        ("", None),
        ("N/A", None),
        ("fast", None),
        ("-5 Gb/sec", None),
    ],
)
def test_rate(text: str, gbps: float | None) -> None:
    assert parse_rate(text) == gbps


@pytest.mark.parametrize(
    ("text", "parsed"),
    [
        ("4: ACTIVE", (4, "ACTIVE")),
        ("1: DOWN\n", (1, "DOWN")),
        ("5: LinkUp", (5, "LinkUp")),
        ("4: PortConfigurationTraining", (4, "PortConfigurationTraining")),
        ("7: Phy Test", (7, "Phy Test")),
        ("ACTIVE", None),
        ("4:", None),
        ("", None),
    ],
)
def test_state(text: str, parsed: tuple[int, str] | None) -> None:
    assert parse_state(text) == parsed


@given(st.text(max_size=40))
def test_any_text_is_survived(text: str) -> None:
    rate = parse_rate(text)
    assert rate is None or 0 < rate < 1e6
    parse_state(text)

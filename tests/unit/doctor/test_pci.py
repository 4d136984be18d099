import pytest
from hypothesis import given
from hypothesis import strategies as st

from fabricd.doctor.pci import Config, PciDevice, acs_names, distance
from tests.unit.doctor.trees import config_space


def device(root: str, *chain: str, numa: int | None = 0) -> PciDevice:
    return PciDevice(chain[-1], 0, 0, 0, "/".join(chain), root, chain, numa, "", False)


SWITCH = ("0000:15:01.0", "0000:16:00.0")


@pytest.mark.parametrize(
    ("b", "expected"),
    [
        (device("pci0000:15", *SWITCH, "0000:17:01.0", "0000:19:00.0"), "PIX"),
        (device("pci0000:15", *SWITCH, "0000:17:01.0", "0000:1a:00.0", "0000:1b:00.0", "0000:1c:00.0"), "PXB"),
        (device("pci0000:15", "0000:15:02.0", "0000:20:00.0"), "PHB"),
        (device("pci0000:25", "0000:25:01.0", "0000:26:00.0"), "NODE"),
        (device("pci0000:95", "0000:95:01.0", "0000:96:00.0", numa=1), "SYS"),
        (device("pci0000:95", "0000:95:01.0", "0000:96:00.0", numa=-1), "?"),
    ],
)
def test_distances_as_nvidia_smi_prints_them(b: PciDevice, expected: str) -> None:
    a = device("pci0000:15", *SWITCH, "0000:17:00.0", "0000:18:00.0")
    assert distance(a, b) == expected
    assert distance(b, a) == expected


@given(st.integers(0, 0x7F), st.booleans(), st.sampled_from([128, 256, 512, 1024, 2048, 4096]), st.booleans())
def test_configuration_space_is_read_back(acs: int, ats: bool, request: int, relaxed: bool) -> None:
    config = Config(config_space(acs=acs, ats=ats, read_request=request, relaxed=relaxed))
    assert (config.acs_control(), config.ats_enabled()) == (acs, ats)
    assert (config.max_read_request(), config.max_payload(), config.relaxed_ordering()) == (request, 512, relaxed)


@given(st.binary(max_size=4096))
def test_any_bytes_are_read_without_harm(data: bytes) -> None:
    config = Config(data)
    for read in (
        config.acs_control,
        config.ats_enabled,
        config.max_read_request,
        config.max_payload,
        config.relaxed_ordering,
    ):
        read()


def test_short_configuration_space_says_nothing() -> None:
    config = Config(config_space(acs=0x1D)[:64])
    assert config.acs_control() is None
    assert config.max_read_request() is None
    assert acs_names(0x1C) == "RR+CR+UF"
    assert acs_names(0) == "off"

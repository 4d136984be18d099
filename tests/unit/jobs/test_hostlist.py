import pytest
from hypothesis import given
from hypothesis import strategies as st

from fabricd.jobs.hostlist import HostlistError, compress, expand


@pytest.mark.parametrize(
    ("text", "hosts"),
    [
        ("gpu[001-003,007],login1", ["gpu001", "gpu002", "gpu003", "gpu007", "login1"]),
        ("r[1-2]n[01-02]", ["r1n01", "r1n02", "r2n01", "r2n02"]),
        ("a", ["a"]),
        ("", []),
        ("n[9-11]", ["n9", "n10", "n11"]),
        ("a,,b ,", ["a", "b"]),
    ],
)
def test_expressions(text: str, hosts: list[str]) -> None:
    assert expand(text) == hosts


@pytest.mark.parametrize(
    "text", ["a[", "a]", "a[1-]", "a[x]", "a[3-1]", "a[[1]]", "a[0-99999999]", "a[]", "a b", "a[1-٣]"]
)
def test_bad_expressions(text: str) -> None:
    with pytest.raises(HostlistError):
        expand(text)


@given(st.sets(st.from_regex(r"[a-z]{1,3}-?[0-9]{0,5}", fullmatch=True), max_size=40))
def test_round_trip(hosts: set[str]) -> None:
    text = compress(hosts)
    assert set(expand(text)) == hosts
    assert len(expand(text)) == len(hosts)


def test_compress_is_short_and_sorted() -> None:
    assert compress(["gpu007", "gpu001", "gpu002", "gpu003", "login"]) == "gpu[001-003,007],login"
    assert compress(["n10", "n9", "n08"]) == "n[08,10],n9"
    assert compress([f"g{i}" for i in range(56)]) == "g[0-55]"
    assert compress([f"g{i:03d}" for i in range(98, 103)]) == "g[098-102]"


@given(st.text(max_size=40))
def test_any_text_expands_or_says_why(text: str) -> None:
    try:
        expand(text)
    except HostlistError as error:
        assert str(error)

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fabricd.model import topics


@given(st.text(min_size=1).filter(lambda t: not set(t) & set("+#/\0") and max(t) < "\ud800"))
def test_names_come_back_from_topics(name: str) -> None:
    assert topics.split(topics.frames("f", name)) == ("f", "frames", name, "")
    assert topics.split(topics.schema("f", name, 3)) == ("f", "schema", name, "3")
    # NATS, which takes a dot for a level, must not see one in a name.
    assert "." not in topics.frames("f", name)


@pytest.mark.parametrize("name", ["", "a/b", "a+", "#", "a\0"])
def test_wildcards_and_levels_are_refused(name: str) -> None:
    with pytest.raises(ValueError, match="not usable"):
        topics.frames("f", name)


@pytest.mark.parametrize("topic", ["", "fabricd", "other/f/frames/n", "fabricd/f/frames"])
def test_other_topics_are_not_ours(topic: str) -> None:
    assert topics.split(topic) is None

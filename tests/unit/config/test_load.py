"""One TOML file into typed structs; errors name file, key, value and what is allowed."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fabricd.config.load import describe, load_config
from fabricd.errors import UsageError


def load(tmp_path: Path, text: str, environ: dict[str, str] | None = None, **overrides: Any) -> Any:
    path = tmp_path / "fabricd.toml"
    path.write_text(text)
    return load_config(str(path), overrides, environ or {})


def test_defaults_are_a_valid_configuration() -> None:
    config = load_config(None, {}, {})
    assert config.broker.host == "127.0.0.1"
    assert config.api.host == "127.0.0.1", "everything listens on loopback unless told otherwise"


def test_later_wins(tmp_path: Path) -> None:
    text = "[broker]\nport = 1\n[api]\nport = 2\n[aggregator]\nstale_after = 3.5\n"
    environ = {
        "FABRICD_API__PORT": "20",
        "FABRICD_AGGREGATOR__STALE_AFTER": "4.5",
        "OTHER": "x",
        "FABRICD_NO_SECTION": "x",
    }
    config = load_config(str(_write(tmp_path, text)), {"api.port": 200, "api.host": None}, environ)
    assert (config.broker.port, config.api.port, config.aggregator.stale_after) == (1, 200, 4.5)
    assert config.api.host == "127.0.0.1"


def _write(tmp_path: Path, text: str) -> Path:
    path = tmp_path / "fabricd.toml"
    path.write_text(text)
    return path


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ("[broker]\nport = 70000", ["broker.port = 70000", "<= 65535"]),
        ("[broker]\nport = 'x'", ["broker.port = 'x'", "integer"]),
        ("[broker]\nprot = 1", ["unknown key broker.prot", "port"]),
        ("[brokre]\nport = 1", ["unknown key brokre", "broker"]),
        ("broker = 3", ["broker = 3", "section"]),
        ("[aggregator]\nqos = 2", ["aggregator.qos = 2", "<= 1"]),
        ("[aggregator]\nsync = 1", ["aggregator.sync = 1", "true or false"]),
        ("[fabric]\nname = 'a/b'", ["fabric.name = 'a/b'", "matching"]),
        ("[fabric]\nlog_level = 'loud'", ["fabric.log_level = 'loud'", "debug"]),
        ("[api]\nport = 1\nport = 2", ["not TOML"]),
        ("[api", ["not TOML"]),
    ],
)
def test_errors_name_file_key_value_and_what_is_allowed(tmp_path: Path, text: str, named: list[str]) -> None:
    with pytest.raises(UsageError) as raised:
        load(tmp_path, text)
    message = str(raised.value)
    assert "\n" not in message
    assert str(tmp_path / "fabricd.toml") in message
    for words in named:
        assert words in message


def test_errors_of_environment_and_command_line_say_so(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"FABRICD_BROKER__PROT: unknown key broker\.prot"):
        load(tmp_path, "", {"FABRICD_BROKER__PROT": "1"})
    with pytest.raises(UsageError, match=r"broker\.port = 'abc'"):
        load(tmp_path, "", {"FABRICD_BROKER__PORT": "abc"})
    with pytest.raises(UsageError, match=r"api\.port = -1"):
        load_config(None, {"api.port": -1}, {})


def test_missing_and_undecodable_files(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"missing\.toml: No such file"):
        load_config(str(tmp_path / "missing.toml"), {}, {})
    (tmp_path / "latin1.toml").write_bytes(b"# \xe9")
    with pytest.raises(UsageError, match="not TOML"):
        load_config(str(tmp_path / "latin1.toml"), {}, {})
    with pytest.raises(UsageError):
        load_config(str(tmp_path), {}, {})


@given(st.text(max_size=200))
def test_any_text_is_a_configuration_or_one_clear_line(text: str) -> None:
    import tempfile

    with tempfile.TemporaryDirectory() as name:
        path = Path(name) / "c.toml"
        path.write_bytes(text.encode("utf-8", "surrogatepass"))
        try:
            load_config(str(path), {}, {})
        except UsageError as error:
            assert "\n" not in str(error)


KEYS = list(describe())


@pytest.mark.parametrize(("key", "allowed", "default", "words"), KEYS, ids=[key for key, *_ in KEYS])
def test_every_key_is_documented_and_has_a_default(key: str, allowed: str, default: Any, words: str) -> None:
    assert words, f"{key} has no description"
    assert allowed


TREES = st.recursive(
    st.one_of(st.integers(-(2**63), 2**63 - 1), st.booleans(), st.text(max_size=8), st.floats(allow_nan=False)),
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(st.text(max_size=5), inner, max_size=3)),
    max_leaves=4,
)


@given(st.sampled_from([key for key, *_ in KEYS]), TREES)
def test_any_value_for_any_key_is_taken_or_refused_in_words(key: str, value: Any) -> None:
    try:
        load_config(None, {key: value}, {})
    except UsageError as error:
        assert key.split(".")[0] in str(error)


def test_what_show_prints_is_a_configuration(tmp_path: Path) -> None:
    from fabricd.commands.config import _as_toml, _value

    config = load_config(None, {}, {})
    text = _as_toml([(*entry, _value(config, entry[0])) for entry in describe()])
    path = _write(tmp_path, text)
    assert load_config(str(path), {}, {}) == config
    assert set(tomllib.loads(text)) == {key.split(".")[0] for key, *_ in KEYS}


def test_an_error_names_where_the_value_is_from(tmp_path: Path) -> None:
    (tmp_path / "c.toml").write_text("[agent]\ninterval = 2.0\n")
    path = str(tmp_path / "c.toml")
    with pytest.raises(UsageError, match=r"^environment FABRICD_AGENT__INTERVAL: agent\.interval = 0:"):
        load_config(path, environ={"FABRICD_AGENT__INTERVAL": "0"})
    with pytest.raises(UsageError, match=r"^command line: agent\.interval = -1:"):
        load_config(path, {"agent.interval": -1}, {"FABRICD_AGENT__INTERVAL": "0"})
    (tmp_path / "c.toml").write_text("[agent]\ninterval = 0\n")
    with pytest.raises(UsageError, match=r"c\.toml: agent\.interval = 0:"):
        load_config(path, environ={})

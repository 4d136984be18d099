"""One TOML file into typed structs; environment and command line override; errors name file, key, value and what is allowed.

Order, later wins: defaults, the file, environment ``FABRICD_SECTION__KEY=value``, the command line's overrides.
"""

from __future__ import annotations

import os
import tomllib
import types
import typing
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import msgspec

from fabricd.config.root import Config
from fabricd.errors import BAD_DOCUMENT, UsageError

ENV_PREFIX = "FABRICD_"


def load_config(
    path: str | None = None,
    overrides: Mapping[str, Any] | None = None,
    environ: Mapping[str, str] = os.environ,
) -> Config:
    """Read the configuration. ``overrides`` maps dotted keys (``agent.interval``) to values; None values are ignored.

    Raises UsageError on a missing file, bad TOML, unknown key or value out of range.
    """
    tree: dict[str, Any] = {}
    where = path or "built-in defaults"
    if path is not None:
        try:
            tree = tomllib.loads(Path(path).read_text(encoding="utf-8"))
        except OSError as error:
            raise UsageError(f"{path}: {error.strerror}") from None
        except BAD_DOCUMENT as error:
            raise UsageError(f"{path}: not TOML: {error}") from None
    _check(tree, Config, where, "", {})
    origins: dict[str, str] = {}  # of keys that are not from the file
    for name, text in environ.items():
        if name.startswith(ENV_PREFIX) and "__" in name:
            key = name.removeprefix(ENV_PREFIX).lower().replace("__", ".")
            _set(tree, key, _parse_text(text, _type_of(key, name)), name)
            origins[key] = f"environment {name}"
    for key, value in (overrides or {}).items():
        if value is not None:
            _type_of(key, "command line")
            _set(tree, key, value, "command line")
            origins[key] = "command line"
    _check(tree, Config, where, "", origins)
    return msgspec.convert(tree, Config)


def _set(tree: dict[str, Any], key: str, value: Any, where: str) -> None:
    *parents, last = key.split(".")
    for part in parents:
        tree = tree.setdefault(part, {})
        if not isinstance(tree, dict):
            raise UsageError(f"{where}: {key}: {part} is not a section")
    tree[last] = value


def _hints(struct: type[msgspec.Struct]) -> dict[str, Any]:
    return typing.get_type_hints(struct, include_extras=True)


def _struct_of(hint: Any) -> type[msgspec.Struct] | None:
    while typing.get_origin(hint) is typing.Annotated:
        hint = typing.get_args(hint)[0]
    return hint if isinstance(hint, type) and issubclass(hint, msgspec.Struct) else None


def _type_of(key: str, where: str) -> Any:
    struct: type[msgspec.Struct] = Config
    hint: Any = Config
    for part in key.split("."):
        hints = _hints(struct)
        if part not in hints:
            raise UsageError(f"{where}: unknown key {key}")
        hint = hints[part]
        struct = _struct_of(hint) or struct
    return hint


def _parse_text(text: str, hint: Any) -> Any:
    """An environment value: TOML syntax where it parses and the key is not a plain string, else the text itself."""
    while typing.get_origin(hint) is typing.Annotated:
        hint = typing.get_args(hint)[0]
    if hint is str:
        return text
    try:
        return tomllib.loads(f"v = {text}")["v"]
    except BAD_DOCUMENT:
        return text


def _check(
    tree: dict[str, Any], struct: type[msgspec.Struct], where: str, prefix: str, origins: Mapping[str, str]
) -> None:
    """Field by field, so that the error names the key, the value and what is allowed. ``origins``: keys not from ``where``."""
    hints = _hints(struct)
    for key, value in tree.items():
        dotted = f"{prefix}{key}"
        if key not in hints:
            raise UsageError(f"{where}: unknown key {dotted}; known here: {', '.join(sorted(hints))}")
        inner = _struct_of(hints[key])
        if inner is not None:
            if not isinstance(value, dict):
                raise UsageError(f"{where}: {dotted} = {value!r}: must be a section [{dotted}]")
            _check(value, inner, where, f"{dotted}.", origins)
            continue
        try:
            msgspec.convert(value, hints[key])
        except msgspec.ValidationError as error:
            raise UsageError(
                f"{origins.get(dotted, where)}: {dotted} = {value!r}: {error}; allowed: {describe_type(hints[key])}"
            ) from None


def describe_type(hint: Any) -> str:
    """What a key accepts, in words."""
    limits = []
    while typing.get_origin(hint) is typing.Annotated:
        hint, *metas = typing.get_args(hint)
        for meta in metas:
            if isinstance(meta, msgspec.Meta):
                limits += [
                    f"{sign} {getattr(meta, name)}"
                    for name, sign in (("ge", ">="), ("gt", ">"), ("le", "<="), ("lt", "<"))
                    if getattr(meta, name) is not None
                ]
                if meta.pattern:
                    limits.append(f"matching {meta.pattern}")
    origin, args = typing.get_origin(hint), typing.get_args(hint)
    if origin is typing.Literal:
        text = " | ".join(repr(a) for a in args)
    elif origin in (typing.Union, types.UnionType):
        text = " or ".join(describe_type(a) for a in args if a is not type(None))
    elif origin in (list, tuple):
        text = f"list of {describe_type(args[0])}" if args else "list"
    elif origin is dict:
        text = f"table of {describe_type(args[1])}"
    elif struct := _struct_of(hint):
        text = f"table with {', '.join(_hints(struct))}"
    else:
        text = {int: "integer", float: "number", str: "text", bool: "true or false"}.get(hint, str(hint))
    return " ".join([text, *limits])


def describe(struct: type[msgspec.Struct] = Config, prefix: str = "") -> Iterator[tuple[str, str, Any, str]]:
    """(dotted key, what is allowed, default, one line of documentation) of every key."""
    defaults = struct()
    for key, hint in _hints(struct).items():
        inner = _struct_of(hint)
        if inner is not None:
            yield from describe(inner, f"{prefix}{key}.")
            continue
        words = ""
        if typing.get_origin(hint) is typing.Annotated:
            words = next((m.description or "" for m in typing.get_args(hint)[1:] if isinstance(m, msgspec.Meta)), "")
        yield f"{prefix}{key}", describe_type(hint), getattr(defaults, key), words

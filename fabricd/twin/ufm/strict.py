"""Reading requests strictly: what the documents do not name is refused with 400, not ignored."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from starlette.requests import Request

Types = type | tuple[type, ...]
HEXADECIMAL = frozenset("0123456789abcdef")


class Refused(Exception):
    """The request is answered with this status and text."""

    def __init__(self, status: int, text: str) -> None:
        super().__init__(text)
        self.status = status


async def json_body(request: Request) -> Any:
    """The body as JSON. Raises Refused."""
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind != "application/json":
        raise Refused(400, f"Content-Type is {kind or 'missing'}, not application/json")
    try:
        return json.loads(await request.body())
    except ValueError:
        raise Refused(400, "the body is not JSON") from None


async def fields(request: Request, required: Mapping[str, Types], optional: Mapping[str, Types]) -> dict[str, Any]:
    """A JSON object with exactly the known keys and types. Raises Refused."""
    return check(await json_body(request), required, optional)


def check(document: Any, required: Mapping[str, Types], optional: Mapping[str, Types]) -> dict[str, Any]:
    """The same for a part of a body."""
    if not isinstance(document, dict):
        raise Refused(400, "a JSON object is expected")
    known = {**required, **optional}
    for key, value in document.items():
        if key not in known:
            raise Refused(400, f"unknown key {key}")
        wanted = known[key]
        if not isinstance(value, wanted) or (isinstance(value, bool) and not _allows_bool(wanted)):
            raise Refused(400, f"{key}: wrong type")
    missing = [key for key in required if key not in document]
    if missing:
        raise Refused(400, f"missing {', '.join(missing)}")
    return document


def _allows_bool(wanted: Types) -> bool:
    return bool in (wanted if isinstance(wanted, tuple) else (wanted,))


def query(request: Request, *known: str) -> dict[str, str]:
    """Query parameters. Raises Refused on one that is not known."""
    for key in request.query_params:
        if key not in known:
            raise Refused(400, f"unknown parameter {key}")
    return dict(request.query_params)


def is_true(text: str | None) -> bool:
    return text is not None and text.lower() == "true"


def guid_text(text: str) -> str:
    """A GUID as UFM writes it: 16 hexadecimal digits. Up to 20 are accepted; ``0x`` is not. Raises Refused."""
    lower = text.lower()
    if not 16 <= len(lower) <= 20 or not set(lower) <= HEXADECIMAL:
        raise Refused(400, f"not a GUID of 16 to 20 hexadecimal digits: {text}")
    return lower[-16:]

"""Asking a running fabricd over its HTTP interface, with the standard library only."""

from __future__ import annotations

import argparse
import http.client
import json
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from fabricd.config.load import load_config
from fabricd.config.root import Config
from fabricd.errors import BAD_DOCUMENT, FabricdError, UsageError


def add_url(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--url", help="address of the api (default: from api.host and api.port)")


def get_json(args: argparse.Namespace, path: str, query: dict[str, Any] | None = None) -> Any:
    """The document at ``path``. Raises FabricdError when nobody answers there, UsageError when the question is refused."""
    config = load_config(args.config)
    base = args.url or api_address(config)
    if args.url:
        _check_url(args.url)
    wanted = {key: value for key, value in (query or {}).items() if value is not None}
    url = f"{base.rstrip('/')}{path}" + (f"?{urllib.parse.urlencode(wanted)}" if wanted else "")
    try:
        with urllib.request.urlopen(url, timeout=config.api.timeout + 5) as answer:
            return json.load(answer)
    except urllib.error.HTTPError as error:
        raise _refused(url, error) from None
    except (urllib.error.URLError, OSError) as error:
        reason = getattr(error, "reason", error)
        raise FabricdError(
            f"{base}: {getattr(reason, 'strerror', None) or reason}; is fabricd running there?"
        ) from None
    except http.client.HTTPException as error:
        raise FabricdError(f"{base}: not an HTTP answer: {error!r}; is fabricd running there?") from None
    except BAD_DOCUMENT as error:
        raise FabricdError(f"{url}: not a JSON answer: {error}") from None


def api_address(config: Config) -> str:
    """Where the configured api is, as an URL."""
    host = f"[{config.api.host}]" if ":" in config.api.host else config.api.host
    return f"http://{host}:{config.api.port}"


def _check_url(url: str) -> None:
    if not url.startswith(("http://", "https://")):
        raise UsageError(f"--url {url}: must begin with http:// or https://")
    try:
        parts = urllib.parse.urlsplit(url)
        fits = bool(parts.hostname) and parts.port != 0 and url.isprintable() and " " not in url
    except ValueError:
        fits = False
    if not fits:
        raise UsageError(f"--url {url}: must be http://HOST:PORT")


@contextmanager
def understanding(what: str) -> Iterator[None]:
    """Around the use of an answer: one of another shape (something else listens there, or another version) is one line."""
    try:
        yield
    except (KeyError, TypeError, AttributeError, ValueError) as error:
        raise FabricdError(f"the api answered with something else than {what}: {error!r}") from None


def _refused(url: str, error: urllib.error.HTTPError) -> FabricdError:
    try:
        words = json.load(error)["error"]
    except (*BAD_DOCUMENT, KeyError, TypeError, OSError, http.client.HTTPException):
        words = f"{error.code} {error.reason}"
    return (UsageError if error.code == 400 else FabricdError)(f"{url}: {words}")


def table(head: list[str], rows: list[list[str]], right: frozenset[int] = frozenset()) -> str:
    """Plain text in columns; the columns ``right`` are set flush right."""
    widths = [max(len(row[i]) for row in [head, *rows]) for i in range(len(head))]
    lines = []
    for row in [head, *rows]:
        cells = [c.rjust(w) if i in right else c.ljust(w) for i, (c, w) in enumerate(zip(row, widths, strict=True))]
        lines.append("  ".join(cells).rstrip())
    return "\n".join(lines)

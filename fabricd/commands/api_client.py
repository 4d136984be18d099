"""Asks the running installation over its HTTP interface; every failure is one clear line."""

from __future__ import annotations

import argparse
from typing import Any

from fabricd.errors import FabricdError


def add_url(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--url", help="base address of the api (default: api.host and api.port of the configuration)")


def get_json(args: argparse.Namespace, path: str, **params: str) -> Any:
    """GET one document. Raises FabricdError when nothing answers or the answer is no JSON document."""
    import httpx

    from fabricd.config.load import load_config

    base = getattr(args, "url", None)
    if not base:
        api = load_config(args.config).api
        base = f"http://{f'[{api.host}]' if ':' in api.host else api.host}:{api.port}"
    try:
        answer = httpx.get(base.rstrip("/") + path, params=params, timeout=15.0)
        answer.raise_for_status()
        return answer.json()
    except httpx.HTTPStatusError as error:
        raise FabricdError(f"{base}{path}: {error.response.status_code} {error.response.reason_phrase}") from None
    except (httpx.HTTPError, httpx.InvalidURL) as error:
        raise FabricdError(f"{base}: no answer ({error}); is `fabricd up` or `fabricd api` running?") from None
    except ValueError:
        raise FabricdError(f"{base}{path}: the answer is not JSON") from None

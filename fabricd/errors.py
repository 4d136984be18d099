"""The errors a user sees: each is one clear line and an exit status, never a traceback."""

from __future__ import annotations


class FabricdError(Exception):
    """The command could not do its work (exit status 1)."""

    exit_status = 1


class UsageError(FabricdError):
    """Wrong usage or configuration (exit status 2): the message names the key or option and its value."""

    exit_status = 2


# What json, tomllib and msgspec raise for hostile text: their own errors are ValueErrors, a thousand brackets are the other one.
BAD_DOCUMENT = (ValueError, RecursionError)

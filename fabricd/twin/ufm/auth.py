"""Who may call: the schemes of UFM and the prefixes they go with.

``/ufmRest`` Basic user and password; ``/ufmRestV2`` the session cookie of ``POST /dologin``, or a TLS client certificate;
``/ufmRestV3`` a token sent verbatim after the word Basic; without a prefix, on the host itself, ``X-Remote-User``.
With a TLS client certificate ``/ufmRest`` needs no password either.
"""

from __future__ import annotations

import base64
import binascii
import hmac
import secrets
import time
from dataclasses import dataclass, field
from typing import Any

from starlette.requests import Request

from fabricd.twin.ufm.strict import Refused

USER = "admin"
PASSWORD = "123456"  # the factory account
TOKEN_SECONDS = 315360000
LOCAL_USER = "ufmsystem"


@dataclass(slots=True)
class Accounts:
    """One account, its tokens and sessions. The TLS listener lets only client certificates in, so they count as the user."""

    user: str = USER
    password: str = PASSWORD
    tokens: dict[str, dict[str, Any]] = field(default_factory=dict)
    sessions: set[str] = field(default_factory=set)

    def require(self, request: Request, prefix: str) -> str:
        """The user a request comes from. Raises Refused 401."""
        header = request.headers.get("authorization", "")
        word, _, rest = header.partition(" ")
        known: str | None = None
        if request.url.scheme == "https" and prefix in ("/ufmRest", "/ufmRestV2"):
            known = self.user
        elif prefix == "/ufmRest" and word == "Basic":
            known = self._basic(rest.strip())
        elif prefix == "/ufmRestV3" and word == "Basic":
            known = self.user if rest.strip() in self.tokens else None
        elif prefix == "/ufmRestV2":
            known = self.user if request.cookies.get("session") in self.sessions else None
        elif prefix == "":
            known = request.headers.get("x-remote-user") or None
            known = known if known == LOCAL_USER else None
        if known is None:
            raise Refused(401, "authentication required")
        return known

    def _basic(self, encoded: str) -> str | None:
        try:
            user, _, password = base64.b64decode(encoded, validate=True).decode().partition(":")
        except (binascii.Error, UnicodeDecodeError):
            return None
        return self.user if self.matches(user, password) else None

    def matches(self, user: str, password: str) -> bool:
        return hmac.compare_digest(user.encode(), self.user.encode()) and hmac.compare_digest(
            password.encode(), self.password.encode()
        )

    def new_token(self, user: str) -> dict[str, Any]:
        token = secrets.token_urlsafe(24)
        self.tokens[token] = {
            "access_token": token,
            "revoked": False,
            "issued_at": int(time.time()),
            "expires_in": TOKEN_SECONDS,
            "username": user,
        }
        return self.tokens[token]

    def new_session(self) -> str:
        session = secrets.token_hex(16)
        self.sessions.add(session)
        return session

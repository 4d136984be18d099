"""Ways to prove to UFM who asks: password, session cookie, token, client certificate. Secrets come from credential files."""

from __future__ import annotations

import base64
import ssl
from dataclasses import dataclass, field

import httpx

from fabricd.devices.base import DeviceError, DeviceUnreachable, Secret, credential_path, read_secret
from fabricd.errors import UsageError

COOKIE_PREFIX = "/ufmRestV2"


@dataclass(slots=True)
class Login:
    """One scheme. ``prefix`` is the path it goes with; which prefix takes a client certificate differs by version, so it is a setting.

    Token and password files are read again when UFM refuses what they held: tokens expire and are replaced in place.
    """

    prefix: str
    user: str = ""
    password_file: str = ""
    token_file: str = ""
    cert_file: str = ""
    key_file: str = ""
    ca_file: str = ""
    insecure: bool = False
    _secret: Secret | None = field(default=None, repr=False)

    def __post_init__(self) -> None:
        ways = [bool(self.password_file), bool(self.token_file), bool(self.cert_file)]
        if sum(ways) != 1:
            raise UsageError("control.ufm_password_file, ufm_token_file, ufm_cert_file: give exactly one of them")
        if self.password_file and not self.user:
            raise UsageError("control.ufm_user is empty, and a password without a user is none")
        self.refresh()

    def refresh(self) -> bool:
        """Read the credential file; whether it holds another secret than before."""
        path, key = (
            (self.token_file, "control.ufm_token_file")
            if self.token_file
            else (self.password_file, "control.ufm_password_file")
        )
        if not path:
            return False
        fresh = read_secret(path, key)
        changed = fresh != self._secret
        self._secret = fresh
        return changed

    @property
    def with_cookie(self) -> bool:
        return bool(self.password_file) and self.prefix == COOKIE_PREFIX

    def headers(self) -> dict[str, str]:
        """UFM wants the word Basic before a token too, and the token as it is."""
        if self._secret is None or self.with_cookie:
            return {}
        if self.token_file:
            return {"Authorization": f"Basic {self._secret.reveal()}"}
        pair = f"{self.user}:{self._secret.reveal()}".encode()
        return {"Authorization": f"Basic {base64.b64encode(pair).decode()}"}

    def shown(self) -> str:
        """How the requests authenticate, for people."""
        if self.cert_file:
            return f"client certificate {self.cert_file}"
        if self.with_cookie:
            return "Cookie: ***"
        return "Authorization: Basic ***"

    def open_session(self, client: httpx.Client) -> None:
        """Log in by form; the client keeps the cookie. Raises DeviceError, DeviceUnreachable."""
        assert self._secret is not None
        form = {"httpd_username": self.user, "httpd_password": self._secret.reveal()}
        client.cookies.clear()
        try:
            answer = client.post("/dologin", data=form)
        except httpx.HTTPError as error:
            raise DeviceUnreachable(f"UFM login: {type(error).__name__}") from None
        if answer.status_code >= 400 or not client.cookies:
            raise DeviceError(f"UFM refuses user {self.user} (status {answer.status_code})")

    def tls(self) -> ssl.SSLContext | bool:
        """What httpx verifies with. Raises UsageError for certificate files that cannot be used."""
        if self.insecure and not self.cert_file:
            return False
        try:
            context = ssl.create_default_context(cafile=self.ca_file or None)
            if self.insecure:
                context.check_hostname = False
                context.verify_mode = ssl.CERT_NONE
            if self.cert_file:
                context.load_cert_chain(self.cert_file, credential_path(self.key_file) if self.key_file else None)
        except (OSError, ssl.SSLError) as error:
            where = self.cert_file or self.ca_file
            raise UsageError(
                f"control.ufm_cert_file, ufm_key_file, ufm_ca_file: {where}: {error.strerror or error}"
            ) from None
        return context

    def hide(self, text: str) -> str:
        """A text of UFM's without our secret, should it repeat it."""
        if self._secret is not None:
            text = text.replace(self._secret.reveal(), "***")
        return text

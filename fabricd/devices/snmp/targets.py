"""Which switches there are: a TOML file of targets, and beside it a credential file with communities and SNMPv3 keys.

[[switch]]                       # targets                         [users.fabctl]      # secrets (mode 0600)
name = "leaf-01"                                                   auth = "…"
address = "10.0.0.11:161"                                          privacy = "…"
profile = "fastpath"                                               [communities]
user = "fabctl"                  # SNMPv3 authPriv                 lab = "…"
# community = "lab"              # SNMPv2c instead: read only
"""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta

from fabricd.devices.base import Secret, read_secret_text
from fabricd.devices.snmp.profile import Profile, load_profile
from fabricd.errors import UsageError

Auth = Literal["SHA", "SHA-224", "SHA-256", "SHA-384", "SHA-512"]
Privacy = Literal["AES", "AES-192", "AES-256"]
MIN_KEY = 8  # RFC 3414


class _Switch(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    name: str
    address: str
    profile: str
    user: str = ""
    community: str = ""
    timeout: Annotated[float, Meta(gt=0, le=60)] = 2.0
    guid: str = ""


class _File(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    switch: list[_Switch] = []


class _User(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    auth: str
    privacy: str
    auth_protocol: Auth = "SHA-256"
    privacy_protocol: Privacy = "AES"


class _Secrets(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    users: dict[str, _User] = {}
    communities: dict[str, str] = {}


class User(msgspec.Struct, frozen=True):
    """An SNMPv3 user with authentication and privacy; without both nothing is sent."""

    name: str
    auth: Secret
    privacy: Secret
    auth_protocol: Auth
    privacy_protocol: Privacy


class Target(msgspec.Struct, frozen=True, kw_only=True):
    """One agent. Either ``user`` (SNMPv3) or ``community`` (SNMPv2c, read only)."""

    name: str
    host: str
    port: int
    profile_name: str
    user: User | None = None
    community: Secret | None = None
    timeout_s: float = 2.0
    guid: str = ""

    @property
    def profile(self) -> Profile:
        return load_profile(self.profile_name)


def load_targets(path: str, secrets_path: str) -> dict[str, Target]:
    """By name. Raises UsageError that names file, switch and key; never shows a secret."""
    switches: list[_Switch] = _toml(Path(path), _File, "control.snmp_targets").switch
    secrets: _Secrets = _Secrets()
    if secrets_path:
        text = read_secret_text(secrets_path, "control.snmp_secrets_file")
        secrets = _parsed(text, _Secrets, f"control.snmp_secrets_file = {secrets_path}", hide=True)
    out: dict[str, Target] = {}
    for switch in switches:
        where = f"{path}: switch {switch.name}"
        if switch.name in out:
            raise UsageError(f"{where}: there twice")
        out[switch.name] = _target(switch, secrets, where)
    return out


def _target(switch: _Switch, secrets: _Secrets, where: str) -> Target:
    host, _, number = switch.address.rpartition(":")
    if not host or not number.isdigit() or not 0 < int(number) < 65536:
        raise UsageError(f"{where}: address = {switch.address!r}: host:port")
    if bool(switch.user) == bool(switch.community):
        raise UsageError(f"{where}: give either user (SNMPv3) or community (SNMPv2c)")
    user = community = None
    if switch.user:
        keys = secrets.users.get(switch.user)
        if keys is None:
            raise UsageError(f"{where}: the credential file has no [users.{switch.user}]")
        if min(len(keys.auth), len(keys.privacy)) < MIN_KEY:
            raise UsageError(f"{where}: the keys of user {switch.user} need {MIN_KEY} characters or more")
        user = User(switch.user, Secret(keys.auth), Secret(keys.privacy), keys.auth_protocol, keys.privacy_protocol)
    else:
        text = secrets.communities.get(switch.community)
        if text is None:
            raise UsageError(f"{where}: the credential file has no community {switch.community!r} under [communities]")
        community = Secret(text)
    load_profile(switch.profile)
    return Target(
        name=switch.name,
        host=host.strip("[]"),
        port=int(number),
        profile_name=switch.profile,
        user=user,
        community=community,
        timeout_s=switch.timeout,
        guid=switch.guid,
    )


def _toml(path: Path, kind: Any, key: str) -> Any:
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"{key} = {path}: {getattr(error, 'strerror', None) or 'not UTF-8'}") from None
    return _parsed(text, kind, f"{key} = {path}")


def _parsed(text: str, kind: Any, where: str, *, hide: bool = False) -> Any:
    """``hide``: an error says where, not what, for the text holds secrets."""
    try:
        return msgspec.convert(tomllib.loads(text), kind)
    except tomllib.TOMLDecodeError as error:
        raise UsageError(f"{where}: {'not TOML' if hide else error}") from None
    except msgspec.ValidationError as error:
        raise UsageError(f"{where}: {error}") from None

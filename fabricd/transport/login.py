"""How to log in at a broker: TLS context and password, read from the files the configuration names."""

from __future__ import annotations

import os
import ssl
from collections.abc import Mapping
from pathlib import Path

from fabricd.config.broker import BrokerConfig
from fabricd.errors import UsageError


def credential_path(name: str, environ: Mapping[str, str] = os.environ) -> Path:
    """A bare file name is looked up among systemd's credentials (``LoadCredential=``) when there are any."""
    directory = environ.get("CREDENTIALS_DIRECTORY")
    if directory and os.sep not in name:
        return Path(directory) / name
    return Path(name)


def read_password(broker: BrokerConfig) -> str | None:
    """First line of the password file. Raises UsageError naming the key when it cannot be read."""
    if broker.password_file is None:
        return None
    path = credential_path(broker.password_file)
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"broker.password_file = {path}: {getattr(error, 'strerror', None) or error}") from None
    if not lines or not lines[0]:
        raise UsageError(f"broker.password_file = {path}: is empty")
    return lines[0]


def tls_context(broker: BrokerConfig) -> ssl.SSLContext | None:
    """None without TLS. Raises UsageError naming the key and file that does not work."""
    if not broker.tls:
        for key in ("ca_file", "cert_file", "key_file"):
            if getattr(broker, key) is not None:
                raise UsageError(f"broker.{key} is set, but broker.tls = false")
        return None
    try:
        context = ssl.create_default_context(cafile=broker.ca_file)
    except (OSError, ssl.SSLError) as error:
        raise UsageError(f"broker.ca_file = {broker.ca_file}: {error}") from None
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    if broker.cert_file is not None:
        key_path = credential_path(broker.key_file) if broker.key_file is not None else None
        try:
            context.load_cert_chain(broker.cert_file, key_path)
        except (OSError, ssl.SSLError) as error:
            raise UsageError(f"broker.cert_file = {broker.cert_file}, key_file = {key_path}: {error}") from None
    elif broker.key_file is not None:
        raise UsageError("broker.key_file is set without broker.cert_file")
    return context

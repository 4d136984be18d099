from pathlib import Path

import pytest

from fabricd.config.broker import BrokerConfig
from fabricd.errors import UsageError
from fabricd.transport.embedded import EmbeddedBroker
from fabricd.transport.login import credential_path, read_password, tls_context


def test_password_is_the_first_line(tmp_path: Path) -> None:
    (tmp_path / "pw").write_text("secret\nnot this\n")
    assert read_password(BrokerConfig(password_file=str(tmp_path / "pw"))) == "secret"
    assert read_password(BrokerConfig()) is None


@pytest.mark.parametrize("content", ["", "\n"])
def test_empty_password_file_is_named(tmp_path: Path, content: str) -> None:
    (tmp_path / "pw").write_text(content)
    with pytest.raises(UsageError, match=r"broker\.password_file = .*pw: is empty"):
        read_password(BrokerConfig(password_file=str(tmp_path / "pw")))


def test_missing_files_are_named() -> None:
    with pytest.raises(UsageError, match=r"broker\.password_file = /nowhere"):
        read_password(BrokerConfig(password_file="/nowhere"))
    with pytest.raises(UsageError, match=r"broker\.ca_file = /nowhere"):
        tls_context(BrokerConfig(tls=True, ca_file="/nowhere"))
    with pytest.raises(UsageError, match=r"broker\.cert_file = /nowhere"):
        tls_context(BrokerConfig(tls=True, cert_file="/nowhere"))


def test_half_a_tls_configuration_is_refused() -> None:
    with pytest.raises(UsageError, match=r"broker\.ca_file is set, but broker\.tls = false"):
        tls_context(BrokerConfig(ca_file="/x"))
    with pytest.raises(UsageError, match=r"without broker\.cert_file"):
        tls_context(BrokerConfig(tls=True, key_file="/x"))
    assert tls_context(BrokerConfig()) is None


def test_bare_names_are_credentials() -> None:
    environ = {"CREDENTIALS_DIRECTORY": "/run/credentials/x"}
    assert credential_path("mqtt-password", environ) == Path("/run/credentials/x/mqtt-password")
    assert credential_path("/etc/pw", environ) == Path("/etc/pw")
    assert credential_path("pw", {}) == Path("pw")


@pytest.mark.parametrize("host", ["0.0.0.0", "192.0.2.1", "example.org", "::"])
def test_the_embedded_broker_refuses_the_network(host: str) -> None:
    with pytest.raises(UsageError, match="loopback only"):
        EmbeddedBroker(1883, host)

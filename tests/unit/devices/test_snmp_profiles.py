"""Device profiles and targets: every profile is sound, mistakes are named, secrets do not show."""

from __future__ import annotations

import pickle
from pathlib import Path

import pytest

from fabricd.devices.base import Secret, read_secret
from fabricd.devices.snmp.profile import LEVERS, load_profile, names
from fabricd.devices.snmp.targets import load_targets
from fabricd.errors import UsageError


@pytest.mark.parametrize("name", names())
def test_every_profile_is_whole(name: str) -> None:
    profile = load_profile(name)
    assert profile.title and profile.source
    assert {read.definition.name for read in profile.read} >= {"netdev_receive_bytes", "netdev_transmit_bytes"}
    assert len({read.oid for read in profile.read}) == len(profile.read)
    for lever in LEVERS:
        assert bool(profile.why_not(lever)) == (lever not in profile.write)


def test_what_is_known_of_vendors() -> None:
    assert set(names()) == {"interfaces", "ieee", "cisco", "sonic", "onyx", "arista", "juniper", "fastpath"}
    assert set(load_profile("fastpath").write) == {"pfc", "ets", "ecn", "port_admin"}
    assert set(load_profile("ieee").write) == {"pfc", "ets", "port_admin"}
    assert load_profile("sonic").write == {}
    assert "gNMI" in load_profile("sonic").why_not("pfc") and "eAPI" in load_profile("arista").why_not("ecn")
    pfc = load_profile("fastpath").write["pfc"].value
    assert pfc is not None and pfc.at(7, 3).endswith(".47.1.2.1.2.7.3")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ('source = "x"', "title"),
        ('title = "x"\nsource = "x"\n[write.reboot]\nvalue = { oid = "1.{port}", type = "integer" }', "levers are"),
        ('title = "x"\nsource = "x"\n[write.ecn]\nvalue = { oid = "1.{port}.{priority}", type = "integer" }', "kmin"),
        ('title = "x"\nsource = "x"\n[write.pfc]\nvalue = { oid = "1.2.{port}", type = "integer" }', "each index"),
        (
            'title = "x"\nsource = "x"\n[write.pfc]\nvalue = { oid = "ifAdmin.{port}.{priority}", type = "integer" }',
            "no OID",
        ),
        ('title = "x"\nsource = "x"\n[[read]]\nobject = "noSuch"\noid = "1.3"\nindex = "port"', "catalogue"),
        ('title = "x"\nsource = "x"\nports = "Ethernet1"', "ports"),
        ("title = ", "Invalid"),
    ],
)
def test_a_mistake_names_the_file(tmp_path: Path, text: str, said: str) -> None:
    path = tmp_path / "mine.toml"
    path.write_text(text)
    with pytest.raises(UsageError, match=said) as refused:
        load_profile(str(path))
    assert str(path) in str(refused.value)


def test_targets_need_a_user_or_a_community_the_credential_file_has(tmp_path: Path) -> None:
    targets, secrets = tmp_path / "targets.toml", tmp_path / "secrets.toml"
    secrets.write_text(
        '[users.a]\nauth = "hunterauth"\nprivacy = "hunterpriv"\n'
        '[users.b]\nauth = "x"\nprivacy = "y"\n[communities]\nlab = "c0mm"\n'
    )
    secrets.chmod(0o600)

    def load(**keys: str) -> str:
        row = {"name": "l1", "address": "10.0.0.1:161", "profile": "ieee"} | keys
        targets.write_text("[[switch]]\n" + "".join(f'{key} = "{value}"\n' for key, value in row.items()))
        try:
            return repr(load_targets(str(targets), str(secrets)))
        except UsageError as error:
            return f"refused: {error}"

    shown = load(user="a")
    assert "hunter" not in shown and "***" in shown
    assert "c0mm" not in load(community="lab")
    assert "either user" in load() and "either user" in load(user="a", community="lab")
    assert "[users.none]" in load(user="none") and "8 characters" in load(user="b")
    assert "host:port" in load(user="a", address="10.0.0.1")
    assert "profile 'x'" in load(user="a", profile="x")
    secrets.write_text('[users.a]\nauth = "hunterauth"\nprivacy = hunterpriv\n')
    assert "not TOML" in load(user="a") and "hunter" not in load(user="a")
    secrets.chmod(0o644)
    assert "chmod o-r" in load(user="a")


def test_a_bare_name_is_a_credential_of_systemd(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "ufm-token").write_text("hunter2\n")
    (tmp_path / "ufm-token").chmod(0o400)
    monkeypatch.setenv("CREDENTIALS_DIRECTORY", str(tmp_path))
    assert read_secret("ufm-token", "control.ufm_token_file").reveal() == "hunter2"
    with pytest.raises(UsageError, match="none"):
        read_secret("none", "control.ufm_token_file")


def test_secrets_show_stars_and_travel_only_by_pickle(tmp_path: Path) -> None:
    secret = Secret("hunter2")
    assert {repr(secret), str(secret), f"{secret}", f"{secret:>3}"} == {"***"}
    assert pickle.loads(pickle.dumps(secret)).reveal() == "hunter2"
    path = tmp_path / "s"
    path.write_text("\n")
    path.chmod(0o600)
    with pytest.raises(UsageError, match="empty"):
        read_secret(str(path), "control.ufm_token_file")
    path.write_text("hunter2\nsecond line\n")
    assert read_secret(str(path), "k") == secret

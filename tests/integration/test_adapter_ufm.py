"""The UFM adapter against the stand-in: levers, jobs that go wrong, credentials that end, answers that are not true."""

from __future__ import annotations

import logging
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from fabricd.config.control import ControlConfig
from fabricd.control.adapters.base import AdapterError, Conflict, Reports, Unreachable
from fabricd.control.adapters.ufm import UfmAdapter, open_adapter
from fabricd.control.journal import SqliteJournal
from fabricd.control.life import Life
from fabricd.devices.base import Secret
from fabricd.devices.ufm.client import UfmClient
from fabricd.devices.ufm.login import Login
from fabricd.errors import UsageError
from fabricd.model.action import Action, Change, Lever, Proposal, Touched
from fabricd.twin.http import Tls
from tests.integration.ufm_bench import StandIn, stand_in

PASSWORD = "123456"


@pytest.fixture(scope="module")
def shared() -> Iterator[StandIn]:
    with stand_in() as running:
        yield running


@pytest.fixture
def ufm(shared: StandIn) -> StandIn:
    shared.faults.clear()
    return shared


@pytest.fixture
def secret(tmp_path: Path) -> Path:
    path = tmp_path / "password"
    path.write_text(f"{PASSWORD}\n")
    path.chmod(0o600)
    return path


@pytest.fixture
def adapter(ufm: StandIn, secret: Path) -> Iterator[UfmAdapter]:
    made = make(ufm, password_file=str(secret), user="admin")
    yield made
    made.close()


def make(
    ufm: StandIn, prefix: str = "/ufmRest", timeout_s: float = 5, job_limit_s: float = 5, **how: str
) -> UfmAdapter:
    return UfmAdapter(UfmClient(ufm.url, Login(prefix, **how), timeout_s=timeout_s, job_limit_s=job_limit_s))  # type: ignore[arg-type]


def lever(name: str, key: str) -> Lever:
    return Lever(adapter="ufm", device="ufm", name=name, key=key)


def change(adapter: UfmAdapter, name: str, key: str, new: Any) -> Change:
    which = lever(name, key)
    return Change(lever=which, old=adapter.read(which), new=new)


def there_and_back(adapter: UfmAdapter, made: Change) -> None:
    assert adapter.push(made).device_seconds > 0
    assert adapter.read_back(made.lever) == made.new
    adapter.push(Change(lever=made.lever, old=made.new, new=made.old))
    assert adapter.read_back(made.lever) == made.old


def port_of_a_switch(ufm: StandIn) -> str:
    inventory = ufm.server.inventory
    row = next(row for row in range(inventory.plan.rows) if inventory.plan.node_of(row).kind == "switch")
    return f"{inventory.plan.node_of(row).guid:016x}_{int(inventory.plan.row_port[row])}"


def adapter_guid(ufm: StandIn) -> str:
    row = ufm.server.inventory.plan.adapters[0].first_row
    return f"0x{ufm.server.inventory.port(row).guid:016x}"


def test_levers_are_found_by_the_routes_ufm_lists(ufm: StandIn, adapter: UfmAdapter) -> None:
    assert all(found.writable for found in adapter.probe())
    ufm.faults.rewrite["rest_apis"] = lambda rows: [row for row in rows if "sl_qos" not in row["route"]]
    found = {capability.name: capability for capability in adapter.probe()}
    assert not found["sl_rate"].writable and "/resources/sl_qos/rules" in found["sl_rate"].why
    assert found["unhealthy_port"].writable
    ufm.faults.rewrite.clear()
    ufm.faults.statuses.append(["GET", "rest_apis", 404, 1])
    assert all(found.writable for found in adapter.probe())


def test_a_port_is_isolated_and_released(ufm: StandIn, adapter: UfmAdapter) -> None:
    there_and_back(adapter, change(adapter, "unhealthy_port", port_of_a_switch(ufm), True))
    assert [pulled[-1] for pulled in ufm.fabric.pulled("set_isolated")][-2:] == [True, False]


def test_rate_limits_by_level_and_no_name_is_left_behind(ufm: StandIn, adapter: UfmAdapter) -> None:
    ufm.server.limits.names["theirs"] = 50000
    there_and_back(adapter, change(adapter, "sl_rate", adapter_guid(ufm), {"0": 100000, "3": 50000}))
    assert ufm.server.limits.names == {"theirs": 50000}
    assert ufm.server.limits.rules == {}


def test_a_port_goes_down_and_up_by_jobs(ufm: StandIn, adapter: UfmAdapter) -> None:
    key = port_of_a_switch(ufm)
    down = change(adapter, "port_admin", key, "down")
    assert down.old == "up"
    assert "Completed" in adapter.push(down).answer
    assert adapter.read_back(down.lever) == "down"
    adapter.push(Change(lever=down.lever, old="down", new="up"))
    assert adapter.read_back(down.lever) == "up"


def test_a_port_without_actions_takes_the_command_template(ufm: StandIn, adapter: UfmAdapter) -> None:
    ufm.faults.rewrite["/resources/ports/"] = lambda ports: [{**port, "capabilities": []} for port in ports]
    down = change(adapter, "port_admin", port_of_a_switch(ufm), "down")
    (shown,) = adapter.plan(down).shown
    assert '"enable","configure terminal","interface ib' in shown and '"shutdown"' in shown
    adapter.push(down)
    assert adapter.read_back(down.lever) == "down"
    adapter.push(Change(lever=down.lever, old="down", new="up"))
    ufm.faults.rewrite["/resources/ports/"] = lambda ports: [
        {**port, "capabilities": [], "dname": "1; reload"} for port in ports
    ]
    with pytest.raises(AdapterError, match="not a port's label"):
        adapter.plan(down)


def test_partition_quality_is_written_only_where_it_can_be_restored(ufm: StandIn, adapter: UfmAdapter) -> None:
    ufm.server.partitions.create({"pkey": "0x1001"})
    wanted = {"mtu_limit": 4, "service_level": 3, "rate_limit": 100}
    with pytest.raises(AdapterError, match=r"2\.5 Gb/s") as refused:
        adapter.push(change(adapter, "qos_conf", "0x1001", wanted))
    assert not refused.value.reached
    ufm.server.partitions.set_qos({"pkey": "0x1001", "rate_limit": 200, "service_level": 1})
    there_and_back(adapter, change(adapter, "qos_conf", "0x1001", wanted))
    assert adapter.read(lever("qos_conf", "0x222")) is None
    with pytest.raises(AdapterError, match="no partition"):
        adapter.push(change(adapter, "qos_conf", "0x222", wanted))
    with pytest.raises(AdapterError, match="rate_limit"):
        adapter.push(change(adapter, "qos_conf", "0x1001", {**wanted, "rate_limit": 99}))


@pytest.mark.parametrize(("status", "summary"), [("Completed With Errors", "% refused"), ("Aborted", "by a person")])
def test_a_job_that_fails_is_a_failure_that_may_have_taken_effect(
    ufm: StandIn, adapter: UfmAdapter, status: str, summary: str
) -> None:
    ufm.faults.rewrite[r"/jobs/\d"] = lambda job: {**job, "Status": status, "Summary": summary}
    with pytest.raises(AdapterError, match=f"{status}: {summary}") as failed:
        adapter.push(change(adapter, "port_admin", port_of_a_switch(ufm), "down"))
    assert failed.value.reached
    ufm.faults.clear()
    adapter.push(change(adapter, "port_admin", port_of_a_switch(ufm), "up"))


def test_a_job_that_hangs_is_given_up(ufm: StandIn, secret: Path) -> None:
    adapter = make(ufm, password_file=str(secret), user="admin", job_limit_s=0.3)
    ufm.faults.rewrite[r"/jobs/\d"] = lambda job: {**job, "Status": "Running"}
    with pytest.raises(AdapterError, match=r"still runs after 0\.3 s") as failed:
        adapter.push(change(adapter, "port_admin", port_of_a_switch(ufm), "down"))
    assert failed.value.reached
    ufm.faults.clear()
    adapter.push(change(adapter, "port_admin", port_of_a_switch(ufm), "up"))
    adapter.close()


def test_a_job_with_warnings_is_done_and_the_warnings_are_kept(ufm: StandIn, adapter: UfmAdapter) -> None:
    ufm.faults.rewrite[r"/jobs/\d"] = lambda job: {**job, "Status": "Completed With Warnings", "Summary": "slow"}
    done = adapter.push(change(adapter, "port_admin", port_of_a_switch(ufm), "down"))
    assert done.warnings == ("slow",)
    adapter.push(change(adapter, "port_admin", port_of_a_switch(ufm), "up"))


def test_a_200_that_changed_nothing_is_caught_by_the_read_back(
    ufm: StandIn, adapter: UfmAdapter, tmp_path: Path
) -> None:
    ufm.faults.swallow.add(("PUT", "/app/unhealthy_ports"))
    journal = SqliteJournal(str(tmp_path / "journal.db"))
    action = Action(
        proposal=Proposal(
            id="a1", verdict_id="v", cause="degraded_link", remedy="isolate", touched=Touched(), gain=0.5, cost=0.1, why="test",
            created_ns=1, changes=(Change(lever=lever("unhealthy_port", port_of_a_switch(ufm)), new=True),),
        )
    )  # fmt: skip
    action.advance("admitted", 1)
    assert not Life(journal, {"ufm": adapter}).push(action, int(600e9))
    assert action.state == "rolled_back"
    assert "does not have it" in action.events[-1].detail
    journal.close()


def test_wrong_password_and_server_errors(ufm: StandIn, adapter: UfmAdapter, tmp_path: Path) -> None:
    wrong = tmp_path / "wrong"
    wrong.write_text("no-such-password")
    wrong.chmod(0o600)
    with pytest.raises(AdapterError, match="401") as refused:
        make(ufm, password_file=str(wrong), user="admin").read(lever("unhealthy_port", port_of_a_switch(ufm)))
    assert "no-such-password" not in str(refused.value)
    made = change(adapter, "unhealthy_port", port_of_a_switch(ufm), True)
    ufm.faults.statuses.append(["GET", "unhealthy", 500, 1])
    assert adapter.read(made.lever) is False  # a read is repeated
    ufm.faults.statuses.append(["PUT", "unhealthy", 500, 9])
    ufm.faults.seen.clear()
    with pytest.raises(AdapterError, match="500") as failed:
        adapter.push(made)
    assert failed.value.reached
    assert ufm.faults.writes() == [("PUT", "/ufmRest/app/unhealthy_ports")]  # a write is not


def test_a_write_without_an_answer_may_have_taken_effect(ufm: StandIn, secret: Path) -> None:
    adapter = make(ufm, password_file=str(secret), user="admin", timeout_s=0.5)
    ufm.faults.silent.add(("PUT", "unhealthy"))
    with pytest.raises(Unreachable) as failed:
        adapter.push(change(adapter, "unhealthy_port", port_of_a_switch(ufm), True))
    assert failed.value.reached
    adapter.close()


def test_an_expired_token_is_read_again_from_its_file(ufm: StandIn, tmp_path: Path) -> None:
    old = ufm.accounts.new_token("admin")["access_token"]
    path = tmp_path / "token"
    path.write_text(old)
    path.chmod(0o600)
    adapter = make(ufm, "/ufmRestV3", token_file=str(path))
    key = port_of_a_switch(ufm)
    assert adapter.read(lever("unhealthy_port", key)) is False
    del ufm.accounts.tokens[old]
    with pytest.raises(AdapterError, match="expired"):
        adapter.read(lever("unhealthy_port", key))
    path.write_text(ufm.accounts.new_token("admin")["access_token"])
    there_and_back(adapter, change(adapter, "unhealthy_port", key, True))
    adapter.close()


def test_a_session_that_ended_is_opened_anew(ufm: StandIn, secret: Path) -> None:
    adapter = make(ufm, "/ufmRestV2", password_file=str(secret), user="admin")
    key = port_of_a_switch(ufm)
    assert adapter.read(lever("unhealthy_port", key)) is False
    ufm.accounts.sessions.clear()
    there_and_back(adapter, change(adapter, "unhealthy_port", key, True))
    adapter.close()


def test_a_client_certificate_is_enough(tmp_path: Path) -> None:
    for name in ("server", "client"):
        subprocess.run(
            ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", f"/CN={name}", "-addext",
             "subjectAltName=IP:127.0.0.1", "-keyout", f"{name}.key", "-out", f"{name}.pem"],
            cwd=tmp_path, capture_output=True, timeout=60, check=True,
        )  # fmt: skip
    files = {name: str(tmp_path / name) for name in ("server.pem", "client.pem", "client.key")}
    with stand_in(Tls(tmp_path / "server.pem", tmp_path / "server.key", tmp_path / "client.pem")) as ufm:
        how = {"cert_file": files["client.pem"], "key_file": files["client.key"]}
        adapter = make(ufm, ca_file=files["server.pem"], **how)
        there_and_back(adapter, change(adapter, "unhealthy_port", port_of_a_switch(ufm), True))
        assert (
            "client certificate"
            in adapter.plan(change(adapter, "unhealthy_port", port_of_a_switch(ufm), True)).shown[0]
        )
        adapter.close()
        with pytest.raises(Unreachable, match="CERTIFICATE_VERIFY_FAILED"):
            make(ufm, **how).read(lever("unhealthy_port", port_of_a_switch(ufm)))
    with pytest.raises(UsageError, match="cert"):
        make(ufm, cert_file=str(tmp_path / "none.pem"))


def test_what_others_isolated_is_theirs(ufm: StandIn, adapter: UfmAdapter) -> None:
    key = port_of_a_switch(ufm)
    made = change(adapter, "unhealthy_port", key, True)
    ufm.server.operations.unhealthy[key] = ("isolate", 1.0)  # a person, between our look and our write
    with pytest.raises(Conflict):
        adapter.push(made)
    ufm.server.operations.unhealthy.clear()
    adapter.push(made)
    undo = Change(lever=made.lever, old=True, new=False)
    ufm.faults.rewrite["unhealthy_ports"] = lambda rows: [{**row, "Condition": ["MANUAL", "HIGH_BER"]} for row in rows]
    with pytest.raises(Conflict, match="HIGH_BER"):
        adapter.push(undo)
    ufm.faults.rewrite.clear()
    ufm.server.operations.unhealthy[key] = ("isolate", 1.0)
    with pytest.raises(Conflict, match="anew"):
        adapter.push(undo)
    ufm.server.operations.unhealthy.clear()


def test_conditions_of_older_versions_are_texts(ufm: StandIn, adapter: UfmAdapter) -> None:
    ufm.faults.rewrite["unhealthy_ports$"] = lambda rows: [{**row, "Condition": "MANUAL"} for row in rows]
    there_and_back(adapter, change(adapter, "unhealthy_port", port_of_a_switch(ufm), True))


def test_findings_appear_in_ufm(ufm: StandIn, adapter: UfmAdapter) -> None:
    assert isinstance(adapter, Reports)
    adapter.report("warning", "fabricd HoL", "head-of-line blocking behind leaf0/1", port_of_a_switch(ufm))
    assert ufm.server.events[-1]["severity"] == "Warning"
    assert ufm.server.events[-1]["object_path"] == "fabricd"


def test_secrets_show_nowhere(
    ufm: StandIn, adapter: UfmAdapter, secret: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    made = change(adapter, "unhealthy_port", port_of_a_switch(ufm), True)
    (shown,) = adapter.plan(made).shown
    assert shown.startswith("PUT /ufmRest/app/unhealthy_ports HTTP/1.1\n") and "Basic ***" in shown
    there_and_back(adapter, made)
    login = Login("/ufmRest", user="admin", password_file=str(secret))
    for text in (shown, repr(login), str(login._secret), f"{login._secret}", repr(Secret(PASSWORD)), caplog.text):
        assert PASSWORD not in text and "YWRtaW46" not in text


def test_settings_are_checked(secret: Path, tmp_path: Path) -> None:
    def refused(**settings: Any) -> str:
        with pytest.raises(UsageError) as error:
            open_adapter(ControlConfig(**settings))
        return str(error.value)

    assert "https" in refused(ufm_url="http://ufm.example")
    assert "exactly one" in refused(ufm_url="https://ufm.example")
    assert "ufm_prefix" in refused(ufm_url="https://ufm.example", ufm_prefix="/rest", ufm_password_file=str(secret))
    assert "ufm_user" in refused(ufm_url="https://ufm.example", ufm_password_file=str(secret))
    secret.chmod(0o644)
    assert "chmod o-r" in refused(ufm_url="https://ufm.example", ufm_user="admin", ufm_password_file=str(secret))
    assert "No such file" in refused(ufm_url="https://ufm.example", ufm_token_file=str(tmp_path / "none"))


def test_nothing_listens(secret: Path) -> None:
    client = UfmClient("http://127.0.0.1:9", Login("/ufmRest", user="admin", password_file=str(secret)))
    with pytest.raises(Unreachable) as failed:
        UfmAdapter(client).read(lever("unhealthy_port", "b83fd2030080302e_1"))
    assert not failed.value.reached

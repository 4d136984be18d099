"""The UFM stand-in by curl and an HTTP client: its habits, its strictness, and that what is written acts on the model."""

from __future__ import annotations

import csv
import io
import json
import ssl
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.integration.test_twin_infiniband import rates, telemetry
from tests.integration.twin_tools import running_twin, wait_until

ADMIN = ("admin", "123456")


@pytest.fixture(scope="module")
def twin() -> Iterator[dict[str, Any]]:
    with running_twin("incast", "--begin", "0.5", "--seed", "2") as addresses:
        yield addresses


@pytest.fixture
def ufm(twin: dict[str, Any]) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=f"{twin['ufm']}/ufmRest", auth=ADMIN, timeout=20) as client:
        yield client


def test_curl_reads_the_version_and_the_banner_says_stand_in(twin: dict[str, Any]) -> None:
    def curl(*arguments: str) -> str:
        done = subprocess.run(["curl", "-sS", *arguments], capture_output=True, text=True, timeout=30, check=True)
        return done.stdout

    version = json.loads(curl("-u", "admin:123456", f"{twin['ufm']}/ufmRest/app/ufm_version"))
    assert version["ufm_release_version"].startswith("6.")
    assert "stand-in" in curl(f"{twin['ufm']}/")
    assert "stand-in" in curl(twin["ufm_csv"].replace("/csv/metrics", "/"))


def test_each_scheme_goes_with_its_prefix(twin: dict[str, Any]) -> None:
    with httpx.Client(base_url=twin["ufm"], timeout=20) as client:
        path = "/app/ufm_version"
        assert client.get(f"/ufmRest{path}").status_code == 401
        assert client.get(f"/ufmRest{path}", auth=("admin", "wrong")).status_code == 401
        assert client.get(f"/ufmRest{path}", auth=ADMIN).status_code == 200
        token = client.post("/ufmRest/app/tokens", auth=ADMIN).json()["access_token"]
        assert client.get(f"/ufmRestV3{path}", headers={"Authorization": f"Basic {token}"}).status_code == 200
        assert client.get(f"/ufmRestV3{path}", auth=ADMIN).status_code == 401
        assert client.get(f"/ufmRest{path}", headers={"Authorization": f"Basic {token}"}).status_code == 401
        assert client.get(f"/ufmRestV2{path}").status_code == 401
        form = {"httpd_username": ADMIN[0], "httpd_password": ADMIN[1]}
        assert client.post("/dologin", data=form).status_code == 200
        assert client.get(f"/ufmRestV2{path}").status_code == 200
        assert client.get(path).status_code == 401
        assert client.get(path, headers={"X-Remote-User": "ufmsystem"}).status_code == 200


def test_a_client_certificate_is_enough_over_tls(tmp_path: Path) -> None:
    def openssl(*arguments: str) -> None:
        subprocess.run(["openssl", *arguments], cwd=tmp_path, capture_output=True, timeout=60, check=True)

    for name in ("cert", "client"):
        openssl("req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", f"/CN={name}",
                "-addext", "subjectAltName=IP:127.0.0.1", "-keyout", f"{name}.key", "-out", f"{name}.pem")  # fmt: skip
    (tmp_path / "cert.key").rename(tmp_path / "key.pem")
    (tmp_path / "ca.pem").write_text((tmp_path / "client.pem").read_text())
    with running_twin("quiet", "--ufm-tls", str(tmp_path)) as addresses:
        context = ssl.create_default_context(cafile=str(tmp_path / "cert.pem"))
        with pytest.raises(httpx.HTTPError):
            httpx.get(f"{addresses['ufm_tls']}/ufmRestV2/app/ufm_version", verify=context)
        context.load_cert_chain(tmp_path / "client.pem", tmp_path / "client.key")
        for prefix in ("/ufmRestV2", "/ufmRest"):
            assert httpx.get(f"{addresses['ufm_tls']}{prefix}/app/ufm_version", verify=context).status_code == 200


def test_routes_are_listed_and_served(ufm: httpx.Client) -> None:
    routes = {(route["route"], route["method"]) for route in ufm.get("/app/roles_access_control/rest_apis").json()}
    assert {("/app/unhealthy_ports", "PUT"), ("/resources/pkeys/qos_conf", "PUT"), ("/actions", "POST")} <= routes
    for path in ("/resources/systems", "/resources/ports", "/resources/links", "/jobs", "/app/alarms", "/app/smconf",
                 "/monitoring/attributes", "/resources/sl_qos/rules", "/app/unhealthy_ports/policy"):  # fmt: skip
        assert ufm.get(path).status_code == 200, path


def test_systems_ports_and_links_fit_together(ufm: httpx.Client, twin: dict[str, Any]) -> None:
    systems = ufm.get("/resources/systems").json()
    truth = json.loads(Path(twin["truth"]).read_text())
    assert {f"0x{system['guid']}" for system in systems} == {node["guid"] for node in truth["nodes"].values()}
    ports = {port["name"]: port for port in ufm.get("/resources/ports").json()}
    for port in ports.values():
        assert ports[port["peer"]]["peer"] == port["name"]
    links = ufm.get("/resources/links").json()
    assert len(links) == len(ports) / 2
    paged = ufm.get("/resources/links", params={"page_number": 2, "rpp": 3}).json()
    assert paged == {"data": links[3:6]}
    assert ufm.get("/resources/ports", params={"guid": "1"}).status_code == 400
    switch = next(system for system in systems if system["type"] == "switch")
    mine = ufm.get("/resources/ports", params={"system": switch["guid"]}).json()
    assert [port["name"] for port in mine] == switch["ports"]


def test_an_unknown_partition_is_an_empty_object(ufm: httpx.Client) -> None:
    answer = ufm.get("/resources/pkeys/0x123")
    assert (answer.status_code, answer.json()) == (200, {})
    assert "0x7fff" in ufm.get("/resources/pkeys").json()
    assert ufm.get("/resources/pkeys", params={"guids_data": "true", "qos_conf": "true"}).status_code == 400


@pytest.mark.parametrize(
    ("method", "path", "body", "status"),
    [
        ("POST", "/resources/pkeys", {"pkey": "0x1001", "guids": ["ffffffffffffffff"]}, 404),
        ("POST", "/resources/pkeys", {"pkey": "0x1001", "guids": ["0xabc"]}, 400),
        ("POST", "/resources/pkeys", {"pkey": "1001", "guids": []}, 400),
        ("POST", "/resources/pkeys", {"pkey": "0x1001", "guids": [], "colour": "red"}, 400),
        ("PUT", "/resources/pkeys/qos_conf", {"pkey": "0x7ffe", "rate_limit": 100}, 404),
        (
            "PUT",
            "/app/unhealthy_ports",
            {"ports": ["nonsense_1"], "ports_policy": "UNHEALTHY", "action": "isolate"},
            400,
        ),
        ("PUT", "/app/unhealthy_ports", {"ports": [], "ports_policy": "SICK"}, 400),
        ("POST", "/actions", {"action": "dance", "object_ids": ["leaf0"], "object_type": "System"}, 400),
        ("POST", "/actions", {"action": "enable", "object_ids": ["nobody"], "object_type": "System"}, 404),
        ("POST", "/app/events/external_event", {"event_id": 1, "description": "x"}, 400),
        ("POST", "/resources/sl_qos/names", {"slow": "fast"}, 400),
        ("POST", "/monitoring/start", {"attributes": ["Nonsense"]}, 400),
    ],
)
def test_what_is_not_documented_is_refused(
    ufm: httpx.Client, method: str, path: str, body: dict[str, Any], status: int
) -> None:
    answer = ufm.request(method, path, json=body)
    assert answer.status_code == status, answer.text


def test_a_body_without_content_type_is_refused(ufm: httpx.Client) -> None:
    body = json.dumps({"ports": [], "ports_policy": "HEALTHY"})
    assert ufm.put("/app/unhealthy_ports", content=body, headers={"Content-Type": "text/plain"}).status_code == 400


def test_an_action_is_a_job_that_ends_and_takes_the_link_down(ufm: httpx.Client, twin: dict[str, Any]) -> None:
    system = next(s for s in ufm.get("/resources/systems", params={"type": "switch"}).json() if s["role"] == "tor")
    port = system["ports"][0]

    def act(action: str) -> dict[str, Any]:
        body = {"action": action, "object_ids": [system["guid"]], "object_type": "System", "params": {"port_id": port}}
        answer = ufm.post("/actions", json=body)
        assert answer.status_code == 202
        job = answer.headers["Location"].removeprefix("/ufmRest")
        assert answer.text.endswith(job)
        assert ufm.get(job).json()["Status"] == "Running"
        wait_until(lambda: ufm.get(job).json()["Status"] != "Running", 10, "the job ends")
        document: dict[str, Any] = ufm.get(job).json()
        return document

    assert act("disable")["Status"] == "Completed"
    shown = ufm.get(f"/resources/ports/{port}").json()[0]
    assert (shown["physical_state"], shown["logical_state"], shown["peer"]) == ("Disabled", "Down", None)
    trees = Path(twin["sysfs"])
    wait_until(
        lambda: any("Polling" in file.read_text() for file in trees.glob("*/class/infiniband/*/ports/1/phys_state")),
        10,
        "a host's sysfs shows the link down",
    )
    assert act("enable")["Status"] == "Completed"
    wait_until(lambda: ufm.get(f"/resources/ports/{port}").json()[0]["logical_state"] == "Active", 10, "active again")


def test_command_lines_on_several_switches_have_sub_jobs(ufm: httpx.Client) -> None:
    names = [s["guid"] for s in ufm.get("/resources/systems", params={"role": "tor"}).json()][:2]
    body = {
        "action": "run_cli", "object_ids": names, "object_type": "System",
        "params": {"commandline": ["enable", "configure terminal", "make coffee"]},
    }  # fmt: skip
    number = ufm.post("/actions", json=body).headers["Location"].rsplit("/", 1)[1]
    wait_until(lambda: ufm.get(f"/jobs/{number}").json()["Status"] != "Running", 10, "the job ends")
    assert ufm.get(f"/jobs/{number}").json()["Status"] == "Completed With Errors"
    parts = ufm.get("/jobs", params={"parent_id": number}).json()
    assert [part["RelatedObjects"] for part in parts] == [[name] for name in names]
    assert all("coffee" in part["Summary"] for part in parts)


def test_an_unhealthy_port_is_isolated_both_ways_and_comes_back(ufm: httpx.Client, twin: dict[str, Any]) -> None:
    links = [link for link in ufm.get("/resources/links").json() if "mlx5" not in link["destination_port_dname"]]
    loads = rates(twin, "PortXmitDataExtended")
    ports = {port["name"]: (port["system_name"], port["number"]) for port in ufm.get("/resources/ports").json()}

    def load(link: dict[str, Any]) -> float:
        return sum(loads[ports[name]] for name in link["name"].split(":"))

    link = max(links, key=load)
    source = link["name"].split(":")[0]
    assert load(link) > 0
    body = {"ports": [source], "ports_policy": "UNHEALTHY", "action": "isolate"}
    assert ufm.put("/app/unhealthy_ports", json=body).status_code == 200
    listed = ufm.get("/app/unhealthy_ports").json()
    assert [(one["UnhealthyPort"], one["State"], one["Condition"]) for one in listed] == [
        (source, "isolate", ["MANUAL"])
    ]

    def moved(name: str) -> float:
        return rates(twin, "PortXmitDataExtended", 1)[ports[name]]

    both = link["name"].split(":")
    wait_until(lambda: all(moved(name) == 0 for name in both), 20, "no traffic on the isolated link")
    assert ufm.put("/app/unhealthy_ports", json={"ports": [source], "ports_policy": "HEALTHY"}).status_code == 200
    assert ufm.get("/app/unhealthy_ports").json() == []
    wait_until(lambda: sum(moved(name) for name in both) > 0, 20, "traffic is back")


def test_a_rate_limit_by_level_throttles_a_sender(ufm: httpx.Client, twin: dict[str, Any]) -> None:
    sender, guid, bandwidth = busiest_sender(ufm, twin)
    assert ufm.post("/resources/sl_qos/names", json={"crawl": 8000}).status_code == 201
    assert ufm.get("/resources/sl_qos/names", params={"name": "crawl"}).json() == 8000
    assert bandwidth > 4e9
    assert ufm.put("/resources/sl_qos/rules", json={guid: {"0": "crawl"}}).status_code == 200
    assert ufm.get(f"/resources/sl_qos/rules/{guid}").json() == {"0": "crawl"}

    def bytes_per_second() -> float:
        return 4 * rates(twin, "PortXmitDataExtended", 3)[sender, 1]

    wait_until(lambda: bytes_per_second() < 1.5 * 8000e6 / 8, 30, "the sender is kept to 8 Gb/s")
    assert ufm.delete("/resources/sl_qos/names", params={"name": "crawl"}).status_code == 400
    assert ufm.delete(f"/resources/sl_qos/rules/{guid}").status_code == 200
    assert ufm.delete("/resources/sl_qos/names", params={"name": "crawl"}).status_code == 202
    wait_until(lambda: bytes_per_second() > 2e9, 30, "the limit is gone")


def busiest_sender(ufm: httpx.Client, twin: dict[str, Any]) -> tuple[str, str, float]:
    """(description, port GUID, bytes per second) of the adapter that sends most."""
    loads = {key: rate for key, rate in rates(twin, "PortXmitDataExtended", 3).items() if key[0].startswith("host")}
    (sender, _), rate = max(loads.items(), key=lambda item: item[1])
    port = next(port for port in ufm.get("/resources/ports").json() if port["system_name"] == sender)
    return sender, port["guid"], 4 * rate


def test_partition_qos_moves_and_limits_its_members(ufm: httpx.Client, twin: dict[str, Any]) -> None:
    sender, guid, _ = busiest_sender(ufm, twin)
    hosts = [port["guid"] for port in ufm.get("/resources/ports", params={"sys_type": "Computer"}).json()]
    assert ufm.post("/resources/pkeys", json={"pkey": "0x1001", "guids": hosts}).status_code == 200
    assert ufm.get("/resources/pkeys/0x1001", params={"qos_conf": "true"}).json()["qos_conf"]["rate_limit"] == 2.5
    assert telemetry(twin)[sender, 1]["PortXmitDataExtended"] > 0
    wanted = {"pkey": "0x1001", "mtu_limit": 4, "service_level": 1, "rate_limit": 10}
    assert ufm.put("/resources/pkeys/qos_conf", json=wanted).status_code == 200
    shown = ufm.get("/resources/pkeys/0x1001", params={"qos_conf": "true"}).json()
    assert shown["qos_conf"] == {"mtu_limit": 4, "service_level": 1, "rate_limit": 10}
    wait_until(
        lambda: 4 * rates(twin, "PortXmitDataExtended", 3)[sender, 1] < 1.5 * 10e9 / 8, 30, "members kept to 10 Gb/s"
    )
    members = ufm.get("/resources/pkeys/0x1001", params={"guids_data": "true"}).json()["guids"]
    assert {member["guid"] for member in members} == set(hosts)
    assert ufm.post("/actions/remove_guids_from_pkey", json={"pkey": "0x1001", "guids": hosts}).status_code == 200
    assert ufm.get("/resources/pkeys/0x1001").json() == {}
    assert guid in hosts
    wait_until(lambda: 4 * rates(twin, "PortXmitDataExtended", 3)[sender, 1] > 3e9, 30, "the limit went with it")


def test_monitoring_sessions_and_telemetry_show_the_same_counters(ufm: httpx.Client, twin: dict[str, Any]) -> None:
    body = {"attributes": ["Infiniband_MBOut"], "functions": ["RAW"], "scope_object": "Site", "interval": 2,
            "monitor_object": "Port", "objects": ["Grid.default"]}  # fmt: skip
    started = ufm.post("/monitoring/start", json=body)
    assert started.status_code == 202
    session = started.headers["Location"].removeprefix("/ufmRest")
    before = {f"{row['port_guid'][2:]}_{row['port_num']}": int(row["PortXmitDataExtended"]) for row in lines(twin)}
    (sample,) = ufm.get(f"{session}/data").json().values()
    after = {f"{row['port_guid'][2:]}_{row['port_num']}": int(row["PortXmitDataExtended"]) for row in lines(twin)}
    for name, entry in sample["Port"].items():
        assert before[name] <= entry["statistics"]["Infiniband_MBOut"] <= after[name]
    assert ufm.delete(session).status_code == 200
    assert ufm.get(f"{session}/data").status_code == 404


def lines(twin: dict[str, Any], **query: int) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO(httpx.get(twin["ufm_csv"], params=query).text)))


def test_shards_divide_the_ports(twin: dict[str, Any]) -> None:
    whole = {(row["port_guid"], row["port_num"]) for row in lines(twin)}
    parts = [{(row["port_guid"], row["port_num"]) for row in lines(twin, num_shards=3, shard=n)} for n in range(3)]
    assert set.union(*parts) == whole and sum(map(len, parts)) == len(whole)


def test_events_come_back(ufm: httpx.Client) -> None:
    event = {"event_id": 553, "description": "waiting behind leaf0", "external_event_name": "fabricd HoL",
             "external_event_type": "Congestion", "external_event_source": "fabricd"}  # fmt: skip
    assert ufm.post("/app/events/external_event", json=event).status_code == 200
    found = ufm.get("/app/events", params={"severity": "Warning"}).json()
    assert found[-1]["description"] == "waiting behind leaf0"
    assert time.strptime(found[-1]["timestamp"], "%Y-%m-%d %H:%M:%S")

"""The fleet's doctor reports and the jobs document over HTTP."""

import json

from starlette.applications import Starlette
from starlette.testclient import TestClient

from fabricd.jobs.job import Job
from fabricd.jobs.watch import JobWatch
from fabricd.model.topology import Fault
from fabricd.model.verdict import Verdict
from fabricd.outputs.doctor_view import DoctorReports
from fabricd.outputs.jobs_view import JobsView


def report(mtu: int, verdict: str = "ok") -> bytes:
    check = {"id": "port.mtu", "verdict": verdict, "subjects": [{"subject": "mlx5_0", "value": {"active_mtu": mtu}}]}
    return json.dumps({"schema": "fabricd.doctor/1", "checks": [check]}).encode()


def test_reports_are_kept_compared_and_served() -> None:
    reports = DoctorReports(lambda: [Fault("crossed_rail", "b", "rails 1 and 2 are crossed")])
    for node, mtu in (("a", 4096), ("b", 4096), ("c", 4096), ("d", 1024)):
        reports.put(node, report(mtu, "fail" if mtu == 1024 else "ok"))
    client = TestClient(Starlette(routes=reports.routes()))
    fleet = client.get("/api/v1/doctor/fleet").json()
    assert [(d["node"], d["property"]) for d in fleet["differing"]] == [("d", "active_mtu")]
    assert fleet["crossed_rails"][0]["node"] == "b"
    assert len(client.get("/api/v1/doctor", params={"node": "d"}).json()["reports"]) == 1
    assert client.get("/api/v1/doctor", params={"node": "x"}).status_code == 404
    families = {name: samples for name, _, _, samples in reports.metric_families()}
    assert families["fabricd_doctor_check"] == [({"node": "d", "check": "port.mtu", "verdict": "fail"}, 1.0)]
    assert families["fabricd_doctor_differs"] == [({"node": "d", "property": "active_mtu"}, 1.0)]


def test_bad_reports_are_counted_and_change_nothing() -> None:
    reports = DoctorReports()
    reports.put("a", report(4096))
    for payload in (b"{", b"[" * 100_000, b"[]", b'{"checks": [{"verdict": "great"}]}', b'{"checks": 3}'):
        reports.put("a", payload)
    assert reports.rejects.counts == {"doctor_syntax": 2, "doctor_shape": 3}
    assert set(reports.reports) == {"a"}
    reports.put("a", b"")
    assert not reports.reports


def test_jobs_name_the_verdicts_that_touch_them() -> None:
    watch = JobWatch()
    watch.set_jobs([Job(id="7", name="llm", nodes=("a", "b")), Job(id="8", nodes=("c",))])
    verdict = Verdict(id="v1", start=0, detected_at=1, jobs_hurt=["7"], jobs_contributing=["8"])
    client = TestClient(Starlette(routes=JobsView(watch, lambda: [verdict]).routes()))
    first, second = client.get("/api/v1/jobs").json()["jobs"]
    assert (first["id"], first["hurt_by"], first["contributes_to"]) == ("7", ["v1"], [])
    assert (second["id"], second["hurt_by"], second["contributes_to"]) == ("8", [], ["v1"])
    assert client.get("/api/v1/jobs", params={"id": "9"}).status_code == 404

"""Requests to UFM. Reads are repeated once; a write is repeated only when it certainly was not carried out."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

import httpx

from fabricd.devices.base import DeviceError, DeviceUnreachable
from fabricd.devices.ufm.login import Login

TIMEOUT_S = 10.0
MOST_TEXT = 200
_FIRST_LOOK_S, _LAST_LOOK_S = 0.05, 3.0
Method = Literal["GET", "PUT", "POST", "DELETE"]


class NotFound(DeviceError):
    """Status 404."""


@dataclass(frozen=True, slots=True)
class Call:
    """One request. ``job``: UFM answers 202 and works on; done is when the job is."""

    method: Method
    path: str
    body: Any = None
    query: tuple[tuple[str, str], ...] = ()
    job: bool = False


@dataclass(frozen=True, slots=True)
class Done:
    """What came of a call, how long UFM took, and warnings of its job."""

    answer: str
    seconds: float
    warnings: tuple[str, ...] = ()


class UfmClient:
    """One UFM. Not for several threads at once."""

    def __init__(self, url: str, login: Login, *, timeout_s: float = TIMEOUT_S, job_limit_s: float = 60.0) -> None:
        self._login = login
        self._http = httpx.Client(base_url=url, verify=login.tls(), timeout=timeout_s, follow_redirects=False)
        self.url, self.job_limit_s = url, job_limit_s
        self._in = not login.with_cookie

    def close(self) -> None:
        self._http.close()

    # ---------------------------------------------------------------- reading

    def get(self, path: str, **query: str) -> Any:
        """The JSON document. Raises NotFound, DeviceError, DeviceUnreachable."""
        call = Call("GET", path, query=tuple(query.items()))
        try:
            answer = self._send(call)
        except (DeviceUnreachable, _ServerError):
            answer = self._send(call)
        try:
            return answer.json()
        except ValueError:
            raise DeviceError(f"UFM: GET {path}: the answer is not JSON") from None

    # ---------------------------------------------------------------- writing

    def do(self, call: Call) -> Done:
        """Carry out one write, and its job to the end. Raises NotFound, DeviceError, DeviceUnreachable."""
        start = time.monotonic()
        answer = self._send(call)
        said = f"{answer.status_code} {self._text(answer)}".strip()
        if not call.job:
            return Done(said, time.monotonic() - start)
        number = _job_number(answer)
        if number is None:
            raise DeviceError(f"UFM: {call.method} {call.path}: no job in the answer ({said})", reached=True)
        job, warnings = self._wait(number)
        return Done(f"job {number}: {job}", time.monotonic() - start, warnings)

    def _wait(self, number: str) -> tuple[str, tuple[str, ...]]:
        """Follow a job to its end. The wait is UFM's time."""
        deadline = time.monotonic() + self.job_limit_s
        pause, look = threading.Event(), _FIRST_LOOK_S
        while True:
            try:
                job = self.get(f"/jobs/{number}")
            except DeviceError as error:
                raise DeviceError(f"UFM: job {number}: {error}", reached=True) from None
            status, summary = str(job.get("Status")), str(job.get("Summary") or "")[:MOST_TEXT]
            if status == "Completed":
                return status, ()
            if status == "Completed With Warnings":
                return status, (summary or status,)
            if status != "Running":
                raise DeviceError(f"UFM: job {number}: {status}: {summary or self._parts(number)}", reached=True)
            if time.monotonic() >= deadline:
                raise DeviceError(f"UFM: job {number} still runs after {self.job_limit_s:g} s", reached=True)
            pause.wait(min(look, max(0.0, deadline - time.monotonic())))
            look = min(2 * look, _LAST_LOOK_S)

    def _parts(self, number: str) -> str:
        """What the sub-jobs of a failed job say."""
        try:
            parts = self.get("/jobs", parent_id=number)
            return "; ".join(str(part["Summary"]) for part in parts if part.get("Summary"))[:MOST_TEXT]
        except (DeviceError, TypeError, KeyError):
            return ""

    # ---------------------------------------------------------------- the wire

    def _send(self, call: Call) -> httpx.Response:
        if not self._in:
            self._login.open_session(self._http)
            self._in = True
        answer = self._once(call)
        if answer.status_code == 401 and (self._login.refresh() or self._login.with_cookie):
            # Refused before anything was done: with the credential as it now is, once more.
            if self._login.with_cookie:
                self._login.open_session(self._http)
            answer = self._once(call)
        return self._checked(call, answer)

    def _once(self, call: Call) -> httpx.Response:
        content = None if call.body is None else encode_body(call.body)
        headers = {"Accept": "application/json", **self._login.headers()}
        if content is not None:
            headers["Content-Type"] = "application/json"
        path = self._login.prefix + call.path
        for last in (False, True):
            try:
                return self._http.request(call.method, path, content=content, params=dict(call.query), headers=headers)
            except (httpx.ConnectError, httpx.ConnectTimeout) as error:  # not even connected: nothing was carried out
                if last:
                    raise DeviceUnreachable(f"UFM {self.url}: {self._login.hide(str(error))}") from None
            except httpx.HTTPError as error:
                writes = call.method != "GET"
                raise DeviceUnreachable(
                    f"UFM: {call.method} {call.path}: {type(error).__name__}", reached=writes
                ) from None
        raise AssertionError

    def _checked(self, call: Call, answer: httpx.Response) -> httpx.Response:
        status = answer.status_code
        if status in (200, 201, 202, 204):
            return answer
        what = f"UFM: {call.method} {call.path}: status {status}: {self._text(answer)}".rstrip(": ")
        if status == 401:
            raise DeviceError(f"{what} (the credentials are refused or have expired)")
        if status == 404:
            raise NotFound(what)
        if status >= 500:
            raise _ServerError(what, reached=call.method != "GET")
        raise DeviceError(what)

    def _text(self, answer: httpx.Response) -> str:
        return self._login.hide(" ".join(answer.text.split()))[:MOST_TEXT]

    def shown(self, call: Call) -> str:
        """A request byte for byte, but for the credentials."""
        query = f"?{httpx.QueryParams(dict(call.query))}" if call.query else ""
        head = f"{call.method} {self._login.prefix}{call.path}{query} HTTP/1.1\nHost: {httpx.URL(self.url).netloc.decode()}\n"
        head += self._login.shown() + "\n"
        return (
            head if call.body is None else f"{head}Content-Type: application/json\n\n{encode_body(call.body).decode()}"
        )


class _ServerError(DeviceError):
    """Status 500 and above."""


def encode_body(body: Any) -> bytes:
    return json.dumps(body, separators=(",", ":")).encode()


def _job_number(answer: httpx.Response) -> str | None:
    """From the Location header, or the link that is the body: UFM's own clients read the one or the other."""
    headers: Mapping[str, str] = answer.headers
    for text in (headers.get("location", ""), answer.text.strip().strip('"')):
        last = text.rstrip("/").rpartition("/")[2]
        if "/jobs/" in text and last.replace(".", "").isdigit():
            return last
    return None

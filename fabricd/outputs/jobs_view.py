"""``/api/v1/jobs``: the running jobs, how their steps go, and which verdicts touch them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import BaseRoute, Route

from fabricd.jobs.watch import JobWatch
from fabricd.model.rejects import Rejects
from fabricd.model.verdict import Verdict


class JobsView:
    """``verdicts`` gives the open ones; ``problem`` the source's last failure, empty while it answers."""

    def __init__(self, watch: JobWatch, verdicts: Callable[[], list[Verdict]] = list) -> None:
        self.watch = watch
        self.rejects = Rejects()
        self.problem = ""
        self._verdicts = verdicts

    def document(self, wanted: str | None = None) -> dict[str, Any]:
        """Every job, or one. KeyError for a job that does not run."""
        open_ones = self._verdicts()
        jobs = []
        for job_id in [wanted] if wanted is not None else sorted(self.watch.jobs):
            report = self.watch.report(job_id)
            report["hurt_by"] = [v.id for v in open_ones if job_id in v.jobs_hurt]
            report["contributes_to"] = [v.id for v in open_ones if job_id in v.jobs_contributing]
            jobs.append(report)
        return {"jobs": jobs, "problem": self.problem or None, "rejects": self.rejects.to_json()}

    def routes(self) -> list[BaseRoute]:
        async def jobs(request: Request) -> Response:
            wanted = request.query_params.get("id")
            try:
                return JSONResponse(self.document(wanted))
            except KeyError:
                return JSONResponse({"error": f"no job {wanted!r} is running"}, 404)

        return [Route("/api/v1/jobs", jobs)]

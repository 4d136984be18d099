"""The running jobs from whichever source the configuration names."""

from __future__ import annotations

from pathlib import Path

from fabricd.config.jobs import JobsConfig
from fabricd.errors import UsageError
from fabricd.jobs.job import Job
from fabricd.jobs.static import read_jobs
from fabricd.model.rejects import Rejects


def running_jobs(config: JobsConfig, rejects: Rejects) -> list[Job]:
    """Raises UsageError for a configuration that cannot work, FabricdError when the source does not answer."""
    match config.source:
        case "none":
            return []
        case "file":
            if not config.file:
                raise UsageError("jobs.file is empty; jobs.source = 'file' needs it")
            return read_jobs(config.file)
        case "squeue":
            from fabricd.jobs.slurm import from_squeue

            return from_squeue(config.squeue, config.timeout_s, rejects)
        case "slurmrestd":
            from fabricd.jobs.slurm import from_slurmrestd

            return from_slurmrestd(config.url, config.user, _token(config), config.timeout_s, rejects)
        case "kubernetes":
            from fabricd.jobs.kubernetes import from_api

            return from_api(config.url, _token(config), config.ca_file, config.timeout_s, rejects)


def _token(config: JobsConfig) -> str:
    if not config.token_file:
        return ""
    try:
        return Path(config.token_file).read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"jobs.token_file = {config.token_file!r}: {error}") from None

"""[jobs]: where the running jobs are known from."""

from typing import Annotated, Literal

import msgspec
from msgspec import Meta


class JobsConfig(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    source: Annotated[
        Literal["none", "squeue", "slurmrestd", "kubernetes", "file"], Meta(description="who knows the running jobs")
    ] = "none"
    file: Annotated[str, Meta(description="source file: TOML or JSON with a list of jobs")] = ""
    squeue: Annotated[str, Meta(description="source squeue: the command")] = "squeue"
    url: Annotated[str, Meta(description="slurmrestd (with /slurm/vX) or Kubernetes API server")] = (
        "https://kubernetes.default.svc"
    )
    user: Annotated[str, Meta(description="slurmrestd: user name of the token")] = ""
    token_file: Annotated[
        str, Meta(description="file with the token (a systemd credential); empty: service account")
    ] = ""
    ca_file: Annotated[str, Meta(description="Kubernetes: CA certificate; empty: service account's")] = ""
    timeout_s: Annotated[float, Meta(gt=0, le=60, description="time limit of one question")] = 10.0
    interval_s: Annotated[float, Meta(ge=1, description="time between questions")] = 15.0
    poll_s: Annotated[
        float, Meta(gt=0, le=10, description="time between looks at the NICs' readings: at most half of agent.interval")
    ] = 0.25

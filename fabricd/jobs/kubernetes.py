"""Running jobs from Kubernetes: pods with a node name, joined by the labels batch frameworks put on them.

Sources: the well-known labels of batch/v1 Job, JobSet, Kubeflow's training operator, Ray, Volcano and Kueue.
"""

from __future__ import annotations

from datetime import datetime
from pathlib import Path
from typing import Any

import httpx

from fabricd.errors import BAD_DOCUMENT, FabricdError
from fabricd.jobs.job import Job
from fabricd.model.rejects import Rejects

# The widest group first: a pod of a JobSet also carries the name of its own batch Job.
GROUP_LABELS = (
    "jobset.sigs.k8s.io/jobset-name",
    "training.kubeflow.org/job-name",
    "ray.io/cluster",
    "volcano.sh/job-name",
    "kueue.x-k8s.io/pod-group-name",
    "leaderworkerset.sigs.k8s.io/name",
    "batch.kubernetes.io/job-name",
    "job-name",
)
GPU_RESOURCES = ("nvidia.com/gpu", "amd.com/gpu")
SERVICE_ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")


def parse_pods(document: Any, rejects: Rejects) -> list[Job]:
    """Jobs of a PodList. Pods that ask for no GPU or are not running are left out. Raises FabricdError on another document."""
    items = document.get("items") if isinstance(document, dict) else None
    if not isinstance(items, list):
        raise FabricdError('Kubernetes answered without a list "items"')
    nodes: dict[tuple[str, str], set[str]] = {}
    gpus: dict[tuple[str, str], int] = {}
    starts: dict[tuple[str, str], list[int]] = {}
    for pod in items:
        try:
            meta, spec, status = pod["metadata"], pod["spec"], pod["status"]
            namespace, labels = str(meta["namespace"]), meta.get("labels") or {}
            count = sum(_gpus(container) for container in spec.get("containers", []))
            if status.get("phase") != "Running" or not count:
                continue
            node = spec["nodeName"]
            name = next((str(labels[key]) for key in GROUP_LABELS if key in labels), str(meta["name"]))
            start = status.get("startTime")
            started = int(datetime.fromisoformat(start.replace("Z", "+00:00")).timestamp()) if start else None
        except (KeyError, TypeError, AttributeError, ValueError) as error:
            rejects.add("kubernetes_pod", repr(error), _pod_name(pod))
            continue
        key = (namespace, name)
        nodes.setdefault(key, set()).add(str(node))
        gpus[key] = gpus.get(key, 0) + count
        if started is not None:
            starts.setdefault(key, []).append(started)
    return [
        Job(
            id=f"{namespace}/{name}",
            name=name,
            source="kubernetes",
            nodes=tuple(sorted(members)),
            gpus_per_node=gpus[namespace, name] // len(members),
            started_ns=min(begun) * 1_000_000_000 if (begun := starts.get((namespace, name))) else None,
        )
        for (namespace, name), members in sorted(nodes.items())
    ]


def _gpus(container: dict[str, Any]) -> int:
    limits = (container.get("resources") or {}).get("limits") or {}
    return sum(int(limits.get(resource, 0)) for resource in GPU_RESOURCES)


def _pod_name(pod: Any) -> str:
    meta = pod.get("metadata") if isinstance(pod, dict) else None
    return str(meta.get("name")) if isinstance(meta, dict) else "?"


def from_api(url: str, token: str, ca_file: str, timeout_s: float, rejects: Rejects) -> list[Job]:
    """All pods of the cluster. Empty ``token``/``ca_file`` mean the service account's. Raises FabricdError."""
    token_file, ca_default = SERVICE_ACCOUNT / "token", SERVICE_ACCOUNT / "ca.crt"
    try:
        bearer = token or (token_file.read_text().strip() if token_file.exists() else "")
        verify: str | bool = ca_file or (str(ca_default) if ca_default.exists() else True)
        headers = {"Authorization": f"Bearer {bearer}"} if bearer else {}
        with httpx.Client(verify=verify, headers=headers, timeout=timeout_s) as client:
            document = _all_pages(client, f"{url.rstrip('/')}/api/v1/pods")
    except (httpx.HTTPError, OSError, *BAD_DOCUMENT) as error:
        raise FabricdError(f"Kubernetes API: {error}") from None
    return parse_pods(document, rejects)


def _all_pages(client: httpx.Client, url: str) -> dict[str, Any]:
    items: list[Any] = []
    params = {"fieldSelector": "status.phase=Running", "limit": "500"}
    while True:
        answer = client.get(url, params=params)
        answer.raise_for_status()
        page = answer.json()
        if not isinstance(page, dict) or not isinstance(page.get("items"), list):
            raise ValueError('no list "items"')
        items += page["items"]
        token = (page.get("metadata") or {}).get("continue")
        if not token:
            return {"items": items}
        params["continue"] = token

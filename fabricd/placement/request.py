"""What a placement request may say, and the checks that name a bad key and its value.

The file is JSON: either ``{"job": {...}, "constraints": {...}, ...}`` (the shape of a plan, so a plan can be sent back as a
request) or the job's keys at the top level. docs/placement.md describes every key.
"""

from __future__ import annotations

import json
import typing
from pathlib import Path
from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta

from fabricd.errors import BAD_DOCUMENT, UsageError
from fabricd.jobs.hostlist import HostlistError, expand

Size = Annotated[int, Meta(ge=1, le=1_000_000)]
HEAT = Annotated[float, Meta(ge=0, le=1)]


class Model(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    """The transformer, for an estimate in milliseconds instead of milliseconds per GiB."""

    layers: Size
    hidden: Size
    sequence: Size
    microbatch: Size = 1
    full_recompute: bool = False


class Hardware(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    """Bandwidths in GB/s. Defaults: an 8-GPU node with one 400 Gb/s adapter per GPU (48.5 GB/s usable)."""

    nic_gbs: Annotated[float, Meta(gt=0)] = 48.5
    nvlink_gbs: Annotated[float, Meta(gt=0)] = 370.0
    nics_per_node: Annotated[int, Meta(ge=1, le=64)] | None = None


class Job(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    """Sizes of the parallel groups. Ranks are numbered tensor, context, data, pipeline, the first varying fastest."""

    name: str = "job"
    nodes: Size | None = None
    gpus_per_node: Annotated[int, Meta(ge=1, le=1024)] = 8
    tp: Size = 1
    pp: Size = 1
    dp: Size | None = None
    ep: Size = 1
    cp: Size = 1


class Constraints(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    """``tp_in_rail_group`` hard: no tensor-parallel group leaves its rail group; soft: as few as possible do."""

    tp_in_rail_group: Literal["hard", "soft"] = "hard"
    tp_in_nvlink_domain: Literal["required", "preferred", "ignore"] = "preferred"
    flagged_nodes: Literal["avoid", "if-needed", "allow"] = "avoid"
    max_pods: Size | None = None
    max_rail_groups: Size | None = None
    rail_groups: list[str] | None = None
    pods: list[str] | None = None
    exclude_nodes: list[Any] = []


class Request(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    """A checked request. Node lists are expanded; ``free_nodes`` None means every host that is not busy."""

    job: Job
    constraints: Constraints = msgspec.field(default_factory=Constraints)
    free_nodes: list[str] | None = None
    busy_nodes: list[str] = []
    flagged: dict[str, str] = {}
    excluded: dict[str, str] = {}
    heat: dict[str, HEAT] = {}
    nvlink_domains: dict[str, str] = {}
    model: Model | None = None
    hardware: Hardware = msgspec.field(default_factory=Hardware)
    alternatives: Annotated[int, Meta(ge=0, le=10)] = 2

    @property
    def nodes(self) -> int:
        assert self.job.nodes is not None
        return self.job.nodes

    @property
    def dp(self) -> int:
        assert self.job.dp is not None
        return self.job.dp

    @property
    def unit(self) -> int:
        """Nodes of one tensor-parallel group (1 when several fit in a node)."""
        return max(1, self.job.tp // self.job.gpus_per_node)

    @property
    def units(self) -> int:
        return self.nodes // self.unit


TOP_KEYS = (
    "schema", "job", "constraints", "free_nodes", "busy_nodes", "flagged_nodes", "excluded_nodes", "heat",
    "nvlink_domains", "model", "hardware", "alternatives",
)  # fmt: skip
# A plan sent back as a request: what a plan says beyond the request is not an instruction.
PLAN_KEYS = (
    "fabric", "placement", "rank_order", "score", "baseline", "solver", "reasons", "launch", "hints", "feasible", "groups",
)  # fmt: skip


def load_request(path: str) -> Request:
    """Read and check a request file (``-`` is standard input). Raises UsageError naming file, key and value."""
    try:
        text = Path("/dev/stdin" if path == "-" else path).read_text(encoding="utf-8")
    except OSError as error:
        raise _refusal(f"{path}: {error.strerror}") from None
    except UnicodeDecodeError as error:
        raise _refusal(f"{path}: not UTF-8: {error}") from None
    try:
        document = json.loads(text)
    except BAD_DOCUMENT as error:
        raise _refusal(f"{path}: not JSON: {error}") from None
    return parse_request(document, path)


def parse_request(document: Any, where: str = "request") -> Request:
    """Check a decoded request. Raises UsageError naming the key and its value."""
    if not isinstance(document, dict):
        raise _refusal(f"{where}: must be a JSON object, not {type(document).__name__}")
    document = dict(document)
    job_keys = set(_hints(Job))
    flat = {key: document.pop(key) for key in list(document) if key in job_keys}
    if flat and "job" in document:
        key, value = next(iter(flat.items()))
        raise _refusal(f"{where}: {key} = {_short(value)}: give it inside job, not beside it")
    job_data = document.pop("job", flat)
    known = set(TOP_KEYS) | set(PLAN_KEYS)
    for key, value in document.items():
        if key not in known:
            raise _refusal(f"{where}: unknown key {key} = {_short(value)}; known: {', '.join(sorted(TOP_KEYS))}")
    fabric = document.get("fabric")
    excluded_source = document.get("excluded_nodes")
    if excluded_source is None and isinstance(fabric, dict):
        excluded_source = fabric.get("excluded_nodes")
    constraints = _struct(Constraints, document.get("constraints") or {}, where, "constraints.")
    free = document.get("free_nodes")
    request = Request(
        job=_struct(Job, job_data, where, "job."),
        constraints=constraints,
        free_nodes=None if free is None else host_list(free, where, "free_nodes"),
        busy_nodes=host_list(document.get("busy_nodes") or [], where, "busy_nodes"),
        flagged=_reasons(document.get("flagged_nodes"), "flagged in the request", where, "flagged_nodes"),
        excluded={
            **_reasons(excluded_source, "excluded by the request", where, "excluded_nodes"),
            **_reasons(constraints.exclude_nodes, "excluded by the request", where, "constraints.exclude_nodes"),
        },
        heat=_field(dict[str, HEAT], document.get("heat") or {}, where, "heat"),
        nvlink_domains=_domains(document.get("nvlink_domains") or {}, where),
        model=None if document.get("model") is None else _struct(Model, document["model"], where, "model."),
        hardware=_struct(Hardware, document.get("hardware") or {}, where, "hardware."),
        # In a plan "alternatives" is a list: then the request keeps the default.
        alternatives=_alternatives(document.get("alternatives"), where),
    )
    return _sizes(request, where)


def _alternatives(value: Any, where: str) -> int:
    if value is None or isinstance(value, list):
        return 2
    return int(_field(Annotated[int, Meta(ge=0, le=10)], value, where, "alternatives"))


def _sizes(request: Request, where: str) -> Request:
    """Check that the sizes fit each other; fill in nodes or dp where one follows from the rest."""
    job = request.job
    gpus = job.gpus_per_node
    if job.tp > gpus and job.tp % gpus:
        raise _refusal(f"{where}: job.tp = {job.tp}: above gpus_per_node = {gpus} it must be a multiple of it")
    if job.tp < gpus and gpus % job.tp:
        raise _refusal(f"{where}: job.tp = {job.tp}: must divide gpus_per_node = {gpus} or be a multiple of it")
    inner = job.tp * job.cp * job.pp
    nodes, dp = job.nodes, job.dp
    if nodes is None and dp is None:
        raise _refusal(f"{where}: job.nodes: missing (give nodes, or dp so that nodes follows)")
    if nodes is None:
        assert dp is not None
        if inner * dp % gpus:
            raise _refusal(f"{where}: job.dp = {dp}: tp*cp*pp*dp = {inner * dp} does not fill nodes of {gpus} GPUs")
        nodes = inner * dp // gpus
    if dp is None:
        if nodes * gpus % inner:
            raise _refusal(
                f"{where}: job.nodes = {nodes}: {nodes * gpus} GPUs are not a multiple of tp*cp*pp = {inner}"
            )
        dp = nodes * gpus // inner
    if inner * dp != nodes * gpus:
        raise _refusal(f"{where}: job.dp = {dp}: tp*cp*pp*dp = {inner * dp}, but nodes*gpus_per_node = {nodes * gpus}")
    if dp * job.cp % job.ep:
        raise _refusal(f"{where}: job.ep = {job.ep}: must divide dp*cp = {dp * job.cp}")
    return msgspec.structs.replace(request, job=msgspec.structs.replace(job, nodes=nodes, dp=dp))


def host_list(value: Any, where: str, key: str) -> list[str]:
    """A host list expression, or a list of them, expanded; duplicates are an error."""
    items = [value] if isinstance(value, str) else value
    if not isinstance(items, list) or not all(isinstance(item, str) for item in items):
        raise _refusal(f"{where}: {key} = {_short(value)}: must be a host list such as gpu[001-004] or a list of them")
    hosts: list[str] = []
    for item in items:
        try:
            hosts += expand(item)
        except HostlistError as error:
            raise _refusal(f"{where}: {key} = {item!r}: {error}") from None
    seen: set[str] = set()
    for host in hosts:
        if host in seen:
            raise _refusal(f"{where}: {key} = {host!r}: listed twice")
        seen.add(host)
    return hosts


def _reasons(value: Any, default: str, where: str, key: str) -> dict[str, str]:
    """``{"host": "why"}``, ``[{"node", "why"}]`` or host lists."""
    if value is None:
        return {}
    if isinstance(value, dict):
        return {str(host): str(why) for host, why in value.items()}
    if not isinstance(value, list | str):
        raise _refusal(f"{where}: {key} = {_short(value)}: must be a list of nodes")
    out: dict[str, str] = {}
    for item in [value] if isinstance(value, str) else value:
        if isinstance(item, dict):
            if not isinstance(item.get("node"), str):
                raise _refusal(f"{where}: {key} = {_short(item)}: an entry needs a node")
            out[item["node"]] = str(item.get("why") or default)
        else:
            out.update(dict.fromkeys(host_list(item, where, key), default))
    return out


def _domains(value: Any, where: str) -> dict[str, str]:
    """Domain name -> host list, turned into host -> domain."""
    if not isinstance(value, dict):
        raise _refusal(f"{where}: nvlink_domains = {_short(value)}: must map a domain to its nodes")
    out: dict[str, str] = {}
    for name, hosts in value.items():
        for host in host_list(hosts, where, f"nvlink_domains.{name}"):
            if host in out:
                raise _refusal(f"{where}: nvlink_domains.{name} = {host!r}: already in domain {out[host]}")
            out[host] = name
    return out


T = typing.TypeVar("T", bound=msgspec.Struct)


def _hints(struct: type[msgspec.Struct]) -> dict[str, Any]:
    return typing.get_type_hints(struct, include_extras=True)


def _struct(struct: type[T], value: Any, where: str, prefix: str) -> T:
    if not isinstance(value, dict):
        raise _refusal(f"{where}: {prefix[:-1]} = {_short(value)}: must be an object")
    hints = _hints(struct)
    for key, item in value.items():
        if key not in hints:
            raise _refusal(f"{where}: unknown key {prefix}{key} = {_short(item)}; known: {', '.join(sorted(hints))}")
        _field(hints[key], item, where, f"{prefix}{key}")
    try:
        return msgspec.convert(value, struct)
    except msgspec.ValidationError as error:
        raise _refusal(f"{where}: {prefix[:-1]}: {error}") from None


def _field(hint: Any, value: Any, where: str, key: str) -> Any:
    try:
        return msgspec.convert(value, hint)
    except msgspec.ValidationError as error:
        raise _refusal(f"{where}: {key} = {_short(value)}: {error}") from None


def _refusal(text: str) -> UsageError:
    """One line, whatever the keys and values of the document hold."""
    return UsageError("".join(c if c.isprintable() else repr(c)[1:-1] for c in text))


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 80 else text[:77] + "..."

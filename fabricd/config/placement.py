"""[placement]: label keys for schedulers, solver limits, and the two ways live heat may reach a scheduler (both off)."""

from typing import Annotated, Literal

import msgspec
from msgspec import Meta

LabelPreset = Literal["topograph-v1", "topograph-v0", "custom"]
LabelKey = Annotated[str, Meta(pattern=r"^([a-z0-9]([-a-z0-9.]*[a-z0-9])?/)?[A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?$")]


class PlacementConfig(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    """Everything here has a safe default; nothing is written to a scheduler unless a switch below is turned on."""

    label_preset: Annotated[
        LabelPreset, Meta(description="node label keys: topograph from 1.0.0, topograph before it, or the keys below")
    ] = "topograph-v1"
    fabric_labels: Annotated[
        list[LabelKey], Meta(max_length=8, description="custom label keys of the network levels, closest level first")
    ] = []
    accelerator_label: Annotated[str, Meta(description="custom label key of the NVLink domain, empty for none")] = ""
    names: Annotated[
        str, Meta(description="book that keeps the names of rail groups and pods across runs; empty: as discovered")
    ] = ""
    topology_name: Annotated[
        str, Meta(pattern=r"^[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?$", description="name of exported topology objects")
    ] = "fabric"
    flavor_labels: Annotated[
        dict[str, str], Meta(description="node labels that select the nodes of the exported Kueue ResourceFlavor")
    ] = {}
    block_level: Annotated[
        Literal["auto", "nvlink", "rail-group"],
        Meta(description="what a Slurm block is: NVLink domains where there are any, or always one of the two"),
    ] = "auto"
    avoid_faults: Annotated[
        list[str], Meta(description="kinds of topology faults whose hosts get no new job (prefixes match)")
    ] = msgspec.field(default_factory=lambda: ["crossed_rail", "missing_rail", "miscabled"])
    refine_seconds: Annotated[
        float, Meta(ge=0, le=60, description="time limit of the CP-SAT refinement; 0 = greedy and local search only")
    ] = 2.0
    heat_window_s: Annotated[
        float, Meta(ge=60, le=86400, description="uplink load is averaged over this long before it counts as heat")
    ] = 120.0
    export_min_interval_s: Annotated[
        float, Meta(ge=1, le=86400, description="watch mode rewrites a scheduler's file at most this often")
    ] = 60.0
    export_max_loss: Annotated[
        float,
        Meta(ge=0, le=1, description="watch mode refuses to write when more than this share of the hosts vanished"),
    ] = 0.2
    extender_enabled: Annotated[
        bool, Meta(description="serve a Kubernetes scheduler extender (filter, prioritize) with live heat")
    ] = False
    extender_refresh_s: Annotated[
        float, Meta(ge=1, le=3600, description="the extender's scores change at most this often")
    ] = 30.0
    slurm_weight_enabled: Annotated[
        bool, Meta(description="allow `fabricd place weights --apply` to write Slurm node weights")
    ] = False
    slurm_weight_step: Annotated[
        int, Meta(ge=1, le=1000, description="weight added at full heat; small, because weight beats topology in Slurm")
    ] = 10
    slurm_weight_min_interval_s: Annotated[
        float, Meta(ge=10, le=86400, description="weights are written at most this often")
    ] = 300.0

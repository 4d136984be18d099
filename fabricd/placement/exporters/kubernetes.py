"""Kubernetes: node labels, and the topology objects of Kueue, Volcano and KAI.

Label keys come from the configuration (presets: topograph before and after 1.0.0). Values longer than 63 characters become
``x`` and their FNV-64a hash, as topograph writes them.
"""

from __future__ import annotations

import json
from typing import Any

import yaml

from fabricd.placement.exporters.base import ExportOptions, tree
from fabricd.placement.exporters.labels import HOSTNAME, accelerator_key, label_value, level_keys, object_name
from fabricd.placement.fabric import Fabric

STATE_LABEL, ROLE_LABEL, RAILS_ANNOTATION = "fabricd.io/rail-state", "fabricd.io/role", "fabricd.io/rails"


def render_labels(fabric: Fabric, options: ExportOptions) -> str:
    """One Node patch per host (``kubectl apply --server-side -f``): tiers, NVLink domain, rail state, wiring."""
    keys = level_keys(options.config)
    nvlink = accelerator_key(options.config)
    documents: list[dict[str, Any]] = []
    for root in tree(fabric):
        for pod in root.pods:
            for name, hosts, _ in pod.groups:
                values = dict(zip(keys, map(label_value, (name, pod.name, root.core)), strict=False))
                for host in hosts:
                    labels = {HOSTNAME: host, **values}
                    domain = int(fabric.domain[fabric.index[host]])
                    if nvlink and domain >= 0:
                        labels[nvlink] = label_value(fabric.domains[domain])
                    labels[STATE_LABEL] = rail_state(options.flags.get(host, []))
                    documents.append(_node(host, labels, _rails(fabric, host)))
    for role, hosts in (("storage", fabric.storage), ("management", fabric.management)):
        documents += [_node(host, {HOSTNAME: host, ROLE_LABEL: role}, {}) for host in hosts]
    return _dump(documents)


def rail_state(reasons: list[str]) -> str:
    """One short word for the label: what kind of trouble the host's rails have."""
    for reason in reasons:
        kind = reason.split(":", 1)[0]
        if kind in ("crossed_rail", "missing_rail", "miscabled"):
            return kind.replace("_", "-")
    return "avoid" if reasons else "ok"


def render_kueue(fabric: Fabric, options: ExportOptions) -> str:
    """A Topology (levels coarse to fine, hostname last) and a ResourceFlavor that uses it."""
    name = options.config.topology_name
    return _dump(
        [
            {
                "apiVersion": "kueue.x-k8s.io/v1beta2",
                "kind": "Topology",
                "metadata": {"name": name},
                "spec": {"levels": _levels(fabric, options)},
            },
            {
                "apiVersion": "kueue.x-k8s.io/v1beta2",
                "kind": "ResourceFlavor",
                "metadata": {"name": f"{name}-flavor"},
                "spec": {
                    "nodeLabels": dict(options.config.flavor_labels) or {STATE_LABEL: "ok"},
                    "topologyName": name,
                },
            },
        ]
    )


def render_kai(fabric: Fabric, options: ExportOptions) -> str:
    """KAI's Topology object: the same levels."""
    return _dump(
        [
            {
                "apiVersion": "kai.scheduler/v1alpha1",
                "kind": "Topology",
                "metadata": {"name": options.config.topology_name},
                "spec": {"levels": _levels(fabric, options)},
            }
        ]
    )


def render_volcano(fabric: Fabric, options: ExportOptions) -> str:
    """HyperNodes: tier 1 a rail group (by its node label), tier 2 a pod, tier 3 the core of a fabric with several pods."""
    key = level_keys(options.config)[0]
    documents: list[dict[str, Any]] = []
    uppers: list[dict[str, Any]] = []
    taken: set[str] = set()

    def unique(text: str) -> str:
        name, number = object_name(text), 2
        while name in taken:
            name = object_name(f"{text}-{number}")
            number += 1
        taken.add(name)
        return name

    for root in tree(fabric):
        pods: list[str] = []
        for pod in root.pods:
            leaves: list[str] = []
            for name, _, _ in pod.groups:
                leaves.append(unique(name))
                member = {"type": "Node", "selector": {"labelMatch": {"matchLabels": {key: label_value(name)}}}}
                documents.append(_hypernode(leaves[-1], 1, "rail-group", [member]))
            pods.append(unique(pod.name))
            uppers.append(_hypernode(pods[-1], 2, "pod", [_exact(leaf) for leaf in leaves]))
        if len(pods) > 1:
            uppers.append(_hypernode(unique(root.core), 3, "core", [_exact(pod_name) for pod_name in pods]))
    return _dump([*documents, *sorted(uppers, key=lambda d: int(d["spec"]["tier"]))])


def _exact(name: str) -> dict[str, Any]:
    return {"type": "HyperNode", "selector": {"exactMatch": {"name": name}}}


def _hypernode(name: str, tier: int, tier_name: str, members: list[dict[str, Any]]) -> dict[str, Any]:
    return {
        "apiVersion": "topology.volcano.sh/v1alpha1",
        "kind": "HyperNode",
        "metadata": {"name": name},
        "spec": {"tier": tier, "tierName": tier_name, "members": members},
    }


def _levels(fabric: Fabric, options: ExportOptions) -> list[dict[str, str]]:
    """Coarse to fine. The core level only where the fabric has several pods; NVLink domains below the rail group."""
    keys = level_keys(options.config)
    depth = min(len(keys), 3 if len(fabric.pods) > 1 else 2)
    levels = [*reversed(keys[:depth])]
    nvlink = accelerator_key(options.config)
    if nvlink and fabric.domains:
        levels.append(nvlink)
    return [{"nodeLabel": key} for key in [*levels, HOSTNAME]]


def _rails(fabric: Fabric, host: str) -> dict[str, str]:
    rails = {
        port.device: {"rail": port.rail, "leaf": f"0x{port.leaf:016x}"}
        for port in fabric.wiring.get(host, [])
        if port.device and port.rail is not None
    }
    return {RAILS_ANNOTATION: json.dumps(rails, separators=(",", ":"))} if rails else {}


def _node(host: str, labels: dict[str, str], annotations: dict[str, str]) -> dict[str, Any]:
    metadata: dict[str, Any] = {"name": host, "labels": labels}
    if annotations:
        metadata["annotations"] = annotations
    return {"apiVersion": "v1", "kind": "Node", "metadata": metadata}


def _dump(documents: list[dict[str, Any]]) -> str:
    # libyaml where PyYAML was built with it: seconds less on thousands of nodes, the same text.
    dumper = getattr(yaml, "CSafeDumper", yaml.SafeDumper)
    return str(yaml.dump_all(documents, Dumper=dumper, sort_keys=False, width=1 << 20))

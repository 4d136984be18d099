"""The parts of the custom resource schemas that exported objects must satisfy, as JSON Schema with unknown fields refused.

Sources: CRDs kueue.x-k8s.io_topologies and _resourceflavors (v1beta1/v1beta2), topology.volcano.sh_hypernodes (v1alpha1) and
kai.scheduler_topologies (v1alpha1); the CEL rules are the functions at the end.
"""

from __future__ import annotations

from typing import Any

LABEL_KEY = (
    r"^([a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*/)?"
    r"(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])$"
)
DNS_NAME = r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*$"
LABEL_VALUE = r"^(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?$"


def closed(properties: dict[str, Any], required: list[str]) -> dict[str, Any]:
    return {"type": "object", "properties": properties, "required": required, "additionalProperties": False}


def custom_object(api: str, kind: str, spec: dict[str, Any]) -> dict[str, Any]:
    metadata = closed({"name": {"type": "string", "pattern": DNS_NAME, "maxLength": 253}}, ["name"])
    return closed(
        {"apiVersion": {"const": api}, "kind": {"const": kind}, "metadata": metadata, "spec": spec},
        ["apiVersion", "kind", "metadata", "spec"],
    )


def levels(most: int) -> dict[str, Any]:
    level = closed(
        {"nodeLabel": {"type": "string", "minLength": 1, "maxLength": 316, "pattern": LABEL_KEY}}, ["nodeLabel"]
    )
    return closed({"levels": {"type": "array", "minItems": 1, "maxItems": most, "items": level}}, ["levels"])


KUEUE_TOPOLOGY = custom_object("kueue.x-k8s.io/v1beta2", "Topology", levels(8))
KAI_TOPOLOGY = custom_object("kai.scheduler/v1alpha1", "Topology", levels(16))
KUEUE_FLAVOR = custom_object(
    "kueue.x-k8s.io/v1beta2",
    "ResourceFlavor",
    closed(
        {
            # Required, not empty, when a topology is named.
            "nodeLabels": {
                "type": "object",
                "minProperties": 1,
                "maxProperties": 8,
                "propertyNames": {"pattern": LABEL_KEY},
                "additionalProperties": {"type": "string", "pattern": LABEL_VALUE, "maxLength": 63},
            },
            "topologyName": {"type": "string", "pattern": DNS_NAME, "maxLength": 253},
        },
        ["nodeLabels", "topologyName"],
    ),
)
_SELECTOR = {
    "type": "object",
    "minProperties": 1,
    "maxProperties": 1,
    "additionalProperties": False,
    "properties": {
        "exactMatch": closed(
            {"name": {"type": "string", "pattern": DNS_NAME, "minLength": 1, "maxLength": 253}}, ["name"]
        ),
        "regexMatch": closed({"pattern": {"type": "string", "minLength": 1}}, ["pattern"]),
        "labelMatch": closed(
            {
                "matchLabels": {
                    "type": "object",
                    "additionalProperties": {"type": "string", "pattern": LABEL_VALUE, "maxLength": 63},
                }
            },
            ["matchLabels"],
        ),
    },
}
HYPERNODE = custom_object(
    "topology.volcano.sh/v1alpha1",
    "HyperNode",
    closed(
        {
            "tier": {"type": "integer", "minimum": 0},
            "tierName": {"type": "string", "maxLength": 253},
            "members": {
                "type": "array",
                "minItems": 1,
                "items": closed({"type": {"enum": ["Node", "HyperNode"]}, "selector": _SELECTOR}, ["type"]),
            },
        },
        ["tier"],
    ),
)


def check_level_rules(document: dict[str, Any]) -> None:
    """CEL: levels are unique; kubernetes.io/hostname only as the last."""
    keys = [level["nodeLabel"] for level in document["spec"]["levels"]]
    assert len(set(keys)) == len(keys)
    assert "kubernetes.io/hostname" not in keys[:-1]


def check_hypernode_tree(documents: list[dict[str, Any]]) -> None:
    """Volcano's own rules: names unique, a member HyperNode exists, has a lower tier and one parent."""
    by_name = {d["metadata"]["name"]: d for d in documents}
    assert len(by_name) == len(documents)
    parents: dict[str, str] = {}
    for name, document in by_name.items():
        for member in document["spec"]["members"]:
            if member["type"] == "HyperNode":
                child = member["selector"]["exactMatch"]["name"]
                assert by_name[child]["spec"]["tier"] < document["spec"]["tier"]
                assert child not in parents
                parents[child] = name

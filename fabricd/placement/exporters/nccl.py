"""NCCL: ``NCCL_IB_HCA`` with the rail and plane of every compute adapter.

NCCL from 2.30.7 reads ``dev:port:rail:plane``; older ones ignore the two last fields. The port is always written: an empty port
becomes 0 and matches nothing. ``=`` in front of the list asks for exact names (mlx5_1 is not mlx5_10).
"""

from __future__ import annotations

from collections import Counter

from fabricd.errors import UsageError
from fabricd.jobs.hostlist import compress
from fabricd.placement.exporters.base import ExportOptions
from fabricd.placement.fabric import Fabric


def hca_list(fabric: Fabric, host: str) -> str:
    """``mlx5_0:1:0:0,mlx5_1:1:1:0,…`` in order of rail; "" when no adapter of the host is on a known rail.

    The rail is where the cable really is, so two crossed cables keep their traffic on its rails until they are moved.
    """
    ports = [port for port in fabric.wiring.get(host, []) if port.device and port.rail is not None]
    ports.sort(key=lambda p: (p.rail if p.rail is not None else -1, p.plane))
    return ",".join(f"{p.device}:{p.port}:{p.rail}:{p.plane}" for p in ports)


def render_nccl(fabric: Fabric, options: ExportOptions) -> str:
    """nccl.conf of one node (``options.node``), or of most nodes with the others as comments."""
    head = [
        f"# Written by fabricd for fabric {fabric.name}. A job's own environment wins.",
        "# dev:port:rail:plane; storage adapters are left out.",
    ]
    if options.node is not None:
        if options.node not in fabric.index:
            raise UsageError(f"--node {options.node}: not a compute host of this fabric")
        lists = hca_list(fabric, options.node)
        body = [f"NCCL_IB_HCA=={lists}"] if lists else [f"# {options.node}: no adapter on a known rail"]
        return "\n".join([*head, *body]) + "\n"
    kinds: dict[str, list[str]] = {}
    for host in fabric.hosts:
        kinds.setdefault(hca_list(fabric, host), []).append(host)
    unknown = kinds.pop("", [])
    body = []
    if kinds:
        usual = Counter({text: len(hosts) for text, hosts in kinds.items()}).most_common(1)[0][0]
        body += [f"# {compress(kinds.pop(usual))}", f"NCCL_IB_HCA=={usual}"]
        body += [
            f"# {compress(hosts)}: NCCL_IB_HCA=={text}" for text, hosts in sorted(kinds.items(), key=lambda kv: kv[1])
        ]
    if unknown:
        body.append(f"# {compress(unknown)}: no adapter on a known rail")
    return "\n".join([*head, *body]) + "\n"

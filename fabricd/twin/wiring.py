"""The wiring of a RoCE twin as its operator would write it down: a links file for ``topology.source``.

Ethernet has no in-band discovery; a real site has such a file from its cabling plan, or takes LLDP.
"""

from __future__ import annotations

from fabricd.twin.face import Plan, PlanNode


def interface(node: PlanNode, port: int) -> str:
    """Name of a port: ``swp5`` on switches, ``eth0`` on hosts."""
    return f"swp{port}" if node.kind == "switch" else f"eth{node.nic}"


def links_file(plan: Plan) -> str:
    """TOML with every switch, adapter and cable."""
    lines = [f'fabric = "{plan.fabric}"', ""]
    for node in plan.switches:
        lines += ["[[switch]]", f'name = "{node.name}"', f'guid = "0x{node.guid:016x}"', ""]
    for node in plan.adapters:
        name = interface(node, 1)
        lines += ["[[adapter]]", f'host = "{node.host}"', f'netdev = "{name}"', f'guid = "0x{node.guid:016x}"', ""]
    for row, peer in enumerate(plan.row_peer.tolist()):
        if row < peer:
            ends = [
                f"{_device(plan.node_of(r))}:{interface(plan.node_of(r), int(plan.row_port[r]))}" for r in (row, peer)
            ]
            lines += ["[[link]]", f'a = "{ends[0]}"', f'b = "{ends[1]}"', f"rate_gbps = {plan.row_gbps[row]:g}", ""]
    return "\n".join(lines)


def _device(node: PlanNode) -> str:
    return node.name if node.kind == "switch" else node.host

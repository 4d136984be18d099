"""Predicted against measured communication of a running job, from its report (see jobs/watch.py). Pure."""

from __future__ import annotations

from typing import Any


def against_measured(report: dict[str, Any], nic_gbs: float, uplink_share: float) -> dict[str, Any]:
    """Wire time of the busiest rail's bytes a step at ``nic_gbs`` GB/s × ``uplink_share``, beside the measured interval.

    The prediction has no latency in it, so it is a lower bound; what the measurement takes longer is latency, congestion
    or a NIC below its rate. Raises ValueError for rates that make no sense, and when the step time is not observable.
    """
    if not nic_gbs > 0 or not 0 < uplink_share <= 1:
        raise ValueError("the NIC rate must be above 0, the uplink share above 0 and at most 1")
    step = (report.get("step") or {}).get("seconds")
    rails = [volume for volume in report.get("bytes_per_rail_per_step") or [] if volume is not None]
    if step is None or not rails:
        why = (report.get("step") or {}).get("reason") or "; ".join(report.get("notes", [])) or "nothing was measured"
        raise ValueError(f"job {report.get('id')}: the step time is not observable: {why}")
    predicted = max(rails) / (nic_gbs * 1e9 * uplink_share)
    low, high = (share * step for share in report["exposed_communication"])
    out: dict[str, Any] = {
        "job": report.get("id"),
        "step_seconds": step,
        "bytes_per_rail_per_step": rails,
        "predicted_wire_seconds": predicted,
        "measured_communication_seconds": [low, high],
        "measured_over_predicted": [low / predicted, high / predicted],
        "uplink_share": uplink_share,
        "hurt_by": report.get("hurt_by", []),
        "stragglers": [f"{s['kind']} {s['host']} rail {s['rail']}" for s in report.get("stragglers", [])],
    }
    if predicted < low:
        causes = out["hurt_by"] or out["stragglers"]
        hint = f"see {', '.join(causes)}" if causes else "no verdict or straggler explains it"
        out["note"] = (
            f"slower than the wire allows: the path gives about {predicted * uplink_share / low:.0%} of the NICs' rate; {hint}"
        )
    elif predicted > high:
        out["note"] = "faster than these NICs could be: check --nic-gbps and --uplink-share"
    else:
        out["note"] = "as predicted, within what the counters can tell"
    return out

"""What a person should do or compare, by cause: for alerts of verdicts that fabricd does not or must not act upon."""

from __future__ import annotations

from typing import Any

from fabricd.model.verdict import Cause, Verdict

_ADVICE: dict[Cause, str] = {
    "incast": "Ask the owners of the contributing jobs to stagger or limit their transfers; check that ECN or congestion control "
    "is on for this priority, at the root's switch and at the hosts.",
    "priority_contention": "Compare the bandwidth shares (ETS or VL arbitration) of the root port with what the priorities are "
    "meant to have.",
    "slow_receiver": "Look at the host behind the root: PCIe link width and speed, IOMMU, CPU and memory load, receive buffers; "
    "run fabricd doctor there; drain it in the scheduler while you do.",
    "pfc_storm": "The host asserts pause all the time: drain it in the scheduler, reset its adapter, check its firmware and the "
    "pause watchdog of its switch port.",
    "ecmp_collision": "Flows share one of several equal paths. Switch on adaptive routing or dynamic load balancing for this "
    "traffic if the switches have it, or raise the number of queue pairs per connection.",
    "oversubscription": "More is wanted than the links of this layer carry: place the jobs closer together, or add links.",
    "degraded_link": "Reseat or replace cable and modules of the root link; compare both ends' width, speed and error counters.",
    "link_flap": "Take the link out of service and replace cable or modules; it goes down and comes back.",
    "pfc_deadlock": "Find the routes that form the circle of the root ports (a routing loop, or up-down order broken after a "
    "failure) and correct them; a pause watchdog on the switches ends such a state by itself.",
    "qos_mismatch": "Compare along the path: DSCP or SL of the traffic, the maps from it to priority or VL at each hop, and the "
    "priorities with PFC on. They differ somewhere between the victims and the root.",
    "unknown": "The waits do not end at a place that explains them. Look at the ports the verdict could not see, and at the "
    "evidence: fabricd explain shows both.",
}


def advice(verdict: Verdict) -> str:
    """One or two sentences for the person on call."""
    text = _ADVICE.get(verdict.cause, _ADVICE["unknown"])
    if verdict.blind:
        text += f" Not seen: {', '.join(verdict.blind[:5])}."
    return text


def advice_document(verdict: Verdict, not_possible: dict[str, str], meanwhile: str) -> dict[str, Any]:
    """What is published for a person and for the scheduler: ``drain`` names the host that ought to take no new jobs."""
    host = verdict.cause in ("slow_receiver", "pfc_storm")
    return {
        "kind": "advice",
        "verdict": verdict.id,
        "cause": verdict.cause,
        "do": advice(verdict),
        "drain": [list(root) for root in verdict.roots] if host else [],
        "meanwhile": meanwhile,
        "not_possible": not_possible,
    }

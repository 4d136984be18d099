"""The control loop against the scenario library: does it help the victims, hurt nobody, and leave healthy fabrics alone?

``python -m benchmarks.loop [--draws N] [--seed S] [--headless] [--json]``. Each draw runs three times with the same seed: watched
only, watched only with other arrival times (what differs is noise), and enforced. Headless: the flow model, the detector and the loop
in one process, levers through an in-process adapter.
"""

from __future__ import annotations

import argparse
import json
import time
from typing import Any

import numpy as np
import numpy.typing as npt

from benchmarks.loop_run import EPOCH, Run, run
from fabricd.flow.scenarios import SCENARIOS
from fabricd.flow.staging import Draw
from fabricd.model.action import Action

Floats = npt.NDArray[np.float64]
CONTRIBUTE = frozenset({"incast", "elephant", "to_slow", "cyc", "cross"})  # kinds of flows that are part of the trouble
HURT = 0.9  # an innocent whose throughput falls below this share of what it had is a victim
RECOVER_WITHIN = 10  # intervals after detection
LEAST_INTERVALS = 5


def innocent(result: Run) -> npt.NDArray[np.bool_]:
    """(flows,): not part of the trouble."""
    return np.array([kind not in CONTRIBUTE for kind in result.kinds], np.bool_)


def rates(result: Run, first: int, last: int) -> Floats:
    """(flows,) bytes per interval, averaged."""
    out: Floats = result.delivered[first:last].mean(axis=0)
    return out


def per_host(result: Run, values: Floats) -> Floats:
    """(hosts,) what innocents of each source deliver."""
    flows = result.scene.model.engine.flows
    src = flows.src[: len(values)]
    weights = np.where(innocent(result), values, 0.0)
    return np.bincount(src, weights=weights, minlength=result.scene.model.endpoints)


def victims(watched: Run) -> npt.NDArray[np.bool_]:
    """(flows,) paced innocents that have clearly less while the trouble lasts than before it."""
    before, during = rates(watched, 3, watched.begin), rates(watched, watched.begin + 3, watched.end)
    steady = innocent(watched) & np.array([kind not in ("bg",) for kind in watched.kinds], np.bool_)
    return steady & (before > 0) & (during < HURT * before)


def recovered(watched: Run, enforced: Run) -> float | None:
    """The victims' throughput, ten intervals after detection on, over what they had before; None when nobody is hurt."""
    hurt = victims(watched)
    if not hurt.any() or not enforced.detected:
        return None
    found = min([n for n in enforced.detected if n >= enforced.begin], default=enforced.begin)
    first = min(found + RECOVER_WITHIN, enforced.end - LEAST_INTERVALS)
    before = rates(watched, 3, watched.begin)[hurt]
    after = rates(enforced, first, enforced.end)[hurt]
    return float(np.minimum(1.0, after / before).mean())


def losses(watched: Run, other: Run) -> Floats:
    """(hosts,) share of innocents' throughput lost against the watched run, over the trouble; 0 where they gained."""
    was = per_host(watched, rates(watched, watched.begin, watched.end))
    now = per_host(other, rates(other, watched.begin, watched.end))
    sends = was > 0.01 * was.max()
    out: Floats = np.maximum(0.0, 1.0 - now[sends] / was[sends])
    return out


def moves(actions: list[Action]) -> int:
    """How often the most moved lever was written."""
    count: dict[Any, int] = {}
    for action in actions:
        states = {event.state for event in action.events}
        if "pushed" in states:
            for change in action.proposal.changes:
                count[change.lever] = count.get(change.lever, 0) + (2 if states & {"rolled_back", "released"} else 1)
    return max(count.values(), default=0)


def _in_time(action: Action, result: Run) -> bool:
    """Kept, and pushed while the trouble lasted (what drains afterwards is another trouble)."""
    at = next(event.at_ns for event in action.events if event.state == "pushed")
    window = (at - EPOCH) / 1e9 / result.scene.window_s
    return action.state in ("verified", "released") and result.begin <= window < result.end


def score(name: str, draws: int, seed: int, hosts: int, windows: int, slots: int) -> dict[str, Any]:
    """One scenario."""
    back: list[float] = []
    every: list[float] = []
    lost: list[Floats] = []
    noise: list[Floats] = []
    timings: list[float] = []
    actions: list[Action] = []
    remedies: set[str] = set()
    most = advised = detected = acted = 0
    for n in range(draws):
        draw = Draw(seed=seed + n, hosts=hosts, windows=windows, slots=slots)
        adaptive = n % 2 == 1
        watched = run(name, draw, "observe", adaptive=adaptive)
        shaken = run(name, draw, "observe", adaptive=adaptive, noise=seed + n + 1)
        enforced = run(name, draw, "enforce", adaptive=adaptive)
        pushed = [a for a in enforced.actions if any(e.state == "pushed" for e in a.events)]
        actions += pushed
        remedies |= {action.proposal.remedy for action in pushed}
        most = max(most, moves(enforced.actions))
        timings += enforced.timings
        detected += bool(enforced.detected)
        advised += bool(enforced.advised) and not pushed
        acted += bool(pushed)
        share = recovered(watched, enforced)
        if share is not None:
            every.append(share)
            if any(_in_time(action, enforced) for action in pushed):
                back.append(share)
        lost.append(losses(watched, enforced))
        noise.append(losses(watched, shaken))
    loss, floor = np.concatenate(lost), np.concatenate(noise)
    return {
        "draws": draws,
        "remedy": sorted(remedies) or None,
        "healthy": bool(watched.scene.quiet_by_design),
        "recovered_p10": _share(back, 10),
        "innocents_loss_p99": _share(loss, 99),
        "innocents_loss_max": _share(loss, 100),
        "noise_floor": _share(floor, 99),
        "actions": len(actions),
        "moves_max": most,
        "rolled_back": sum(action.state == "rolled_back" for action in actions),
        "recovered_all_p10": _share(every, 10),
        "draws_detected": detected,
        "draws_acted": acted,
        "draws_advised_only": advised,
        "own_ms_p99": None if not timings else round(1e3 * float(np.percentile(timings, 99)), 1),
    }


def _share(values: Any, percentile: float) -> float | None:
    return round(float(np.percentile(values, percentile)), 4) if len(values) else None


def planted(draws: int, seed: int, hosts: int, slots: int) -> dict[str, Any]:
    """Wrong verdicts whose predictions are believed: all must be rolled back within the deadline."""
    pushed = in_time = 0
    for n in range(draws):
        result = run("quiet", Draw(seed=seed + n, hosts=hosts, windows=40, slots=slots), "enforce", plant=True)
        for action in result.actions:
            entered = {event.state: event.at_ns for event in action.events}
            if "confirmed" in entered:
                pushed += 1
                # The interval of the push counts for neither side.
                limit = (RECOVER_WITHIN + 1) * result.scene.window_s * 1e9
                in_time += action.state == "rolled_back" and entered["rolled_back"] - entered["confirmed"] <= limit
    return {"draws": draws, "pushed": pushed, "rolled_back_in_time": in_time}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--draws", type=int, default=5, help="draws a scenario (%(default)s)")
    parser.add_argument("--seed", type=int, default=1, help="first seed (%(default)s)")
    parser.add_argument("--headless", action="store_true", help="the model in this process (the way it always runs)")
    parser.add_argument("--scenario", action="append", choices=list(SCENARIOS), help="only these (repeatable)")
    parser.add_argument("--hosts", type=int, default=16, help="hosts of the drawn fabrics (%(default)s)")
    parser.add_argument("--windows", type=int, default=80, help="intervals a run (%(default)s)")
    parser.add_argument("--slots", type=int, default=60, help="model steps an interval (%(default)s)")
    parser.add_argument("--json", action="store_true", help="one JSON document")
    args = parser.parse_args()
    began = time.perf_counter()
    document: dict[str, Any] = {"scenarios": {}}
    for name in args.scenario or list(SCENARIOS):
        found = score(name, args.draws, args.seed, args.hosts, args.windows, args.slots)
        document["scenarios"][name] = found
        if not args.json:
            print(f"{name}: {json.dumps(found)}", flush=True)
    document["planted"] = planted(args.draws, args.seed, args.hosts, args.slots)
    document["seconds"] = round(time.perf_counter() - began, 1)
    print(json.dumps(document) if args.json else f"planted: {json.dumps(document['planted'])}")


if __name__ == "__main__":
    main()

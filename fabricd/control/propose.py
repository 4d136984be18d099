"""From a situation to a proposal: the first remedy of the policy's order whose prediction shows what is asked."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import dataclass, field

from fabricd.config.control import ControlConfig
from fabricd.control.guard import never
from fabricd.control.policy import Candidate, PolicyFile, choose
from fabricd.control.predict import Prediction, predict
from fabricd.control.remedies.base import Draft, Situation, port_ref
from fabricd.control.verify import WORSE
from fabricd.model.action import Proposal
from fabricd.model.topology import PortRef

Predictor = Callable[[Situation, Draft], Prediction]


@dataclass(slots=True)
class Proposed:
    """A proposal with what was predicted for it; ``lease_s`` and ``promised_share`` as policy asks."""

    proposal: Proposal
    prediction: Prediction
    lease_s: float
    promised_share: float
    excused: list[PortRef]


@dataclass(slots=True)
class Outcome:
    """``found`` None: nothing is proposed, ``why_not`` says why for each remedy that was looked at."""

    found: Proposed | None = None
    why_not: dict[str, str] = field(default_factory=dict)


def propose(
    situation: Situation,
    policy: PolicyFile,
    config: ControlConfig,
    now_ns: int,
    tried: frozenset[str] = frozenset(),
    predictor: Predictor = predict,
) -> Outcome:
    """``tried``: remedies that were taken back or failed for this verdict already."""
    verdict = situation.verdict
    if verdict.confidence < policy.min_confidence:
        return Outcome(why_not={"": f"confidence {verdict.confidence:.0%}, at least {policy.min_confidence:.0%}"})
    choice = choose(policy, situation)
    outcome = Outcome(why_not=dict(choice.not_possible))
    for candidate in choice.candidates:
        name = candidate.remedy.name
        if name in tried:
            outcome.why_not[name] = "tried already for this verdict"
            continue
        against = never(_sketch(situation, candidate), situation.world, config)
        if against:
            outcome.why_not[name] = "; ".join(against)
            continue
        prediction = predictor(situation, candidate.draft)
        least = config.min_gain if candidate.rules.min_gain is None else candidate.rules.min_gain
        why = _refuse(prediction, least)
        if why:
            outcome.why_not[name] = why
            continue
        outcome.found = _made(situation, candidate, prediction, config, now_ns)
        break
    return outcome


def _refuse(prediction: Prediction, least: float) -> str:
    if prediction.gain is None:
        return f"its gain cannot be predicted: {prediction.why}"
    if prediction.gain < least:
        return f"predicted gain {prediction.gain:.0%}, at least {least:.0%}"
    if prediction.worse > WORSE:
        return f"predicted to let others wait {prediction.worse:.0%} more"
    return ""


def _sketch(s: Situation, candidate: Candidate, gain: float = 0.0, now_ns: int = 0) -> Proposal:
    remedy, draft = candidate.remedy, candidate.draft
    digest = hashlib.blake2s(f"{s.verdict.id} {remedy.name} {now_ns}".encode(), digest_size=5).hexdigest()
    return Proposal(
        id=f"a{digest}",
        verdict_id=s.verdict.id,
        cause=s.verdict.cause,
        remedy=remedy.name,
        changes=draft.changes,
        touched=draft.touched,
        gain=gain,
        cost=remedy.cost,
        why=draft.why,
        created_ns=now_ns,
        time_limited=remedy.time_limited,
        fabric=s.verdict.fabric,
    )


def _made(s: Situation, candidate: Candidate, prediction: Prediction, config: ControlConfig, now_ns: int) -> Proposed:
    rules = candidate.rules
    return Proposed(
        _sketch(s, candidate, prediction.gain or 0.0, now_ns),
        prediction,
        rules.lease_s or config.lease_s,
        rules.promised_share or config.promised_share,
        _excused(s),
    )


def _excused(s: Situation) -> list[PortRef]:
    """The roots, the ports facing them, and those who send through them: they are not innocents.

    Through a deadlock nobody sends at all, so whoever has a path there waits less before than after it moves again.
    """
    out: set[PortRef] = set()
    least = 0.0 if s.verdict.cause == "pfc_deadlock" else 0.03
    for ref in {s.root, s.crowded, *(port_ref(root) for root in s.verdict.roots)}:
        out |= {ref, *s.traffic.part_of(ref, least)}
        other = s.world.peers().get(ref)
        if other is not None:
            out.add(other)
    return sorted(out)

"""Policy: which remedy for a verdict. The TOML chooses and orders; preconditions and what is changed are Python (``remedies/``)."""

from __future__ import annotations

import tomllib
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, get_args

import msgspec
from msgspec import Meta

from fabricd.control.remedies import REMEDIES
from fabricd.control.remedies.base import Draft, NotPossible, Remedy, Situation
from fabricd.errors import BAD_DOCUMENT, UsageError
from fabricd.model.verdict import Cause

DEFAULT_FILE = Path(__file__).with_name("policy.toml")
CAUSES: tuple[str, ...] = get_args(Cause)
NEVER = frozenset({"qos_mismatch", "unknown"})


class RemedyRules(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    """What policy asks of one remedy; None = the configuration's general value."""

    enabled: bool = True
    min_gain: Annotated[float, Meta(ge=0, le=1)] | None = None
    promised_share: Annotated[float, Meta(gt=0, le=1)] | None = None
    lease_s: Annotated[float, Meta(gt=0)] | None = None


class PolicyFile(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    version: int
    causes: dict[str, list[str]]
    remedies: dict[str, RemedyRules] = {}
    min_confidence: Annotated[float, Meta(ge=0, le=1)] = 0.5


@dataclass(frozen=True, slots=True)
class Candidate:
    """A remedy that is possible now."""

    remedy: Remedy
    draft: Draft
    rules: RemedyRules


@dataclass(slots=True)
class Choice:
    """Remedies in order of preference, and why the others are not among them."""

    candidates: list[Candidate] = field(default_factory=list)
    not_possible: dict[str, str] = field(default_factory=dict)


def load_policy(path: str | Path | None = None) -> PolicyFile:
    """Read and check; empty or None: the file shipped with fabricd. Raises UsageError naming file, key and value."""
    file = Path(path) if path else DEFAULT_FILE
    try:
        tree = tomllib.loads(file.read_text(encoding="utf-8"))
    except OSError as error:
        raise UsageError(f"{file}: {error.strerror}") from None
    except BAD_DOCUMENT as error:
        raise UsageError(f"{file}: not TOML: {error}") from None
    try:
        policy = msgspec.convert(tree, PolicyFile)
    except msgspec.ValidationError as error:
        raise UsageError(f"{file}: {error}") from None
    wrong = problems(policy)
    if wrong:
        raise UsageError(f"{file}: {wrong[0]}")
    return policy


def problems(policy: PolicyFile) -> list[str]:
    """What is wrong with a policy, in words; empty when it can be used."""
    out = []
    if policy.version != 1:
        out.append(f"version = {policy.version}: this fabricd reads version 1")
    for cause, names in policy.causes.items():
        if cause not in CAUSES:
            out.append(f"causes.{cause}: no such cause; there are: {' '.join(CAUSES)}")
            continue
        if cause in NEVER and names:
            out.append(f"causes.{cause} = {names}: never an action, only an alert")
        for name in names:
            remedy = REMEDIES.get(name)
            if remedy is None:
                out.append(f"causes.{cause}: no remedy {name!r}; there are: {' '.join(REMEDIES)}")
            elif cause not in remedy.causes:
                fits = " ".join(sorted(remedy.causes))
                out.append(f"causes.{cause}: {name} is no remedy for it (for: {fits})")
        if len(set(names)) < len(names):
            out.append(f"causes.{cause}: a remedy is there twice")
    out += [f"remedies.{name}: no such remedy" for name in policy.remedies if name not in REMEDIES]
    return out


def choose(policy: PolicyFile, situation: Situation) -> Choice:
    """The remedies that are possible here and now, best first by the policy's order."""
    choice = Choice()
    cause = situation.verdict.cause
    if cause in NEVER:
        return choice
    for name in policy.causes.get(cause, ()):
        rules = policy.remedies.get(name) or RemedyRules()
        if not rules.enabled:
            choice.not_possible[name] = "switched off in the policy"
            continue
        remedy = REMEDIES[name]
        try:
            why = next((why for need in remedy.needs if (why := need.holds(situation))), "")
            if why:
                choice.not_possible[name] = why
            else:
                choice.candidates.append(Candidate(remedy, remedy.build(situation), rules))
        except NotPossible as error:
            choice.not_possible[name] = str(error)
    return choice

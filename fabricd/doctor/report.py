"""A check's result: verdict, what was read, value, wanted and why, effect, what to do. Unknown is never ok."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

from fabricd.doctor.calls import Calls
from fabricd.doctor.inventory import Inventory
from fabricd.doctor.tree import Tree

if TYPE_CHECKING:
    from collections.abc import Iterable

Outcome = Literal["ok", "warn", "fail", "unknown"]
_WORST: tuple[Outcome, ...] = ("fail", "warn", "unknown", "ok")


@dataclass(frozen=True, slots=True)
class Finding:
    """The verdict on one subject (a NIC, a GPU-NIC pair, a bridge; empty = the node)."""

    subject: str
    verdict: Outcome
    value: Any
    note: str = ""


@dataclass(slots=True)
class CheckResult:
    """One of the checks. ``findings`` are joined into the worst verdict; no finding at all is unknown."""

    id: str
    read: list[str]
    wanted: str
    why: str
    findings: list[Finding] = field(default_factory=list)
    effect: str = ""
    do: str = ""
    cls: Literal["A", "B", "C", ""] = (
        ""  # who may change it: A doctor --fix, B a person by the command shown, C report only
    )
    nothing: str = "nothing to check on this node"

    @property
    def verdict(self) -> Outcome:
        seen = {finding.verdict for finding in self.findings}
        return next((outcome for outcome in _WORST if outcome in seen), "unknown")

    def to_json(self) -> dict[str, Any]:
        value: Any = {f.subject: f.value for f in self.findings}
        if list(value) == [""]:
            value = value[""]
        notes = {f.subject or "node": f.note for f in self.findings if f.note}
        if not self.findings:
            notes = {"node": self.nothing}
        return {
            "id": self.id,
            "verdict": self.verdict,
            "read": self.read,
            "value": value if self.findings else None,
            "wanted": self.wanted,
            "why": self.why,
            "effect": self.effect or None,
            "do": self.do if self.verdict in ("fail", "warn") else None,
            "class": self.cls or None,
            "subjects": [
                {"subject": f.subject, "verdict": f.verdict, "value": f.value, "note": f.note} for f in self.findings
            ],
            "notes": notes,
        }


@dataclass(slots=True)
class Context:
    """What every check is given."""

    tree: Tree
    inventory: Inventory
    calls: Calls


Check = Callable[[Context], CheckResult]


def worst(results: Iterable[CheckResult]) -> Outcome:
    seen = {result.verdict for result in results}
    return next((outcome for outcome in _WORST if outcome in seen), "unknown")

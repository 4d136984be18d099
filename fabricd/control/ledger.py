"""The trust ledger: what was or would have been done, the gain that was predicted, and what then happened."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from fabricd.control.adapters.base import Adapter, AdapterError
from fabricd.control.journal import Journal
from fabricd.control.life import Clock
from fabricd.control.verify import Watch
from fabricd.model.action import Proposal


class Ledger:
    """Writes one entry per proposal into the journal; noted again, an entry is brought up to date."""

    def __init__(self, mode: str, journal: Journal, adapters: Mapping[str, Adapter], clock: Clock) -> None:
        self.mode, self.journal, self.adapters, self.clock = mode, journal, adapters, clock

    def note(self, proposal: Proposal, what: str, watch: Watch | None, more: Mapping[str, Any]) -> None:
        """``watch``: how the victims fared, where it is known."""
        entry: dict[str, Any] = {
            "what": what,
            "mode": self.mode,
            "verdict": proposal.verdict_id,
            "cause": proposal.cause,
            "remedy": proposal.remedy,
            "why": proposal.why,
            "predicted_gain": proposal.gain,
            **more,
        }
        if watch is not None:
            entry["stall_before"] = watch.baseline.stall
            entry["stall_after"] = watch.stall
            entry["intervals"] = watch.seen
        self.journal.note(proposal.id, self.clock(), entry)

    def would(self, proposal: Proposal, watch: Watch, refused: list[str], *, ended: bool = False) -> None:
        """An action that is only observed: byte for byte what it would have sent, and what the guard says to it."""
        sends: list[str] = []
        for change in proposal.changes:
            adapter = self.adapters.get(change.lever.adapter)
            if adapter is not None:
                try:
                    sends += adapter.plan(change).shown
                except AdapterError as error:
                    sends.append(f"cannot be planned: {error}")
        more: dict[str, Any] = {"would_send": sends, "refused": refused}
        self.note(proposal, "would act", watch, {**more, "ended": True} if ended else more)

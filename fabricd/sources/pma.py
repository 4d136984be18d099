"""The in-band sweep: performance counters of every port of every target, in one pass of MADs.

Per port PortCountersExtended, and PortCounters beside it where the device has no 64-bit errors; the error details only of ports
whose errors moved; further attributes, where a device type has them, spread over a slow cycle. Nothing is ever set or cleared.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Hashable, Iterable
from dataclasses import dataclass, replace

import numpy as np

from fabricd.ib.batch import Batch, BatchResult
from fabricd.ib.health import Health
from fabricd.ib.limits import MAX_BATCH, Limits, TidSpace
from fabricd.ib.mad import CLASS_PMA, Pma, Reply, pma_get
from fabricd.ib.scheduler import Scheduler
from fabricd.ib.transport import Address, Transport, gmp_address
from fabricd.model.ident import format_guid
from fabricd.model.rejects import Rejects
from fabricd.sources.pma_device import (
    ASSUMED,
    OPTIONAL,
    DeviceTraits,
    parse_class_port_info,
    probe_devices,
)
from fabricd.sources.pma_layout import PORT_SELECT_AT, decode
from fabricd.sources.pma_memory import Memory
from fabricd.sources.pma_plan import Asks, Known, plan
from fabricd.sources.pma_reading import (
    PortTable,
    Rows,
    SideReading,
    Sweep,
    cells,
    decode_main,
)
from fabricd.sources.pma_targets import DeviceType, Target
from fabricd.sources.sweeper import Progress

_DETAILS = (int(Pma.RCV_ERROR_DETAILS), int(Pma.XMIT_DISCARD_DETAILS))
# Where the key of M_Key- and CC_Key-like classes stands; for performance management not verified on keyed hardware.
_KEY_AT = 24


@dataclass(frozen=True, slots=True)
class SweepOptions:
    """What is read. ``slow_sweeps``: the optional attributes of all ports are read once in so many sweeps (0: never)."""

    errors: bool = True
    details: bool = True
    slow_sweeps: int = 0
    deadline_s: float = 20.0


class PmaSweeper:
    """Sweeps ``targets`` over ``transport``. ``set_targets`` may be called between sweeps; what is known by GUID stays.

    ``pm_keys``: GUID to the key its agent wants in every performance management datagram (0 for all others). ``tids``: shared
    with whoever else uses the transport.
    Methods raise DeviceGone when the local device went away; silence of a remote one is a reply, not an error.
    """

    def __init__(
        self,
        transport: Transport,
        targets: Iterable[Target],
        limits: Limits | None = None,
        options: SweepOptions | None = None,
        *,
        pm_keys: Callable[[int], int] = lambda guid: 0,
        tids: TidSpace | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.transport = transport
        self.limits = limits or Limits()
        self.options = options or SweepOptions()
        self.health = Health()
        self.traits: dict[DeviceType, DeviceTraits] = {}
        self.rejects = Rejects()
        self._pm_keys = pm_keys
        self._clock = clock
        self._tids = tids or TidSpace(clock)
        self._known: dict[tuple[int, int], Known] = {}
        self._targets: list[Target] = []
        self._batch: Batch | None = None
        self._table: PortTable | None = None
        self._memory: Memory | None = None
        self._was_silent: set[Hashable] = set()
        self._number = 0
        self._slow_at = 0
        self._asked_again: set[tuple[int, int]] = set()  # late risers, asked for ClassPortInfo once more
        self.set_targets(targets)

    def set_targets(self, targets: Iterable[Target]) -> None:
        """The fabric changed. A target whose device type differs at the same GUID is learnt anew."""
        new = list(targets)
        if new == self._targets:
            return
        self._targets = new
        current = {target.key: target for target in self._targets}
        self._known = {
            key: known for key, known in self._known.items() if key in current and known.device == current[key].device
        }
        for key, known in self._known.items():
            if known.address.lid != current[key].lid:
                known.address = _address(current[key])
        self.health.forget(set(current))
        self._batch = None

    def set_limits(self, limits: Limits) -> None:
        if limits != self.limits:
            self.limits = limits
            if self._batch is not None:
                self._batch.limits = limits

    @property
    def ports(self) -> int:
        return sum(len(target.ports) for target in self._targets)

    @property
    def silent(self) -> list[Target]:
        """Targets that do not answer: refused, keyed, filtered or dead; silence does not say which."""
        return [target for target in self._targets if target.key in self.health.silent]

    def prepare(self, progress: Progress | None = None) -> None:
        """Learn what new targets can show (ClassPortInfo), and once per device type which optional attributes it has."""
        fresh = [target for target in self._targets if target.key not in self._known]
        asked = 0
        for target in fresh:
            self._known[target.key] = Known(target.device, ASSUMED, _address(target))
        for part in _parts(fresh, lambda target: 1):
            result = self._ask([(target, [(int(Pma.CLASS_PORT_INFO), 0)]) for target in part], probe=True)
            for target, mad, reply in zip(part, result.mads, result.reply, strict=True):
                self._learn(target, bytes(mad), Reply(int(reply)))
            asked += len(part)
            if progress is not None:
                progress("asking what each device can show", asked, len(fresh))
        self._probe_types(progress)
        self._build()

    def _learn(self, target: Target, mad: bytes, reply: Reply) -> None:
        known = self._known[target.key]
        if reply in (Reply.OK, Reply.REDIRECT):
            info = parse_class_port_info(mad)
            if reply is Reply.OK:
                known.capability = info.capability
            if info.redirect is not None:
                known.address = info.redirect
        elif reply in (Reply.TIMEOUT, Reply.SKIPPED):
            self.rejects.add("refused_or_keyed", "performance management does not answer", _where(target))
        else:
            self.rejects.add("class_port_info", reply.name.lower(), _where(target))

    def _probe_types(self, progress: Progress | None) -> None:
        live = [t for t in self._targets if t.device not in self.traits and t.key not in self.health.silent]
        if not live:
            return
        if progress is not None:
            progress("asking each type of device what it has", 0, len({t.device for t in live}))
        scheduler = Scheduler(self.transport, self.limits, self._tids, patient=True, clock=self._clock)
        addresses = {target.lid: self._known[target.key].address for target in live}
        wanted = OPTIONAL if self.options.slow_sweeps else ()
        self.traits.update(probe_devices(scheduler, live, addresses, wanted))

    def wait_tick_bytes(self, target: Target, port: int) -> int | None:
        """Bytes of link time per tick of PortXmitWait at a port; None when neither the device nor the documents say."""
        lanes = int(target.labels.get(port, {}).get("width") or 0)
        return self.traits.get(target.device, DeviceTraits()).wait_tick_bytes(target.device, lanes)

    def _build(self) -> None:
        asks, self._table = plan(self._targets, self._known, errors=self.options.errors)
        self._batch = self._prepare_batch(asks)

    def _prepare_batch(self, asks: Asks) -> Batch:
        groups = []
        for target, wants in asks:
            key = self._pm_keys(target.guid).to_bytes(8, "big")
            mads = [pma_get(attribute, port) for attribute, port in wants]
            if any(key):
                for mad in mads:
                    mad[_KEY_AT : _KEY_AT + 8] = key
            groups.append((target.key, self._known[target.key].address, mads))
        return Batch(self.transport, groups, self.limits)

    def _ask(self, asks: Asks, *, probe: bool = False) -> BatchResult:
        """A batch of its own, outside the main one: silent targets are left alone, and nothing here makes one silent."""
        batch = self._prepare_batch(asks)
        return batch.run(
            self.health,
            self._tids,
            probe_silent=probe,
            demote=probe,
            deadline_s=self.options.deadline_s,
            clock=self._clock,
        )

    def sweep(self, progress: Progress | None = None) -> Sweep:
        """One pass. Raises DeviceGone."""
        if self._batch is None:
            self.prepare(progress)
        batch, table = self._batch, self._table
        assert batch is not None and table is not None
        wall, mono = time.time_ns(), time.monotonic_ns()
        start = self._clock()
        result = batch.run(
            self.health,
            self._tids,
            deadline_s=self.options.deadline_s,
            progress=None if progress is None else (lambda done: progress("reading counters", done, len(batch))),
            clock=self._clock,
        )
        result = self._again_if_busy(batch, result)
        values, flags, reply, when = decode_main(table, result.mads, result.reply, result.when, start)
        self._number += 1
        sweep = Sweep(self._number, table, mono, wall, 0.0, values, flags, when, reply, counts=result.counts)
        if self._memory is None or self._memory.table is not table:
            self._memory = Memory(table, self._memory)
        awake = [target.key not in self.health.silent for target in table.targets]
        back = np.array([target.key in self._was_silent for target in table.targets], np.bool_) & np.array(
            awake, np.bool_
        )
        changes = self._memory.take(sweep, back)
        sweep.counts["resets"] = changes.resets
        sweep.qp1_dropped = changes.qp1_dropped
        if self.options.details and self.options.errors:
            sweep.details = self._side(_DETAILS, changes.moved, table)
        if self.options.slow_sweeps:
            sweep.slow = self._slow_part(table)
        self._account(sweep, batch, result)
        self._was_silent = set(self.health.silent)
        sweep.seconds = self._clock() - start
        return sweep

    def _again_if_busy(self, batch: Batch, result: BatchResult) -> BatchResult:
        """Agents that said busy are asked once more, after everyone else."""
        busy = np.flatnonzero(result.reply == Reply.BUSY)
        if not len(busy):
            return result
        result.counts["busy"] += len(busy)
        again = batch.subset(busy.tolist()).run(
            self.health, self._tids, probe_silent=False, demote=False, deadline_s=2.0, clock=self._clock
        )
        mads, reply, when = result.mads.copy(), result.reply.copy(), result.when.copy()
        mads[busy], reply[busy], when[busy] = again.mads, again.reply, again.when
        return replace(result, mads=mads, reply=reply, when=when)

    def _side(self, attributes: tuple[int, ...], ports: Rows, table: PortTable) -> SideReading | None:
        """Further attributes of some ports of the table; None when no port is asked."""
        asked = [int(p) for p in ports if table.targets[table.target[p]].key not in self.health.silent]
        if not asked:
            return None
        by_target: dict[int, list[int]] = {}
        for port in asked:
            by_target.setdefault(int(table.target[port]), []).append(port)
        order = [port for group in by_target.values() for port in group]
        asks = [
            (table.targets[t], [(a, int(table.port[port])) for port in group for a in attributes])
            for t, group in by_target.items()
        ]
        result = self._ask(asks)
        width = len(attributes)
        parts = []
        for i, attribute in enumerate(attributes):
            mads, reply = result.mads[i::width], result.reply[i::width]
            value, flag = cells(attribute, decode(attribute, mads))
            good = (reply == Reply.OK) & (mads[:, PORT_SELECT_AT] == table.port[order])
            value[~good], flag[~good] = 0, 0
            parts.append((value, flag))
        rows = np.array(order, np.intp)
        return SideReading(attributes, rows, np.hstack([v for v, _ in parts]), np.hstack([f for _, f in parts]))

    def _slow_part(self, table: PortTable) -> list[SideReading]:
        """This sweep's share of the slow cycle: the next of the targets, each with what its device type has."""
        count = len(table.targets)
        share = max(1, -(-count // self.options.slow_sweeps))
        first, self._slow_at = self._slow_at, (self._slow_at + share) % max(1, count)
        chosen = {(first + i) % count for i in range(min(share, count))} if count else set()
        by_attributes: dict[tuple[int, ...], list[int]] = {}
        for index in sorted(chosen):
            traits = self.traits.get(table.targets[index].device)
            if traits is not None and traits.attributes:
                by_attributes.setdefault(tuple(sorted(traits.attributes)), []).append(index)
        out = []
        for attributes, indexes in by_attributes.items():
            side = self._side(attributes, np.flatnonzero(np.isin(table.target, indexes)), table)
            if side is not None:
                out.append(side)
        return out

    def _account(self, sweep: Sweep, batch: Batch, result: BatchResult) -> None:
        """Count what was not read, by kind and device, and learn from refusals: an absent attribute is not asked again."""
        bad = np.flatnonzero(result.reply != Reply.OK)
        seen: Counter[tuple[int, Reply, int]] = Counter()
        table = sweep.table
        index_of: dict[Hashable, int] = {target.key: i for i, target in enumerate(table.targets)}
        relearn = False
        for row in bad.tolist():
            reply = Reply(int(result.reply[row]))
            target = table.targets[index_of[batch.keys[batch.owner[row]]]]
            known = self._known[target.key]
            attribute, port = batch.asked(row)
            seen[index_of[target.key], reply, attribute] += 1
            if reply is Reply.REDIRECT:
                redirect = parse_class_port_info(bytes(result.mads[row])).redirect
                relearn |= redirect is not None and redirect != known.address
                known.address = redirect or known.address
            elif reply is Reply.INVALID and port not in known.bad_ports:
                known.bad_ports.add(port)
                relearn = True
            elif reply is Reply.UNSUPPORTED:
                relearn = True
                if attribute == Pma.PORT_COUNTERS_EXTENDED:
                    known.capability = known.capability.without_extended()
                else:
                    known.absent.add(attribute)
        for (index, reply, attribute), count in seen.items():
            kind = "refused_or_keyed" if reply in (Reply.TIMEOUT, Reply.SKIPPED) else reply.name.lower()
            sweep.rejects.add(kind, f"{count} ports, attribute {attribute:#04x}", _where(table.targets[index]))
        if not relearn:
            relearn = self._woken(sweep)
        if relearn:
            self._batch = None

    def _woken(self, sweep: Sweep) -> bool:
        """Whether a target answers whose ClassPortInfo is not known yet: it is asked for it before the next sweep."""
        unknown = [t.key for t in sweep.table.targets if not self._known[t.key].capability.known]
        awake = [key for key in unknown if key not in self.health.silent]
        for key in awake:
            if key not in self._asked_again:
                self._asked_again.add(key)
                del self._known[key]
        return any(key not in self._known for key in awake)


def _address(target: Target) -> Address:
    return gmp_address(target.lid, CLASS_PMA, sl=target.sl, pkey_index=target.pkey_index)


def _where(target: Target) -> str:
    return f"{target.name} {format_guid(target.guid)} lid {target.lid}".strip()


def _parts(targets: list[Target], cost: Callable[[Target], int]) -> Iterable[list[Target]]:
    """Lists of targets that fit a batch."""
    part: list[Target] = []
    total = 0
    for target in targets:
        if part and total + cost(target) > MAX_BATCH:
            yield part
            part, total = [], 0
        part.append(target)
        total += cost(target)
    if part:
        yield part

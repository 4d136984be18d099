"""Reads the output of nccl-tests and turns its bus bandwidth into what each NIC carried, against its line rate."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Any

from fabricd.jobs.allreduce import fit_alpha_beta, wire_rate_per_nic
from fabricd.model.rejects import Rejects

_RANK = re.compile(r"#\s+Rank\s+(\d+)\s.*\bon\s+(\S+)\s+device\s+(\d+)\s+\[([^\]]+)\]\s*(.*)")


@dataclass(frozen=True, slots=True)
class Line:
    """One size: bytes, microseconds and GB/s, out of place and in place (None where nccl-tests printed N/A)."""

    size: int
    time_us: float
    busbw: float
    in_place_time_us: float | None
    in_place_busbw: float | None
    wrong: int | None


@dataclass(slots=True)
class NcclTest:
    lines: list[Line] = field(default_factory=list)
    hosts: list[str] = field(default_factory=list)  # one entry per rank
    gpu: str = ""
    rejects: Rejects = field(default_factory=Rejects)

    @property
    def ranks(self) -> int:
        return len(self.hosts)

    @property
    def nodes(self) -> int:
        return len(set(self.hosts))


def parse(text: str) -> NcclTest:
    """Read a whole output; lines that cannot be read are counted in ``rejects``."""
    test = NcclTest()
    for number, line in enumerate(text.splitlines(), 1):
        if match := _RANK.search(line):
            test.hosts.append(match[2])
            test.gpu = match[5].strip()
        elif line.strip() and not line.lstrip().startswith("#") and line.split()[0].isdigit():
            try:
                test.lines.append(_line(line.split()))
            except (ValueError, IndexError):
                test.rejects.add("nccl_tests_line", line.strip(), f"line {number}")
    return test


def _line(cells: list[str]) -> Line:
    def number(cell: str) -> float | None:
        return None if cell == "N/A" else float(cell)

    # size count [type [redop [root]]] time algbw busbw #wrong time algbw busbw #wrong: the last eight columns are fixed.
    head, tail = cells[:-8], cells[-8:]
    if len(head) < 2:
        raise ValueError("too few columns")
    time_us, busbw = float(tail[0]), float(tail[2])
    wrong = number(tail[3])
    return Line(int(head[0]), time_us, busbw, number(tail[4]), number(tail[6]), None if wrong is None else int(wrong))


def against_wire(test: NcclTest, nodes: int, gpus_per_node: int, nic_gbps: float) -> dict[str, Any]:
    """Per size: GB/s per NIC and percent of its line rate; the alpha-beta fit over all sizes where two or more are there.

    With two nodes the figure is bound by NVLink rather than by the NIC, and says so. Raises ValueError for one node.
    """
    ranks = nodes * gpus_per_node
    line_rate = nic_gbps / 8
    rows = []
    for line in test.lines:
        busbw = max(line.busbw, line.in_place_busbw or 0.0)
        wire = wire_rate_per_nic(busbw, ranks, nodes)
        rows.append(
            {"size": line.size, "busbw_gbs": busbw, "wire_gbs_per_nic": wire, "percent_of_line": 100 * wire / line_rate}
        )
    out: dict[str, Any] = {"ranks": ranks, "nodes": nodes, "rows": rows, "notes": []}
    points = [(float(line.size), line.time_us * 1e-6) for line in test.lines if line.size and line.time_us > 0]
    if len({size for size, _ in points}) >= 2:
        fit = fit_alpha_beta(points, ranks)
        out["fit"] = {"alpha_us": fit.alpha_seconds * 1e6, "beta_gbs": fit.beta_gbs, "rms_error": fit.rms_error}
    if nodes == 2:
        out["notes"].append("two nodes: the bus bandwidth is bound by NVLink, so the NIC figure is a lower bound")
    if any(line.wrong for line in test.lines):
        out["notes"].append("results were wrong (#wrong > 0): the run does not count")
    return out

"""The status page: open verdicts with their trees first, then who publishes. One plain page, no script."""

from __future__ import annotations

import html
from collections.abc import Sequence
from typing import Any

from fabricd import __version__
from fabricd.model.verdict import Verdict
from fabricd.outputs.verdict_text import explain, one_line

REFRESH_S = 5
LINKS = (
    "/metrics",
    "/api/v1/verdicts",
    "/api/v1/nodes",
    "/api/v1/ports",
    "/api/v1/jobs",
    "/api/v1/doctor/fleet",
    "/openapi.json",
)
_STYLE = """
:root{color-scheme:light dark}
body{font:15px/1.5 system-ui,sans-serif;margin:2rem;max-width:75rem}
td,th{padding:.2rem .8rem;text-align:left;border-bottom:1px solid color-mix(in srgb,currentColor 25%,transparent)}
pre{overflow-x:auto;padding:.8rem 1rem;border-left:.4rem solid #d55e00;background:color-mix(in srgb,currentColor 6%,transparent)}
.quiet{border-left:.4rem solid #0072b2;padding:.4rem 1rem}
"""


def status_page(
    fabric: str, nodes: dict[str, Any], problems: Sequence[str], verdicts: Sequence[Verdict], fleet: dict[str, Any]
) -> str:
    """``nodes`` is the document of /api/v1/nodes, ``fleet`` that of /api/v1/doctor/fleet (empty: no report yet)."""
    rows = "".join(
        "<tr>" + "".join(f"<td>{html.escape(str(cell))}</td>" for cell in _cells(node)) + "</tr>"
        for node in nodes["nodes"]
    )
    ready = "ready" if not problems else "not ready: " + "; ".join(problems)
    links = " · ".join(f'<a href="{path}">{path}</a>' for path in LINKS)
    return (
        f"<!doctype html><html lang=en><meta charset=utf-8><meta name=viewport content='width=device-width'>"
        f"<meta http-equiv=refresh content={REFRESH_S}><title>{_title(fabric, verdicts)}</title><style>{_STYLE}</style>"
        f"<h1>fabricd {__version__}: fabric {html.escape(fabric)}</h1><p>{html.escape(ready)}</p>"
        f"<h2>Congestion</h2>{_congestion(verdicts)}"
        f"<h2>Nodes</h2><table><tr><th>node<th>kind<th>state<th>ports<th>frames<th>age<th>clock skew</tr>{rows}</table>"
        f"{_doctors(fleet)}<p>{links}</p></html>"
    )


def _title(fabric: str, verdicts: Sequence[Verdict]) -> str:
    return html.escape(f"{len(verdicts)} open verdicts: {fabric}" if verdicts else f"fabricd {fabric}")


def _congestion(verdicts: Sequence[Verdict]) -> str:
    if not verdicts:
        return "<p class=quiet>no head-of-line blocking is seen</p>"
    return "".join(
        f"<section id={html.escape(verdict.id, quote=True)}><h3>{html.escape(one_line(verdict))}</h3>"
        f"<pre>{html.escape(explain(verdict))}</pre></section>"
        for verdict in verdicts
    )


def _doctors(fleet: dict[str, Any]) -> str:
    if not fleet.get("nodes"):
        return ""
    lines = [f"{node} fails {', '.join(ids)}" for node, ids in fleet["failing"].items()]
    lines += [
        f"{d['node']} differs in {d['property']}: {d['value']}, most have {d['majority']}" for d in fleet["differing"]
    ]
    lines += [f"{c['node']}: {c['detail']}" for c in fleet["crossed_rails"]]
    body = "".join(f"<li>{html.escape(line)}" for line in lines) or "<li>nothing fails and no node differs"
    return f"<h2>Doctor</h2><p>{fleet['nodes']} nodes reported</p><ul>{body}</ul>"


def _cells(node: dict[str, Any]) -> list[object]:
    age, skew = node["age_s"], node["clock_skew_s"]
    return [
        node["node"], node["kind"], node["state"], node["ports"], node["stored_frames"],
        "never" if age is None else f"{age:.1f} s", "unknown" if skew is None else f"{skew * 1e3:.1f} ms",
    ]  # fmt: skip

"""One HTML file that tells what jobs answered: tables and plots, everything in it, to be opened without a network."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from datetime import datetime
from html import escape
from inspect import getdoc
from typing import Any

import pyarrow as pa
from plotly.offline import get_plotlyjs

from .plots import PLOTS
from .table import Job
from .views import Views

MOST_ROWS = 200
"""Of a table in the report."""
_STYLE = """
body { font: 15px/1.5 system-ui, sans-serif; max-width: 76rem; margin: 2rem auto; padding: 0 1rem; color: #222 }
table { border-collapse: collapse; font-size: 13px } td, th { padding: 2px 10px; border-bottom: 1px solid #ddd }
th { text-align: left; white-space: nowrap } td.number { text-align: right; font-variant-numeric: tabular-nums }
.rows { overflow: auto; max-height: 26rem } pre { background: #f6f6f6; padding: .7rem; overflow: auto }
nav a { margin-right: 1rem } section { margin-top: 2.5rem }
"""


def html_of(answers: Iterable[tuple[Job, pa.Table]], views: Views, made: datetime) -> Iterator[str]:
    """The report, part by part."""
    log = views.log
    title = f"CairnMQ: {escape(views.store)}"
    yield f'<!doctype html><html lang="en"><head><meta charset="utf-8"><title>{title}</title>'
    yield f"<style>{_STYLE}</style><script>{get_plotlyjs()}</script></head><body><h1>{title}</h1>"
    yield (
        f"<p>Log {log.uuid}, up to LSN {log.durable_lsn}; {len(log.pieces)} containers of {log.container_bytes} bytes. "
        f"Made {made:%Y-%m-%d %H:%M:%S} UTC.</p>"
    )
    parts: list[tuple[Job, str]] = [(job, _section(job, table)) for job, table in answers]
    links = "".join(f'<a href="#{job.name}">{job.name}</a> ' for job, _ in parts)
    yield f"<nav>{links}</nav>"
    for _, part in parts:
        yield part
    yield "</body></html>\n"


def _section(job: Job, table: pa.Table) -> str:
    count = table.num_rows
    said = f"<p>{count} rows</p>" if count else "<p>nothing: no rows</p>"
    plot = PLOTS.get(job.name)
    drawn = ""
    if plot is not None and count:
        drawn = plot(table.to_pylist()).to_html(full_html=False, include_plotlyjs=False, div_id=f"plot-{job.name}")
    about = escape(getdoc(job.run) or "")
    return (
        f'<section id="{job.name}"><h2>{job.name}: {escape(job.title)}</h2>{drawn}{said}{_table(table)}'
        f"<details><summary>what the columns are</summary><pre>{about}</pre></details></section>"
    )


def _table(table: pa.Table) -> str:
    if not table.num_rows:
        return ""
    heads = "".join(f"<th>{escape(name)}</th>" for name in table.schema.names)
    rows = "".join(
        "<tr>" + "".join(_cell(value) for value in row.values()) + "</tr>"
        for row in table.slice(0, MOST_ROWS).to_pylist()
    )
    cut = f"<p>the first {MOST_ROWS}; --json and --csv give all</p>" if table.num_rows > MOST_ROWS else ""
    return f'<div class="rows"><table><thead><tr>{heads}</tr></thead><tbody>{rows}</tbody></table></div>{cut}'


def _cell(value: Any) -> str:
    if value is None:
        return "<td></td>"
    if isinstance(value, bool | str | list):
        return f"<td>{escape(str(value))}</td>"
    if isinstance(value, datetime):
        return f"<td>{value:%Y-%m-%d %H:%M:%S}</td>"
    return f'<td class="number">{value:,.6g}</td>' if isinstance(value, float) else f'<td class="number">{value}</td>'

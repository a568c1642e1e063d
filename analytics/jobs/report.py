"""A report of the results of jobs as one HTML file: tables and plots, self-contained, readable without a network."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from datetime import UTC, datetime, timedelta
from html import escape
from inspect import getdoc
from typing import Any

import pyarrow as pa
from plotly.offline import get_plotlyjs

from ...base.texts import counted
from ..scan.files import Log
from .plots import NOTES, PLOTS
from .table import Job
from .units import duration_text, size_text

MOST_ROWS = 200
"""The maximum number of rows of a table in the report."""
MOST_LETTERS = 48
"""The maximum length of a name in a table; a tooltip shows longer ones completely."""
MOST_TOP = 10
"""Rows of a list of the first or last."""
_AT_END = "age_s"
"""The column of an age at the end of the log."""
_NOW = "age now"
_STYLE = """
:root { color-scheme: light dark; --fg: #1f2937; --dim: #6b7280; --bg: #fff; --card: #f5f6f8; --line: #dfe2e7;
  --grid: #e8eaee; --link: #1d4ed8; --good: #047857; --bad: #b91c1c }
@media (prefers-color-scheme: dark) { :root { --fg: #e5e7eb; --dim: #9ca3af; --bg: #14171c; --card: #1e232b;
  --line: #343b46; --grid: #2b313a; --link: #93c5fd; --good: #34d399; --bad: #f87171 } }
* { box-sizing: border-box } html { overflow-y: scroll }
body { font: 15px/1.5 system-ui, sans-serif; max-width: 76rem; margin: 0 auto; padding: 1.5rem 1rem 4rem;
  color: var(--fg); background: var(--bg); overflow-wrap: anywhere }
h1 { font-size: 1.6rem; margin: 0 0 .3rem } h2 { font-size: 1.2rem; margin: 0 0 .2rem } a { color: var(--link) }
.dim, .about { color: var(--dim) } .about { margin: 0 0 .6rem }
.good { color: var(--good) } .bad { color: var(--bad) }
.cards { display: grid; grid-template-columns: repeat(auto-fit, minmax(11rem, 1fr)); gap: .7rem; margin: 1rem 0 }
.card { background: var(--card); border-radius: 8px; padding: .7rem .9rem }
.card b { display: block; font-size: 1.25rem }
table { border-collapse: collapse; font-size: 13px } td, th { padding: 3px 10px; border-bottom: 1px solid var(--line) }
th { text-align: left; white-space: nowrap; position: sticky; top: 0; background: var(--bg) }
th.number, td.number { text-align: right } td.number { font-variant-numeric: tabular-nums; white-space: nowrap }
td { overflow-wrap: normal; max-width: 34rem } td.time { white-space: nowrap }
.rows { overflow: auto; max-height: 26rem; border: 1px solid var(--line); border-radius: 6px }
pre { background: var(--card); padding: .7rem; overflow: auto; border-radius: 6px } details { margin-top: .6rem }
summary { cursor: pointer; color: var(--dim) }
nav { display: flex; flex-wrap: wrap; gap: .2rem 1rem; margin: 1rem 0 }
section { margin-top: 2.2rem; padding-top: 1.2rem; border-top: 1px solid var(--line) }
.lists { display: grid; grid-template-columns: repeat(auto-fit, minmax(min(24rem, 100%), 1fr)); gap: 1rem }
.lists h3 { font-size: 1rem; margin: .6rem 0 .3rem } .plot { margin: .3rem 0 1rem }
.xtick text, .ytick text, .xtitle, .ytitle, .legendtext { fill: var(--fg) !important }
.bartext-outside { fill: var(--fg) !important }
.gridlayer path { stroke: var(--grid) !important } .zerolinelayer path { stroke: var(--line) !important }
"""
_ICON = '<link rel="icon" href="data:,">'
"""No icon: a browser asks for one otherwise."""


def html_of(answers: Iterable[tuple[Job, pa.Table]], store: str, log: Log, made: datetime) -> Iterator[str]:
    """The report, part by part. *made* is the present time, against which ages are shown."""
    reported = list(answers)
    tables = {job.name: table for job, table in reported}
    title = f"CairnMQ: {escape(store)}"
    yield f'<!doctype html><html lang="en"><head><meta charset="utf-8"><title>{title}</title>'
    yield f'<meta name="viewport" content="width=device-width, initial-scale=1">{_ICON}'
    yield f"<style>{_STYLE}</style><script>{get_plotlyjs()}</script></head><body><h1>{title}</h1>"
    size = size_text(len(log.pieces) * log.container_bytes)
    containers = counted(len(log.pieces), "container", spec=",")
    yield (
        f'<p class="dim">Log {log.uuid}, up to LSN {log.durable_lsn}: {containers} of '
        f"{size_text(log.container_bytes)}, {size} in all.<br>"
        f"Made {made:%Y-%m-%d %H:%M:%S} UTC{_newest(tables, made)}.</p>"
    )
    yield _overview(tables, log.truncation())
    links = "".join(f'<a href="#{job.name}">{job.name}</a>' for job, _ in reported)
    yield f"<nav>{links}</nav>"
    for job, table in reported:
        yield _section(job, table, made)
    yield "</body></html>\n"


def _newest(tables: dict[str, pa.Table], made: datetime) -> str:
    """Return the time of the newest record of the log as text, if a job has it."""
    rows = tables["backlog"].slice(0, 1).to_pylist() if "backlog" in tables else []
    if not rows or rows[0]["oldest_time"] is None or rows[0][_AT_END] is None:
        return ""
    newest = _aware(rows[0]["oldest_time"]) + timedelta(seconds=float(rows[0][_AT_END]))
    ago = duration_text(max(0, round((made - newest).total_seconds())))
    return f"; the newest record of the log is of {newest:%Y-%m-%d %H:%M:%S} UTC, {ago} before"


def _aware(time: datetime) -> datetime:
    return time if time.tzinfo is not None else time.replace(tzinfo=UTC)


def _overview(tables: dict[str, pa.Table], truncated: str) -> str:
    """Return the verdict and the totals of queues, from the jobs that were run."""
    cards: list[tuple[str, str, str]] = []
    if "integrity" in tables:
        found = tables["integrity"].num_rows
        well = ("good", "All is well", "the data is complete")
        cards.append(("bad", counted(found, "finding", spec=","), "see integrity") if found else well)
    if "backlog" in tables:
        rows = tables["backlog"].to_pylist()
        messages, size = sum(row["messages"] for row in rows), sum(row["bytes"] for row in rows)
        queues = counted(len(rows), "queue", spec=",")
        cards.append(("", counted(messages, "message", spec=","), f"{size_text(size)}, on {queues}"))
        if rows:
            most = max(rows, key=lambda row: int(row["pinned_bytes"]))
            holds = f"queue {most['queue']} pins the most of the log"
            cards.append(("", size_text(most["pinned_bytes"]), holds))
            oldest = max(rows, key=lambda row: float(row.get(_AT_END) or 0))
            if oldest.get(_AT_END) is not None:
                about = f"the oldest message, at the log's end; on queue {oldest['queue']}"
                cards.append(("", duration_text(float(oldest[_AT_END])), about))
    if "liveness" in tables and tables["liveness"].num_rows:
        shares = tables["liveness"]["share"].to_pylist()
        about = f"of {counted(len(shares), 'container', spec=',')} of the log"
        cards.append(("", f"{sum(shares) / len(shares):.0%} live", about))
    shown = "".join(
        f'<div class="card"><b class="{style}">{escape(str(what))}</b>{escape(str(about))}</div>'
        for style, what, about in cards
    )
    note = f"<p>{escape(truncated[0].upper() + truncated[1:])}.</p>" if truncated else ""
    return f'<div class="cards">{shown}</div>{note}' if cards or note else ""


def _section(job: Job, table: pa.Table, made: datetime) -> str:
    count = table.num_rows
    nothing = "No problems were found." if job.name == "integrity" else "No rows."
    said = f'<p class="about">{counted(count, "row", spec=",")}</p>' if count else f'<p class="about">{nothing}</p>'
    plot = PLOTS.get(job.name)
    figure = plot(table.to_pylist()) if plot is not None and count else None
    drawn = ""
    if figure is not None:
        config = {"displayModeBar": False, "responsive": True}
        div = figure.to_html(full_html=False, include_plotlyjs=False, div_id=f"plot-{job.name}", config=config)
        note = f'<p class="about">{NOTES[job.name]}</p>' if job.name in NOTES else ""
        drawn = f'<div class="plot">{div}</div>{note}'
    about = escape(getdoc(job.run) or "")
    lists = _ends(table, made) if job.name == "liveness" and count > MOST_TOP else ""
    return (
        f'<section id="{job.name}"><h2>{escape(job.title)}</h2>{said}{drawn}{lists}{_table(table, made)}'
        f"<details><summary>{job.name}: the columns</summary><pre>{about}</pre></details></section>"
    )


def _ends(table: pa.Table, made: datetime) -> str:
    """Return the first and the last rows of a table that is too long for the report."""
    columns = [name for name in table.schema.names if name in ("container", "share", "live_bytes", "messages")]
    some = table.select(columns)
    last = some.take(list(range(some.num_rows - 1, some.num_rows - 1 - MOST_TOP, -1)))
    return (
        f'<div class="lists"><div><h3>The {MOST_TOP} emptiest containers</h3>{_table(some.slice(0, MOST_TOP), made)}'
        f"</div><div><h3>The {MOST_TOP} fullest containers</h3>{_table(last, made)}</div></div><h3>All</h3>"
    )


def _table(table: pa.Table, made: datetime) -> str:
    if not table.num_rows:
        return ""
    shown = table.slice(0, MOST_ROWS).to_pylist()
    if _AT_END in table.schema.names:  # beside the age at the end of the log
        shown = [_with_age(row, made) for row in shown]
    names = list(shown[0])
    heads = "".join(f'<th{_class(name, shown)} title="{escape(name)}">{escape(_head(name))}</th>' for name in names)
    rows = "".join("<tr>" + "".join(_cell(value, name) for name, value in row.items()) + "</tr>" for row in shown)
    cut = f"<p>The first {MOST_ROWS} of {table.num_rows:,} rows; --json and --csv write all.</p>"
    more = cut if table.num_rows > MOST_ROWS else ""
    return f'<div class="rows"><table><thead><tr>{heads}</tr></thead><tbody>{rows}</tbody></table></div>{more}'


def _with_age(row: dict[str, Any], made: datetime) -> dict[str, Any]:
    oldest = row.get("oldest_time") or row.get("prepared_time")
    found: dict[str, Any] = {}
    for name, value in row.items():
        found[name] = value
        if name == _AT_END:
            found[_NOW] = None if oldest is None else max(0.0, (made - _aware(oldest)).total_seconds())
    return found


def _head(name: str) -> str:
    """The name of a column, without the unit that its values have."""
    if name == _AT_END:
        return "age at the log's end"
    return name.removesuffix("_us").removesuffix("_s").replace("_", " ")


def _class(name: str, rows: list[dict[str, Any]]) -> str:
    value = next((row[name] for row in rows if row[name] is not None), None)
    return ' class="number"' if isinstance(value, int | float) and not isinstance(value, bool) else ""


def _cell(value: Any, name: str = "") -> str:
    if value is None:
        return "<td>all</td>" if name == "hour" else "<td></td>"
    if isinstance(value, bool):
        return f"<td>{'yes' if value else 'no'}</td>"
    if isinstance(value, list):
        return f"<td>{escape(', '.join(map(str, value)))}</td>"
    if isinstance(value, str):
        if len(value) > MOST_LETTERS and " " not in value:
            return f'<td title="{escape(value)}">{escape(value[: MOST_LETTERS - 3])}...</td>'
        return f"<td>{escape(value)}</td>"
    if isinstance(value, datetime):
        return f'<td class="time">{value:%Y-%m-%d %H:%M:%S}</td>'
    if name.endswith("bytes"):
        return f'<td class="number" title="{value} bytes">{size_text(value)}</td>'
    if name.endswith("_us"):
        return f'<td class="number" title="{value} us">{duration_text(value / 1e6)}</td>'
    if name.endswith("_s") or name == _NOW:
        return f'<td class="number" title="{value} s">{duration_text(float(value))}</td>'
    if name in ("share", "abort_rate"):
        return f'<td class="number" title="{value}">{value:.1%}</td>'
    if isinstance(value, float):
        return f'<td class="number">{value:,.4g}</td>'
    is_copied = name.endswith(("lsn", "_id", "id")) or name in ("container", "here", "there", "place")
    return f'<td class="number">{value if is_copied else format(value, ",")}</td>'

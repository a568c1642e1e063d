"""Plots of what jobs answered, by plotly: each takes rows, and gives a figure or None where there is nothing to see."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable
from html import escape
from typing import Any

import plotly.graph_objects as go

Rows = list[dict[str, Any]]
Plot = Callable[[Rows], Any]

MOST_QUEUES = 12
MOST_POINTS = 2000
"""Of one line; of more than that every so many are drawn, so that a report opens quickly."""


def queue_name(row: dict[str, Any]) -> str:
    """Names are others': plotly takes some HTML in labels."""
    return escape(row["queue"]) if row["queue"] is not None else f"queue {row['queue_id']}"


def _busiest(rows: Rows, weight: str) -> dict[str, Rows]:
    """The rows of the queues with the largest sums of *weight*."""
    found: dict[str, Rows] = defaultdict(list)
    for row in rows:
        found[queue_name(row)].append(row)
    order = sorted(found, key=lambda name: -sum(row[weight] for row in found[name]))
    return {name: found[name] for name in order[:MOST_QUEUES]}


def _thinned(rows: Rows) -> Rows:
    stride = -(-len(rows) // MOST_POINTS) or 1
    return rows[::-1][::stride][::-1]  # the last one stays


def _figure(traces: Iterable[Any], y: str, **layout: Any) -> Any:
    return go.Figure(list(traces), go.Layout(template="plotly_white", yaxis_title=y, height=420, **layout))


def depth(rows: Rows) -> Any:
    traces = []
    for name, some in _busiest(rows, "peak").items():
        some = _thinned(some)
        times, depths = [row["time"] for row in some], [row["depth"] for row in some]
        traces.append(go.Scatter(x=times, y=depths, name=name, mode="lines", line_shape="hv"))
    return _figure(traces, "messages", showlegend=True)


def lifetimes(rows: Rows) -> Any:
    traces = []
    for name, some in _busiest(rows, "messages").items():
        for what, dash in (("p50_us", "dot"), ("p99_us", "solid")):
            hours, stays = [row["hour"] for row in some], [row[what] / 1e6 for row in some]
            traces.append(go.Scatter(x=hours, y=stays, name=f"{name} {what[:3]}", mode="lines+markers", line_dash=dash))
    return _figure(traces, "seconds", showlegend=True, yaxis_type="log")


def throughput(rows: Rows) -> Any:
    some = _busiest(rows, "arrived")
    points = [(row["time"], name, row["arrived"]) for name, found in some.items() for row in found]
    times, names, counts = zip(*points, strict=True)
    return _figure([go.Heatmap(x=times, y=names, z=counts, colorscale="Blues", colorbar_title="arrived")], "")


def dead_stock(rows: Rows) -> Any:
    some = sorted(rows, key=lambda row: -row["pinned_bytes"])[: 2 * MOST_QUEUES]
    names = [queue_name(row) for row in some]
    whats = ("pinned_bytes", "alone_bytes", "bytes")
    return _figure([go.Bar(x=names, y=[row[what] for row in some], name=what) for what in whats], "bytes")


def liveness(rows: Rows) -> Any:
    shares = [row["share"] for row in rows]
    bins = {"start": 0, "end": 1.0001, "size": 0.05}
    return _figure([go.Histogram(x=shares, xbins=bins)], "containers", xaxis_title="share that is living")


def space(rows: Rows) -> Any:
    hours = [row for row in rows if row["hour"] is not None]
    whats = ("new_bytes", "copied_bytes")
    times = [row["hour"] for row in hours]
    return _figure([go.Bar(x=times, y=[row[w] for row in hours], name=w) for w in whats], "bytes", barmode="stack")


def groups(rows: Rows) -> Any:
    some = _thinned(rows)
    times, shares = [row["time"] for row in some], [row["records_per_block"] for row in some]
    return _figure([go.Scatter(x=times, y=shares, mode="lines")], "records per block")


def transactions(rows: Rows) -> Any:
    traces = []
    for state in ("committed", "rolled_back", "prepared", "open", "forgotten"):
        traces.append(go.Bar(x=[row["hour"] for row in rows], y=[row[state] for row in rows], name=state))
    return _figure(traces, "transactions", barmode="stack")


def expiry(rows: Rows) -> Any:
    by_why: dict[str, Rows] = defaultdict(list)
    for row in rows:
        by_why[row["why"]].append(row)
    traces = [
        go.Bar(x=[row["hour"] for row in some], y=[row["messages"] for row in some], name=escape(why))
        for why, some in sorted(by_why.items())
    ]
    return _figure(traces, "messages", barmode="stack", showlegend=True)


def fan_out(rows: Rows) -> Any:
    queues, counts = [row["queues"] for row in rows], [row["messages"] for row in rows]
    return _figure([go.Bar(x=queues, y=counts)], "messages", xaxis_title="queues")


PLOTS: dict[str, Plot] = {
    "depth": depth, "lifetimes": lifetimes, "throughput": throughput, "dead-stock": dead_stock, "liveness": liveness,
    "space": space, "groups": groups, "transactions": transactions, "expiry": expiry, "fan-out": fan_out,
}  # fmt: skip

"""Plots of the results of jobs, by plotly: each returns a figure of the rows of a job, or None for too few.

Data over time is shown as lines or stacked bars, or as a bar per queue for fewer than three points in time. At most
`MOST_QUEUES` queues have colors of their own, and all others share one: a legend is below its plot, and never hides it.
The colors of texts and grids are those of the page (see `report`), which may be dark.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from html import escape
from itertools import pairwise
from math import log10
from typing import Any

import plotly.graph_objects as go

from ...store.contract.layout import unnamed_queue
from .units import Ticks, duration_text, duration_ticks, size_text, size_ticks

Rows = list[dict[str, Any]]
Plot = Callable[[Rows], Any]
Point = tuple[datetime | None, str, float]
"""A value at a time, under a name."""

MOST_QUEUES = 8
MOST_BARS = 16
"""Queues in a plot with a bar for each."""
MOST_POINTS = 2000
"""The maximum number of points of a line; longer ones are sampled, so that a report opens quickly."""
MOST_STEPS = 120
"""The maximum number of bars over time; more are combined."""
LEAST_TIMES = 3
"""Points of time for a plot over time."""
OTHERS = "others"
COLORS = ("#3b82f6", "#f97316", "#10b981", "#a855f7", "#ef4444", "#eab308", "#14b8a6", "#ec4899")
_GREY = "#94a3b8"
_HOUR = timedelta(hours=1)
_TIME_FORMATS = [
    {"dtickrange": [None, 1000], "value": "%H:%M:%S.%L"}, {"dtickrange": [1000, 60_000], "value": "%H:%M:%S"},
    {"dtickrange": [60_000, 86_400_000], "value": "%H:%M\n%b %-d, %Y"},
    {"dtickrange": [86_400_000, "M1"], "value": "%b %-d\n%Y"}, {"dtickrange": ["M1", None], "value": "%b\n%Y"},
]  # fmt: skip


def queue_name(row: dict[str, Any]) -> str:
    """Names are others': plotly takes some HTML in labels."""
    name = row["queue"] if row["queue"] is not None else unnamed_queue(row['queue_id'])
    return escape(name if len(name) <= 28 else f"{name[:25]}...")


def _by_queue(rows: Rows) -> dict[str, Rows]:
    found: dict[str, Rows] = defaultdict(list)
    for row in rows:
        found[queue_name(row)].append(row)
    return found


def _ranked(rows: Rows, weight: Callable[[Rows], float]) -> tuple[dict[str, Rows], dict[str, Rows]]:
    """The rows of the queues with the largest weights, and those of all others; one other is no group."""
    found = _by_queue(rows)
    order = sorted(found, key=lambda name: -weight(found[name]))
    most = MOST_QUEUES if len(order) > MOST_QUEUES + 1 else len(order)
    return {name: found[name] for name in order[:most]}, {name: found[name] for name in order[most:]}


def _color(number: int) -> str:
    return COLORS[number] if number < len(COLORS) else _GREY


def _thinned(points: Sequence[Any]) -> list[Any]:
    stride = -(-len(points) // MOST_POINTS) or 1
    return list(points[::-1][::stride][::-1])  # the last one stays


def _times(rows: Rows, column: str) -> list[datetime]:
    return sorted({row[column] for row in rows if row[column] is not None})


def _time_axis(times: Sequence[datetime], step: timedelta = timedelta(0)) -> dict[str, Any]:
    """From the first time to the last, with room: of a short range plotly would show fractions of a millisecond."""
    room = max((times[-1] - times[0] + step) * 0.02, timedelta(seconds=1))
    return {
        "type": "date", "range": [times[0] - room, times[-1] + step + room], "tickformatstops": _TIME_FORMATS,
        "tickangle": 0, "title": "UTC",
    }  # fmt: skip


def _value_axis(title: str, ticks: Ticks | None = None, **more: Any) -> dict[str, Any]:
    axis: dict[str, Any] = {"title": title, "rangemode": "tozero", **more}
    if ticks is not None:
        axis |= {"tickmode": "array", "tickvals": ticks.values, "ticktext": ticks.texts}
    return axis


def _figure(traces: Iterable[Any], x: dict[str, Any], y: dict[str, Any], **layout: Any) -> Any:
    """Return a figure with the legend below the plot; the page defines the colors of texts and lines."""
    shown = list(traces)
    entries = sum(trace.showlegend is not False for trace in shown)
    clear = "rgba(0,0,0,0)"
    common = {
        "template": "none", "paper_bgcolor": clear, "plot_bgcolor": clear, "autosize": True,
        "height": 400 + 14 * entries,
        "margin": {"l": 70, "r": 12, "t": 12, "b": 60}, "bargap": 0.15, "colorway": COLORS,
        "showlegend": len(shown) > 1, "font": {"family": "system-ui, sans-serif", "size": 12},
        "legend": {"orientation": "h", "yref": "container", "y": 0, "yanchor": "bottom", "x": 0, "bgcolor": clear},
        "hoverlabel": {"namelength": -1},
    }  # fmt: skip
    axis = {"automargin": True, "gridcolor": "#8884", "zerolinecolor": "#8888", "linecolor": "#8888"}
    return go.Figure(shown, go.Layout(**{**common, **layout, "xaxis": {**axis, **x}, "yaxis": {**axis, **y}}))


def _bars(values: dict[str, float], title: str, text: Callable[[float], str] = "{:,.0f}".format,
          ticks: Ticks | None = None) -> Any:  # fmt: skip
    """A bar per queue, the largest first, with its value beside it; all others are one."""
    order = sorted(values, key=lambda name: -values[name])
    most = MOST_BARS if len(order) > MOST_BARS + 1 else len(order)
    names, counts = order[:most], [values[name] for name in order[:most]]
    if rest := order[most:]:
        names, counts = [*names, f"{len(rest)} {OTHERS}"], [*counts, sum(values[name] for name in rest)]
    bar = go.Bar(
        y=names, x=counts, orientation="h", text=[text(one) for one in counts], textposition="auto", cliponaxis=False,
        hovertemplate="%{y}: %{text}<extra></extra>", marker_color=[*[_color(0)] * most, _GREY],
    )  # fmt: skip
    return _figure(
        [bar], _value_axis(title, ticks), {"autorange": "reversed", "type": "category"},
        height=90 + 26 * len(names),
    )  # fmt: skip


def _stacked(points: Iterable[Point], names: Sequence[str], title: str, ticks: Callable[[float], Ticks] | None = None,
             text: Callable[[float], str] = "{:,.0f}".format) -> Any:  # fmt: skip
    """Return stacked bars over time, combined into few steps; a bar for each name if there are few points in time."""
    known = [(time, name, value) for time, name, value in points if time is not None]
    times = sorted({time for time, _, _ in known})
    if not times:
        return None
    if len(times) < LEAST_TIMES:
        return _summed(known, names, title, ticks, text)
    step = min((later - earlier for earlier, later in pairwise(times)), default=_HOUR)
    step *= max(1, -(-round((times[-1] - times[0]) / step + 1) // MOST_STEPS))
    sums: dict[str, dict[datetime, float]] = {name: defaultdict(float) for name in names}
    totals: dict[datetime, float] = defaultdict(float)
    for time, name, value in known:
        begin = times[0] + (time - times[0]) // step * step
        sums[name][begin] += value
        totals[begin] += value
    traces = []
    for number, (name, bars) in enumerate(sums.items()):
        if shown := {time: value for time, value in bars.items() if value}:
            traces.append(go.Bar(
                x=list(shown), y=list(shown.values()), name=name, width=step / timedelta(milliseconds=1) * 0.9,
                offset=0, marker_color=_GREY if name.endswith(OTHERS) else _color(number),
                customdata=[text(value) for value in shown.values()],
                hovertemplate="%{x|%b %-d, %H:%M:%S}: %{customdata}",
            ))  # fmt: skip
    axis = _value_axis(title, ticks(max(totals.values(), default=0)) if ticks else None)
    return _figure(traces, _time_axis(times, step), axis, barmode="stack")


def _summed(points: Sequence[tuple[datetime, str, float]], names: Sequence[str], title: str,
            ticks: Callable[[float], Ticks] | None, text: Callable[[float], str]) -> Any:  # fmt: skip
    """A bar for each name; None if there is nothing."""
    values = {name: summed for name in names if (summed := sum(value for _, one, value in points if one == name))}
    return _bars(values, title, text, ticks(max(values.values())) if ticks else None) if values else None


def _of_columns(rows: Rows, names: Mapping[str, str]) -> Iterator[Point]:
    """The values of columns per hour, by the names that these have in a plot."""
    return ((row["hour"], name, row[column]) for row in rows for column, name in names.items())


def depth(rows: Rows) -> Any:
    times = _times(rows, "time")
    last = {name: some[-1]["depth"] for name, some in _by_queue(rows).items()}
    if len(times) < LEAST_TIMES:
        return _bars(last, "messages at the end")
    top, rest = _ranked(rows, lambda some: max(row["peak"] for row in some))
    traces = []
    for number, (name, some) in enumerate(top.items()):
        points = _thinned([(row["time"], row["depth"]) for row in some])
        points.append((times[-1], points[-1][1]))
        traces.append(_line(points, name, _color(number), line_shape="hv"))
    if rest:
        steps = sorted((row["time"], name, row["depth"]) for name, some in rest.items() for row in some)
        now: dict[str, int] = {}
        points = []
        for time, name, value in steps:
            now[name] = value
            points.append((time, sum(now.values())))
        traces.append(_line(_thinned(points), f"{len(rest)} {OTHERS}", _GREY, line_shape="hv"))
    return _figure(traces, _time_axis(times), _value_axis("messages"), hovermode="x unified")


def _line(points: Sequence[tuple[datetime, float]], name: str, color: str, **more: Any) -> Any:
    mode = "lines+markers" if len(points) <= 40 else "lines"
    x, y = zip(*points, strict=True)
    return go.Scatter(x=x, y=y, name=name, mode=mode, line_color=color, marker_size=5, **more)


def lifetimes(rows: Rows) -> Any:
    times = _times(rows, "hour")
    top, _ = _ranked(rows, lambda some: sum(row["messages"] for row in some))
    stays = [max(row[what], 1) / 1e6 for some in top.values() for row in some for what in ("p50_us", "p99_us")]
    ticks = duration_ticks(min(stays), max(stays))
    traces = []
    if len(times) < LEAST_TIMES:
        names = list(top)[:MOST_BARS]
        for number, what in enumerate(("p50_us", "p99_us")):
            values = [max(max(row[what] for row in top[name]), 1) / 1e6 for name in names]
            traces.append(go.Scatter(
                y=names, x=values, name=what[:3], mode="markers", marker_size=11, marker_color=_color(number),
                customdata=[duration_text(one) for one in values], hovertemplate="%{y}: %{customdata}",
            ))  # fmt: skip
        x = _value_axis("time on the queue (logarithmic)", ticks, type="log")
        y = {"autorange": "reversed", "type": "category"}
        return _figure(traces, x, y, height=150 + 26 * len(names))
    for number, (name, some) in enumerate(top.items()):
        for what, dash in (("p99_us", "solid"), ("p50_us", "dot")):
            values = [max(row[what], 1) / 1e6 for row in some]
            traces.append(go.Scatter(
                x=[row["hour"] for row in some], y=values, name=name, legendgroup=name, showlegend=what == "p99_us",
                mode="lines+markers" if len(some) <= 40 else "lines", line_dash=dash, line_color=_color(number),
                customdata=[f"{what[:3]} {duration_text(one)}" for one in values], marker_size=5,
                hovertemplate="%{x|%b %-d, %H:%M}: %{customdata}",
            ))  # fmt: skip
    return _figure(traces, _time_axis(times, _HOUR), _value_axis("time on the queue", ticks, type="log"))


def throughput(rows: Rows) -> Any:
    total = {name: sum(row["arrived"] for row in some) for name, some in _by_queue(rows).items()}
    if len(_times(rows, "time")) < LEAST_TIMES:
        return _bars(total, "messages that arrived")
    top, rest = _ranked(rows, lambda some: sum(row["arrived"] for row in some))
    others = [f"{len(rest)} {OTHERS}"] if rest else []
    named = ((row, queue_name(row)) for row in rows)
    points = ((row["time"], name if name in top else others[0], row["arrived"]) for row, name in named)
    return _stacked(points, [*top, *others], "messages that arrived")


def backlog(rows: Rows) -> Any:
    """Plot the containers that each queue pins, and the size of its own messages in them, on one logarithmic axis."""
    some = sorted(rows, key=lambda row: -row["pinned_bytes"])
    most = MOST_BARS if len(some) > MOST_BARS + 1 else len(some)
    names = [queue_name(row) for row in some[:most]]
    if rest := some[most:]:
        names.append(f"{len(rest)} {OTHERS}")
    traces = []
    values: list[float] = []
    for number, (column, name) in enumerate((("pinned_bytes", "pinned log"), ("bytes", "messages"))):
        counts = [row[column] for row in some[:most]] + ([sum(row[column] for row in rest)] if rest else [])
        if column == "pinned_bytes" and rest:
            counts[-1] = max(row[column] for row in rest)  # queues share containers
        texts = [size_text(one) for one in counts]
        if column == "pinned_bytes" and rest:
            texts[-1] = f"at least {texts[-1]}"
        values += [one for one in counts if one > 0]
        traces.append(go.Bar(
            y=names, x=[one or None for one in counts], name=name, orientation="h", text=texts, textposition="auto",
            cliponaxis=False, marker_color=_color(number), hovertemplate="%{y}: %{text}",
        ))  # fmt: skip
    least, largest = min(values, default=1), max(values, default=1)
    ticks = size_ticks(largest, least)
    x = _value_axis("", ticks, type="log", range=[log10(least / 8), log10(largest * 8)])
    y = {"autorange": "reversed", "type": "category"}
    return _figure(traces, x, y, barmode="group", height=140 + 40 * len(names))


def liveness(rows: Rows) -> Any:
    """Containers by their live share, in steps of 5 %."""
    edges = [number / 20 for number in range(1, 21)]
    counts = [0] * 20
    for row in rows:
        counts[min(bisect_right(edges, row["share"]), 19)] += 1
    labels = [f"{number * 5} to {number * 5 + 5} %" for number in range(20)]
    bar = go.Bar(x=[number * 5 + 2.5 for number in range(20)], y=counts, customdata=labels, marker_color=_color(0),
                 hovertemplate="%{customdata}: %{y} containers<extra></extra>")  # fmt: skip
    x = {"title": "live share", "range": [0, 100.5], "ticksuffix": " %", "dtick": 20}
    return _figure([bar], x, _value_axis("containers"), bargap=0.05, height=320)


def space(rows: Rows) -> Any:
    names = {"new_bytes": "new records", "copied_bytes": "copied by relocation"}
    return _stacked(_of_columns(rows, names), list(names.values()), "written", size_ticks, size_text)


def groups(rows: Rows) -> Any:
    points = _thinned([(row["time"], row["records_per_block"]) for row in rows if row["time"] is not None])
    if len(points) < LEAST_TIMES:
        return None
    axis = _time_axis([points[0][0], points[-1][0]])
    return _figure([_line(points, "records per block", _color(0))], axis, _value_axis("records per block"), height=320)


def transactions(rows: Rows) -> Any:
    names = {one: one.replace("_", " ") for one in ("committed", "rolled_back", "prepared", "open", "forgotten")}
    return _stacked(_of_columns(rows, names), list(names.values()), "transactions")


def expiry(rows: Rows) -> Any:
    points = ((row["hour"], escape(row["reason"]), row["messages"]) for row in rows)
    return _stacked(points, [escape(one) for one in sorted({row["reason"] for row in rows})], "messages")


def fan_out(rows: Rows) -> Any:
    queues, counts = [row["queues"] for row in rows], [row["messages"] for row in rows]
    x = {"title": "queues that a message was put on", **({"dtick": 1} if max(queues) <= 20 else {})}
    bar = go.Bar(x=queues, y=counts, marker_color=_color(0), width=0.8 if len(queues) > 2 else 0.3)
    return _figure([bar], x, _value_axis("messages"), height=320)


NOTES = {
    "backlog": "The containers that a queue pins, and its messages: the axis is logarithmic.",
    "depth": f"The queues with the highest peaks, at most {MOST_QUEUES}, and the sum of all others.",
    "lifetimes": f"The busiest queues, at most {MOST_QUEUES}; 99 % of the messages stayed no longer than the solid "
                 "line, 50 % no longer than the dotted one (p99, p50).",
    "throughput": f"The busiest queues, at most {MOST_QUEUES}, and the sum of all others.",
}  # fmt: skip
"""Notes on plots whose axes do not show everything."""
PLOTS: dict[str, Plot] = {
    "depth": depth, "lifetimes": lifetimes, "throughput": throughput, "backlog": backlog, "liveness": liveness,
    "space": space, "groups": groups, "transactions": transactions, "expiry": expiry, "fan-out": fan_out,
}  # fmt: skip

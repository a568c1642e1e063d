"""Generator of the Grafana dashboards of monitoring/grafana: `python -m tests.monitoring.dashboards`.

A dashboard is a table of rows of panels; `document` turns it into the JSON that Grafana imports. A test compares the
files with the tables.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, NamedTuple

FOLDER = Path(__file__).parents[2] / "monitoring" / "grafana"
WIDTH = 24
"""Number of columns of Grafana's grid."""
SOURCE = {"type": "prometheus", "uid": "${datasource}"}
ME = 'job=~"$job", instance=~"$instance"'


class Panel(NamedTuple):
    """A panel with its queries."""

    title: str
    queries: tuple[tuple[str, str], ...]
    """Legend and PromQL expression of each query; `%` stands for the selector of the brokers."""
    unit: str = "short"
    kind: str = "timeseries"
    text: str = ""
    """Description of the panel, and when to act."""
    limit: float | None = None
    """Value from which the panel is red."""


class Dashboard(NamedTuple):
    """A dashboard: rows of panels, each as wide as its neighbors."""

    name: str
    title: str
    rows: tuple[tuple[str, tuple[Panel, ...]], ...]


def rate(metric: str) -> str:
    return f"rate({metric}{{%}}[$__rate_interval])"


def quantiles(histogram: str) -> tuple[tuple[str, str], ...]:
    """Return the queries of the median and the 99th percentile of *histogram*."""
    return tuple(
        (
            f"p{100 * share:.0f} {{{{instance}}}}",
            f"histogram_quantile({share}, sum by (le, instance) ({rate(histogram + '_bucket')}))",
        )
        for share in (0.5, 0.99)
    )


def each(metric: str, legend: str = "{{instance}}") -> tuple[str, str]:
    return legend, f"{metric}{{%}}"


OVERVIEW = Dashboard(
    "overview",
    "CairnMQ / Overview",
    (
        (
            "State",
            (
                Panel("Brokers", (("", "sum(up{%})"),), kind="stat", text="Brokers that answer scrapes."),
                Panel("Versions", (("{{version}}", "count by (version) (cairnmq_build_info{%})"),), kind="stat"),
                Panel("Messages", (("", "sum(cairnmq_messages{%})"),), kind="stat"),
                Panel("Connections", (("", "sum(cairnmq_connections{%})"),), kind="stat"),
                Panel("Queues", (("", "sum(cairnmq_queues{%})"),), kind="stat"),
                Panel(
                    "Alarms", (("", "sum(cairnmq_alarm{%})"),), kind="stat", limit=1,
                    text="Senders wait for memory, or the disk is full.",
                ),
                Panel("Uptime", (("{{instance}}", "time() - process_start_time_seconds{%}"),), "s", "stat"),
            ),
        ),
        (
            "Messages",
            (
                Panel(
                    "Messages per second",
                    (
                        ("enqueued", f"sum({rate('cairnmq_put_messages_total')})"),
                        ("dequeued", f"sum({rate('cairnmq_taken_messages_total')})"),
                        ("dead-lettered", f"sum({rate('cairnmq_dead_lettered_messages_total')})"),
                        ("expired", f"sum({rate('cairnmq_expired_messages_total')})"),
                        ("unroutable", f"sum({rate('cairnmq_unroutable_messages_total')})"),
                    ),
                    "cps",
                ),
                Panel(
                    "Longest queues", (("{{queue}}", "topk(10, cairnmq_queue_messages{%})"),),
                    text="A queue that grows has too few consumers.",
                ),
                Panel(
                    "Queues without consumers",
                    (("{{queue}}", "topk(10, cairnmq_queue_messages{%} > 0 unless cairnmq_queue_consumers{%} > 0)"),),
                ),
            ),
        ),
        (
            "Latency",
            (
                Panel(
                    "Confirmation of messages", quantiles("cairnmq_settle_seconds"), "s", limit=0.1,
                    text="From the arrival of a message to the confirmation, which waits for the disk.",
                ),
                Panel("Dispatch", quantiles("cairnmq_dispatch_seconds"), "s", limit=0.05),
                Panel(
                    "Settlement by consumers", quantiles("cairnmq_delivery_seconds"), "s",
                    text="From the dispatch of a message to its outcome: network and work of the consumer.",
                ),
            ),
        ),
        (
            "Core",
            (
                Panel(
                    "Load of the core", (("{{instance}}", rate("cairnmq_core_busy_seconds_total")),), "percentunit",
                    limit=0.9, text="Near 100 %, the core is busy all the time.",
                ),
                Panel(
                    "Longest turns",
                    (
                        each("cairnmq_core_longest_turn_seconds", "core {{instance}}"),
                        each("cairnmq_worker_longest_turn_seconds", "worker {{instance}}"),
                    ),
                    "s", limit=0.1,
                ),
                Panel("CPU", (("{{instance}}", rate("process_cpu_seconds_total")),), "percentunit"),
            ),
        ),
        (
            "Memory and disk",
            (
                Panel(
                    "Memory",
                    (
                        each("cairnmq_memory_used_bytes", "messages {{instance}}"),
                        each("cairnmq_memory_limit_bytes", "limit {{instance}}"),
                        each("process_resident_memory_bytes", "process {{instance}}"),
                    ),
                    "bytes",
                ),
                Panel("Free disk space", (each("cairnmq_disk_free_bytes"),), "bytes"),
                Panel(
                    "Hours until the disk is full",
                    (
                        (
                            "{{instance}}",
                            "cairnmq_disk_free_bytes{%} / clamp_min(-deriv(cairnmq_disk_free_bytes{%}[1h]), 1) / 3600",
                        ),
                    ),
                    "h",
                ),
            ),
        ),
        (
            "Clients",
            (
                Panel(
                    "Connections and links",
                    (
                        ("connections", "sum(cairnmq_connections{%})"),
                        ("links", "sum(cairnmq_links{%})"),
                        ("consumers", "sum(cairnmq_consumers{%})"),
                    ),
                ),
                Panel("New connections", (("{{instance}}", rate("cairnmq_connections_opened_total")),), "cps"),
                Panel(
                    "Failed logins",
                    (
                        (
                            "{{mechanism}}: {{reason}}",
                            f"sum by (mechanism, reason) ({rate('cairnmq_auth_failures_total')})",
                        ),
                    ),
                    "cps",
                ),
                Panel(
                    "Throttled clients",
                    (
                        ("users", "sum(cairnmq_throttled_users{%})"),
                        ("links", "sum(cairnmq_throttled_links{%})"),
                    ),
                ),
                Panel(
                    "File descriptors",
                    (("{{instance}}", "process_open_fds{%} / process_max_fds{%}"),), "percentunit", limit=0.8,
                ),
            ),
        ),
    ),
)  # fmt: skip

JOURNAL = Dashboard(
    "journal",
    "CairnMQ / Journal",
    (
        (
            "Disk latency",
            (
                Panel(
                    "Sync", quantiles("cairnmq_journal_fsync_seconds"), "s", limit=0.05,
                    text="Confirmations cannot be faster than a sync.",
                ),
                Panel("Flushes per second", (("{{instance}}", rate("cairnmq_journal_flushes_total")),), "cps"),
                Panel(
                    "Records per flush",
                    (
                        (
                            "{{instance}}",
                            f"{rate('cairnmq_journal_records_total')} / {rate('cairnmq_journal_flushes_total')}",
                        ),
                    ),
                    text="Records that share a sync. The number grows with the load.",
                ),
                Panel("Bytes per flush", quantiles("cairnmq_journal_group_bytes"), "bytes"),
            ),
        ),
        (
            "Writing",
            (
                Panel(
                    "Appended by cause",
                    (("{{kind}}", f"sum by (kind) ({rate('cairnmq_journal_appended_bytes_total')})"),), "Bps",
                ),
                Panel("Written", (("{{instance}}", rate("cairnmq_journal_written_bytes_total")),), "Bps"),
                Panel(
                    "Write amplification by compaction", (each("cairnmq_relocation_write_amplification_ratio"),),
                    limit=3,
                ),
            ),
        ),
        (
            "Space",
            (
                Panel(
                    "Used and live bytes",
                    (
                        each("cairnmq_journal_used_bytes", "used {{instance}}"),
                        each("cairnmq_journal_live_bytes", "live {{instance}}"),
                    ),
                    "bytes",
                    text="Long backlogs keep the log long; `cairnmq explain space` names what holds it.",
                ),
                Panel("Live ratio", (each("cairnmq_journal_live_ratio"),), "percentunit"),
                Panel(
                    "Containers",
                    (
                        each("cairnmq_journal_slots", "in use {{instance}}"),
                        each("cairnmq_journal_free_containers", "free {{instance}}"),
                        each("cairnmq_journal_kept_containers", "kept {{instance}}"),
                    ),
                ),
                Panel("Free disk space", (each("cairnmq_disk_free_bytes"),), "bytes"),
            ),
        ),
        (
            "Recovery",
            (
                Panel(
                    "Log to read after a crash", (each("cairnmq_checkpoint_replay_bytes"),), "bytes",
                    text="Determines how long the next start takes.",
                ),
                Panel("Checkpoints", (("{{instance}}", "increase(cairnmq_checkpoint_taken_total{%}[1h])"),)),
                Panel("Age of the last checkpoint", (each("cairnmq_checkpoint_age_seconds"),), "s"),
                Panel("Checkpoints fail", (each("cairnmq_checkpoint_failing"),), kind="stat", limit=1),
            ),
        ),
        (
            "Compaction and archive",
            (
                Panel("Emptied slots", (("{{instance}}", rate("cairnmq_relocation_emptied_slots_total")),), "cps"),
                Panel(
                    "Holder of the oldest slot",
                    (("{{held_by}}", "count by (held_by) (cairnmq_journal_base_pin_info{%})"),), kind="stat",
                ),
                Panel(
                    "Containers that left the log",
                    (
                        ("archived {{instance}}", rate("cairnmq_journal_archived_containers_total")),
                        ("dropped {{instance}}", rate("cairnmq_journal_dropped_containers_total")),
                    ),
                    "cps",
                ),
                Panel(
                    "Lag of history readers", (each("cairnmq_journal_bookmark_behind_bytes", "{{bookmark}}"),), "bytes"
                ),
                Panel("Unreadable slots", (each("cairnmq_relocation_unreadable_slots"),), kind="stat", limit=1),
            ),
        ),
    ),
)  # fmt: skip

CLUSTER = Dashboard(
    "cluster",
    "CairnMQ / Cluster and federation",
    (
        (
            "Members",
            (
                Panel("Members that serve", (("", "sum(cairnmq_cluster_serving{%})"),), kind="stat"),
                Panel("Members with all messages", (("", "sum(cairnmq_cluster_synced{%})"),), kind="stat"),
                Panel("Phases", (("{{instance}}: {{phase}}", "cairnmq_cluster_phase_info{%}"),), kind="stat"),
                Panel(
                    "Losses of the majority", (("", "sum(increase(cairnmq_cluster_lost_total{%}[1h]))"),), kind="stat",
                    limit=1,
                ),
            ),
        ),
        (
            "Replication",
            (
                Panel(
                    "Oldest unconfirmed event", (each("cairnmq_cluster_oldest_unconfirmed_seconds"),), "s", limit=2,
                    text="Slow member, slow disk, or packet loss.",
                ),
                Panel("Unconfirmed events", (each("cairnmq_cluster_waiting_events"),)),
                Panel("Events on the network", (each("cairnmq_cluster_in_flight_bytes"),), "bytes"),
                Panel("Longest silence of a member", (each("cairnmq_cluster_longest_silence_seconds"),), "s"),
            ),
        ),
        (
            "Flow control",
            (
                Panel("Events not on the disk", (each("cairnmq_cluster_lag_bytes"),), "bytes"),
                Panel("Held messages of clients", (each("cairnmq_cluster_held_bytes"),), "bytes"),
                Panel("Reports of lag", (("{{instance}}", rate("cairnmq_cluster_flow_off_total")),), "cps"),
            ),
        ),
        (
            "Leaders and state transfer",
            (
                Panel("Queues led", (each("cairnmq_cluster_owned_queues"),)),
                Panel(
                    "Changes of leaders",
                    (("{{instance}}", "increase(cairnmq_cluster_owner_changes_total{%}[$__rate_interval])"),),
                ),
                Panel(
                    "State transfer",
                    (
                        each("cairnmq_cluster_received_messages", "received {{instance}}"),
                        each("cairnmq_cluster_messages_to_receive", "of {{instance}}"),
                        each("cairnmq_cluster_messages_to_bring", "to send {{instance}}"),
                    ),
                ),
            ),
        ),
        (
            "Federation",
            (
                Panel("Lag of copies", (each("cairnmq_federated_queue_lag_seconds", "{{queue}}"),), "s", limit=60),
                Panel("Connected copies", (each("cairnmq_federated_queue_up", "{{queue}}"),)),
                Panel(
                    "Bytes not sent",
                    (each("cairnmq_downstream_behind_bytes", "{{queue}} to {{downstream}}"),),
                    "bytes",
                ),
            ),
        ),
    ),
)  # fmt: skip

DASHBOARDS = (OVERVIEW, JOURNAL, CLUSTER)


def expression(query: str) -> str:
    return query.replace("{%}", "{" + ME + "}")


def document(dashboard: Dashboard) -> dict[str, Any]:
    """Return the JSON document of a dashboard."""
    panels: list[dict[str, Any]] = []
    top = 0
    for title, row in dashboard.rows:
        panels.append(
            {
                "id": len(panels) + 1, "type": "row", "title": title, "collapsed": False, "panels": [],
                "gridPos": {"x": 0, "y": top, "w": WIDTH, "h": 1},
            }
        )  # fmt: skip
        top += 1
        height = 4 if all(panel.kind == "stat" for panel in row) else 8
        for place, panel in enumerate(row):
            left, right = WIDTH * place // len(row), WIDTH * (place + 1) // len(row)
            position = {"x": left, "y": top, "w": right - left, "h": height}
            panels.append(_panel(panel, len(panels) + 1, position))
        top += height
    return {
        "uid": f"cairnmq-{dashboard.name}",
        "title": dashboard.title,
        "tags": ["cairnmq"],
        "schemaVersion": 39,
        "editable": True,
        "graphTooltip": 1,
        "refresh": "30s",
        "time": {"from": "now-1h", "to": "now"},
        "timezone": "browser",
        "links": [
            {"type": "dashboards", "title": "CairnMQ", "tags": ["cairnmq"], "asDropdown": False, "includeVars": True}
        ],
        "templating": {"list": [_data_source(), _variable("job", "cairnmq_build_info"), _instance()]},
        "panels": panels,
    }


def _panel(panel: Panel, number: int, position: dict[str, int]) -> dict[str, Any]:
    steps: list[dict[str, Any]] = [{"color": "green", "value": None}]
    if panel.limit is not None:
        steps.append({"color": "red", "value": panel.limit})
    defaults: dict[str, Any] = {"unit": panel.unit, "min": 0, "thresholds": {"mode": "absolute", "steps": steps}}
    if panel.kind == "stat":
        options: dict[str, Any] = {"reduceOptions": {"calcs": ["lastNotNull"]}, "textMode": "auto", "graphMode": "none"}
    else:
        options = {"legend": {"displayMode": "list", "placement": "bottom"}, "tooltip": {"mode": "multi"}}
        if panel.limit is not None:
            defaults["custom"] = {"thresholdsStyle": {"mode": "dashed"}}
    return {
        "id": number,
        "type": panel.kind,
        "title": panel.title,
        "description": panel.text,
        "datasource": SOURCE,
        "gridPos": position,
        "fieldConfig": {"defaults": defaults, "overrides": []},
        "options": options,
        "targets": [
            {"refId": chr(ord("A") + place), "datasource": SOURCE, "expr": expression(query), "legendFormat": legend}
            for place, (legend, query) in enumerate(panel.queries)
        ],
    }


def _data_source() -> dict[str, Any]:
    return {"name": "datasource", "label": "Data source", "type": "datasource", "query": "prometheus"}


def _variable(name: str, metric: str) -> dict[str, Any]:
    query = f"label_values({metric}, {name})"
    return {
        "name": name, "label": name.capitalize(), "type": "query", "datasource": SOURCE, "refresh": 2, "multi": True,
        "includeAll": True, "allValue": ".*", "definition": query, "query": {"query": query, "refId": name},
        "current": {"text": "All", "value": "$__all"},
    }  # fmt: skip


def _instance() -> dict[str, Any]:
    return _variable("instance", 'cairnmq_build_info{job=~"$job"}')


def text_of(dashboard: Dashboard) -> str:
    return json.dumps(document(dashboard), indent=2) + "\n"


if __name__ == "__main__":
    for one in DASHBOARDS:
        (FOLDER / f"{one.name}.json").write_text(text_of(one))

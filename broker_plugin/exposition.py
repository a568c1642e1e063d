"""The journal's figures in the terms of Prometheus: one table of families, and a collector over it.

Names follow Prometheus' conventions: base units (seconds, bytes, ratio) at the end, `_total` on counters, `_info` on
what carries its meaning in a label. docs/reference/metrics.md is this table for people; a test keeps them the same.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import NamedTuple

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector
from prometheus_client.utils import floatToGoString

from ..journal.write.metrics import HistogramValue
from ..store.journaled.metrics import JournalMetrics

PREFIX = "cairnmq_"


class Samples(NamedTuple):
    """The samples of a family with labels: the labels' names, and each value with its label values."""

    labels: tuple[str, ...]
    values: list[tuple[tuple[str, ...], float]]


Value = float | HistogramValue | Samples | None
"""The value of a family; None leaves its sample out."""


class Family(NamedTuple):
    """A metric family."""

    name: str
    kind: str
    """counter, gauge or histogram."""
    help: str
    value: Callable[[JournalMetrics], Value]

    @property
    def full_name(self) -> str:
        """Return the name in a scrape, without the suffixes of a histogram."""
        return PREFIX + self.name


def _info(label: str, text: str) -> Samples:
    """A label that says something, or nothing at all."""
    return Samples((label,), [((text,), 1)] if text else [])


def _appended(metrics: JournalMetrics) -> Samples:
    return Samples(
        ("kind",),
        [(("user",), metrics.user_bytes), (("relocated",), metrics.relocated_bytes), (("log",), metrics.log_bytes)],
    )


FAMILIES = (
    Family("journal_fsync_seconds", "histogram", "How long a sync of the journal took.", lambda m: m.fsync_s),
    Family("journal_group_records", "histogram", "Records that one flush made durable.", lambda m: m.group_records),
    Family("journal_group_bytes", "histogram", "Bytes that one flush wrote.", lambda m: m.group_bytes),
    Family("journal_flushes_total", "counter", "Flushes.", lambda m: m.flushes),
    Family("journal_blocks_total", "counter", "Blocks written.", lambda m: m.blocks),
    Family("journal_records_total", "counter", "Records made durable.", lambda m: m.records),
    Family(
        "journal_appended_bytes_total", "counter",
        "Bytes of durable records, heads and payloads, by what caused them: user, relocated, or the log itself.",
        _appended,
    ),
    Family(
        "journal_written_bytes_total", "counter",
        "Bytes written: the appended ones, block heads, and padding up to the sector.", lambda m: m.block_bytes,
    ),
    Family("journal_base_lsn", "gauge", "Every record below it is dead.", lambda m: m.base_lsn),
    Family("journal_durable_lsn", "gauge", "Every record below it is on the disk.", lambda m: m.durable_lsn),
    Family("journal_end_lsn", "gauge", "Every record appended so far lies below it.", lambda m: m.end_lsn),
    Family("journal_slots", "gauge", "Slots of the log in use, a container each.", lambda m: m.slots),
    Family("journal_used_bytes", "gauge", "Bytes of these slots.", lambda m: m.used_bytes),
    Family("journal_live_bytes", "gauge", "Bytes of records that messages need.", lambda m: m.live_bytes),
    Family("journal_live_ratio", "gauge", "Live bytes of the used ones, 0 to 1.", lambda m: m.live_ratio),
    Family(
        "journal_holes", "gauge", "Runs of slots that left the log before older ones did.", lambda m: m.holes
    ),
    Family(
        "journal_base_pin_info", "gauge", "The kind of what holds the oldest slot of the log; always 1.",
        lambda m: Samples(("held_by",), [((m.base_holder_kind,), 1)]),
    ),
    Family("journal_free_containers", "gauge", "Containers ready for use.", lambda m: m.free_containers),
    Family("journal_made_containers_total", "counter", "Containers made.", lambda m: m.made_containers),
    Family(
        "journal_archived_containers_total", "counter", "Containers that left the log and are in the archive.",
        lambda m: m.archived_containers,
    ),
    Family(
        "journal_dropped_containers_total", "counter", "Containers that left the log with their history, unarchived.",
        lambda m: m.dropped_containers,
    ),
    Family(
        "journal_kept_containers", "gauge", "Containers that left the log and are held by a backup, or for bookmarks.",
        lambda m: m.kept_containers,
    ),
    Family(
        "journal_bookmark_behind_bytes", "gauge", "How far a reader of history is behind the log's durable end.",
        lambda m: Samples(("bookmark",), [((name,), behind) for name, behind in m.bookmarks]),
    ),
    Family(
        "journal_dropped_bookmarks_total", "counter",
        "Bookmarks dropped because their readers were too far behind, or the disk was full.",
        lambda m: m.dropped_bookmarks,
    ),
    Family(
        "relocation_write_amplification_ratio", "gauge",
        "User and relocated bytes appended by user bytes appended; 1 without relocation.",
        lambda m: m.write_amplification,
    ),
    Family(
        "relocation_emptied_slots_total", "counter", "Slots whose last live records were copied forward.",
        lambda m: m.emptied_slots,
    ),
    Family("relocation_active", "gauge", "1 while a slot is being emptied.", lambda m: m.is_relocating),
    Family(
        "relocation_unreadable_slots", "gauge", "Slots that can't be emptied because they can't be read.",
        lambda m: m.unreadable_slots,
    ),
    Family("checkpoint_taken_total", "counter", "Checkpoints taken.", lambda m: m.checkpoints),
    Family(
        "checkpoint_age_seconds", "gauge", "Since the last checkpoint; absent if there was none since the start.",
        lambda m: m.checkpoint_age_s,
    ),
    Family("checkpoint_lsn", "gauge", "The log up to here is in the checkpoint.", lambda m: m.checkpoint_lsn),
    Family("checkpoint_size_bytes", "gauge", "What the last checkpoint wrote.", lambda m: m.checkpoint_bytes),
    Family(
        "checkpoint_replay_bytes", "gauge", "Log that a start after a crash now would have to read.",
        lambda m: m.replay_bytes,
    ),
    Family(
        "checkpoint_failure_info", "gauge", "Why no checkpoint is taken any more; absent if nothing is wrong.",
        lambda m: _info("reason", m.checkpoint_failure),
    ),
    Family(
        "disk_free_bytes", "gauge", "Free on the journal's file system; absent if it can't be told.",
        lambda m: m.disk_free_bytes,
    ),
    Family(
        "disk_full", "gauge", "1 while no container can be made because the disk is full.",
        lambda m: bool(m.disk_full),
    ),
    Family("disk_low", "gauge", "1 while so little room is left that nothing is stored.", lambda m: bool(m.disk_low)),
)  # fmt: skip


class JournalCollector(Collector):
    """Gives the families with what *measure* finds at each scrape."""

    def __init__(self, measure: Callable[[], JournalMetrics]) -> None:
        self._measure = measure

    def collect(self) -> Iterator[Metric]:
        metrics = self._measure()
        for family in FAMILIES:
            yield metric_of(family.full_name, family.kind, family.help, family.value(metrics))


def metric_of(name: str, kind: str, text: str, value: Value) -> Metric:
    if isinstance(value, HistogramValue):
        names = [*map(floatToGoString, value.bounds), "+Inf"]
        buckets = [*zip(names, map(float, value.cumulative()), strict=True)]
        return HistogramMetricFamily(name, text, buckets=buckets, sum_value=value.total)
    if not isinstance(value, Samples):
        value = Samples((), [] if value is None else [((), value)])
    make = CounterMetricFamily if kind == "counter" else GaugeMetricFamily
    metric = make(name, text, labels=value.labels)
    for labels, number in value.values:
        metric.add_metric(labels, number)
    return metric

"""The metrics of the journal for Prometheus: one table of families, and a collector over it.

Names follow Prometheus' conventions: base units (seconds, bytes, ratio) at the end, `_total` on counters, `_info` on
metrics whose information is in a label. docs/reference/metrics.md documents this table; a test keeps them equal.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Generic, NamedTuple, TypeVar

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector
from prometheus_client.utils import floatToGoString

from ..base.histogram import HistogramValue
from ..store.journaled.metrics import JournalMetrics

PREFIX = "cairnmq_"


class Samples(NamedTuple):
    """The samples of a family with labels: the names of the labels, and each value with its label values."""

    labels: tuple[str, ...]
    values: list[tuple[tuple[str, ...], float]]


Value = float | HistogramValue | Samples | None
"""The value of a family; None leaves its sample out."""


Source = TypeVar("Source")


class Family(NamedTuple, Generic[Source]):
    """A metric family, read from a `Source`."""

    name: str
    kind: str
    """The type of the family: counter, gauge or histogram."""
    help: str
    value: Callable[[Source], Value]

    @property
    def full_name(self) -> str:
        """Return the name in a scrape, without the suffixes of a histogram."""
        return PREFIX + self.name

    def metric(self, source: Source) -> Metric:
        return metric_of(self, self.value(source))


def _appended(metrics: JournalMetrics) -> Samples:
    return Samples(
        ("kind",),
        [(("user",), metrics.user_bytes), (("relocated",), metrics.relocated_bytes), (("log",), metrics.log_bytes)],
    )


FAMILIES: tuple[Family[JournalMetrics], ...] = (
    Family("journal_fsync_seconds", "histogram", "Duration of a sync of the journal.", lambda m: m.fsync_s),
    Family("journal_group_records", "histogram", "Records that one flush made durable.", lambda m: m.group_records),
    Family("journal_group_bytes", "histogram", "Bytes that one flush wrote.", lambda m: m.group_bytes),
    Family("journal_flushes_total", "counter", "Flushes.", lambda m: m.flushes),
    Family("journal_blocks_total", "counter", "Blocks written.", lambda m: m.blocks),
    Family("journal_records_total", "counter", "Records made durable.", lambda m: m.records),
    Family(
        "journal_appended_bytes_total", "counter",
        "Bytes of durable records (headers and payloads) by cause: user, relocated, or the log itself.",
        _appended,
    ),
    Family(
        "journal_written_bytes_total", "counter",
        "Bytes written: appended bytes, block headers, and padding to the sector.", lambda m: m.block_bytes,
    ),
    Family("journal_base_lsn", "gauge", "LSN below which every record is dead.", lambda m: m.base_lsn),
    Family("journal_durable_lsn", "gauge", "LSN below which every record is durable.", lambda m: m.durable_lsn),
    Family("journal_end_lsn", "gauge", "LSN above every appended record.", lambda m: m.end_lsn),
    Family("journal_slots", "gauge", "Slots of the log in use, a container each.", lambda m: m.slots),
    Family("journal_used_bytes", "gauge", "Bytes of the slots in use.", lambda m: m.used_bytes),
    Family("journal_live_bytes", "gauge", "Bytes of records that messages need.", lambda m: m.live_bytes),
    Family("journal_live_ratio", "gauge", "Live bytes divided by used bytes, 0 to 1.", lambda m: m.live_ratio),
    Family(
        "journal_holes", "gauge", "Reclaimed ranges in the middle of the log.", lambda m: m.holes
    ),
    Family(
        "journal_base_pin_info", "gauge", "The kind of record that holds the oldest slot of the log; always 1.",
        lambda m: Samples(("held_by",), [((m.base_holder_kind,), 1)]),
    ),
    Family("journal_free_containers", "gauge", "Containers ready for use.", lambda m: m.free_containers),
    Family("journal_made_containers_total", "counter", "Containers created.", lambda m: m.made_containers),
    Family(
        "journal_archived_containers_total", "counter", "Containers that were archived.",
        lambda m: m.archived_containers,
    ),
    Family(
        "journal_dropped_containers_total", "counter", "Containers that left the log without being archived.",
        lambda m: m.dropped_containers,
    ),
    Family(
        "journal_kept_containers", "gauge", "Containers that left the log and are held by a backup or bookmarks.",
        lambda m: m.kept_containers,
    ),
    Family(
        "journal_bookmark_behind_bytes", "gauge", "Distance of a history reader from the durable end of the log.",
        lambda m: Samples(("bookmark",), [((name,), behind) for name, behind in m.bookmarks]),
    ),
    Family(
        "journal_dropped_bookmarks_total", "counter",
        "Bookmarks dropped because a reader was too far behind or the disk was full.",
        lambda m: m.dropped_bookmarks,
    ),
    Family(
        "relocation_write_amplification_ratio", "gauge",
        "User and relocated bytes divided by user bytes; 1 without relocation.",
        lambda m: m.write_amplification,
    ),
    Family(
        "relocation_emptied_slots_total", "counter", "Slots reclaimed by copying their last live records forward.",
        lambda m: m.emptied_slots,
    ),
    Family("relocation_active", "gauge", "1 while a slot is being emptied.", lambda m: m.is_relocating),
    Family(
        "relocation_unreadable_slots", "gauge", "Slots that cannot be emptied because they cannot be read.",
        lambda m: m.unreadable_slots,
    ),
    Family("checkpoint_taken_total", "counter", "Checkpoints taken.", lambda m: m.checkpoints),
    Family(
        "checkpoint_age_seconds", "gauge", "Age of the last checkpoint; absent before the first one since the start.",
        lambda m: m.checkpoint_age_s,
    ),
    Family("checkpoint_lsn", "gauge", "LSN up to which the log is in the checkpoint.", lambda m: m.checkpoint_lsn),
    Family("checkpoint_size_bytes", "gauge", "Bytes written by the last checkpoint.", lambda m: m.checkpoint_bytes),
    Family(
        "checkpoint_replay_bytes", "gauge", "Log bytes that recovery would read after a crash now.",
        lambda m: m.replay_bytes,
    ),
    Family(
        "checkpoint_failing", "gauge", "1 while checkpoints fail; the log has the reason.",
        lambda m: bool(m.checkpoint_failure),
    ),
    Family(
        "disk_free_bytes", "gauge", "Free bytes of the journal's file system; absent if unknown.",
        lambda m: m.disk_free_bytes,
    ),
    Family(
        "disk_full", "gauge", "1 while no container can be created because the disk is full.",
        lambda m: bool(m.disk_full),
    ),
    Family("disk_low", "gauge", "1 while low disk space prevents storing messages.", lambda m: bool(m.disk_low)),
)  # fmt: skip


class JournalCollector(Collector):
    """A collector that yields the families at each scrape, with the result of *measure*."""

    def __init__(self, measure: Callable[[], JournalMetrics]) -> None:
        self._measure = measure

    def collect(self) -> Iterator[Metric]:
        metrics = self._measure()
        for family in FAMILIES:
            yield family.metric(metrics)


def metric_of(family: Family[Any], value: Value) -> Metric:
    name, text = family.full_name, family.help
    if isinstance(value, HistogramValue):
        names = [*map(floatToGoString, value.bounds), "+Inf"]
        buckets = [*zip(names, map(float, value.cumulative()), strict=True)]
        return HistogramMetricFamily(name, text, buckets=buckets, sum_value=value.total)
    if not isinstance(value, Samples):
        value = Samples((), [] if value is None else [((), value)])
    make = CounterMetricFamily if family.kind == "counter" else GaugeMetricFamily
    metric = make(name, text, labels=value.labels)
    for labels, number in value.values:
        metric.add_metric(labels, number)
    return metric

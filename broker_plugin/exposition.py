"""The metrics of the journal for Prometheus: one table of families, and a collector over it.

Names follow Prometheus' conventions: base units (seconds, bytes, ratio) at the end, `_total` on counters, `_info` on
metrics whose information is in a label. docs/reference/metrics.md documents this table; a test keeps them equal.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
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


def gauge(name: str, help: str, value: Callable[[Source], Value]) -> Family[Source]:
    return Family(name, "gauge", help, value)


def counter(name: str, help: str, value: Callable[[Source], Value]) -> Family[Source]:
    return Family(name, "counter", help, value)


def histogram(name: str, help: str, value: Callable[[Source], Value]) -> Family[Source]:
    return Family(name, "histogram", help, value)


def _appended(metrics: JournalMetrics) -> Samples:
    return Samples(
        ("kind",),
        [(("user",), metrics.user_bytes), (("relocated",), metrics.relocated_bytes), (("log",), metrics.log_bytes)],
    )


FAMILIES: tuple[Family[JournalMetrics], ...] = (
    histogram("journal_fsync_seconds", "Duration of a sync of the journal.", lambda m: m.fsync_s),
    histogram("journal_group_records", "Records that one flush made durable.", lambda m: m.group_records),
    histogram("journal_group_bytes", "Bytes that one flush wrote.", lambda m: m.group_bytes),
    counter("journal_flushes_total", "Flushes.", lambda m: m.flushes),
    counter("journal_blocks_total", "Blocks written.", lambda m: m.blocks),
    counter("journal_records_total", "Records made durable.", lambda m: m.records),
    counter(
        "journal_appended_bytes_total",
        "Bytes of durable records (headers and payloads) by cause: user, relocated, or the log itself.",
        _appended,
    ),
    counter("journal_written_bytes_total", "Bytes written: appended bytes, block headers, and padding to the sector.",
            lambda m: m.block_bytes),
    gauge("journal_base_lsn", "LSN below which every record is dead.", lambda m: m.base_lsn),
    gauge("journal_durable_lsn", "LSN below which every record is durable.", lambda m: m.durable_lsn),
    gauge("journal_end_lsn", "LSN above every appended record.", lambda m: m.end_lsn),
    gauge("journal_slots", "Slots of the log in use, a container each.", lambda m: m.slots),
    gauge("journal_used_bytes", "Bytes of the slots in use.", lambda m: m.used_bytes),
    gauge("journal_live_bytes", "Bytes of records that messages need.", lambda m: m.live_bytes),
    gauge("journal_live_ratio", "Live bytes divided by used bytes, 0 to 1.", lambda m: m.live_ratio),
    gauge("journal_holes", "Reclaimed ranges in the middle of the log.", lambda m: m.holes),
    gauge("journal_base_pin_info", "The kind of record that holds the oldest slot of the log; always 1.",
          lambda m: Samples(("held_by",), [((m.base_holder_kind,), 1)])),
    gauge("journal_free_containers", "Containers ready for use.", lambda m: m.free_containers),
    counter("journal_made_containers_total", "Containers created.", lambda m: m.made_containers),
    counter("journal_archived_containers_total", "Containers that were archived.", lambda m: m.archived_containers),
    counter("journal_dropped_containers_total", "Containers that left the log without being archived.",
            lambda m: m.dropped_containers),
    gauge("journal_kept_containers", "Containers that left the log and are held by a backup or bookmarks.",
          lambda m: m.kept_containers),
    gauge("journal_bookmark_behind_bytes", "Distance of a history reader from the durable end of the log.",
          lambda m: Samples(("bookmark",), [((name,), behind) for name, behind in m.bookmarks])),
    counter(
        "journal_dropped_bookmarks_total",
        "Bookmarks dropped because a reader was too far behind or the disk was full.",
        lambda m: m.dropped_bookmarks,
    ),
    gauge(
        "relocation_write_amplification_ratio",
        "User and relocated bytes divided by user bytes; 1 without compaction.",
        lambda m: m.write_amplification,
    ),
    counter("relocation_emptied_slots_total", "Slots reclaimed by copying their last live records forward.",
            lambda m: m.emptied_slots),
    gauge("relocation_active", "1 while a slot is being emptied.", lambda m: m.is_relocating),
    gauge("relocation_unreadable_slots", "Slots that cannot be emptied because they cannot be read.",
          lambda m: m.unreadable_slots),
    counter("checkpoint_taken_total", "Checkpoints taken.", lambda m: m.checkpoints),
    gauge("checkpoint_age_seconds", "Age of the last checkpoint; absent before the first one since the start.",
          lambda m: m.checkpoint_age_s),
    gauge("checkpoint_lsn", "LSN up to which the log is in the checkpoint.", lambda m: m.checkpoint_lsn),
    gauge("checkpoint_size_bytes", "Bytes written by the last checkpoint.", lambda m: m.checkpoint_bytes),
    gauge("checkpoint_replay_bytes", "Log bytes that recovery would read after a crash now.", lambda m: m.replay_bytes),
    gauge("checkpoint_failing", "1 while checkpoints fail; the log has the reason.",
          lambda m: bool(m.checkpoint_failure)),
    gauge("disk_free_bytes", "Free bytes of the journal's file system; absent if unknown.",
          lambda m: m.disk_free_bytes),
    gauge("disk_full", "1 while no container can be created because the disk is full.", lambda m: bool(m.disk_full)),
    gauge("disk_low", "1 while low disk space prevents storing messages.", lambda m: bool(m.disk_low)),
)  # fmt: skip


class FamilyCollector(Collector, Generic[Source]):
    """A collector that yields *families* at each scrape, with the values of the present *source*."""

    def __init__(self, families: Sequence[Family[Source]], source: Callable[[], Source]) -> None:
        self._families = families
        self._source = source
        self._highest: dict[str, float] = {}

    def collect(self) -> Iterator[Metric]:
        source = self._source()
        for family in self._families:
            value = family.value(source)
            if family.kind == "counter" and isinstance(value, int | float):
                # a queue that is deleted just now may be missed: a counter that went back would count as reset
                value = self._highest[family.name] = max(value, self._highest.get(family.name, 0))
            yield _metric_of(family, value)


def _metric_of(family: Family[Any], value: Value) -> Metric:
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

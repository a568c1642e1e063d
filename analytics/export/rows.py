"""Rows of an export: columns of the view `records`, and those that the table is partitioned by.

`day` is the day of the record, UTC. `queue` is the queue's name as in the view; of one that the wiring does not know
any more, or whose name no directory can have, it is $queue-ID, as `cairnmq as-of` calls it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from urllib.parse import quote

import pyarrow as pa

from ...base.errors import CairnError
from ..views.amqp_columns import SCHEMA as AMQP
from ..views.journal import schema_of
from ..views.records import DEFAULT

PARTITIONS = ("day", "queue")
"""The columns by which a table can be partitioned."""
_NULL_NAME = "__HIVE_DEFAULT_PARTITION__"
_NAME_BYTES = 240
"""The maximum length of the name in a directory name, which is limited to 255 with `queue=`."""


@dataclass(frozen=True)
class Shape:
    """The rows of one export."""

    columns: tuple[str, ...] = DEFAULT
    partition: tuple[str, ...] = PARTITIONS
    has_day: bool = True
    """True if the day is a column; otherwise `time` is a column and contains it."""

    def __post_init__(self) -> None:
        """Raises `CairnError` for a column that there is not."""
        schema_of("records", self.columns)

    @property
    def schema(self) -> pa.Schema:
        """With the partition's columns last, where they are not among the others."""
        more = [name if name != "day" or self.has_day else "time" for name in self.partition]
        names = self.columns + tuple(name for name in more if name not in (*self.columns, "day"))
        own = schema_of("records", names)
        return own.append(pa.field("day", pa.date32())) if "day" in more else own

    @property
    def needed(self) -> tuple[str, ...]:
        """The columns of the view that the rows are made of."""
        names = self.columns
        names += ("time",) * ("day" in self.partition)
        names += ("queue", "queue_id") * ("queue" in self.partition)
        return tuple(dict.fromkeys(names))

    def rows(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Convert a batch that has the needed columns to the columns of the export."""
        schema = self.schema
        arrays = [batch["time"].cast(pa.date32()) if name == "day" else batch[name] for name in schema.names]
        return pa.RecordBatch.from_arrays(arrays, schema=schema)

    def names(self, known: Mapping[int, str]) -> dict[int, str]:
        """The names of queues that can be used."""
        if "queue" not in self.partition:
            return dict(known)
        return {number: name for number, name in known.items() if _can_be_a_directory(name)}


def _can_be_a_directory(name: str) -> bool:
    try:
        return 0 < len(quote(name, safe="")) <= _NAME_BYTES and name != _NULL_NAME and "\0" not in name
    except UnicodeEncodeError:
        return False


@dataclass(eq=False)
class Rows:
    """Batches on their way through a library, which may make something else of an error that ends them."""

    _shape: Shape
    _batches: Iterator[pa.RecordBatch]
    count: int = 0
    """The number of rows that passed."""
    error: BaseException | None = None
    """The error that ended the batches."""

    def __iter__(self) -> Iterator[pa.RecordBatch]:
        try:
            for batch in self._batches:
                self.count += batch.num_rows
                yield self._shape.rows(batch)
        except BaseException as error:
            self.error = error
            raise

    def reader(self) -> pa.RecordBatchReader:
        """Return a reader of the rows, in Arrow's own memory, for a library.

        A thread of the library may release rows after the call. If that releases memory of NumPy, a process of Python
        3.11 that ends meanwhile is aborted (apache/arrow 36389): 3 of 300 calls released such rows late, now none.
        """
        schema = self._shape.schema
        copies = (pa.ipc.read_record_batch(rows.serialize(), schema) for rows in self)
        return pa.RecordBatchReader.from_batches(schema, copies)


def partition_named(text: str) -> tuple[str, ...]:
    """Parses --partition-by. Raises `CairnError`."""
    names = tuple(name.strip() for name in text.split(",")) if text != "none" else ()
    if any(name not in PARTITIONS for name in names) or len(set(names)) != len(names):
        raise CairnError(f"--partition-by {text}", "unknown partitioning", "use day,queue or day or none")
    return names


def columns_named(text: str | None, *, payload: bool, amqp: bool) -> tuple[str, ...] | None:
    """Parses --columns, --payload and --amqp; None for none of them. Raises `CairnError`."""
    if text is None and not payload and not amqp:
        return None
    names = DEFAULT if text is None else tuple(name.strip() for name in text.split(","))
    names += ("payload",) * payload + tuple(AMQP.names) * amqp
    return tuple(dict.fromkeys(names))

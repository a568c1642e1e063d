"""SQL over the views of a journal, by DuckDB: a view is read only if a query names it, and only as far as needed.

DuckDB pushes down the columns that a query uses and the conditions it can express, and receives batches as it proceeds.
Containers of `records` are skipped if a condition on `lsn`, `block` or `container` excludes them: Arrow itself decides
that, from the known values of each. The other views are computed from all records, see `views`.

Payloads and AMQP fields in them are columns of `records` and `messages` only in a query that names one of them: `*`
does not include them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, NamedTuple

import duckdb
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds
from pyarrow.fs import LocalFileSystem

from ...base.errors import CairnError, CorruptJournal
from ..scan.files import LogPiece
from . import amqp_columns, records, views
from .journal import SCHEMAS, Journal, schema_of
from .records import ReadOptions

BATCH_ROWS = 1 << 14
_CONTENT = frozenset(("payload", *amqp_columns.SCHEMA.names))
"""Columns that need payloads."""
_REMEDY = "--skip-damaged leaves it out; `cairnmq verify` shows the losses"


class SqlError(CairnError):
    """The query is none, or can't be done."""


class _View(ds.Dataset):  # type: ignore[misc]
    """A view for DuckDB, which calls `scanner` with the needed columns when it needs rows."""

    def __init__(self, schema: pa.Schema, read: Callable[[list[str], Any], Iterator[pa.RecordBatch]]) -> None:
        """*read* gets the columns, and the condition or None, and may give rows that the condition rules out."""
        self._known = schema
        self._read = read
        self.error: CairnError | KeyboardInterrupt | None = None
        """The error that ended a scan."""

    @property
    def schema(self) -> pa.Schema:
        return self._known

    def scanner(self, columns: list[str] | None = None, filter: Any = None, **options: Any) -> _Scan:
        """The rows for which *filter* is true, with these columns."""
        names = list(self._known.names) if columns is None else list(columns) or self._known.names[:1]
        return _Scan(self, names, filter)

    def batches(self, names: list[str], condition: Any) -> Iterator[pa.RecordBatch]:
        """Exactly the rows for which the condition is true."""
        said = "" if condition is None else str(condition)  # other text with the name of a column only adds one
        used = [name for name in self._known.names if name in names or name in said]
        try:
            for batch in self._read(used, condition):
                if condition is None:
                    yield batch.select(names)
                else:
                    yield from pa.Table.from_batches([batch]).filter(condition).select(names).to_batches()
        except (CairnError, KeyboardInterrupt) as error:
            self.error = error
            raise


class _Scan(NamedTuple):
    """The scanner that DuckDB takes for Arrow's; without that one's threads, which outlive a query that has enough."""

    view: _View
    names: list[str]
    condition: Any

    def to_reader(self) -> pa.RecordBatchReader:
        schema = pa.schema([self.view.schema.field(name) for name in self.names])
        return pa.RecordBatchReader.from_batches(schema, self.view.batches(self.names, self.condition))


class JournalSql:
    """Queries on one journal. One thread at a time."""

    def __init__(self, journal: Journal, *, skip_damaged: bool = False, memory_limit_bytes: int, spill: str) -> None:
        """*spill*: a directory for what does not fit in memory."""
        self._journal = journal
        self._reading = ReadOptions(permissive=skip_damaged, lose=True)
        self._views: dict[str, _View] = {}
        self._duck = duckdb.connect(config={
            "threads": 2, "memory_limit": f"{memory_limit_bytes >> 20}MiB", "temp_directory": spill,
            "autoinstall_known_extensions": "false",
        })  # fmt: skip
        self._duck.execute("set enable_external_access = false")  # COPY, ATTACH and the like reach no file
        self._duck.execute("set lock_configuration = true")

    def query(self, text: str) -> pa.RecordBatchReader | None:
        """The answer, to be read by `batches`; None to what has none. Raises `SqlError`, or what a view means."""
        self._register(text)
        try:
            found = self._duck.sql(text)
            if found is None:
                return None
            read = getattr(found, "to_arrow_reader", None) or found.fetch_arrow_reader
            return read(BATCH_ROWS)
        except Exception as error:
            raise self._explained(error) from error

    def batches(self, found: pa.RecordBatchReader) -> Iterator[pa.RecordBatch]:
        """The rows of *found*, as they are found. Raises the same."""
        while True:
            try:
                batch = found.read_next_batch()
            except StopIteration:
                return
            except Exception as error:
                raise self._explained(error) from error
            yield batch

    def _explained(self, error: Exception) -> BaseException:
        """The error that ended a query, or the reading of its rows; DuckDB wraps the errors of views."""
        for view in self._views.values():
            if isinstance(view.error, CorruptJournal):
                return CorruptJournal(
                    view.error.place, view.error.reason, _REMEDY, view.error.first_lsn, view.error.end_lsn
                )
            if view.error is not None:
                return view.error
        if not isinstance(error, duckdb.Error | pa.ArrowException | OSError):
            return error
        return SqlError("query", " ".join(str(error).split("\n\n")[0].split()), "--schema lists tables and columns")

    def interrupt(self) -> None:
        """End the query that is being done, if there is one: it raises. Also for a handler of signals.

        DuckDB may swallow what a handler raises within it, and continue.
        """
        self._duck.interrupt()

    def close(self) -> None:
        self._duck.close()

    def _register(self, text: str) -> None:
        names = _words(text)
        for name, schema in schemas(names).items():
            if name in names:
                if name != "wiring" and not self._reading.permissive:
                    self._journal.log.check_lost(0, self._journal.log.durable_lsn, _REMEDY)
                self._views[name] = _View(schema, partial(self._batches, name))
                self._duck.register(name, self._views[name])

    def _batches(self, name: str, columns: list[str], condition: Any) -> Iterator[pa.RecordBatch]:
        log = self._journal.log
        if name != "records":
            yield from self._journal.batches(name, self._reading, columns)
            return
        for piece in log.pieces if condition is None else _possible(log.pieces, condition, log.container_bytes):
            yield from self._journal.records(self._reading, columns, pieces=(piece,))


def schemas(named: frozenset[str] = _CONTENT) -> dict[str, pa.Schema]:
    """The tables, with the columns that need payloads if one of them is *named*."""
    if named & _CONTENT:
        return SCHEMAS
    return SCHEMAS | {"records": schema_of("records", records.DEFAULT), "messages": views.MESSAGES}


def _words(text: str) -> frozenset[str]:
    """The words of a query, as DuckDB's own parser finds them, in small letters."""
    tokens = duckdb.tokenize(text)
    starts = [at for at, _ in tokens]
    return frozenset(
        text[begin:end].strip().strip('"').lower() for begin, end in zip(starts, [*starts[1:], len(text)], strict=True)
    )


def _possible(pieces: tuple[LogPiece, ...], condition: Any, container_bytes: int) -> list[LogPiece]:
    """The pieces that may hold records for which *condition* is true."""
    form = ds.IpcFileFormat()
    disk = LocalFileSystem()
    lsn, block, container = pc.field("lsn"), pc.field("block"), pc.field("container")
    fragments = []
    for number, piece in enumerate(pieces):
        first, end = piece.slot_lsn, piece.slot_lsn + container_bytes
        known = (container == first) & (lsn >= first) & (lsn < end) & (block >= first) & (block < end)
        fragments.append(form.make_fragment(str(number), disk, known))  # a name is all that is used of it
    names = ds.FileSystemDataset(fragments, SCHEMAS["records"], form, disk)
    return [pieces[int(fragment.path)] for fragment in names.get_fragments(filter=condition)]

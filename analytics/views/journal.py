"""A journal opened for analysis: its views as Arrow.

    journal = open_journal("./data")
    for batch in journal.records(columns=["lsn", "type", "queue", "time"]):
        ...
    print(journal.queues())

A journal that a broker is writing may be read all the same: what is seen is the log as of the moment it was opened. The
broker is not disturbed, and nothing is consumed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from functools import partial

import numpy as np
import pyarrow as pa

from ...journal.format.record import RecordType
from ..lifetimes.lifetimes import NEVER, Lifetimes, lifetimes_of
from ..lifetimes.record_tables import RecordTables, gather
from ..scan.files import Log, LogPiece, open_log
from ..scan.log_scan import first_lsn_since, first_original
from ..scan.number_sets import Flags, Longs, is_among
from ..scan.selection import Selection, check_selection, queue_ids_named
from . import amqp_columns, records, views
from .live_set import LIVE_SET, ORPHANS, live_set_table, orphans_table
from .records import ReadOptions

_BATCH_ROWS = 1 << 16
VIEWS = (
    "records", "messages", "places", "orphan_records", "transactions", "containers", "live_set", "queues", "wiring",
)  # fmt: skip
SCHEMAS: dict[str, pa.Schema] = {
    "records": pa.schema([*records.SCHEMA, *amqp_columns.SCHEMA]),
    "messages": pa.schema([*views.MESSAGES, records.SCHEMA.field("payload"), *amqp_columns.SCHEMA]),
    "places": views.PLACES, "orphan_records": ORPHANS, "live_set": LIVE_SET, "transactions": views.TRANSACTIONS,
    "containers": views.CONTAINERS, "queues": views.QUEUES, "wiring": views.WIRING,
}  # fmt: skip
"""All columns of each view."""


class Journal:
    """A view of a journal. Can be pickled; any thread may use it."""

    def __init__(self, log: Log, queue_names: Mapping[int, str], connect: str | None, catalog: str | None) -> None:
        self.log = log
        self.queue_names = dict(queue_names)
        self._connect, self._catalog = connect, catalog

    def altered(self, *, log: Log | None = None, names: Mapping[int, str] | None = None) -> Journal:
        """Return a copy with another view of the log, or with other names of queues."""
        names = self.queue_names if names is None else names
        return Journal(log or self.log, names, self._connect, self._catalog)

    def batches(
        self, view: str, reading: ReadOptions, columns: list[str], *, pieces: tuple[LogPiece, ...] | None = None,
        ids: tuple[int, int] = (0, NEVER),
    ) -> Iterator[pa.RecordBatch]:  # fmt: skip
        """These columns of the rows of *view*; *pieces* and *ids* as for the method of its name, where that has them.
        """
        if view == "records":
            return self.records(reading, columns, pieces=pieces)
        read: dict[str, Callable[[], pa.Table]] = {
            "messages": lambda: self.messages(reading, columns, ids=ids),
            "places": lambda: self.places(reading, columns, ids=ids),
            "live_set": lambda: self.live_set(reading, ids=ids),
            "orphan_records": lambda: self.orphan_records(reading, ids=ids),
            "transactions": lambda: self.transactions(reading),
            "queues": lambda: self.queues(reading),
            "containers": lambda: self.containers(reading, pieces=pieces),
            "wiring": self.wiring,
        }
        return iter(read[view]().select(columns).to_batches(_BATCH_ROWS))

    def records(
        self,
        reading: ReadOptions | None = None,
        columns: list[str] | None = None,
        *,
        pieces: tuple[LogPiece, ...] | None = None,
    ) -> Iterator[pa.RecordBatch]:
        """The records that *reading* selects, in order; *columns* as in `records` and `amqp_columns`.

        *pieces*: only what these hold.
        """
        reading = self.resolved("records", reading)
        names = tuple(columns) if columns is not None else reading.columns
        schema = schema_of("records", names)
        pieces = self._pieces(reading.selection) if pieces is None else pieces
        if reading.copies == "new" and not reading.seen:
            reading = replace(reading, seen=self.log.runs(reading.selection.start_lsn))
        own = tuple(name for name in names if name in records.SCHEMA.names)
        decoded = tuple(name for name in names if name not in own)
        needed = own + tuple(name for name in ("type", "flags", "payload") if decoded and name not in own)
        for batch in records.read_records(self.log, pieces, replace(reading, columns=needed), self.queue_names):
            if decoded:
                batch = _with_amqp(batch, names, decoded, schema)
            yield batch

    def messages(
        self, reading: ReadOptions | None = None, columns: list[str] | None = None, *, ids: tuple[int, int] = (0, NEVER)
    ) -> pa.Table:
        """One row per message, see `views.MESSAGES`, and what *columns* name of `payload` and `amqp_columns` too.

        The range of the selection applies to the arrival of messages, and its end is also the LSN of the view; queues
        select messages that were on them. *ids*: only messages in this range.
        """
        reading, _, lifetimes, chosen = self._selected("messages", reading, ids)
        names = tuple(columns) if columns is not None else tuple(views.MESSAGES.names)
        own = [name for name in names if name in views.MESSAGES.names]
        extra = [name for name in names if name not in own]
        table = views.messages(lifetimes, self.queue_names, own or ["message_id"])
        if not chosen.all():
            table = table.filter(pa.array(chosen))
        if extra:
            contents = self._contents(lifetimes.messages.id[chosen], reading)
            wanted = [name for name in extra if name != "payload"]
            for name, array in zip(wanted, amqp_columns.decoded(contents, wanted), strict=True):
                table = table.append_column(amqp_columns.SCHEMA.field(name), array)
            if "payload" in extra:
                table = table.append_column("payload", pa.array(contents, pa.binary()))
        return table.select(list(names))

    def places(
        self, reading: ReadOptions | None = None, columns: list[str] | None = None, *, ids: tuple[int, int] = (0, NEVER)
    ) -> pa.Table:
        """One row per stay of a message on a queue, see `views.PLACES`, of the messages that `messages` would give."""
        reading, _, lifetimes, chosen = self._selected("places", reading, ids)
        table = views.places(lifetimes, self.queue_names, views.PLACES.names if columns is None else columns)
        if not chosen.all():
            table = table.filter(pa.array(chosen[np.searchsorted(lifetimes.messages.id, lifetimes.places.message_id)]))
        return table

    def live_set(self, reading: ReadOptions | None = None, *, ids: tuple[int, int] = (0, NEVER)) -> pa.Table:
        """One row per container with live records, see `live_set.LIVE_SET`, of the messages as in `messages`."""
        reading, facts, lifetimes, chosen = self._selected("live_set", reading, ids)
        return live_set_table(facts, lifetimes, chosen, _end(reading), self.log.container_bytes)

    def orphan_records(self, reading: ReadOptions | None = None, *, ids: tuple[int, int] = (0, NEVER)) -> pa.Table:
        """The records of messages without a Start record, see `live_set.ORPHANS`; *ids*: of those in this range."""
        reading, facts, lifetimes, _ = self._selected("orphan_records", reading, ids)
        selection = reading.selection
        chosen = (facts.message_id >= max(ids[0], selection.start_lsn)) & (facts.message_id < ids[1])
        if selection.queue_ids:
            chosen &= np.isin(facts.queue_id, selection.queue_ids)
        return orphans_table(facts, lifetimes, chosen, _end(reading), self.queue_names)

    def transactions(self, reading: ReadOptions | None = None) -> pa.Table:
        """Return one row per transaction, see `views.TRANSACTIONS`; the selection applies to their beginnings."""
        reading = self.resolved("transactions", reading)
        facts = gather(self.log, self.log.pieces, reading)
        table = views.transactions(facts, _end(reading), self.queue_names)
        return table.filter(pa.array(table["txn_id"].to_numpy() >= reading.selection.start_lsn))

    def queues(self, reading: ReadOptions | None = None) -> pa.Table:
        """One row per queue, see `views.QUEUES`, as of the end of the selection."""
        reading = self.resolved("queues", reading)
        lifetimes = lifetimes_of(gather(self.log, self.log.pieces, reading), _end(reading))
        table = views.queues(lifetimes, self.queue_names)
        chosen = reading.selection.queue_ids
        return table.filter(pa.array(np.isin(table["queue_id"].to_numpy(), chosen))) if chosen else table

    def containers(self, reading: ReadOptions | None = None, *, pieces: tuple[LogPiece, ...] | None = None) -> pa.Table:
        """One row per container that holds something of the selected range, see `views.CONTAINERS`.

        The figures are of what it holds of that range. Damage is a column, and raises nothing.
        """
        reading = self.resolved("containers", replace(reading or ReadOptions(), permissive=True))
        pieces = self._pieces(reading.selection) if pieces is None else pieces
        return views.containers(self.log, pieces, reading)

    def _pieces(self, selection: Selection) -> tuple[LogPiece, ...]:
        """The containers that hold something of the range."""
        end_lsn = self.log.durable_lsn if selection.end_lsn is None else selection.end_lsn
        return self.log.between(selection.start_lsn, end_lsn)

    def wiring(self) -> pa.Table:
        """The wiring as SQL has it now, see `views.WIRING`."""
        from . import wiring_rows  # readers of records import no SQL

        rows = wiring_rows.read_wiring(self.log.store, self.log.uuid, self._connect, self._catalog)
        return wiring_rows.table_of(rows)

    def _selected(
        self, view: str, reading: ReadOptions | None, ids: tuple[int, int]
    ) -> tuple[ReadOptions, RecordTables, Lifetimes, Flags]:
        """*reading* as `resolved`, and the records and lifetimes of the messages in the range *ids* that it selects.

        Of some others there is a part, too: the last value is the mask of the selected messages.
        """
        reading = self.resolved(view, reading)
        selection = reading.selection
        first, end = max(ids[0], selection.start_lsn), ids[1]
        wanted = (first, end) if first or end < NEVER else None
        facts = gather(self.log, self.log.between(first, self.log.durable_lsn), reading, wanted)
        lifetimes = lifetimes_of(facts, _end(reading))
        found = lifetimes.messages
        chosen = (found.id >= first) & (found.id < end)
        if selection.queue_ids:
            on = lifetimes.places.message_id[np.isin(lifetimes.places.queue_id, selection.queue_ids)]
            chosen &= np.isin(found.id, on)
        if selection.message_ids:
            chosen &= is_among(found.id, selection.ordered_ids)
        return reading, facts, lifetimes, chosen

    def resolved(
        self, view: str, reading: ReadOptions | None = None, since: Callable[[int], int] | None = None
    ) -> ReadOptions:
        """*reading* with each time replaced by the first LSN of that time or later, as `first_lsn_since` finds it.

        So a range of time means the same in all views. *since* finds it elsewhere, too. Raises `CairnError` for a
        criterion that *view* does not apply.
        """
        reading = reading or ReadOptions()
        selection = reading.selection
        check_selection(view, selection)
        if selection.start_us is None and selection.end_us is None:
            return reading
        since = since or partial(self.first_lsn_since, reading=reading)
        start_lsn, end_lsn = selection.start_lsn, selection.end_lsn
        if selection.start_us is not None:
            start_lsn = max(start_lsn, since(selection.start_us))
        if selection.end_us is not None:
            found = since(selection.end_us)
            end_lsn = found if end_lsn is None else min(end_lsn, found)
        lsns = replace(selection, start_lsn=start_lsn, end_lsn=end_lsn, start_us=None, end_us=None)
        return replace(reading, selection=lsns)

    def first_lsn_since(self, time_us: int, reading: ReadOptions | None = None) -> int:
        """Return the LSN of the first record, except copies, of that time or later; the durable end without one.

        The content of a container was written before the next one was begun, so few containers are read. Of *reading*
        only the handling of damage is used.
        """
        found = first_lsn_since(self.log, time_us, reading or ReadOptions())
        return self.log.durable_lsn if found is None else found

    def doubtful_lsn_since(self, time_us: int, reading: ReadOptions | None = None) -> int | None:
        """The lowest LSN that may have been the first of that time or later; None if `first_lsn_since` is certain.

        It is not where that finds the first record behind a stretch that is missing.
        """
        lsn = self.first_lsn_since(time_us, reading)
        gap = next((gap for gap in reversed(self.log.gaps) if gap.end_lsn <= lsn), None)
        if gap is None:
            return None
        first = first_original(self.log, Selection(gap.end_lsn), reading or ReadOptions())
        if first is not None and first < lsn:
            return None
        return gap.first_lsn + 1

    def queue_ids(self, names: list[str]) -> tuple[int, ...]:
        """The ids of queues by their names, or by the ids themselves. Raises `CairnError` for one that there is not."""
        return queue_ids_named(names, self.queue_names, "queue {!r}")

    def _contents(self, ids: Longs, reading: ReadOptions) -> list[bytes | None]:
        """Return the complete content of each of these messages, None if a part is missing."""
        kinds = (int(RecordType.START), int(RecordType.CHUNK))
        if not len(ids):
            return []
        # a message's id is the LSN of its first record, so nothing of it stands before that
        selection = Selection(int(ids.min()), types=kinds, message_ids=tuple(ids.tolist()))
        found: dict[int, dict[int, bytes]] = {}
        last: dict[int, int] = {}
        columns = ["message_id", "type", "flags", "extra", "payload"]
        for batch in self.records(replace(reading, selection=selection, copies="all"), columns):
            for message_id, kind, flags, extra, payload in zip(*(column.to_pylist() for column in batch), strict=True):
                number = extra if kind == "chunk" else 0
                found.setdefault(message_id, {})[number] = payload
                if not flags & 4:
                    last[message_id] = number
        complete = {
            message_id: b"".join(pieces[number] for number in sorted(pieces))
            for message_id, pieces in found.items()
            if len(pieces) == last.get(message_id, -1) + 1
        }
        return [complete.get(message_id) for message_id in ids.tolist()]


def open_journal(
    path: str, *, archive: str | None = None, connect: str | None = None, catalog: str | None = None,
    history: bool = False,
) -> Journal:  # fmt: skip
    """The journal of the store in directory *path*, or a journal directory or an archive by itself.

    *archive*: where containers are that left the log. *history*: also those that left it and were not written over yet.
    *connect* and *catalog* name the server that the wiring is on. Raises `CairnError` with place, reason and remedy.
    """
    from . import wiring_rows

    log = open_log(path, archive, history=history)
    return Journal(log, wiring_rows.find_names(log.store, log.uuid, connect, catalog), connect, catalog)


def schema_of(view: str, columns: tuple[str, ...]) -> pa.Schema:
    """The schema of a view with these columns. Raises `CairnError` for one that there is not."""
    records.check_columns(columns, SCHEMAS[view])
    return pa.schema([SCHEMAS[view].field(name) for name in columns])


def _with_amqp(
    batch: pa.RecordBatch, names: tuple[str, ...], decoded: tuple[str, ...], schema: pa.Schema
) -> pa.RecordBatch:
    rows = zip(batch["type"].to_pylist(), batch["payload"].to_pylist(), strict=True)
    contents = [payload if kind == "start" else None for kind, payload in rows]
    more = dict(zip(decoded, amqp_columns.decoded(contents, decoded, complete=False), strict=True))
    return pa.RecordBatch.from_arrays([more[name] if name in more else batch[name] for name in names], schema=schema)


def _end(reading: ReadOptions) -> int:
    """Return the LSN of the view."""
    end_lsn = reading.selection.end_lsn
    return NEVER if end_lsn is None else end_lsn

"""A journal opened for analysis: its views as Arrow.

    journal = open_journal("./data")
    for batch in journal.records(columns=["lsn", "type", "queue", "time"]):
        ...
    print(journal.queues())

A journal that a broker is writing may be read all the same: what is seen is the log as of the moment it was opened. The
broker is not disturbed, and nothing is consumed.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from dataclasses import replace

import numpy as np
import pyarrow as pa

from ..base.errors import CairnError
from ..journal.record import RecordType
from . import amqp_columns, living, records, views
from .facts import Facts, gather
from .files import Log, Piece, look_at
from .lives import NEVER, Lives, lives_of
from .ordering import Flags, Longs, is_among
from .records import Reading
from .selection import Selection

VIEWS = ("records", "messages", "places", "strays", "transactions", "containers", "living", "queues", "wiring")
_AMQP = tuple(amqp_columns.SCHEMA.names)


class Journal:
    """A look at a journal. Can be pickled; any thread may use it."""

    def __init__(
        self, log: Log, store: str, queue_names: Mapping[int, str], connect: str | None, catalog: str | None
    ) -> None:
        self.log = log
        self.queue_names = dict(queue_names)
        self._store = store
        self._connect, self._catalog = connect, catalog

    def records(
        self,
        reading: Reading | None = None,
        columns: list[str] | None = None,
        *,
        pieces: tuple[Piece, ...] | None = None,
    ) -> Iterator[pa.RecordBatch]:
        """The records that *reading* selects, in order; *columns* as in `records` and `amqp_columns`.

        *pieces*: only what these hold.
        """
        reading = reading or Reading()
        names = tuple(columns) if columns is not None else reading.columns
        schema = record_schema(names)
        selection = reading.selection
        if pieces is None:
            end_lsn = self.log.durable_lsn if selection.end_lsn is None else selection.end_lsn
            pieces = self.log.between(selection.start_lsn, end_lsn)
        if reading.copies == "new" and not reading.seen:
            reading = replace(reading, seen=self.log.runs(selection.start_lsn))
        own = tuple(name for name in names if name in records.SCHEMA.names)
        decoded = tuple(name for name in names if name not in own)
        needed = own + tuple(name for name in ("type", "flags", "payload") if decoded and name not in own)
        for batch in records.read_records(self.log, pieces, replace(reading, columns=needed), self.queue_names):
            if decoded:
                batch = _with_amqp(batch, names, decoded, schema)
            yield batch

    def messages(
        self,
        reading: Reading | None = None,
        columns: list[str] | None = None,
        *,
        ids: tuple[int, int] = (0, NEVER),
    ) -> pa.Table:
        """One row per message, see `views.MESSAGES`, and what *columns* name of `payload` and `amqp_columns` too.

        Of the selection, LSNs and times say when the messages arrived, queues where they were; `end_lsn` also as of
        which LSN. *ids*: only messages in this range.
        """
        reading = reading or Reading()
        selection = reading.selection
        first = max(ids[0], selection.start_lsn)
        lives = self.lives(reading, first, ids[1])
        names = tuple(columns) if columns is not None else tuple(views.MESSAGES.names)
        own = [name for name in names if name in views.MESSAGES.names]
        extra = [name for name in names if name not in own]
        table = views.messages(lives, self.queue_names, own or ["message_id"])
        chosen = _chosen(lives, selection, first, ids[1])
        if not chosen.all():
            table = table.filter(pa.array(chosen))
        if extra:
            contents = self._contents(lives.messages.id[chosen], reading)
            wanted = [name for name in extra if name != "payload"]
            for name, array in zip(wanted, amqp_columns.decoded(contents, wanted), strict=True):
                table = table.append_column(amqp_columns.SCHEMA.field(name), array)
            if "payload" in extra:
                table = table.append_column("payload", pa.array(contents, pa.binary()))
        return table.select(list(names))

    def places(
        self, reading: Reading | None = None, columns: list[str] | None = None, *, ids: tuple[int, int] = (0, NEVER)
    ) -> pa.Table:
        """One row per stay of a message on a queue, see `views.PLACES`, of the messages that `messages` would give."""
        reading = reading or Reading()
        first = max(ids[0], reading.selection.start_lsn)
        lives = self.lives(reading, first, ids[1])
        table = views.places(lives, self.queue_names, views.PLACES.names if columns is None else columns)
        chosen = _chosen(lives, reading.selection, first, ids[1])
        if not chosen.all():
            table = table.filter(pa.array(chosen[np.searchsorted(lives.messages.id, lives.places.message_id)]))
        return table

    def living(self, reading: Reading | None = None, *, ids: tuple[int, int] = (0, NEVER)) -> pa.Table:
        """One row per container that holds something living, see `living.LIVING`, of the messages as in `messages`."""
        reading = reading or Reading()
        first = max(ids[0], reading.selection.start_lsn)
        facts, lives = self._lives(reading, first, ids[1])
        chosen = _chosen(lives, reading.selection, first, ids[1])
        return living.living(facts, lives, chosen, _end(reading), self.log.container_bytes)

    def strays(self, reading: Reading | None = None, *, ids: tuple[int, int] = (0, NEVER)) -> pa.Table:
        """What there is of messages without a Start record, see `living.STRAYS`; *ids*: of those in this range."""
        reading = reading or Reading()
        selection = reading.selection
        first = max(ids[0], selection.start_lsn)
        facts, lives = self._lives(reading, first, ids[1])
        chosen = (facts.message_id >= first) & (facts.message_id < ids[1]) & _in_time(facts.time_us, selection)
        if selection.queue_ids:
            chosen &= np.isin(facts.queue_id, selection.queue_ids)
        return living.strays(facts, lives, chosen, _end(reading), self.queue_names)

    def transactions(self, reading: Reading | None = None) -> pa.Table:
        """One row per transaction, see `views.TRANSACTIONS`; the selection says when they began."""
        reading = reading or Reading()
        selection = reading.selection
        facts = gather(self.log, self.log.pieces, reading)
        table = views.transactions(facts, _end(reading))
        begun, ids = table["time"].cast(pa.int64()).to_numpy(), table["txn_id"].to_numpy()
        return table.filter(pa.array((ids >= selection.start_lsn) & _in_time(begun, selection)))

    def queues(self, reading: Reading | None = None) -> pa.Table:
        """One row per queue, see `views.QUEUES`, as of the selection's `end_lsn`."""
        reading = reading or Reading()
        table = views.queues(self.lives(reading, 0), self.queue_names)
        chosen = reading.selection.queue_ids
        return table.filter(pa.array(np.isin(table["queue_id"].to_numpy(), chosen))) if chosen else table

    def containers(self, reading: Reading | None = None, *, pieces: tuple[Piece, ...] | None = None) -> pa.Table:
        """One row per container, see `views.CONTAINERS`. Damage is a column, and raises nothing."""
        reading = replace(reading or Reading(), permissive=True)
        selection = reading.selection
        if pieces is None:
            end_lsn = self.log.durable_lsn if selection.end_lsn is None else selection.end_lsn
            pieces = self.log.between(selection.start_lsn, end_lsn)
        return views.containers(self.log, pieces, reading)

    def wiring(self) -> pa.Table:
        """What SQL says, see `views.WIRING`, as of now."""
        from . import wiring_rows  # whoever reads records imports no SQL

        rows = wiring_rows.read_wiring(self._store, self.log.uuid, self._connect, self._catalog)
        return wiring_rows.table_of(rows)

    def lives(self, reading: Reading, first_lsn: int, end_id: int = NEVER) -> Lives:
        """The lives of the messages with ids from *first_lsn* up to before *end_id*; of some others a part, too."""
        return self._lives(reading, first_lsn, end_id)[1]

    def _lives(self, reading: Reading, first_lsn: int, end_id: int) -> tuple[Facts, Lives]:
        """The same, and what it was made of."""
        ids = (first_lsn, end_id) if first_lsn or end_id < NEVER else None
        facts = gather(self.log, self.log.between(first_lsn, self.log.durable_lsn), reading, ids)
        return facts, lives_of(facts, _end(reading))

    def first_lsn_since(self, time_us: int) -> int:
        """The LSN of the first record, not counting copies, of that time or later; the durable end if there is none.

        What stands in a container was there before the next one was begun, so few containers are read.
        """
        begun = [piece.slot_lsn for piece in self.log.pieces if 0 < piece.begun_us < time_us]
        start_lsn = max(begun, default=self.log.first_lsn)
        reading = Reading(selection=Selection(start_lsn, start_us=time_us), copies="none")
        found = (int(batch["lsn"][0].as_py()) for batch in self.records(reading, ["lsn"]) if batch.num_rows)
        return next(found, self.log.durable_lsn)

    def with_pieces(self, pieces: tuple[Piece, ...]) -> Journal:
        """The same with only *pieces* of the log: what a part of the work needs to travel."""
        return self.with_log(replace(self.log, pieces=pieces, gaps=()))

    def with_log(self, log: Log) -> Journal:
        """The same with another look at the log."""
        return Journal(log, self._store, self.queue_names, self._connect, self._catalog)

    def with_names(self, names: Mapping[int, str]) -> Journal:
        """The same where queues are called so."""
        return Journal(self.log, self._store, names, self._connect, self._catalog)

    def queue_ids(self, names: list[str]) -> tuple[int, ...]:
        """The ids of queues by their names, or by the ids themselves. Raises `CairnError` for one that there is not."""
        by_name = {name: number for number, name in self.queue_names.items()}
        found = []
        for name in names:
            if name not in by_name and not name.isdecimal():
                known = ", ".join(sorted(by_name)[:10]) or "none is known here"
                raise CairnError(f"queue {name!r}", "there is no queue of that name", f"one of {known}; or its id")
            found.append(by_name.get(name, int(name) if name.isdecimal() else 0))
        return tuple(found)

    def _contents(self, ids: Longs, reading: Reading) -> list[bytes | None]:
        """The whole content of each of these messages, None where a part is missing."""
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
        whole = {
            message_id: b"".join(pieces[number] for number in sorted(pieces))
            for message_id, pieces in found.items()
            if len(pieces) == last.get(message_id, -1) + 1
        }
        return [whole.get(message_id) for message_id in ids.tolist()]


def open_journal(
    path: str, *, archive: str | None = None, connect: str | None = None, catalog: str | None = None,
    history: bool = False,
) -> Journal:  # fmt: skip
    """The journal of the store in directory *path*, or a journal directory or an archive by itself.

    *archive*: where containers are that left the log. *history*: also those that left it and were not written over yet.
    *connect* and *catalog* name the server that the wiring is on. Raises `CairnError` with place, reason and remedy.
    """
    from . import wiring_rows

    log = look_at(path, archive, history=history)
    store = os.path.dirname(os.path.abspath(log.journal)) if log.journal else path
    return Journal(log, store, wiring_rows.find_names(store, log.uuid, connect, catalog), connect, catalog)


def record_schema(columns: tuple[str, ...] = records.DEFAULT) -> pa.Schema:
    """The schema of the view `records` with these columns. Raises `CairnError` for one that there is not."""
    return _schema(columns, pa.schema([*records.SCHEMA, *amqp_columns.SCHEMA]))


def message_schema(columns: tuple[str, ...] = tuple(views.MESSAGES.names)) -> pa.Schema:
    """The same for `messages`."""
    return _schema(columns, pa.schema([*views.MESSAGES, records.SCHEMA.field("payload"), *amqp_columns.SCHEMA]))


def _schema(columns: tuple[str, ...], known: pa.Schema) -> pa.Schema:
    records.check_columns(columns, known)
    return pa.schema([known.field(name) for name in columns])


def _with_amqp(
    batch: pa.RecordBatch, names: tuple[str, ...], decoded: tuple[str, ...], schema: pa.Schema
) -> pa.RecordBatch:
    rows = zip(batch["type"].to_pylist(), batch["payload"].to_pylist(), strict=True)
    contents = [payload if kind == "start" else None for kind, payload in rows]
    more = dict(zip(decoded, amqp_columns.decoded(contents, decoded, whole=False), strict=True))
    return pa.RecordBatch.from_arrays([more[name] if name in more else batch[name] for name in names], schema=schema)


def _chosen(lives: Lives, selection: Selection, first: int, end_lsn: int) -> Flags:
    found = lives.messages
    chosen = (found.id >= first) & (found.id < end_lsn) & _in_time(found.time_us, selection)
    if selection.queue_ids:
        on = lives.places.message_id[np.isin(lives.places.queue_id, selection.queue_ids)]
        chosen &= np.isin(found.id, on)
    if selection.message_ids:
        chosen &= is_among(found.id, selection.ordered_ids)
    return chosen


def _end(reading: Reading) -> int:
    """As of which LSN."""
    end_lsn = reading.selection.end_lsn
    return NEVER if end_lsn is None else end_lsn


def _in_time(times: Longs, selection: Selection) -> Flags:
    chosen = np.ones(len(times), bool)
    if selection.start_us is not None:
        chosen &= times >= selection.start_us
    if selection.end_us is not None:
        chosen &= times < selection.end_us
    return chosen

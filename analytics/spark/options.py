"""The options of the data source `journal`, as texts with names in any case; see 'Spark' in the documentation."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import Any

import numpy as np
import pyarrow as pa

from ...base.errors import CairnError
from ...base.remote_paths import refuse_remote
from ..scan.files import Log
from ..scan.number_sets import Flags, Longs
from ..scan.ranges import Ranges
from ..scan.selection import Selection, refusal, types_named
from ..views.amqp_columns import SCHEMA as AMQP
from ..views.journal import SCHEMAS, VIEWS, Journal, open_journal, schema_of
from ..views.records import DEFAULT, ReadOptions
from ..views.views import MESSAGES

PARTITION_BYTES = 256 << 20
MESSAGE_PARTITION_BYTES = 8 << 30
"""A partition of messages reads the log from its first message on to the end, so few are better."""
SLOT_BYTES = 8 << 30
UNITED = "cairnmq.united"
"""The option that `united` passes to the source; not for users."""
PINNED = "cairnmq.pinned"
"""The option that marks `endingLsn` as the end of a scan of this program, so that several views show one point in time;
its value is the result of that scan, as JSON. Not for users."""
_UNITS = {"": 1, "b": 1, "k": 1 << 10, "m": 1 << 20, "g": 1 << 30, "t": 1 << 40}
_DOCS = "see 'Spark' in the documentation"
_CRITERIA = {
    "startingLsn": "start", "startingTimestamp": "start", "endingLsn": "end", "endingTimestamp": "end",
    "queues": "queues",
}  # fmt: skip
"""The options that select, by the criterion of `selection.refusal`."""
Read = Callable[[str, str], Any]
"""Returns the value of an option from its name and its text. Raises `CairnError`."""


@dataclass(frozen=True)
class Pinned:
    """A view of the log that was opened earlier."""

    seen: Ranges
    in_log: Ranges
    """The part of `seen` that the log had not reclaimed by then."""

    @staticmethod
    def of(log: Log) -> Pinned:
        """The look that *log* is."""
        in_log = replace(log, pieces=tuple(piece for piece in log.pieces if not piece.is_archived))
        return Pinned(Ranges(log.runs(0)), Ranges(in_log.runs(0)))

    @property
    def as_option(self) -> str:
        return json.dumps({"seen": self.seen.runs, "in_log": self.in_log.runs}, separators=(",", ":"))

    def like(self, log: Log) -> Log:
        """*log* without what had left it before that look, as if nothing had left it since."""
        lsns = np.array([piece.slot_lsn for piece in log.pieces], np.int64)
        in_log = _are_in(lsns, self.in_log)
        return replace(log, pieces=tuple(
            replace(log.pieces[at], is_archived=not in_log[at])
            for at in np.flatnonzero(_are_in(lsns, self.seen)).tolist()
        ))  # fmt: skip


def _are_in(lsns: Longs, ranges: Ranges) -> Flags:
    bounds = np.array([bound for run in ranges.runs for bound in run], np.int64)
    found: Flags = np.searchsorted(bounds, lsns, "right") % 2 == 1
    return found


@dataclass(frozen=True)
class Options:
    """The options of a user, checked."""

    path: str
    view: str = "records"
    columns: tuple[str, ...] = ()
    """In this order; all but payload and AMQP if it is empty."""
    include_payload: bool = False
    include_amqp: bool = False
    start_lsn: int | None = None
    end_lsn: int | None = None
    start_us: int | None = None
    end_us: int | None = None
    types: tuple[str, ...] = ()
    queues: tuple[str, ...] = ()
    copies: str = "new"
    partition_bytes: int = 0
    """0 for what suits the view."""
    verify: bool = False
    permissive: bool = False
    fail_on_data_loss: bool = True
    archive: str | None = None
    connect: str | None = None
    catalog: str | None = None
    starting_offsets: str = ""
    """earliest, latest, or a number; "" where it was not said."""
    trigger_bytes: int = 0
    """0 for no limit."""
    slot: str = ""
    slot_bytes: int = SLOT_BYTES
    use_sidecar: str = "auto"
    """auto: for speed; true: also what containers do not have any more; false."""
    sidecar_dir: str = ""
    elsewhere: Ranges = Ranges()
    """Ranges that are read from sidecars in addition to this, see `united`."""
    seen: Ranges | None = None
    """All ranges that are read."""
    pinned: Pinned | None = None
    """An earlier view that this one repeats; `end_lsn` is its end, and was not requested by the user."""

    def names(self) -> tuple[str, ...]:
        """The columns of the table."""
        if self.columns:
            return self.columns
        if self.view not in ("records", "messages"):
            return tuple(SCHEMAS[self.view].names)
        own = DEFAULT if self.view == "records" else tuple(MESSAGES.names)
        return own + ("payload",) * self.include_payload + tuple(AMQP.names) * self.include_amqp

    def arrow_schema(self, names: tuple[str, ...] | None = None) -> Any:
        """The Arrow schema of these columns. Raises `CairnError` for one that the view does not have."""
        names = self.names() if names is None else names
        if self.view in ("records", "messages"):
            return schema_of(self.view, names)
        known = SCHEMAS[self.view]
        for name in names:
            if name not in known.names:
                there = ", ".join(known.names)
                raise CairnError(f"column {name!r}", f"the view {self.view} has none", f"one of {there}")
        return pa.schema([known.field(name) for name in names])

    def open(self, *, history: bool = False) -> Journal:
        """Open the journal in its current or pinned state; with *history* including older data that exists."""
        history = history or self.pinned is not None
        found = open_journal(
            self.path, archive=self.archive, connect=self.connect, catalog=self.catalog, history=history
        )
        return found if self.pinned is None else found.altered(log=self.pinned.like(found.log))

    @property
    def has_start(self) -> bool:
        """Return whether a start is requested."""
        return self.start_lsn is not None or self.start_us is not None

    def reading(self, journal: Journal) -> ReadOptions:
        """The way of reading *journal*, without the columns, with times as LSNs.

        Raises `CairnError` for a queue that there is not, and for damage where a time is looked for.
        """
        selection = Selection(
            self.start_lsn or 0, self.end_lsn, self.start_us, self.end_us, types_named(list(self.types)),
            journal.queue_ids(list(self.queues)),
        )  # fmt: skip
        return journal.resolved(self.view, ReadOptions(
            ("lsn",), selection, self.copies, verify=self.verify, permissive=self.permissive,
            lose=not self.fail_on_data_loss and self.pinned is None,
        ))  # fmt: skip


def parse(given: Mapping[str, str]) -> Options:
    """Raises `CairnError` with one clear sentence for the first option that is wrong."""
    known = {name.lower(): name for name in (*_FIELDS, UNITED, PINNED)}
    found: dict[str, str] = {}
    for key, value in given.items():
        name = known.get(key.lower())
        if name is None:
            if key.startswith("__") or key.lower().startswith("spark."):
                continue  # Spark's own
            raise CairnError(f"option {key!r}", "unknown option", f"one of {', '.join(_FIELDS)}")
        found[name] = value.strip()
    if not found.get("path"):
        raise CairnError("option path", "it is missing", 'name the store: spark.read.format("journal").load("DIR")')
    _check_view(_one_of("view", found.get("view", "records"), VIEWS), found)
    values = {field: read(name, found[name]) for name, (field, read) in _FIELDS.items() if name in found}
    if UNITED in found:
        values |= _ranges(UNITED, found[UNITED], "elsewhere", "seen")
    if PINNED in found:
        values["pinned"] = Pinned(**_ranges(PINNED, found[PINNED], "seen", "in_log"))
    options = Options(**values)
    types_named(list(options.types))
    lsns, times = (options.start_lsn, options.end_lsn), (options.start_us, options.end_us)
    for (low, high), name in ((lsns, "Lsn"), (times, "Timestamp")):
        if low is not None and high is not None and low > high:
            raise CairnError(f"option starting{name}", f"it lies behind ending{name}", "exchange the two")
    if options.columns and (options.include_payload or options.include_amqp):
        remedy = "leave includePayload and includeAmqp out"
        raise CairnError("option columns", "it names all columns there are to be", remedy)
    options.arrow_schema()
    return options


def _check_view(view: str, found: Mapping[str, str]) -> None:
    """Raises `CairnError` for an option that the view does not apply: none is ignored."""
    if view != "records":
        for name in ("types", "copies"):
            if name in found:
                raise CairnError(f"option {name}", f"the view {view} has no records to choose from", "leave it out")
    for name, criterion in _CRITERIA.items():
        reason = refusal(view, criterion) if name in found else None
        if reason is not None:
            raise CairnError(f"option {name}", *reason)
    for name in ("includePayload", "includeAmqp"):
        if view not in ("records", "messages") and found.get(name, "false").lower() == "true":
            remedy = "leave it out, or use the view records or messages"
            raise CairnError(f"option {name}", f"the view {view} has no contents", remedy)


def check_batch(options: Options) -> None:
    """Raise `CairnError` for options that only a stream supports."""
    for value, name in ((options.starting_offsets, "startingOffsets"), (options.trigger_bytes, "maxBytesPerTrigger"),
                        (options.slot, "slot"), (options.slot_bytes != SLOT_BYTES, "slotMaxBytes")):  # fmt: skip
        if value:
            remedy = "use startingLsn and endingLsn, or spark.readStream"
            raise CairnError(f"option {name}", "it is for streams", remedy)
    _check_sidecars(options)


def _check_sidecars(options: Options) -> None:
    """The source itself reads none."""
    if options.use_sidecar == "true":
        remedy = "use cairnmq.analytics.spark.journal, or leave it out"
        raise CairnError("option useSidecar", "the format journal reads containers only", remedy)


def check_stream(options: Options) -> None:
    """Raise `CairnError` for options that no stream supports."""
    _check_sidecars(options)
    if options.view != "records":
        raise CairnError("option view", f"a stream has the view records, not {options.view}", "read that as a batch")
    for value, name in ((options.start_lsn, "startingLsn"), (options.end_lsn, "endingLsn"),
                        (options.end_us, "endingTimestamp")):  # fmt: skip
        if value is not None:
            raise CairnError(f"option {name}", "it is for batches", "use startingOffsets")
    if options.start_us is not None and options.starting_offsets:
        raise CairnError("option startingTimestamp", "startingOffsets is given, too", "leave one out")


def _one_of(name: str, value: str, known: tuple[str, ...]) -> str:
    by_name = {one.lower(): one for one in known}
    if value.lower() not in by_name:
        raise CairnError(f"option {name}", f"{value!r} is none of {', '.join(known)}", _DOCS)
    return by_name[value.lower()]


def _choice(*known: str) -> Read:
    return lambda name, value: _one_of(name, value, known)


def _flag(off: str, on: str) -> Read:
    return lambda name, value: _one_of(name, value, (off, on)) == on


def _text(name: str, value: str) -> str | None:
    return value or None


def _list(name: str, value: str) -> tuple[str, ...]:
    return tuple(one for one in (part.strip() for part in value.split(",")) if one)


def _queues(name: str, value: str) -> tuple[str, ...]:
    """Names separated by commas, or a JSON list, for names with a comma."""
    if not value.startswith("["):
        return _list(name, value)
    try:
        found = json.loads(value)
    except ValueError:
        found = None
    if not isinstance(found, list) or not all(isinstance(one, str) for one in found):
        raise CairnError(f"option {name}", f"{value!r} is not a JSON list of names", 'write for example ["a,b", "c"]')
    return tuple(found)


def _lsn(name: str, value: str) -> int:
    if not value.isdecimal() or int(value) >= 1 << 63:
        raise CairnError(f"option {name}", f"{value!r} is not an LSN, which is a number of bytes", _DOCS)
    return int(value)


def _size(name: str, value: str) -> int:
    found = re.fullmatch(r"(\d+)\s*([kmgt]?)(?:i?b)?", value, re.IGNORECASE)
    if found is None or not int(found[1]):
        raise CairnError(f"option {name}", f"invalid size {value!r}", "write for example 256m or 1g")
    return int(found[1]) * _UNITS[found[2].lower()]


def _time(name: str, value: str) -> int:
    try:
        found = datetime.fromisoformat(value)
    except ValueError:
        remedy = "write for example 2026-11-22T08:00:00, which is UTC, or ...+01:00"
        raise CairnError(f"option {name}", f"invalid time {value!r}", remedy) from None
    found = found if found.tzinfo is not None else found.replace(tzinfo=UTC)
    return (found - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(microseconds=1)


def _offsets(name: str, value: str) -> str:
    if value.lower() in ("earliest", "latest"):
        return value.lower()
    try:
        lsn = json.loads(value)["lsn"]
    except (ValueError, KeyError, TypeError):
        lsn = None
    if not isinstance(lsn, int) or isinstance(lsn, bool) or not 0 <= lsn < 1 << 63:
        remedy = 'write earliest, latest, or for example {"lsn": 1048576}'
        raise CairnError("option startingOffsets", f"invalid offset {value!r}", remedy)
    return str(lsn)


def _ranges(option: str, value: str, *names: str) -> dict[str, Ranges]:
    """The ranges of these names in an option that this program gives itself."""
    try:
        return {name: Ranges.of(json.loads(value)[name]) for name in names}
    except (ValueError, KeyError, TypeError) as error:
        raise CairnError(f"option {option}", "it is not for users", "leave it out") from error


def _slot(name: str, value: str) -> str:
    if value and not re.fullmatch(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,63}", value):
        raise CairnError("option slot", f"invalid name {value!r}", "use letters, digits, and _ . - within")
    return value


def _local(name: str, path: str) -> str:
    """A path, also one that is written as a URL of a file."""
    if path.startswith("file:"):
        return re.sub(r"^file:/{0,2}(?=/)", "", path)
    refuse_remote(path)
    return path


_BOOL = _flag("false", "true")
_FIELDS: dict[str, tuple[str, Read]] = {
    "path": ("path", _local), "view": ("view", _choice(*VIEWS)), "columns": ("columns", _list),
    "includePayload": ("include_payload", _BOOL), "includeAmqp": ("include_amqp", _BOOL),
    "startingLsn": ("start_lsn", _lsn), "endingLsn": ("end_lsn", _lsn),
    "startingTimestamp": ("start_us", _time), "endingTimestamp": ("end_us", _time), "types": ("types", _list),
    "queues": ("queues", _queues), "copies": ("copies", _choice("new", "all", "none")),
    "maxPartitionBytes": ("partition_bytes", _size), "verify": ("verify", _flag("none", "full")),
    "mode": ("permissive", _flag("FAILFAST", "PERMISSIVE")), "failOnDataLoss": ("fail_on_data_loss", _BOOL),
    "archive": ("archive", lambda name, value: _local(name, value) or None), "connect": ("connect", _text),
    "catalog": ("catalog", _text), "startingOffsets": ("starting_offsets", _offsets),
    "maxBytesPerTrigger": ("trigger_bytes", _size), "slot": ("slot", _slot), "slotMaxBytes": ("slot_bytes", _size),
    "useSidecar": ("use_sidecar", _choice("auto", "true", "false")), "sidecarDir": ("sidecar_dir", _local),
}  # fmt: skip
"""The options of users: the field of each, and its reader."""

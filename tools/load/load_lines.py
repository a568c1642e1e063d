"""Parsing of the lines of a dump: each line is checked by itself, and an error names its number.

A line has the format of `lines.JsonLines`. A record requires `lsn`, `type` and the payload, as `payload_base64` or as
`payload_text` in UTF-8. The fields `flags`, `reason`, `queue`, and numbers that are 0 are optional. `size_bytes`, if
given, must be the size of the payload. The last line has the number of records. Lines about blocks, containers and
totals are skipped.
"""

from __future__ import annotations

import json
from array import array
from dataclasses import asdict
from typing import Annotated, NamedTuple

from msgspec import UNSET, Meta, Raw, Struct, UnsetType

from ...base.errors import CairnError
from ...base.typed_json import NoJson, WrongJson, decode_json
from ...journal.format.record import MAX_PAYLOAD_BYTES, Flag, RecordType
from ...store.contract.dequeue_reason import DequeueReason
from ...store.contract.wiring_rows import BindingRow, ConfigRow, ExchangeRow, QueueRow, Rows
from ...store.journaled.acquire_records import decode
from ...store.message_map.transaction_log import UNPLACED

MAX_LINE_BYTES = 256 << 20
_TYPES = {kind.name.lower().replace("_", "-"): kind for kind in RecordType}
_FLAGS = {str(flag.name).lower(): flag.value for flag in Flag}
_REASONS = {one.words: one.value for one in DequeueReason if one}
_NUMBERS = ("undo_prev", "message_id", "queue_id", "txn_id", "time_us", "extra")
_EXTRA_IS_LSN = {
    RecordType.DELETE, RecordType.ENQUEUE, RecordType.DEQUEUE, RecordType.TX_COMMIT, RecordType.TX_ROLLBACK,
    RecordType.TX_DELETE, RecordType.QUEUE_DELETE,
}  # fmt: skip
OWN = (RecordType.LOG_OPEN, RecordType.LOG_HOLES)
"""Types of records that a log writes about itself: a loaded log writes its own."""


class RecordLine(NamedTuple):
    """A record as parsed from its line, with the LSNs of the original log."""

    lsn: int
    type: int
    flags: int
    undo_prev: int
    message_id: int
    queue_id: int
    txn_id: int
    time_us: int
    extra: int
    payload: bytes
    queue: str | None

    @property
    def lists_messages(self) -> bool:
        return self.type == RecordType.QUEUE_DELETE

    @property
    def lists_operations(self) -> bool:
        return self.type == RecordType.TX_COMMIT and bool(self.flags & Flag.MOVED)

    @property
    def lists_acquired(self) -> bool:
        return self.type == RecordType.ACQUIRE

    def references(self) -> list[int]:
        """The LSNs that it names, except its own as the ID of a message or a transaction."""
        found = [self.undo_prev, *(one for one in (self.message_id, self.txn_id) if one != self.lsn)]
        if self.type in _EXTRA_IS_LSN:
            found.append(self.extra)
        if self.lists_messages:
            found += array("Q", self.payload)
        elif self.lists_operations:
            found += [one & ~UNPLACED for one in array("Q", self.payload)]
        elif self.lists_acquired:
            found += decode(self.payload, self.extra).message_ids
        return [one for one in found if one]

    @property
    def extra_is_lsn(self) -> bool:
        return self.type in _EXTRA_IS_LSN and self.extra > 0


class EndLine(Struct):
    """The line that ends a dump."""

    records: int | UnsetType = UNSET
    """The number of record lines before it, according to the line; unset in a dump that was written by hand."""


def wrong(number: int, reason: str, remedy: str = "") -> CairnError:
    return CairnError(f"line {number}", reason, remedy or "nothing was made")


class _Wiring(Struct):
    queues: list[QueueRow]
    exchanges: list[ExchangeRow] = []
    bindings: list[BindingRow] = []
    configs: list[ConfigRow] = []
    going: list[QueueRow] = []
    last_id: Annotated[int, Meta(ge=0)] | None = None

    def rows(self) -> Rows:
        return Rows(self.queues, self.exchanges, self.bindings, self.configs, self.going, self.last_id or 0)


class _Line(Struct):
    """A line of any kind. Its keys give the kind: `lsn` a record, then `wiring`, `end`, `damage` and the others."""

    lsn: int | UnsetType = UNSET
    wiring: _Wiring | UnsetType = UNSET
    end: EndLine | UnsetType = UNSET
    damage: Raw | UnsetType = UNSET
    block: Raw | UnsetType = UNSET
    summary: Raw | UnsetType = UNSET
    type: str = ""
    flags: list[str] = []
    reason: str | None = None
    undo_prev: int = 0
    message_id: int = 0
    queue_id: int = 0
    txn_id: int = 0
    time_us: int = 0
    extra: int = 0
    queue: str | None = None
    crc_ok: bool = True
    payload_base64: bytes | None = None
    payload_text: str | None = None
    size_bytes: int | None = None


def parse(number: int, line: bytes) -> RecordLine | Rows | EndLine | str:
    """Decodes line *number*; of a line that loads nothing returns its kind. Raises `CairnError` with its number."""
    try:
        found = decode_json(line, _Line)
    except NoJson as error:
        raise wrong(number, f"invalid JSON ({error})") from None
    except WrongJson as error:
        if not error.place:
            raise wrong(number, "not a JSON object") from None
        what = "the wiring is not right: " if error.place.startswith("wiring") else ""
        raise wrong(number, f"{what}{error}") from None
    if found.lsn is not UNSET:
        return _record(number, found, found.lsn)
    if found.wiring is not UNSET:
        return found.wiring.rows()
    if found.end is not UNSET:
        return found.end
    if found.damage is not UNSET:
        return "damage"
    if found.block is not UNSET or found.summary is not UNSET:
        return "summary"
    raise wrong(number, "it is neither a record nor a wiring", "lines are those of `cairnmq dump --complete`")


def _record(number: int, line: _Line, lsn: int) -> RecordLine:
    kind = _TYPES.get(line.type)
    if kind is None:
        raise wrong(number, f"there is no record type {line.type!r}", f"there are {', '.join(_TYPES)}")
    for name in ("lsn", *_NUMBERS):
        if not 0 <= getattr(line, name) < 1 << 64:
            raise wrong(number, f"{name} is {getattr(line, name)}, which is not a 64-bit integer")
    if not lsn:
        raise wrong(number, "no record has LSN 0")
    if not line.crc_ok:
        raise wrong(number, "its payload was damaged when it was dumped", "leave out the line, or its crc_ok")
    payload = _payload(number, line, kind)
    found = RecordLine(
        lsn, int(kind), _flags(number, line, kind), line.undo_prev, line.message_id, line.queue_id, line.txn_id,
        line.time_us, line.extra, payload, line.queue,
    )  # fmt: skip
    if (found.lists_messages or found.lists_operations) and len(payload) % 8:
        raise wrong(number, "its payload is not a list of LSNs of 8 bytes each")
    if found.lists_acquired:
        try:
            decode(payload, found.extra)
        except ValueError as error:
            raise wrong(number, f"its payload is not a list of acquisitions: {error}") from None
    if any(one >= lsn for one in found.references()):
        raise wrong(number, f"it refers to LSN {max(found.references())}, which is not before its own, {lsn}")
    if kind in (RecordType.START, RecordType.CHUNK, RecordType.ENQUEUE, RecordType.DEQUEUE) and not found.message_id:
        raise wrong(number, f"a record of type {line.type} needs a message_id")
    return found


def _flags(number: int, line: _Line, kind: RecordType) -> int:
    if not all(one in _FLAGS for one in line.flags):
        raise wrong(number, f"flags are {line.flags!r}", f"they are a list of {', '.join(_FLAGS)}")
    flags = sum({_FLAGS[one] for one in line.flags})
    if line.reason is not None:
        if kind != RecordType.DEQUEUE or line.reason not in _REASONS:
            raise wrong(number, f"reason is {line.reason!r}", f"a dequeue may have one of {', '.join(_REASONS)}")
        flags |= _REASONS[line.reason]
    return flags


def _payload(number: int, line: _Line, kind: RecordType) -> bytes:
    size = line.size_bytes
    if line.payload_base64 is not None and line.payload_text is not None:
        raise wrong(number, "it has both a payload_base64 and a payload_text")
    if line.payload_text is not None:
        payload = line.payload_text.encode()
    elif line.payload_base64 is not None:
        payload = line.payload_base64
    else:
        if size and kind not in OWN:
            raise wrong(number, f"its payload of {size} bytes is not there", "dump with --complete")
        return b""
    if size is not None and size != len(payload) and kind not in OWN:
        raise wrong(number, f"size_bytes is {size}, the payload has {len(payload)}", "leave size_bytes out")
    if len(payload) > MAX_PAYLOAD_BYTES:
        raise wrong(number, f"its payload has {len(payload)} bytes, {MAX_PAYLOAD_BYTES} are allowed", "use chunks")
    return payload


def wiring_line(rows: Rows) -> str:
    """Return the line that contains a complete wiring."""
    return json.dumps({"wiring": asdict(rows)}, separators=(",", ":"))

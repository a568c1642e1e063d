"""Lines of a dump, read back: each is checked by itself, and an error tells its number.

A line is what `lines.JsonLines` writes. Of a record are needed `lsn`, `type` and the payload, as `payload_base64` or
as `payload_text` in UTF-8; `flags`, `reason`, `queue` and numbers that are 0 may be left out. `size_bytes`, if it is
there, must be the payload's size. The last line
says how many records there were. What a dump says of blocks, containers and totals is passed over.
"""

from __future__ import annotations

import json
from array import array
from base64 import b64decode
from binascii import Error as BadBase64
from dataclasses import asdict
from typing import Any, NamedTuple

from ..base.errors import CairnError
from ..journal.record import MAX_PAYLOAD_BYTES, Flag, RecordType
from ..store.acquisitions import decode
from ..store.outcomes import UNPLACED
from ..store.why import Why
from ..store.wiring import BindingRow, ConfigRow, ExchangeRow, QueueRow, Rows

MAX_LINE_BYTES = 256 << 20
_TYPES = {kind.name.lower().replace("_", "-"): kind for kind in RecordType}
_FLAGS = {str(flag.name).lower(): flag.value for flag in Flag}
_WHYS = {why.words: why.value for why in Why if why}
_NUMBERS = ("undo_prev", "message_id", "queue_id", "txn_id", "time_us", "extra")
_EXTRA_IS_LSN = {
    RecordType.DELETE, RecordType.ENQUEUE, RecordType.DEQUEUE, RecordType.TX_COMMIT, RecordType.TX_ROLLBACK,
    RecordType.TX_DELETE, RecordType.QUEUE_DELETE,
}  # fmt: skip
OWN = (RecordType.LOG_OPEN, RecordType.LOG_HOLES)
"""What a log says of itself: another one says it for itself."""
_PASSED_OVER = ("block", "summary")


class Loaded(NamedTuple):
    """A record as its line says it, with the LSNs of the log it was dumped from."""

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
        """The LSNs that it names, but its own."""
        found = [self.undo_prev, self.message_id, self.txn_id]
        if self.type in _EXTRA_IS_LSN:
            found.append(self.extra)
        if self.lists_messages:
            found += array("Q", self.payload)
        elif self.lists_operations:
            found += [one & ~UNPLACED for one in array("Q", self.payload)]
        elif self.lists_acquired:
            found += decode(self.payload, self.extra).message_ids
        return [one for one in found if one not in (0, self.lsn)]

    @property
    def extra_is_lsn(self) -> bool:
        return self.type in _EXTRA_IS_LSN and self.extra > 0


class Wired(NamedTuple):
    """The line with the wiring."""

    rows: Rows


class Ended(NamedTuple):
    """The line that ends a dump."""

    records: int | None
    """Lines of records before it, as it says; None in what was written by hand."""


class Told(NamedTuple):
    """A line that loads nothing: what it tells of, "damage" above all."""

    what: str


def wrong(number: int, reason: str, remedy: str = "") -> CairnError:
    return CairnError(f"line {number}", reason, remedy or "nothing was made")


def parse(number: int, line: bytes) -> Loaded | Wired | Ended | Told:
    """What line *number* says. Raises `CairnError` with its number."""
    try:
        fields = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise wrong(number, f"it is no JSON ({error})") from None
    if not isinstance(fields, dict):
        raise wrong(number, "it is no JSON object")
    if "lsn" in fields:
        return _record(number, fields)
    if "wiring" in fields:
        return Wired(_rows(number, fields["wiring"]))
    if "end" in fields:
        return Ended(_ended(number, fields["end"]))
    if "damage" in fields:
        return Told("damage")
    if any(key in fields for key in _PASSED_OVER):
        return Told("")
    raise wrong(number, "it is neither a record nor a wiring", "lines are those of `cairnmq dump --whole`")


def _ended(number: int, said: Any) -> int | None:
    if not isinstance(said, dict) or type(said.get("records", 0)) is not int:
        raise wrong(number, "it is no end of a dump")
    found: int | None = said.get("records")
    return found


def _record(number: int, fields: dict[str, Any]) -> Loaded:
    kind = _TYPES.get(str(fields.get("type")))
    if kind is None:
        raise wrong(number, f"there is no record type {fields.get('type')!r}", f"there are {', '.join(_TYPES)}")
    lsn = _number(number, fields, "lsn")
    if not lsn:
        raise wrong(number, "no record has LSN 0")
    numbers = [_number(number, fields, name) for name in _NUMBERS]
    queue = fields.get("queue")
    if not (queue is None or isinstance(queue, str)):
        raise wrong(number, f"queue is {queue!r}, which is no name")
    if fields.get("crc_ok", True) is not True:
        raise wrong(number, "its payload was damaged when it was dumped", "leave out the line, or its crc_ok")
    payload = _payload(number, fields, kind)
    undo_prev, message_id, queue_id, txn_id, time_us, extra = numbers
    flags = _flags(number, fields, kind)
    found = Loaded(lsn, int(kind), flags, undo_prev, message_id, queue_id, txn_id, time_us, extra, payload, queue)
    if (found.lists_messages or found.lists_operations) and len(payload) % 8:
        raise wrong(number, "its payload is no list of LSNs: that has 8 bytes for each")
    if found.lists_acquired:
        try:
            decode(payload, extra)
        except ValueError as error:
            raise wrong(number, f"its payload says nothing of who was handed what: {error}") from None
    if any(one > lsn for one in found.references()):
        raise wrong(number, f"it names LSN {max(found.references())}, which is behind its own")
    if kind in (RecordType.START, RecordType.CHUNK, RecordType.ENQUEUE, RecordType.DEQUEUE) and not message_id:
        raise wrong(number, f"a record of type {fields['type']} needs a message_id")
    return found


def _number(number: int, fields: dict[str, Any], name: str) -> int:
    value = fields.get(name, 0)
    if type(value) is not int or not 0 <= value < 1 << 64:
        raise wrong(number, f"{name} is {value!r}, which is no whole number of 64 bits")
    return value


def _flags(number: int, fields: dict[str, Any], kind: RecordType) -> int:
    names = fields.get("flags", [])
    if not isinstance(names, list) or not all(isinstance(one, str) and one in _FLAGS for one in names):
        raise wrong(number, f"flags are {names!r}", f"they are a list of {', '.join(_FLAGS)}")
    flags = sum({_FLAGS[one] for one in names})
    reason = fields.get("reason")
    if reason is not None:
        if kind != RecordType.DEQUEUE or reason not in _WHYS:
            raise wrong(number, f"reason is {reason!r}", f"a dequeue may have one of {', '.join(_WHYS)}")
        flags |= _WHYS[reason]
    return flags


def _payload(number: int, fields: dict[str, Any], kind: RecordType) -> bytes:
    encoded, text = fields.get("payload_base64"), fields.get("payload_text")
    size = fields.get("size_bytes")
    if encoded is not None and text is not None:
        raise wrong(number, "it has both a payload_base64 and a payload_text")
    if encoded is None and text is None:
        if size and kind not in OWN:
            raise wrong(number, f"its payload of {size} bytes is not there", "dump with --whole")
        return b""
    given = text if encoded is None else encoded
    if not isinstance(given, str):
        raise wrong(number, "its payload is no text")
    try:
        payload = given.encode() if encoded is None else b64decode(given, validate=True)
    except (BadBase64, ValueError) as error:
        raise wrong(number, f"its payload_base64 is not right ({error})") from None
    if size is not None and size != len(payload) and kind not in OWN:
        raise wrong(number, f"size_bytes is {size}, the payload has {len(payload)}", "leave size_bytes out")
    if len(payload) > MAX_PAYLOAD_BYTES:
        raise wrong(number, f"its payload has {len(payload)} bytes, {MAX_PAYLOAD_BYTES} are allowed", "chunks go on")
    return payload


# ---- wiring ---------------------------------------------------------------------------------------------------------


def wiring_line(rows: Rows) -> str:
    """The line that says all of a wiring."""
    return json.dumps({"wiring": asdict(rows)}, separators=(",", ":"))


def _rows(number: int, fields: Any) -> Rows:
    try:
        return Rows(
            queues=[QueueRow(_id(row), _text(row, "name"), _object(row, "arguments")) for row in fields["queues"]],
            exchanges=[
                ExchangeRow(_id(row), _text(row, "name"), _text(row, "type"), _object(row, "arguments"))
                for row in fields.get("exchanges", [])
            ],
            bindings=[
                BindingRow(_id(row, "exchange_id"), _id(row, "queue_id"), _text(row, "key"), _object(row, "arguments"))
                for row in fields.get("bindings", [])
            ],
            configs=[ConfigRow(_text(row, "name"), _object(row, "settings")) for row in fields.get("configs", [])],
            going=[QueueRow(_id(row), _text(row, "name")) for row in fields.get("going", [])],
            last_id=_id(fields, "last_id") if fields.get("last_id") else 0,
        )
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise wrong(number, f"the wiring is not right: {error!r}") from None


def _id(row: dict[str, Any], name: str = "id") -> int:
    value = row[name]
    if type(value) is not int or not 0 < value < 1 << 63:
        raise ValueError(f"{name} is {value!r}")
    return value


def _text(row: dict[str, Any], name: str) -> str:
    value = row[name]
    if not isinstance(value, str):
        raise ValueError(f"{name} is {value!r}")
    return value


def _object(row: dict[str, Any], name: str) -> dict[str, Any]:
    value = row.get(name, {})
    if not isinstance(value, dict):
        raise ValueError(f"{name} are {value!r}")
    return value

"""Rendering of records, one line each: columns for people, JSON for programs.

A record is passed as `Row`: its LSN and its unpacked head, without an intermediate object, because rendering a line
dominates the cost of a dump. Values that many records share (the type, the queue, the second) are cached.
"""

from __future__ import annotations

import json
from base64 import b64encode
from collections.abc import Callable, Collection
from typing import Any, TypeVar

from ...amqp.codec.bodies import body_text
from ...amqp.codec.header import FORMATTED, parse
from ...amqp.codec.primitives import Malformed
from ...base.printable import printable
from ...base.texts import counted
from ...base.times import time_text
from ...journal.format import holes
from ...journal.format.block import Block, padded
from ...journal.format.holes import Hole
from ...journal.format.record import HEAD_BYTES, Flag, RecordHead, RecordType, type_name
from ...recovery.salvageable import Finding
from ...store.contract.dequeue_reason import REASON_BITS, DequeueReason, reason_of
from ...store.journaled.acquire_records import Acquired, decode

Row = tuple[int, tuple[Any, ...]]
"""A record's LSN, and the fields of `journal.record.RecordHead` in its order."""
Redact = Callable[[tuple[Any, ...], bytes], bytes]
"""Gets a record's head, as in a `Row`, and its payload; what is shown has the same length."""
K = TypeVar("K")
V = TypeVar("V")
COMPLETE_PAYLOAD = 1 << 62
_MOST_CACHED = 10_000
_SHOWS_REASON = 1 << 5
_SHOWN_IDS = 8
_HOLES = int(RecordType.LOG_HOLES)
_QUEUE_DELETE = int(RecordType.QUEUE_DELETE)
_ACQUIRE = int(RecordType.ACQUIRE)
_DEQUEUE = int(RecordType.DEQUEUE)
_START = int(RecordType.START)
_COPIED = {
    type | Flag.MOVED << 8 for type in (RecordType.START, RecordType.CHUNK, RecordType.ENQUEUE, RecordType.QUEUE_DELETE)
}
"""Type and flag of the records whose `undo_prev` is the LSN they were copied from."""
_PRINTABLE = {byte: f"\\x{byte:02x}" for byte in (*range(32), *range(127, 256))} | {
    ord("\\"): "\\\\", ord('"'): '\\"', ord("\n"): "\\n", ord("\r"): "\\r", ord("\t"): "\\t",
}  # fmt: skip


class Cache(dict[K, V]):
    """A dict that makes what it misses, and starts afresh before it grows large."""

    def __init__(self, make: Callable[[K], V]) -> None:
        super().__init__()
        self._make = make

    def __missing__(self, key: K) -> V:
        if len(self) >= _MOST_CACHED:
            self.clear()
        value = self[key] = self._make(key)
        return value


def flag_names(flags: int) -> list[str]:
    """The set flags by name, the lowest first; a bit without a name is shown as its value."""
    known = {flag.value: str(flag.name).lower() for flag in Flag}
    return [known.get(1 << bit, f"flag-{1 << bit}") for bit in range(8) if flags & 1 << bit]


def reason(type: int, flags: int) -> str:
    """The dequeue reason of a record, "" where none is recorded."""
    found = reason_of(flags) if type == _DEQUEUE else DequeueReason.NOT_RECORDED
    return found.words if found else ""


def own_flags(type: int, flags: int) -> int:
    """*flags* without the bits that are no flags, but a Dequeue record's reason."""
    return flags & ~REASON_BITS if type == _DEQUEUE else flags


def label(type: int, flags: int) -> str:
    """A record's type as people see it, a fused one with both names: `start+enqueue`; without its reason."""
    return "+".join((type_name(type), *flag_names(own_flags(type, flags))))


def label_of_kind(kind: int) -> str:
    """The label of a type and its flags as one number, which caches and counters like better: `type | flags << 8`."""
    return label(kind & 0xFF, kind >> 8)


def full_label_of_kind(kind: int) -> str:
    """The label of a kind with its dequeue reason, like `dequeue+delete+accepted`: no two kinds share one."""
    found = reason(kind & 0xFF, kind >> 8)
    return f"{label_of_kind(kind)}+{found}" if found else label_of_kind(kind)


def second_text(second: int) -> str:
    """RFC 3339 without the fraction, or the number where no calendar reaches."""
    found = time_text(second * 1_000_000, timespec="seconds")
    return f"@{second}" if found.startswith("@") else found.removesuffix("Z")


def holes_in(block: Block, head: RecordHead) -> list[Hole] | None:
    """The holes in the payload of a record of *block*; None if there can't be any in it."""
    return holes.decode(block.payload(head)) if head.size % holes.HOLE_BYTES == 0 else None


def acquired_in(block: Block, head: RecordHead) -> Acquired | None:
    """The acquisition that the payload of a record of *block* lists; None if it can't be decoded."""
    try:
        return decode(bytes(block.payload(head)), head.extra)
    except ValueError:
        return None


def holes_text(found: list[Hole]) -> str:
    """The slots that are no longer part of the log."""
    return ", ".join(str(hole.first) if hole.slots == 1 else f"{hole.first} to {hole.end - 1}" for hole in found)


class PeopleLines:
    """Columns in a fixed order: LSN, type, message, queue, time, size; then what is not zero, and the payload."""

    def __init__(self, queue_names: dict[int, str], payload_bytes: int = 32, redact: Redact | None = None) -> None:
        """*redact* returns the replacement of a payload in the output."""
        self._payload_bytes = payload_bytes
        self._redact = redact
        columns = {number: f"queue {number} {printable(name)}" for number, name in queue_names.items()}
        width = max(8, *(len(column) for column in columns.values() if len(column) <= 40), 0)
        self._queues = Cache[int, str](
            lambda queue: (columns.get(queue, f"queue {queue}") if queue else "").ljust(width)
        )
        self._kinds = Cache[int, str](lambda number: f"{label_of_kind(number):<14}")
        self._seconds = Cache[int, str](second_text)

    def records(self, block: Block, container: str, rows: Collection[Row], bad: Collection[int]) -> list[str]:
        kinds, queues, seconds = self._kinds, self._queues, self._seconds
        payloads = block.body[HEAD_BYTES * block.head.records :]
        no_message = " " * 20
        lines = []
        for lsn, head in rows:
            type, flags, _, _, size, _, undo_prev, message, queue, txn, time_us, extra = head
            line = (
                f"{lsn:>12}  {kinds[type | flags << 8]}  {f'message {message:<12}' if message else no_message}"
                f"  {queues[queue]}  {seconds[time_us // 1_000_000]}.{time_us % 1_000_000:06d}Z  {size:>5} B"
            )
            if txn:
                line += f"  txn {txn}"
            if undo_prev:
                is_copy = type | (flags & Flag.MOVED) << 8 in _COPIED
                line += f"  {'copied from' if is_copy else 'continues'} {undo_prev}"
            if extra:
                line += f"  extra {extra}"
            if bad and lsn in bad:
                line += "  CORRUPT PAYLOAD"
            if size or flags >= _SHOWS_REASON:
                line += self._content(block, payloads, head)
            lines.append(line)
        return lines

    def _content(self, block: Block, payloads: memoryview, head: tuple[Any, ...]) -> str:
        """The payload of a record, decoded if it is one of the log, or the reason of a dequeue."""
        type, flags, _, place, size, _, _, _, _, _, _, extra = head
        if type == _HOLES and (found := holes_in(block, RecordHead._make(head))) is not None:
            return f"  without slots {holes_text(found)}"
        if type == _ACQUIRE and (taken := acquired_in(block, RecordHead._make(head))) is not None:
            ids = ", ".join(map(str, taken.message_ids[:_SHOWN_IDS])) + (", ..." if extra > _SHOWN_IDS else "")
            by = taken.link if flags & Flag.ENQUEUE else f"by {taken.container}/{taken.link}"
            return f"  {printable(by)}: {ids}"
        if type == _DEQUEUE and flags >= _SHOWS_REASON:
            return f"  {reason(type, flags)}"
        if type == _QUEUE_DELETE and size:
            return f"  but for {counted(size // 8, 'message')}"
        if not size or not self._payload_bytes:
            return ""
        payload = payloads[place : place + size]
        if self._redact is not None:
            payload = memoryview(self._redact(head, bytes(payload)))
        return _shown_payload(payload, type, flags, self._payload_bytes)

    def block(self, block: Block, container: str) -> str:
        head = block.head
        return (
            f"{head.lsn:>12}  {'block':<14}  {counted(head.records, 'record')}  {head.size_bytes} B  in {container}"
            f"  previous {head.prev_lsn}  durable {head.durable_lsn}  base {head.base_lsn}"
            f"  incarnation {head.incarnation}"
        )

    def damage(self, finding: Finding) -> str:
        return f"{finding.first_lsn:>12}  {f'** {finding.kind} **':<14}  {finding.sentence()}"

    def end(self, records: int, corrupt: int, torn: int) -> str:
        return ""


def _shown_payload(payload: memoryview, type: int, flags: int, shown: int) -> str:
    """So many bytes of a payload; of a message whose body is text that, and up to so many characters of it."""
    message_format = _format_of(payload, type)
    about = f"  message-format 0x{message_format:08x}" if message_format else ""
    body = _body_text(bytes(payload), type, flags)
    if body is not None:
        return f'{about}  body "{printable(body[:shown])}"' + "..." * (len(body) > shown)
    text = str(payload[:shown], "latin-1").translate(_PRINTABLE)
    return f'{about}  "{text}"' + "..." * (len(payload) > shown)


def _body_text(payload: bytes, type: int, flags: int) -> str | None:
    """The text of a message's body, if *payload* is that of its first record."""
    return body_text(payload, complete=not flags & Flag.MORE) if type == _START else None


def _format_of(payload: memoryview, type: int) -> int:
    """Return the message-format of a message, if *payload* is that of its first record."""
    if type != _START or bytes(payload[: len(FORMATTED)]) != FORMATTED:
        return 0
    try:
        return parse(bytes(payload)).message_format
    except Malformed:
        return 0


class JsonLines:
    """A JSON object per line. A record is one with the key `lsn`; others have one key: `block`, `damage`, `end`, ..."""

    def __init__(
        self, queue_names: dict[int, str], payload_bytes: int | None = None, redact: Redact | None = None,
        *, with_text: bool = False,
    ) -> None:  # fmt: skip
        """*payload_bytes*: how much of a payload to give; None leaves the key out. *redact*: what to give for it.

        *with_text*: beside payloads also `body_text`, of messages whose body is text.
        """
        self._with_text = with_text
        self._payload_bytes = payload_bytes
        self._redact = redact
        self._queues = Cache[int, str](lambda queue: f'{queue},"queue":{json.dumps(queue_names.get(queue))}')
        self._kinds = Cache[int, str](lambda number: _kind_fields(number & 0xFF, number >> 8))

    def records(self, block: Block, container: str, rows: Collection[Row], bad: Collection[int]) -> list[str]:
        kinds, queues = self._kinds, self._queues
        middle = f',"block_lsn":{block.head.lsn},"container":{json.dumps(container)},"type":'
        lines = [
            f'{{"lsn":{lsn}{middle}{kinds[type | flags << 8]},"undo_prev":{undo_prev},"message_id":{message}'
            f',"queue_id":{queues[queue]},"txn_id":{txn},"time_us":{time_us},"extra":{extra},"size_bytes":{size}'
            ',"crc_ok":true}'
            for lsn, (type, flags, _, _, size, _, undo_prev, message, queue, txn, time_us, extra) in rows
        ]
        if bad:
            lines = [
                line.removesuffix("true}") + "false}" if row[0] in bad else line
                for line, row in zip(lines, rows, strict=True)
            ]
        kinds_here = bytes(block.body[: HEAD_BYTES * block.head.records : HEAD_BYTES])
        if _HOLES in kinds_here or _ACQUIRE in kinds_here:
            lines = [self._with_lists(block, line, row) for line, row in zip(lines, rows, strict=True)]
        if self._payload_bytes is not None:
            payloads, most = self._payloads(block, rows), self._payload_bytes
            lines = [
                f'{line[:-1]},"payload_base64":"{b64encode(payloads[row[3] : row[3] + min(row[4], most)]).decode()}"}}'
                for line, (_, row) in zip(lines, rows, strict=True)
            ]
            lines = [
                f'{line[:-1]},"message_format":{message_format}}}' if message_format else line
                for line, (_, row) in zip(lines, rows, strict=True)
                for message_format in (_format_of(payloads[row[3] : row[3] + row[4]], row[0]),)
            ]
            if self._with_text and most:
                texts = [_body_text(bytes(payloads[row[3] : row[3] + row[4]]), row[0], row[1]) for _, row in rows]
                lines = [
                    line if text is None else f'{line[:-1]},"body_text":{_json(text[:most])}}}'
                    for line, text in zip(lines, texts, strict=True)
                ]
        return lines

    def _payloads(self, block: Block, rows: Collection[Row]) -> memoryview:
        """Return the payloads of the block, with those of *rows* redacted."""
        payloads = block.body[HEAD_BYTES * block.head.records :]
        if self._redact is None:
            return payloads
        shown = bytearray(payloads)
        for _, head in rows:
            place, size = head[3], head[4]
            if size:
                shown[place : place + size] = self._redact(head, bytes(payloads[place : place + size]))
        return memoryview(shown)

    def _with_lists(self, block: Block, line: str, row: Row) -> str:
        """Return *line* with the decoded payload of a record about the log itself, or of a note."""
        type = row[1][0]
        if type == _HOLES and (found := holes_in(block, RecordHead._make(row[1]))) is not None:
            return f'{line[:-1]},"holes":{_json([hole._asdict() for hole in found])}}}'
        if type == _ACQUIRE and (taken := acquired_in(block, RecordHead._make(row[1]))) is not None:
            by = {"container": taken.container, "link": taken.link}
            if row[1][1] & Flag.ENQUEUE:
                by = {"returned": taken.link}
            fields = {"message_ids": list(taken.message_ids), **by}
            return f'{line[:-1]},"acquired":{_json(fields)}}}'
        return line

    def block(self, block: Block, container: str) -> str:
        head = block.head
        return _json({
            "block": {
                "lsn": head.lsn, "container": container, "records": head.records, "size_bytes": head.size_bytes,
                "padded_bytes": padded(head.size_bytes), "prev_lsn": head.prev_lsn, "durable_lsn": head.durable_lsn,
                "base_lsn": head.base_lsn, "incarnation": head.incarnation,
            }
        })  # fmt: skip

    def damage(self, finding: Finding) -> str:
        return _json({"damage": finding.fields()})

    def end(self, records: int, corrupt: int, torn: int) -> str:
        return _json({"end": {"records": records, "corrupt": corrupt, "torn": torn}})


Lines = PeopleLines | JsonLines
"""The format of a dump. Each method returns complete lines, without the last line feed, or nothing.

*bad*: the LSNs of records whose payload does not match its checksum.
"""


def _kind_fields(type: int, flags: int) -> str:
    """The JSON fields for a record's type and flags, and for its reason where one is recorded."""
    found = reason(type, flags)
    return f'"{type_name(type)}","flags":{_json(flag_names(own_flags(type, flags)))}' + (
        f',"reason":"{found}"' if found else ""
    )


def _json(value: object) -> str:
    return json.dumps(value, separators=(",", ":"))

"""Tests of output lines: one per record, with columns for people, and with all fields in JSON."""

from __future__ import annotations

import base64
import json
from typing import TYPE_CHECKING
from uuid import UUID

from crc32c import crc32c
from hypothesis import given
from hypothesis.strategies import binary, builds, integers, lists, text, tuples

from cairnmq.journal.format import block
from cairnmq.journal.format.block import Block
from cairnmq.journal.format.holes import HOLE_BYTES, Hole, decode
from cairnmq.journal.format.record import HEAD, Flag, RecordHead, RecordType
from cairnmq.journal.write.journal import OWN_LSN
from cairnmq.store.contract.dequeue_reason import DequeueReason
from cairnmq.tools.inspect.dump import bad_payloads
from cairnmq.tools.inspect.lines import COMPLETE_PAYLOAD, JsonLines, PeopleLines, flag_names, label, own_flags, reason
from cairnmq.tools.inspect.row_filter import RowFilter

if TYPE_CHECKING:
    from tests.tools.conftest import Dump, Store

LOG_ID = int.from_bytes(UUID(int=7).bytes[:8], "little")
record_heads = builds(
    RecordHead, integers(0, 255), integers(0, 255), integers(0, 0), integers(0, 0), integers(0, 0), integers(0, 0),
    *[integers(0, (1 << 64) - 1)] * 6,
)  # fmt: skip
some_records = lists(tuples(record_heads, binary(max_size=100)), min_size=1, max_size=8)


def block_of(records: list[tuple[RecordHead, bytes]], lsn: int = 512) -> Block:
    table, place = b"", 0
    for number, (head, payload) in enumerate(records):
        table += HEAD.pack(*head._replace(number=number, place=place, size=len(payload), crc32c=crc32c(payload)))
        place += len(payload)
    data = block.encode(
        table, [payload for _, payload in records], place, lsn=lsn, prev_lsn=0, incarnation=1, durable_lsn=0,
        base_lsn=0, log_id=LOG_ID,
    )  # fmt: skip
    return block.decode(memoryview(data), lsn, LOG_ID)


@given(some_records)
def test_json_keeps_every_field(records: list[tuple[RecordHead, bytes]]) -> None:
    found = block_of(records)
    shown = JsonLines({}, COMPLETE_PAYLOAD).records(found, "a.cairn", RowFilter().rows(found), ())
    assert len(shown) == len(records)
    for number, (line, (head, payload)) in enumerate(zip(shown, records, strict=True)):
        type, _, flags = label(head.type, head.flags).partition("+")
        shown_fields = json.loads(line)
        if head.type == RecordType.LOG_HOLES and len(payload) % HOLE_BYTES == 0:
            assert [Hole(**found) for found in shown_fields.pop("holes")] == decode(payload)
        assert shown_fields == {
            "lsn": 576 + 64 * number, "block_lsn": 512, "container": "a.cairn",
            "type": type, "flags": flags.split("+") if flags else [],
            **({"reason": expected_reason} if (expected_reason := reason(head.type, head.flags)) else {}),
            "undo_prev": head.undo_prev, "message_id": head.message_id,
            "queue_id": head.queue_id, "queue": None, "txn_id": head.txn_id, "time_us": head.time_us,
            "extra": head.extra, "size_bytes": len(payload), "crc_ok": True,
            "payload_base64": base64.b64encode(payload).decode(),
        }  # fmt: skip


@given(some_records, text())
def test_a_record_is_one_printable_line_for_people_too(records: list[tuple[RecordHead, bytes]], name: str) -> None:
    found = block_of([(head._replace(queue_id=3), payload) for head, payload in records])
    shown = PeopleLines({3: name}, COMPLETE_PAYLOAD).records(found, "a.cairn", RowFilter().rows(found), ())
    assert len(shown) == len(records)
    for line in shown:
        assert line.isprintable()  # queue names and payloads are escaped


@given(integers(0, 255))
def test_no_flag_is_lost(flags: int) -> None:
    known = {str(flag.name).lower(): flag.value for flag in Flag}
    values = [known[name] if name in known else int(name.removeprefix("flag-")) for name in flag_names(flags)]
    assert sum(values) == flags
    assert all(not name.startswith("flag-") for name in flag_names(15))


@given(integers(0, 255))
def test_a_dequeue_has_flags_and_a_reason_and_nothing_of_it_is_lost(flags: int) -> None:
    shown = reason(RecordType.DEQUEUE, flags)
    bits = DequeueReason[shown.upper().replace("-", "_")] if shown else 0
    assert own_flags(RecordType.DEQUEUE, flags) | bits == flags
    assert reason(RecordType.ENQUEUE, flags) == ""
    assert own_flags(RecordType.ENQUEUE, flags) == flags


def test_a_payload_that_does_not_match_is_shown_as_such() -> None:
    head = RecordHead(RecordType.START, 0, 0, 0, 4, 0, 0, 0, 0, 0, 0, 0)
    other = block_of([(head, b"good"), (head, b"good")])
    table = bytearray(other.body)
    table[-1] ^= 1  # as if the block had been sealed with a wrong payload
    found = Block(other.head, memoryview(table))
    rows = RowFilter().rows(found)
    bad = bad_payloads(found, rows)
    assert bad == {640}
    assert [json.loads(line)["crc_ok"] for line in JsonLines({}).records(found, "a", rows, bad)] == [True, False]
    first, second = PeopleLines({}).records(found, "a", rows, bad)
    assert "CORRUPT" not in first
    assert "CORRUPT PAYLOAD" in second


def test_people_see_columns(store: Store, dump: Dump) -> None:
    store.name_queues("orders", "bills")
    message = store.put(b'said "hi"\n', 2)
    store.take(message, 2)
    store.journal.append(
        RecordType.ENQUEUE, message_id=message, undo_prev=message, queue_id=9, txn_id=5, time_us=0, extra=6
    )
    store.journal.append(RecordType.START, b"x" * 100, flags=Flag.MORE, message_id=OWN_LSN, time_us=2**64 - 1)
    store.journal.flush()
    complete = "2023-11-14T22:13:20.250000Z"
    columns = [
        (576, "log-open", "", "", complete, 0, "  extra 512"),
        (1088, "start+enqueue", "message 1088", "queue 2 bills", complete, 10, '  "said \\"hi\\"\\n"'),
        (1152, "dequeue+delete", "message 1088", "queue 2 bills", complete, 0, "  continues 1088"),
        (1216, "enqueue", "message 1088", "queue 9", "1970-01-01T00:00:00.000000Z", 0,
         "  txn 5  continues 1088  extra 6"),
        (1280, "start+more", "message 1280", "", "@18446744073709.551615Z", 100, f'  "{"x" * 32}"...'),
    ]  # fmt: skip
    assert dump(store.path).lines == [
        f"{lsn:>12}  {type:<14}  {message:<20}  {queue:<14}  {time}  {size:>5} B{rest}"
        for lsn, type, message, queue, time, size, rest in columns
    ]


def test_copies_and_holes_are_told(store: Store, dump: Dump) -> None:
    store.fill(6)
    size = store.journal.container_bytes
    copy = store.journal.append(
        RecordType.START, b"x", flags=Flag.ENQUEUE | Flag.MOVED, message_id=1088, undo_prev=1088, queue_id=1, time_us=0
    )
    end = store.journal.append(
        RecordType.DEQUEUE, flags=Flag.DELETE | Flag.MOVED, message_id=1088, undo_prev=1088, queue_id=1, time_us=0
    )
    store.journal.retire([1, 2, 4])
    store.journal.flush()
    lines = {int(line.split()[0]): line for line in dump(store.path).lines}
    assert "start+enqueue+moved" in lines[copy]
    assert "copied from 1088" in lines[copy]
    assert "dequeue+delete+moved" in lines[end]
    assert "continues 1088" in lines[end]
    [told] = [line for line in lines.values() if "log-holes" in line]
    assert told.endswith("without slots 1 to 2, 4")
    shown = dump(store.path, "--json").records
    assert {found["lsn"] // size for found in shown} == {0, 3, 5, 6}
    [found] = [found for found in shown if found["type"] == "log-holes"]
    told_holes = [(hole["first"], hole["slots"], hole["prev_lsn"] // size) for hole in found["holes"]]
    assert told_holes == [(1, 2, 0), (4, 1, 3)]
    assert dump(store.path).status == 0


def test_payload_option(store: Store, dump: Dump) -> None:
    store.put_flushed(b"0123456789" * 10)
    assert dump(store.path, "--payload", 3).lines[1].endswith('100 B  "012"...')
    assert dump(store.path, "--payload", 0).lines[1].endswith("100 B")
    assert dump(store.path, "--payload", "all").lines[1].endswith(f'100 B  "{"0123456789" * 10}"')
    assert "payload_base64" not in dump(store.path, "--json").records[1]
    assert dump(store.path, "--json", "--payload", 3).records[1]["payload_base64"] == "MDEy"
    complete = dump(store.path, "--json", "--payload", "all").records[1]["payload_base64"]
    assert base64.b64decode(complete) == b"0123456789" * 10


def test_queue_names_come_from_the_wiring(store: Store, dump: Dump) -> None:
    store.put_flushed(b"a")
    assert [found["queue"] for found in dump(store.path, "--json").records] == [None, None]
    store.name_queues('or"ders')
    assert [found["queue"] for found in dump(store.path, "--json").records] == [None, 'or"ders']
    assert [found["queue"] for found in dump(store.journal_path, "--json").records] == [None, 'or"ders']
    (store.path / "wiring.sqlite").write_bytes(b"broken" * 1000)
    broken = dump(store.path, "--json")
    assert (broken.lsns, broken.status) == (store.record_lsns(), 0)
    assert "queues are shown by number" in broken.err


def test_blocks_and_summary(store: Store, dump: Dump) -> None:
    first = store.put(b"abc")
    store.take(first)
    store.journal.flush()
    second = store.put_flushed(b"defg")[0]
    shown = dump(store.path, "--json", "--blocks").objects
    assert [next(iter(found)) for found in shown] == ["block", "lsn", "block", "lsn", "lsn", "block", "lsn", "end"]
    assert [found["block"] for found in shown if "block" in found] == [
        {
            "lsn": found.lsn, "container": "00000001.cairn", "records": found.head.records,
            "size_bytes": found.head.size_bytes, "padded_bytes": found.end_lsn - found.lsn,
            "prev_lsn": found.head.prev_lsn, "durable_lsn": found.head.durable_lsn, "base_lsn": 0, "incarnation": 1,
        }
        for found in store.blocks()
    ]  # fmt: skip
    assert [line.split()[1] for line in dump(store.path, "--blocks").lines].count("block") == 3
    assert dump(store.path, "--json", "--summary").objects == [{
        "summary": {
            "records": 4, "payload_bytes": 7, "first_lsn": 576, "last_lsn": second, "blocks": 3,
            "block_bytes": 3 * 512,
            "types": {
                "log-open": {"records": 1, "payload_bytes": 0},
                "start+enqueue": {"records": 2, "payload_bytes": 7},
                "dequeue+delete": {"records": 1, "payload_bytes": 0},
            },
            "corrupt": 0, "torn": 0, "damage": [],
        }
    }]  # fmt: skip
    text = dump(store.path, "--summary").out
    assert f"records from LSN 576 to {second}\nno damage\n" in text
    assert text.splitlines()[1].split() == ["start+enqueue", "2", "records", "7", "B", "of", "payload"]

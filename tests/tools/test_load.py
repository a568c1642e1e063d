"""Tests of load: a dump of the loaded store differs only in places, and another load and dump change nothing."""

from __future__ import annotations

import io
import json
import random
import tempfile
from array import array
from base64 import b64decode
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from cairnmq.analytics.scan.selection import Selection
from cairnmq.base.errors import CairnError
from cairnmq.base.testing.manual_clock import ManualClock
from cairnmq.journal.format.record import RecordType
from cairnmq.recovery.recover import open_store
from cairnmq.store.contract.dequeue_reason import DequeueReason
from cairnmq.store.contract.options import StoreOptions
from cairnmq.store.contract.wiring_rows import BindingRow, ExchangeRow
from cairnmq.store.journaled.acquire_records import taker
from cairnmq.store.journaled.store import JournalStore
from cairnmq.tools.history.history_view import HistoryView
from cairnmq.tools.inspect.dump import Totals
from cairnmq.tools.inspect.dump import dump as run_dump
from cairnmq.tools.inspect.evidence import open_evidence
from cairnmq.tools.inspect.lines import COMPLETE_PAYLOAD, JsonLines
from cairnmq.tools.inspect.row_filter import RowFilter, checked_types
from cairnmq.tools.load.load_lines import parse, wiring_line
from cairnmq.tools.load.loader import Result, load
from tests.harness.store.stores import NOW_US, come_to_rest, queue

SMALL = StoreOptions(1 << 17, min_container_bytes=1 << 17, reserve_bytes=0)
LOG = UUID(int=9 << 64)


def no_progress(what: str, done: int, total: int) -> None:
    """Ignore the progress."""


def opened(path: str, options: StoreOptions = SMALL) -> JournalStore:
    store, _ = open_store(path, ManualClock(), options)
    store.run_inline(store.became_durable)
    return store


def dumped(path: str, row_filter: RowFilter | None = None) -> str:
    """Return the output of `cairnmq dump --complete`."""
    evidence = open_evidence([path])
    out: list[str] = []
    lines = JsonLines(evidence.queue_names, COMPLETE_PAYLOAD)
    run_dump(evidence, row_filter or RowFilter(), lines, out.append, Totals())
    with HistoryView([path]) as past:
        return "".join([wiring_line(past.rows) + "\n", *out])


def loaded(lines: str, target: str, **options: Any) -> Result:
    options.setdefault("without_end", '{"end":' not in lines)
    return load(io.BytesIO(lines.encode()), target, ManualClock(), no_progress, log_uuid=LOG, **options)


def on_queues(path: str) -> dict[str, list[bytes]]:
    """Return the contents of the messages on each queue, in order."""
    store = opened(path)
    names = {row.id: row.name for row in store.queues()}
    found = {
        names.get(queue_id, str(queue_id)): [
            b"".join(store.load_piece(one, number) for number in range(store.piece_count(one))) for one in ids
        ]
        for queue_id, ids in store.messages().items()
    }
    store.close()
    return found


def ranked(lines: str) -> list[dict[str, Any]]:
    """Return the records as a load keeps them: with ranks for LSNs, and without places."""
    records = [json.loads(line) for line in lines.splitlines() if line.startswith('{"lsn"')]
    records = [one for one in records if not one["type"].startswith("log-")]
    parsed = [parse(1, json.dumps(one).encode()) for one in records]
    named = {lsn for one in parsed for lsn in (one.lsn, *one.references())}  # type: ignore[union-attr]
    rank = {0: 0} | {lsn: number for number, lsn in enumerate(sorted(named), 1)}
    shown = []
    for one, line in zip(parsed, records, strict=True):
        for place in ("block_lsn", "container"):
            del line[place]
        for name in ("lsn", "undo_prev", "message_id", "txn_id"):
            line[name] = rank[line[name]]
        if one.extra_is_lsn:  # type: ignore[union-attr]
            line["extra"] = rank[line["extra"]]
        payload = b64decode(line["payload_base64"])
        if one.lists_messages or one.lists_operations:  # type: ignore[union-attr]
            mask = 0 if one.lists_messages else 1  # type: ignore[union-attr]
            line["payload_base64"] = [(rank[lsn & ~mask], lsn & mask) for lsn in array("Q", payload)]
        elif one.lists_acquired:  # type: ignore[union-attr]
            size = 8 * one.extra  # type: ignore[union-attr]
            line["payload_base64"] = [rank[lsn] for lsn in array("Q", payload[:size])], payload[size:]
            line["acquired"]["message_ids"] = [rank[lsn] for lsn in line["acquired"]["message_ids"]]
        shown.append(line)
    return shown


def without_own_times(lines: str) -> list[Any]:
    found = [json.loads(line) for line in lines.splitlines()]
    return [{**one, "time_us": 0} if one.get("type", "").startswith("log-") else one for one in found]


def history(path: str, rng: random.Random, steps: int) -> None:
    """Write random traffic: short and long messages, transactions, purges, restarts, and enough data for compaction."""
    store = opened(path)
    queues = [queue(store, name) for name in ("orders", "bills")]
    on: dict[int, list[int]] = {one: [] for one in queues}
    for number in range(steps):
        one = rng.choice(queues)
        what = rng.randrange(9)
        if what < 3:
            for _ in range(rng.randrange(1, 6)):
                on[one].append(store.put(one, rng.randbytes(rng.choice((0, 50, 20_000, 70_000))), NOW_US)[0])
        elif what == 3 and on[one]:
            for message_id in rng.sample(on[one], rng.randrange(len(on[one]))):
                store.dequeue(message_id, one, NOW_US, rng.choice(list(DequeueReason)))
                on[one].remove(message_id)
        elif what == 4:
            tx = store.transactions.begin(NOW_US, xid=b"x%d" % number if rng.random() < 0.6 else b"")
            taken = on[one][:2]
            for message_id in taken:
                tx.dequeue(message_id, one, NOW_US, DequeueReason.ACCEPTED)
            tx.put(one, b"in a transaction", NOW_US)
            if tx.xid:
                tx.prepare(NOW_US)
            if tx.xid and rng.random() < 0.3:
                tx.decide(NOW_US, commit=True)
                on[one] = [*on[one][len(taken) :], *tx.message_ids]
            elif rng.random() < 0.7:
                tx.commit(NOW_US)
                on[one] = [*on[one][len(taken) :], *tx.message_ids]
            elif not tx.xid or rng.random() < 0.5:
                tx.rollback(NOW_US)
            else:
                on[one] = on[one][len(taken) :]  # the transaction stays prepared
        elif what == 5 and rng.random() < 0.3:
            store.purge(one, NOW_US)
            on[one] = []
        elif what == 7 and on[one]:
            store.note_acquired(one, taker("client", f"link {number}"), on[one][:3], NOW_US)
        elif what == 6:
            store.kick()
            store.close()
            store = opened(path)
        else:
            come_to_rest(store)
    store.kick()
    store.close()


@settings(max_examples=6, phases=(Phase.explicit, Phase.reuse, Phase.generate))
@given(st.integers(0, 1 << 32), st.integers(5, 25))
def test_a_dump_that_is_loaded_and_dumped_is_the_same_but_for_places(seed: int, steps: int) -> None:
    with tempfile.TemporaryDirectory() as place:
        first, second, third = f"{place}/1", f"{place}/2", f"{place}/3"
        history(first, random.Random(seed), steps)
        one = dumped(first)
        made = loaded(one, second)
        two = dumped(second)
        assert made.records == len(ranked(one))
        assert ranked(two) == ranked(one)
        loaded(two, third)
        assert without_own_times(dumped(third)) == without_own_times(two)
        assert on_queues(second) == on_queues(first)


@pytest.mark.parametrize(
    "row_filter",
    [RowFilter(labels=checked_types(["dequeue"])), RowFilter(labels=checked_types(["enqueue"])),
     RowFilter(Selection(queue_ids=(2,))), RowFilter(Selection(300_000))],
)  # fmt: skip
def test_a_part_of_a_dump_keeps_the_order_of_what_it_refers_to(row_filter: RowFilter, tmp_path: Path) -> None:
    first = str(tmp_path / "1")
    store = opened(first)
    one, other = queue(store, "a"), queue(store, "b")
    ids = [store.put(one, b"%d" % number, NOW_US)[0] for number in range(200)]
    for message_id in ids[::2]:
        store.enqueue(message_id, other, NOW_US)
    for message_id in ids:
        store.dequeue(message_id, one, NOW_US)
    store.put(one, bytes(300_000), NOW_US)
    store.close()
    some = dumped(first, row_filter)
    made = loaded(some, str(tmp_path / "2"))
    two = dumped(str(tmp_path / "2"))
    assert ranked(two) == ranked(some)
    assert made.unknown >= 1
    loaded(two, str(tmp_path / "3"))
    assert without_own_times(dumped(str(tmp_path / "3"))) == without_own_times(two)


def test_the_wiring_comes_along_and_a_store_can_be_written_by_hand(tmp_path: Path) -> None:
    path = str(tmp_path / "1")
    store = opened(path)
    made: list[Any] = []
    store.create_queue("orders", made.append, {"max-messages": 7})
    store.create_exchange("news", "topic", made.append)
    orders, news = made
    assert isinstance(news, ExchangeRow)
    store.bind(BindingRow(news.id, orders.id, "#"), made.append)
    store.create_config("limits", {"a": [1]}, made.append)
    store.close()
    lines = dumped(path)
    by_hand = {"lsn": 10, "type": "start", "flags": ["enqueue"], "message_id": 10, "queue_id": orders.id,
               "payload_text": "by häñd", "time_us": 5}  # fmt: skip
    *before, end = lines.splitlines()
    made_by_hand = loaded("\n".join([*before, json.dumps(by_hand), end]), str(tmp_path / "2"))
    assert made_by_hand.left_out == -1
    with HistoryView([path]) as one, HistoryView([str(tmp_path / "2")]) as two:
        assert one.rows == two.rows
        assert two.rows.queues[0].arguments == {"max-messages": 7}
        assert two.rows.configs[0].settings == {"a": [1]}
    assert on_queues(str(tmp_path / "2")) == {"orders": ["by häñd".encode()]}
    loaded(json.dumps({**by_hand, "queue": "no wiring"}), str(tmp_path / "3"))
    assert on_queues(str(tmp_path / "3")) == {"no wiring": ["by häñd".encode()]}
    loaded(json.dumps(by_hand), str(tmp_path / "4"), plain=True)
    assert {one.name.rpartition(".")[2] for one in (tmp_path / "4").iterdir()} == {"cairn", "mark"}


def _start(**more: object) -> str:
    line = {"lsn": 640, "type": "start", "flags": ["enqueue"], "message_id": 640, "queue_id": 1, "payload_text": "x"}
    return json.dumps({**line, **more})


@pytest.mark.parametrize(
    ("line", "says"),
    [
        ("{", "invalid JSON"),
        ("[" * 100_000, "JSON"),
        ("[]", "not a JSON object"),
        ('{"a": 1}', "neither a record nor a wiring"),
        (_start(type="stert"), "no record type 'stert'"),
        (_start(type=["start"]), "type is ['start']: expected `str`"),
        (_start(lsn=-1), "lsn is -1"),
        (_start(lsn=0), "no record has LSN 0"),
        (_start(lsn=True), "lsn is True"),
        (_start(time_us=1 << 64), "not a 64-bit integer"),
        (_start(flags=["enqueued"]), "flags are ['enqueued']"),
        (_start(flags="enqueue"), "flags is 'enqueue': expected `array`"),
        (_start(reason="accepted"), "reason is 'accepted'"),
        (_start(queue=7), "queue is 7: expected `str | null`"),
        (_start(crc_ok=False), "damaged when it was dumped"),
        (_start(payload_base64="AA=="), "both a payload_base64 and a payload_text"),
        (_start(payload_text=None, size_bytes=5), "dump with --complete"),
        (_start(payload_text=None, payload_base64="A"), "payload_base64 is 'A': invalid base64"),
        (_start(payload_text=5), "payload_text is 5: expected `str | null`"),
        (_start(size_bytes=2), "size_bytes is 2, the payload has 1"),
        (_start(payload_text="x" * 65_537), "65536 are allowed"),
        (_start(undo_prev=641), "not before its own"),
        (_start(undo_prev=640), "not before its own"),  # A9
        (_start(type="queue-delete", payload_text=None, payload_base64="gAIAAAAAAAA="), "not before its own"),
        (_start(message_id=0), "needs a message_id"),
        (_start(type="queue-delete"), "not a list of LSNs"),
        (_start(lsn=576, message_id=576), "does not rise"),
        (_start(queue="other name"), "called 'other name'"),
        ('{"wiring": {"queues": [{"id": 0, "name": "q"}]}}', "the wiring is not right"),
        ('{"wiring": {"queues": [{"id": 1}]}}', "the wiring is not right"),
        ('{"wiring": []}', "the wiring is not right"),
    ],
)  # fmt: skip
def test_a_wrong_line_is_told_by_number_and_nothing_is_made(line: str, says: str, tmp_path: Path) -> None:
    good = json.dumps({**json.loads(_start()), "lsn": 576, "message_id": 576, "queue": "q"})
    with pytest.raises(CairnError, match=r"^line 3: ") as raised:
        loaded(f"{good}\n\n{line}\n", str(tmp_path / "new"))
    assert says in str(raised.value)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    "lines",
    [
        '{"wiring": {"queues": [{"id": 1, "name": "q"}, {"id": 2, "name": "q"}]}}',
        '{"wiring": {"queues": [], "bindings": [{"exchange_id": 1, "queue_id": 2, "key": ""}]}}',
        '{"lsn": 64, "type": "dtx-start", "txn_id": 64}\n'
        '{"lsn": 128, "type": "tx-prepare", "txn_id": 64, "undo_prev": 64, "extra": 3}',
    ],
)
def test_what_is_no_store_is_refused_and_nothing_is_made(lines: str, tmp_path: Path) -> None:
    with pytest.raises(CairnError):
        loaded(lines, str(tmp_path / "new"))
    assert not list(tmp_path.iterdir())


def test_nothing_is_replaced_and_damage_is_told(tmp_path: Path) -> None:
    for name in ("new", "new.loading"):
        (tmp_path / name).mkdir()
        with pytest.raises(CairnError, match="another directory"):
            loaded(_start(), str(tmp_path / "new"))
        (tmp_path / name).rmdir()
    made = loaded(_start() + '\n{"damage": {}}\n{"summary": {}}\n{"block": {}}', str(tmp_path / "new"))
    assert (made.records, made.messages, made.damaged) == (1, 1, 1)


def test_a_dump_that_was_cut_anywhere_makes_nothing(tmp_path: Path) -> None:
    path = str(tmp_path / "1")
    store = opened(path)
    for number in range(20):
        store.put(queue(store, f"q{number}"), b"%d" % number, NOW_US)
    store.close()
    complete = dumped(path)
    for end in {0, 1, *range(0, len(complete) - 1, 97), complete.rindex("\n", 0, -1), complete.rindex("\n", 0, -1) + 1}:
        with pytest.raises(CairnError):
            load(io.BytesIO(complete[:end].encode()), str(tmp_path / "new"), ManualClock(), no_progress)
        assert not (tmp_path / "new").exists()
    assert loaded(complete, str(tmp_path / "new")).left_out == 0
    cut = complete[: complete.rindex("\n", 0, -1) + 1]
    assert loaded(cut, str(tmp_path / "asked for"), without_end=True).messages == 20
    for nothing in ("", "\n \n"):
        with pytest.raises(CairnError, match="there are none"):
            loaded(nothing, str(tmp_path / "none"), without_end=True)
    without_one = "".join(line for line in complete.splitlines(keepends=True) if '"queue":"q7"' not in line)
    made = loaded(without_one, str(tmp_path / "by hand"))
    assert (made.left_out, made.messages) == (1, 19)
    with pytest.raises(CairnError, match="behind the end of the dump"):
        loaded(complete + cut, str(tmp_path / "two"))


def test_every_type_of_record_is_known() -> None:
    for kind in RecordType:
        name = kind.name.lower().replace("_", "-")
        payload = {"payload_text": "\0\0"} if kind == RecordType.ACQUIRE else {}
        found = parse(1, json.dumps({"lsn": 64, "type": name, "message_id": 64, **payload}).encode())
        assert found.type == kind  # type: ignore[union-attr]



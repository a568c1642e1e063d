"""Tests of `cairnmq stat` and `cairnmq explain`: their figures are those of an open store, and the remedies work."""

from __future__ import annotations

import json
import os
import random
import shlex
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from proton import Delivery, Message
from proton.utils import BlockingConnection

from cairnmq.base.testing.memory_disk import MemoryDirectory
from cairnmq.cli.store.log_map import COLUMNS, ROWS, log_map
from cairnmq.journal.read.scanner import Damage
from cairnmq.recovery.replay import Replay
from cairnmq.store import open_store as open_library
from cairnmq.store.contract.options import StoreOptions
from cairnmq.store.message_map.reconciliation import reconcile
from cairnmq.store.message_map.state import State
from cairnmq.store.reclaim.slot_holders import SlotHolders
from cairnmq.tools.explain.explain import freed_with
from cairnmq.tools.explain.overview import overview_of
from cairnmq.tools.explain.stat import SlotStat
from cairnmq.tools.history.heads_only import HeadsReader
from cairnmq.tools.history.queue_totals import queue_totals
from tests.harness.clients.peers import Peer
from tests.harness.process import CAIRNMQ, DEADLINE_S, broker
from tests.harness.recovery.shards import begin

from .conftest import Dump, Store

Snapshot = Callable[[Path], dict[str, tuple[int, bytes]]]
KIB = 1 << 10
CTL = "cairnmq ctl --url amqp://127.0.0.1:5672"


@pytest.fixture
def lived(tmp_path: Path) -> Path:
    """Create a store whose log has an old message in front, many dead records, and a transaction in doubt."""
    path = tmp_path / "lived"
    with open_library(str(path), options=StoreOptions(container_bytes=512 << 10)) as store:
        orders, bills = store.queue("orders"), store.queue("bills; rm -rf /")
        bills.put(b"the first one").result()
        for number in range(60):
            orders.put(b"%06d" % number * 5000).result()
        taken = [orders.take() for _ in range(40)]
        for message in taken:
            assert message is not None
            message.accept().result()
        prepared = store.transaction(xid=b"\x01\x02")
        prepared.put(bills, b"in doubt")
        prepared.prepare().result()
    return path


def test_stat_tells_what_is_there(lived: Path, command: Dump, snapshot: Snapshot) -> None:
    before = snapshot(lived)
    found = command("stat", lived, "--json")
    told = json.loads(found.out)
    assert (found.status, told["complete"]) == (0, True)
    queues = {queue["queue"]: queue for queue in told["queues"]}
    assert (queues["orders"]["messages"], queues["orders"]["bytes"]) == (20, 20 * (30_000 + 64))
    assert queues["bills; rm -rf /"]["messages"] == 1
    assert 0 < queues["orders"]["oldest_age_s"] < queues["bills; rm -rf /"]["oldest_age_s"]
    log = told["log"]
    assert log["types"]["dequeue"] == 40
    assert log["types"]["dtx-start"] == 1
    assert log["live_bytes"] == sum(one["live_bytes"] for one in told["containers"])
    assert log["read_bytes"] > 0
    assert sum(one["records"] for one in told["containers"]) == log["records"]
    assert snapshot(lived) == before
    shown = command("stat", lived, "--containers")
    assert shown.status == 0
    assert shown.lines[0].startswith("B")
    assert any(line.startswith("orders ") for line in shown.lines)


@settings(max_examples=30)
@given(number=st.integers(0, 11), complete_below_bytes=st.sampled_from([0, 16 << 10]), data=st.data())
def test_heads_alone_tell_as_much_as_the_whole_log(number: int, complete_below_bytes: int, data: st.DataObject) -> None:
    """Record headers alone yield the same state as the complete log."""
    world = lives(number)
    moment = world[data.draw(st.integers(0, len(world) - 1))]
    reader = HeadsReader(moment, complete_below_bytes=complete_below_bytes)
    complete = Replayed(HeadsReader(moment), by_whole=True)
    assert vars(Replayed(reader, by_whole=False)) == vars(complete)


def lives(number: int) -> list[MemoryDirectory]:
    if number not in _lives:
        _lives[number] = [one.disk for one in begin(17, number)[1].moments if "log.mark" in one.disk.names()]
    return _lives[number]


_lives: dict[int, list[MemoryDirectory]] = {}


def replayed(reader: HeadsReader) -> State:
    """Return the state that the blocks before the first damage make."""
    state = State(reader.container_bytes)
    replay = Replay(state, "", reader.container_bytes)
    for found in reader.scan():
        if isinstance(found, Damage):
            break
        replay.take(found)
    replay.apply()
    reconcile(state, dict.fromkeys(reader.slots, 0))
    return state


class Replayed:
    """The state that the blocks of a reader make, for comparison."""

    def __init__(self, reader: HeadsReader, *, by_whole: bool) -> None:
        if by_whole:
            reader._look = lambda lsn: None  # type: ignore[method-assign]
        state = replayed(reader)
        self.pages, self.moved, self.live = state.pages, state.moved, state.pins.live
        self.detailed = {key: (one.start, one.pieces, one.queues, one.last) for key, one in state.detailed.items()}
        self.in_doubt = [*state.outcomes.prepared], [*state.outcomes.decided]
        self.slots, self.end_lsn = reader.slots, reader.end_lsn


def test_damage_is_passed_by_and_told(store: Store, command: Dump) -> None:
    store.name_queues("orders")
    store.fill(3)
    store.journal.close()
    lsn = 512 * 1024 + 512
    store.overwrite(lsn, bytes(64))
    for verb in (["stat"], ["explain", "tail"], ["explain", "space"]):
        found = command(*verb, store.path)
        assert found.status == 1, verb
        assert f"to {lsn + 60_416}: can't be read (nothing was written there)" in found.out, found.out


def test_what_was_read_is_told_exactly(store: Store, command: Dump, monkeypatch: pytest.MonkeyPatch) -> None:
    """The figure counts all bytes that are read from the journal's files, and none that Python itself reads."""
    store.fill(3)
    store.journal.close()
    real, got = os.pread, [0]

    def counted(fd: int, size: int, offset: int) -> bytes:
        found: bytes = real(fd, size, offset)
        got[0] += len(found) if os.readlink(f"/proc/self/fd/{fd}").startswith(str(store.journal_path)) else 0
        return found

    monkeypatch.setattr(os, "pread", counted)
    told = [json.loads(command("stat", store.path, "--json").out)["log"]["read_bytes"] for _ in range(2)]
    monkeypatch.undo()
    assert 0 < told[0] == told[1] == got[0] / 2


def test_what_is_no_store(tmp_path: Path, command: Dump) -> None:
    for verb in (["stat"], ["explain", "tail"], ["explain", "space"]):
        found = command(*verb, tmp_path / "nowhere")
        assert (found.status, found.out, len(found.err.splitlines())) == (2, "", 1)
        assert f"{tmp_path}/nowhere: no such directory; name a store directory" in found.err


def test_a_map_is_as_large_as_a_terminal() -> None:
    for count in (1, COLUMNS, COLUMNS * ROWS, COLUMNS * ROWS + 1, 100_000):
        lines = log_map([SlotStat(slot, live_bytes=slot % 5 * 25) for slot in range(count)], 100)
        assert len(lines) <= ROWS + 1
        assert all(len(line.plain) <= COLUMNS for line in lines[:-1])
        cells = "".join(line.plain for line in lines[:-1])
        assert cells.endswith("E")
        assert count == 1 or cells.startswith("B")
    with_hole = log_map([SlotStat(1), SlotStat(5, live_bytes=100), SlotStat(6)], 100)
    assert with_hole[0].plain == "B·█E"


# ---- the tail -------------------------------------------------------------------------------------------------------


def test_what_pins_the_tail(lived: Path, command: Dump, snapshot: Snapshot) -> None:
    before = snapshot(lived)
    told = json.loads(command("explain", "tail", lived, "--json").out)
    [pin] = [pin for pin in told["pins"] if pin["kind"] == "message"]
    assert pin["queues"] == ["bills; rm -rf /"]
    assert pin["size_bytes"] == len("the first one")
    assert pin["inspections"] == told["inspections"] == [f"{CTL} queues peek 'bills; rm -rf /'"]
    assert f"{CTL} queues purge 'bills; rm -rf /'" in pin["remedies"]
    assert not any("peek" in one for one in told["remedies"]), "it releases nothing"
    assert told["by_queue"] == {"bills; rm -rf /": 1}
    assert told["freed_bytes"] >= 512 << 10
    assert any("compaction" in line for line in told["by_itself"])
    assert snapshot(lived) == before
    shown = command("explain", "tail", lived)
    assert "held by 1 message" in shown.out
    inspect, remedies = shown.out.index("to inspect them:"), shown.out.index("remedies (purge removes all")
    assert inspect < shown.out.index(" queues peek ") < remedies < shown.out.index(" queues purge ")


def test_a_transaction_pins_the_tail(tmp_path: Path, command: Dump) -> None:
    path = tmp_path / "store"
    with open_library(str(path), options=StoreOptions(container_bytes=512 << 10)) as store:
        orders = store.queue("orders")
        prepared = store.transaction(xid=b"\xab\x01")
        prepared.put(orders, b"in doubt")
        prepared.prepare().result()
        for _ in range(30):
            orders.put(bytes(30_000)).result()
        orders.purge().result()
    told = json.loads(command("explain", "tail", path, "--json").out)
    pins = {pin["kind"]: pin for pin in told["pins"]}
    assert pins["transaction"]["xid"] == "ab01"
    assert (pins["transaction"]["state"], pins["transaction"]["operations"]) == ("prepared", 1)
    assert pins["transaction"]["remedies"] == [
        f"{CTL} transactions {verb} ab01" for verb in ("commit", "rollback")
    ]  # fmt: skip
    assert any(line.startswith("transactions in doubt") for line in command("explain", "space", path).lines)


@settings(max_examples=20)
@given(st.integers(0, 11), st.data())
def test_whatever_is_needed_is_held_by_something_with_a_name(number: int, data: st.DataObject) -> None:
    """The slots that would be freed with a slot have no live records, and only freed slots hold them."""
    world = lives(number)
    reader = HeadsReader(world[data.draw(st.integers(0, len(world) - 1))])
    state = replayed(reader)
    holders = SlotHolders(state, reader.container_bytes)
    for slot in reader.slots:
        assert bool([*holders.of(slot)]) == state.pins.is_needed(slot), slot
    for slot in reader.slots:
        freed = freed_with(state.pins, slot)
        for other in freed - {slot}:
            assert other not in state.pins.live
            assert set(state.pins.tombstones[other]) <= freed


def test_the_space(lived: Path, command: Dump) -> None:
    told = json.loads(command("explain", "space", lived, "--json").out)
    on_disk = sum(one.stat().st_blocks * 512 for one in lived.rglob("*") if one.is_file())
    assert told["total_bytes"] == sum(part["bytes"] for part in told["parts"]) == on_disk
    assert told["queues"][0]["queue"] == "orders"


@pytest.fixture
def running(tmp_path: Path) -> Iterator[Any]:
    with broker(tmp_path / "data") as found:
        yield found


def test_beside_a_broker_the_remedies_work(running: Any, tmp_path: Path, command: Dump) -> None:
    connection = BlockingConnection(f"127.0.0.1:{running.port}", timeout=DEADLINE_S)
    connection.create_sender("orders").send(Message(id="cairn 7", body="x" * KIB, durable=True))
    url = f"amqp://127.0.0.1:{running.port}"
    told = json.loads(command("explain", "tail", tmp_path / "data", "--url", url, "--json").out)
    [pin] = [pin for pin in told["pins"] if pin["kind"] == "message"]
    assert pin["message_id"] == "cairn 7"
    for remedy in (*pin["inspections"], pin["remedies"][0]):
        _, *rest = shlex.split(remedy)
        assert rest[:3] == ["ctl", "--url", url]  # U6
        call = [CAIRNMQ, *rest, *(["--yes"] if "purge" in rest else [])]
        done = subprocess.run(call, capture_output=True, text=True, timeout=DEADLINE_S)
        assert done.returncode == 0, (remedy, done.stderr)
    assert done.stdout == "purged 1 message from queue orders\n"
    assert not json.loads(command("explain", "tail", tmp_path / "data", "--json").out)["by_queue"]
    assert "nothing while no broker runs" not in command("explain", "tail", tmp_path / "data").out
    connection.close()


def test_the_sight_of_a_store_is_what_a_start_finds(tmp_path: Path) -> None:
    """The overview is correct both from a checkpoint and from record headers alone."""
    rng = random.Random(4)
    path = str(tmp_path / "store")
    options = StoreOptions(container_bytes=512 << 10, checkpoint_bytes=600_000)
    for _ in range(3):
        with open_library(path, options=options) as store:
            queues = [store.queue(name) for name in "abc"]
            for _ in range(100):
                queue = rng.choice(queues)
                queue.put(rng.randbytes(rng.randrange(1, 90_000))).result()
                if rng.random() < 0.7 and (message := rng.choice(queues).take()) is not None:
                    message.accept().result()
            expected = {queue.name: len(list(queue.peek())) for queue in queues}
        for name in ("checkpoint", "heads"):
            seen = overview_of(path, lambda *_: None)
            assert (seen.checkpoint_lsn > 0) == (name == "checkpoint")
            totals = {seen.name_of(one.queue_id): one.messages for one in queue_totals(seen.state)}
            assert totals == {queue: count for queue, count in expected.items() if count}
            if name == "checkpoint":
                (tmp_path / "store" / "checkpoint").rename(tmp_path / "aside")
        (tmp_path / "aside").rename(tmp_path / "store" / "checkpoint")


def test_the_consumer_of_what_pins_the_log_is_named_where_it_is_written_down(tmp_path: Path, command: Dump) -> None:
    """The last consumer since the broker's start is named, and none after a restart or without delivery tracking."""
    place = tmp_path / "data"

    def takers() -> list[tuple[str, str] | None]:
        found = json.loads(command("explain", "tail", place, "--json").out)
        by = [pin.get("acquired") for pin in found["pins"] if pin["kind"] == "message"]
        return [None if one is None else (one["container"], one["link"]) for one in by]

    with broker(place, "--journal-acquisitions") as running:
        first, second = Peer(running.port, container="depot"), Peer(running.port, container="shop")
        first.send(first.sender("orders"), *[Message(id=f"m{n}", body=n, durable=True) for n in range(3)])
        first.take(first.receiver("orders", 2, name="one"), 2)[1].settle(Delivery.RELEASED)
        first.settle_down()
        second.take(second.receiver("orders", 1, name="two"), 1)
        second.settle_down()
        limit_s = time.monotonic() + DEADLINE_S
        while takers() != [("depot", "one"), ("shop", "two"), None]:  # they are written within a second
            assert time.monotonic() < limit_s, takers()
            time.sleep(0.05)
        assert "handed to depot/one at 2" in command("explain", "tail", place).out
        first.cut()
        second.cut()
        assert running.stop() == 0
    with broker(place, "--journal-acquisitions") as running:
        assert running.stop() == 0
    assert takers() == [None] * 3
    with broker(place) as running:
        assert running.stop() == 0
    assert takers() == [None] * 3

"""Tests of `cairnmq as-of` on stores on a disk: its output, restores, refusals and reports."""

from __future__ import annotations

import errno
import json
import os
import re
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from crc32c import crc32c

from cairnmq.base.clock import SystemClock
from cairnmq.base.disk.real import RealDirectory
from cairnmq.base.errors import CairnError
from cairnmq.base.testing.manual_clock import ManualClock
from cairnmq.journal.format import container
from cairnmq.journal.format.block import BLOCK_HEAD_BYTES, Block
from cairnmq.recovery.recover import open_store
from cairnmq.store import open_store as open_library
from cairnmq.store.contract.dequeue_reason import DequeueReason
from cairnmq.store.contract.options import StoreOptions
from cairnmq.store.embedded.library import Store as Library
from cairnmq.store.journaled.store import JournalStore
from cairnmq.tools.history.history import find_history
from cairnmq.tools.inspect.point_in_time import parse_point_in_time, time_words
from tests.harness.process import CAIRNMQ, DEADLINE_S
from tests.harness.store.stores import queue

from .conftest import Dump, Result

START_US = 1_700_000_000_000_000


class Filled:
    """A store with an archive and an advanced log: ten messages a minute, half of which are dequeued later."""

    def __init__(self, path: Path) -> None:
        self.path, self.archive = path / "store", path / "archive"
        self.clock = ManualClock(START_US / 1e6)
        self.store = self.open()
        self.orders, self.bills = queue(self.store, "orders"), queue(self.store, "bills")
        self.ids: list[int] = []
        self.points: list[int] = []
        for minute in range(8):
            now_us = START_US + minute * 60_000_000
            for number in range(10):
                self.ids.append(self.store.put(self.orders, b"%d" % (10 * minute + number) * 20_000, now_us)[0])
            self.store.kick()
            self.points.append(self.store.next_lsn)
            self.clock.advance(30)
            for message_id in self.ids[10 * minute : 10 * minute + 5]:
                self.store.dequeue(message_id, self.orders, now_us + 30_000_000, DequeueReason.ACCEPTED)
            self.store.kick()
            self.clock.advance(30)
        self.store.put(self.bills, b"a bill", now_us + 40_000_000)
        self.store.purge(self.orders, now_us + 50_000_000)
        self.store.kick()
        self.end = self.store.next_lsn
        self.store.close()

    def open(self) -> JournalStore:
        store, _ = open_store(str(self.path), self.clock, StoreOptions(archive_dir=str(self.archive)))
        store.run_inline(store.became_durable)
        return store

    def expected(self, minute: int) -> list[int]:
        """Return the messages on orders after those of *minute* have arrived."""
        ids = enumerate(self.ids[: 10 * (minute + 1)])
        return [one for number, one in ids if number // 10 == minute or number % 10 > 4]


@pytest.fixture(scope="module")
def filled(tmp_path_factory: pytest.TempPathFactory) -> Filled:
    return Filled(tmp_path_factory.mktemp("history"))


def shown(result: Result, name: str = "orders") -> list[int]:
    return [one["message_id"] for one in result.objects if one.get("queue") == name]


@pytest.mark.parametrize("minute", [0, 3, 7])
def test_by_lsn_and_by_time(filled: Filled, command: Dump, minute: int) -> None:
    when = time_words(START_US + minute * 60_000_000 + 1_000_000)
    for moment in (filled.points[minute], when):
        found = command("as-of", filled.path, filled.archive, moment, "--json")
        assert (shown(found), found.status, found.err) == (filled.expected(minute), 0, "")
        head = found.objects[0]["as_of"]
        assert (head["complete"], head["queues"]) == (True, {"orders": len(filled.expected(minute))})
    people = command("as-of", filled.path, filled.points[minute], "--archive-dir", filled.archive, "--count", 2)
    assert str(filled.expected(minute)[0]) in people.out
    assert "ready" in people.out


def test_the_end_is_what_recovery_finds_and_nothing_is_written(
    filled: Filled, command: Dump, snapshot: Callable[[Path], object]
) -> None:
    before = snapshot(filled.path)
    found = command("as-of", filled.path, "end", "--json")
    assert (shown(found), len(shown(found, "bills"))) == ([], 1)
    assert snapshot(filled.path) == before


def test_a_difference_says_what_came_and_why_what_went(filled: Filled, command: Dump) -> None:
    first, last = filled.points[2], filled.points[4]
    found = command("as-of", filled.path, filled.archive, "--diff", first, last, "--json", "--queue", "orders")
    went = {one["message_id"]: one["reason"] for one in found.objects if one.get("change") == "removed"}
    came = [one["message_id"] for one in found.objects if one.get("change") == "added"]
    arrivals = [(one["lsn"], one["time_us"], one["reason"]) for one in found.objects if one.get("change") == "added"]
    assert all(first <= lsn < last for lsn, *_ in arrivals)
    assert {reason for *_, reason in arrivals} == {"arrived"}
    assert {time_us for _, time_us, _ in arrivals} == {START_US + minute * 60_000_000 for minute in (3, 4)}
    people = command("as-of", filled.path, filled.archive, "--diff", first, last, "--queue", "orders").out
    assert re.search(rf"\+.*{came[0]}.*{arrivals[0][0]}.*2023-11-14.*arrived", people)
    assert set(filled.expected(2)) - set(went) | set(came) == set(filled.expected(4))
    assert set(went.values()) == {"accepted"}
    assert found.objects[-1]["changes"] == {"added": 15, "removed": 5, "passed": 5}
    purged = command("as-of", filled.path, filled.archive, "--diff", filled.points[7], "end", "--json")
    assert [one["reason"] for one in purged.objects if one.get("change") == "removed"].count("purged") == 40
    assert "purged" in command("as-of", filled.path, filled.archive, "--diff", filled.points[7], "end").out
    assert "exchange them" in command("as-of", filled.path, filled.archive, "--diff", last, first).err


def test_difference_shows_no_table_for_messages_that_came_and_went(tmp_path: Path, command: Dump) -> None:
    store, _ = open_store(str(tmp_path / "store"), SystemClock(), StoreOptions())
    store.run_inline(store.became_durable)
    orders = queue(store, "orders")
    begin = store.next_lsn
    message_id, _ = store.put(orders, b"an order", START_US)
    store.dequeue(message_id, orders, START_US, DequeueReason.ACCEPTED)
    store.close()
    out = command("as-of", tmp_path / "store", "--diff", begin, "end").out
    assert "added and removed" in out
    assert "at LSN" not in out


def test_what_was_purged_is_restored(filled: Filled, command: Dump, tmp_path: Path) -> None:
    target = tmp_path / "restored"
    arguments = ("as-of", filled.path, filled.archive, filled.points[7], "--restore", target, "--json")
    found = command(*arguments)
    assert found.objects[-1]["restored"]["queues"] == {"orders": 45}
    with open_library(str(target)) as store:
        assert isinstance(store, Library)
        assert [len(content) for content in store.queue("orders").peek()] == [
            20_000 * len(str(number)) for number in (filled.ids.index(one) for one in filled.expected(7))
        ]
    again = command(*arguments)
    assert (again.status, "it exists already" in again.err) == (2, True)
    assert not list(tmp_path.glob("*.restoring"))


def test_a_full_disk_leaves_nothing_half(
    filled: Filled, command: Dump, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def no_room(source: object, target: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "rename", no_room)
    found = command("as-of", filled.path, filled.archive, filled.points[1], "--restore", tmp_path / "new")
    monkeypatch.undo()
    assert (found.status, list(tmp_path.iterdir())) == (2, [])
    assert "No space left" in found.err


def test_history_that_is_gone_is_refused_or_marked(filled: Filled, command: Dump) -> None:
    removed = command("as-of", filled.path, filled.points[0])
    assert removed.status == 1
    whole_from = re.search(r"history is complete from LSN (\d+) on", removed.err)
    assert whole_from is not None
    assert command("as-of", filled.path, whole_from[1], "--json").objects[0]["as_of"]["complete"]


def test_what_is_missing_or_rotten_is_marked(filled: Filled, command: Dump, tmp_path: Path) -> None:
    files = sorted(filled.archive.iterdir())
    for name in files:
        (tmp_path / name.name).write_bytes(name.read_bytes())
    victim = tmp_path / files[0].name
    victim.unlink()
    for lsn in filled.points[:6]:
        found = command("as-of", tmp_path, lsn, "--json")
        if found.status == 0:
            continue
        partial = command("as-of", tmp_path, lsn, "--json", "--partial")
        if partial.out:
            assert (partial.status, partial.objects[0]["as_of"]["complete"]) == (1, False)
            assert set(shown(partial)) <= set(filled.ids)
            break
    else:
        raise AssertionError("nothing was partial")
    data = bytearray(files[0].read_bytes())
    data[100_000] ^= 1
    victim.write_bytes(data)
    rotten = command("as-of", tmp_path, filled.points[0], "--json")
    assert (rotten.status, rotten.objects[0]["as_of"]["complete"]) == (1, False)
    assert "checksum fails" in rotten.objects[0]["as_of"]["faults"][0]
    people = command("as-of", tmp_path, filled.points[0])
    assert "INCOMPLETE" in people.out


def test_as_of_does_not_report_damage_behind_its_lsn(command: Dump, tmp_path: Path) -> None:
    filled = Filled(tmp_path)
    journal = RealDirectory(str(filled.path / "journal"))
    history = find_history([journal, RealDirectory(str(filled.archive))])
    size = history.container_bytes
    blocks = [found for found in history.scan() if isinstance(found, Block)]
    minute, lsn, last = next(
        (minute, lsn, last) for minute, lsn in enumerate(filled.points) for last in reversed(blocks)
        if lsn < last.lsn < lsn + size - lsn % size
    )  # fmt: skip
    path = Path(history.containers[lsn // size].path)
    data = bytearray(path.read_bytes())
    data[last.lsn % size + BLOCK_HEAD_BYTES] ^= 1
    path.write_bytes(data)
    found = command("as-of", filled.path, filled.archive, lsn, "--json")
    assert (shown(found), found.status) == (filled.expected(minute), 0)
    assert (found.objects[0]["as_of"]["complete"], found.objects[0]["as_of"]["faults"]) == (True, [])
    for behind in (last.lsn + 1, last.end_lsn):
        found = command("as-of", filled.path, filled.archive, behind, "--json")
        assert (found.status, found.objects[0]["as_of"]["complete"]) == (1, False)
        assert "checksum fails" in found.objects[0]["as_of"]["faults"][0]


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (("{store}", "99999999999"), "the log ends at LSN"),
        (("{store}", "yesterday"), "invalid point in time"),
        (("{store}", "2001-01-01"), "begin later"),
        (("{store}", "end", "--queue", "nobody"), "no queue has this name"),
        (("{store}",), "name a store, and a point in time"),
        (("nowhere", "end"), "no such directory"),
        (("{empty}", "end"), "the directory is empty"),
        (("{store}", "end", "--resend", "http://host"), "a URL is like amqp"),
    ],
)
def test_wrong_arguments(filled: Filled, command: Dump, tmp_path: Path, arguments: tuple[str, ...], says: str) -> None:
    given = [one.format(store=filled.path, empty=tmp_path) for one in arguments]
    found = command("as-of", *given)
    assert found.status in (1, 2)
    assert says in found.err


def test_a_pipe_that_closes_and_a_disk_that_is_full(filled: Filled) -> None:
    command = [CAIRNMQ, "as-of", str(filled.path), str(filled.archive), str(filled.points[7]), "--json"]
    piped = subprocess.run(
        f"{' '.join(command)} | head -1", shell=True, capture_output=True, text=True, timeout=DEADLINE_S
    )
    assert (len(piped.stdout.splitlines()), piped.stderr) == (1, "")
    with open("/dev/full", "w") as full:
        done = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, text=True, timeout=DEADLINE_S)
    assert (done.returncode, "standard output: No space left" in done.stderr) == (2, True)
    json.loads(piped.stdout)


def test_containers_of_others_are_left_out_and_newer_ones_refused(
    filled: Filled, command: Dump, tmp_path: Path
) -> None:
    for path in filled.archive.iterdir():
        (tmp_path / path.name).write_bytes(path.read_bytes())
    other = Filled(tmp_path / "other")
    for path in other.archive.iterdir():
        (tmp_path / path.name).write_bytes(path.read_bytes())
    shared = command("as-of", filled.path, tmp_path, filled.points[3], "--json")
    assert (shown(shared), shared.status) == (filled.expected(3), 0)
    assert "name the store, too" in command("as-of", tmp_path, filled.points[3]).err
    newer = tmp_path / min(path.name for path in filled.archive.iterdir())
    head = container.decode_head(newer.read_bytes()[:512], "")
    raw = bytearray(container.encode_head(head))
    raw[8] = 2
    raw[:4] = crc32c(bytes(raw[4 : container.HEAD.size])).to_bytes(4, "little")
    newer.write_bytes(bytes(raw) + newer.read_bytes()[512:])
    refused = command("as-of", filled.path, tmp_path, filled.points[3])
    assert refused.status == 2
    assert "newer than this program's format" in refused.err


def test_moments() -> None:
    now_us = SystemClock().wall_us()
    assert parse_point_in_time("17", now_us).lsn == 17
    assert parse_point_in_time("2023-11-14T22:13:20", now_us).time_us == START_US
    assert parse_point_in_time("2023-11-14T23:13:20+01:00", now_us).time_us == START_US
    assert parse_point_in_time("2h", now_us).time_us == now_us - 7_200_000_000
    assert time_words(START_US) == "2023-11-14T22:13:20.000000Z"
    for text in ("", "-1", "1.5", "x", str(1 << 64), "10y"):
        with pytest.raises(CairnError, match="LSN"):
            parse_point_in_time(text, now_us)


@pytest.mark.skipif(not shutil.which("setpriv"), reason="the tool that takes a capability away is missing")
@pytest.mark.parametrize("verb", [("as-of", "end"), ("trace", "1088"), ("restore", "other")], ids=lambda verb: verb[0])
def test_directory_of_another_user_is_reported_with_the_remedy(tmp_path: Path, verb: tuple[str, str]) -> None:
    """Root runs the command without its capability to read all files, which other users do not have."""
    within = ["setpriv", "--bounding-set=-dac_override,-dac_read_search"] if os.geteuid() == 0 else []
    store = tmp_path / "closed" / "store"
    store.mkdir(parents=True)
    store.parent.chmod(0)
    try:
        done = subprocess.run(
            [*within, CAIRNMQ, verb[0], str(store), verb[1]], capture_output=True, text=True, cwd=tmp_path,
            timeout=DEADLINE_S,
        )  # fmt: skip
    finally:
        store.parent.chmod(0o700)
    assert done.stderr.count("\n") == 1
    assert done.stderr.startswith(f"cairnmq: {store}")
    assert done.stderr.endswith("Permission denied; check the owner and the permissions\n")

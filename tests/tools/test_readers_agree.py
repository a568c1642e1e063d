"""All readers of a store give one answer: `sql`, Spark's source, `export`, `dump`, `as-of`, `trace`, `stat`, `verify`.

A model knows what was put and taken. Lives of the store end in order, or by a kill, also before anything was stored.
"""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from cairnmq.analytics.spark.source import JournalSource
from cairnmq.analytics.views.amqp_columns import SCHEMA as AMQP
from cairnmq.analytics.views.journal import open_journal
from cairnmq.base.errors import CairnError
from cairnmq.store.contract.options import StoreOptions
from cairnmq.store.embedded.library import Store, open_store
from tests.harness.columns.contents import content
from tests.harness.export.tables import rows_in
from tests.harness.process import DEADLINE_S
from tests.harness.thorough import amount

from .conftest import Dump

SMALL = 16 << 10
OPTIONS = StoreOptions(container_bytes=SMALL, min_container_bytes=SMALL, reserve_bytes=4 * SMALL)
CONTENTS = (
    content(), content(b"x" * 90), b"", b"no amqp", content()[:40], b"\x00Sp\xc0\x03\x01\xa1\x00" + b"\x00Su\xa0\x01v",
    b"\x00Ss\xc0\x03\x01\xa1\x07\x00Sw\xa1\x01v", b"\x00Su\xb0\x00\x00\x10\x00" + bytes(4096),
)  # fmt: skip
PAIRS = ((900, 1900), (1900, 900), (3100, 900), (3100, 1900))
EQUAL_PLACES = ((1000, 1001), (1001, 1000))
QUEUES = ("orders", "queue-1", "queue-2", "a,b")
Step = tuple[str, int, int]
STEPS = st.lists(
    st.tuples(st.sampled_from(["put", "put", "put", "take"]), st.integers(0, 3), st.integers(1, 9)), max_size=6
)
LIVES = st.lists(st.tuples(st.just([]) | STEPS, st.sampled_from(["killed", "closed"])), min_size=1, max_size=5)


@dataclass
class Lived:
    """A store after some lives, and the model of its queues."""

    path: Path
    has_archive: bool
    number: int = 0
    puts: int = 0
    on: dict[str, list[bytes]] = field(default_factory=dict)

    @property
    def store(self) -> Path:
        return self.path / f"store-{self.number}"

    @property
    def archive(self) -> Path:
        return self.path / f"archive-{self.number}"

    def live(self, steps: list[Step], end: str) -> None:
        """Open the store, take *steps*, and end. After a kill the store is what its files held at that moment."""
        archive = str(self.archive) if self.has_archive else None
        store = open_store(str(self.store), options=replace(OPTIONS, archive_dir=archive))
        for action, queue, count in steps:
            self._step(store, action, QUEUES[queue], count)
        if end == "killed":
            self._copy()
        store.close()

    def _copy(self) -> None:
        """Go on with a copy of the store, and of its archive, which may receive containers meanwhile."""
        before, archive_before = self.store, self.archive
        self.number += 1
        deadline_s = time.monotonic() + DEADLINE_S
        while True:
            shutil.rmtree(self.store, ignore_errors=True)
            with suppress(shutil.Error):  # a file that was made or moved meanwhile
                shutil.copytree(before, self.store, ignore=shutil.ignore_patterns("*.new"))
                break
            assert time.monotonic() < deadline_s
        if self.has_archive:
            shutil.copytree(archive_before, self.archive, ignore=shutil.ignore_patterns("*.new"))

    def _step(self, store: Store, action: str, name: str, count: int) -> None:
        queue, on = store.queue(name), self.on.setdefault(name, [])
        if action == "put":
            new = [CONTENTS[(self.puts + at) % len(CONTENTS)] for at in range(count)]
            queue.put_all(new).result()
            on += new
            self.puts += count
        for _ in range(count if action == "take" else 0):
            message = queue.take()
            assert (message is None) == (not on)
            if message is not None:
                message.accept().result()
                del on[0]


@settings(
    max_examples=amount("CAIRN_READERS", 60, 6), phases=(Phase.explicit, Phase.reuse, Phase.generate), deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)  # fmt: skip
@given(lives=LIVES, has_archive=st.booleans(), columns=st.lists(st.sampled_from(AMQP.names), min_size=1, unique=True))
def test_every_reader_gives_the_answer_of_the_model(
    command: Dump, lives: list[tuple[list[Step], str]], has_archive: bool, columns: list[str]
) -> None:
    # T1, T2, S2
    with TemporaryDirectory() as path:
        lived = Lived(Path(path), has_archive)
        for steps, end in [([("put", 0, 9), ("take", 0, 9)], "killed"), ([], "killed"), ([], "killed"), *lives]:
            lived.live(steps, end)
        check(lived, command, columns)


@pytest.mark.parametrize("is_old", [False, True])
@pytest.mark.parametrize("sizes", [*PAIRS, *EQUAL_PLACES])
def test_no_reader_gives_a_clone_the_messages_of_the_other(
    command: Dump, sizes: tuple[int, int], is_old: bool
) -> None:
    # S5
    with TemporaryDirectory() as name:
        path = Path(name)
        stores, archives = (path / "0", path / "1"), (path / "archive-0", path / "archive-1")
        options = [replace(OPTIONS, archive_dir=str(archive)) for archive in archives]
        with open_store(str(stores[0]), options=options[0]) as store:
            store.queue("orders").put(b"origin").result()
        shutil.copytree(stores[0], stores[1])
        for turn in (0, 1):
            with open_store(str(stores[turn]), options=options[turn]) as store:
                for _ in range(24):
                    store.queue("orders").put(str(turn).encode() * sizes[turn]).result()
                    store.queue("orders").purge().result()
        if is_old:  # brokers before leases archived by turns
            for file in archives[1].glob("*.cairn"):
                if not (archives[0] / file.name).exists():
                    shutil.copy(file, archives[0])
            shutil.rmtree(archives[1])
            for lease in archives[0].glob("*.lease"):
                lease.unlink()
            archives = (archives[0], archives[0])
        for own, one in enumerate(stores):
            for used, archive in enumerate(archives):
                found = answers(command, one, archive, path / "export")
                if is_old:
                    shown = {size for sizes_found in found.values() for size in sizes_found or ()}
                    assert sizes[1 - own] not in shown or sizes in EQUAL_PLACES, found
                elif own == used:
                    assert None not in found.values(), found
                    assert all(sizes[own] in (found[one] or ()) for one in ("dump", "sql", "export", "spark")), found
                else:
                    assert all(one is None for one in found.values()), found


def answers(command: Dump, store: Path, archive: Path, target: Path) -> dict[str, set[int] | None]:
    """The sizes of messages that each reader shows of a store and an archive; None where it refuses the archive."""
    found: dict[str, set[int] | None] = {}
    for words in (
        ("dump", store, "--json"), ("as-of", store, "end"), ("trace", store, "64"), ("verify", store),
        ("sql", store, "select distinct size from records where type = 'start'", "--json"), ("export", store, target),
    ):  # fmt: skip
        ended = command(*words, "--archive-dir", archive)
        if ended.status != 0 and "not of the history of" in ended.err + ended.out:
            found[words[0]] = None
        elif words[0] == "export":
            found["export"] = {row["size"] for row in rows_in(target, "parquet", ("size",))}
        else:
            field = {"dump": "size_bytes", "sql": "size"}.get(words[0], "")
            found[words[0]] = {one[field] for one in (ended.objects if field else ()) if field in one}
    if target.exists():
        shutil.rmtree(target)
    try:
        source = JournalSource({"path": str(store), "archive": str(archive)})
        reader = source.reader(source.schema())
        read: Callable[[Any], Any] = reader.read
        found["spark"] = {size for part in reader.partitions() for batch in read(part)
                          for size in batch["size"].to_pylist()}  # fmt: skip
    except CairnError:
        found["spark"] = None
    return found


def check(lived: Lived, command: Dump, columns: list[str]) -> None:
    store, more = lived.store, (("--archive-dir", lived.archive) if lived.has_archive else ())
    depths = {name: len(on) for name, on in lived.on.items() if on}

    def rows(query: str) -> list[dict[str, Any]]:
        found = command("sql", store, query, "--json", *more)
        assert (found.status, "gaps" in found.err) == (0, False), found.err
        return found.objects

    assert {one["queue"]: one["depth"] for one in rows("select queue, depth from queues where depth > 0")} == depths
    records = command("dump", store, "--json", *more)
    lsns = records.lsns
    assert records.status == 0
    assert [one["lsn"] for one in rows("select lsn from records order by lsn")] == lsns
    as_of = command("as-of", store, "end", "--json", "--count", 0, *more)
    end = as_of.objects[0]["as_of"]
    assert as_of.status == 0, as_of
    assert {name: count for name, count in end["queues"].items() if count} == depths
    assert command("stat", store, "--json").status == 0
    assert open_journal(str(store)).log.durable_lsn == end["lsn"]
    assert command("verify", store, *more).status == 0
    assert spark_lsns(lived) == lsns
    target = lived.path / "export"
    assert command("export", store, target, "--amqp", *more).status == 0
    exported = rows_in(target, "parquet", ("lsn", *AMQP.names))
    assert [row["lsn"] for row in exported] == lsns
    some = rows(f"select lsn, {', '.join(map(quoted, columns))} from records order by lsn")
    every = rows(f"select lsn, {', '.join(map(quoted, AMQP.names))} from records order by lsn")
    assert [{name: row[name] for name in ("lsn", *columns)} for row in every] == some
    if lived.has_archive:
        assert sum(one["type"] == "start" and "moved" not in one["flags"] for one in records.records) == lived.puts
        for message_id in sorted({one["message_id"] for one in records.records if one["type"] == "start"})[::7]:
            assert command("trace", store, message_id, *more).status == 0


def quoted(name: str) -> str:
    return f'"{name}"'


def spark_lsns(lived: Lived) -> list[int]:
    """The records that the data source of Spark gives, without Spark."""
    archive = {"archive": str(lived.archive)} if lived.has_archive else {}
    options = {"path": str(lived.store), "copies": "all", **archive}
    source = JournalSource(options)
    reader = source.reader(source.schema())
    read: Callable[[Any], Any] = reader.read
    return sorted(lsn for part in reader.partitions() for batch in read(part) for lsn in batch["lsn"].to_pylist())

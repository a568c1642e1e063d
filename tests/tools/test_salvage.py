"""Tests of salvage: it recovers intact messages, restores none with a readable dequeue, and only reads the store."""

from __future__ import annotations

import errno
import json
import os
import shutil
import tempfile
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cairnmq.base.errors import CairnError, DiskError, StoreInUse
from cairnmq.base.testing.manual_clock import ManualClock
from cairnmq.recovery.recover import open_store
from cairnmq.store.journaled.directory import StoreDirectory
from cairnmq.tools.repair.salvage import salvage
from cairnmq.tools.repair.salvage_in_place import salvage_in_place
from cairnmq.tools.repair.salvage_report import SalvageReport
from tests.harness.recovery.damaged import (
    MEMORY,
    Whole,
    any_store,
    check_salvaged,
    open_and_show,
    relocated,
    tree,
    with_holes,
)

from .conftest import Dump


class Hit(NamedTuple):
    """A range of bytes in a file, which is overwritten."""

    file: int
    at: int
    size: int
    fill: int
    """The new value of the bytes; -1 inverts them."""


def quiet(what: str, done: int, total: int) -> None:
    pass


@pytest.fixture(scope="module")
def wholes() -> Iterator[list[Whole]]:
    with tempfile.TemporaryDirectory(dir=MEMORY) as place:
        root = Path(place)
        made = [with_holes(root / "holes"), relocated(root / "relocated")]
        yield made + [any_store(root / f"any-{seed}", seed) for seed in (3, 8)]


def copy_of(complete: Whole, place: Path) -> Path:
    return Path(shutil.copytree(complete.path, place / "store"))


def strike(journal: Path, name: str, hit: Hit) -> tuple[int, int]:
    """Overwrite the bytes of *hit* in a file, and return the begin and the end of their range."""
    path = journal / name
    data = bytearray(path.read_bytes())
    at = hit.at % len(data)
    end = min(at + hit.size, len(data))
    for place in range(at, end):
        data[place] = data[place] ^ 0xFF if hit.fill < 0 else hit.fill
    path.write_bytes(data)
    return at, end


HITS = st.lists(
    st.builds(
        Hit, st.integers(0, 20), st.integers(0, 1 << 19), st.sampled_from([1, 40, 512, 5000, 70_000, 1 << 19]),
        st.sampled_from([-1, 0, 0xFF]),
    ),
    min_size=1, max_size=4,
)  # fmt: skip


@settings(max_examples=80)
@given(st.integers(0, 3), HITS)
def test_whatever_the_damage_all_that_is_whole_is_salvaged(wholes: list[Whole], which: int, hits: list[Hit]) -> None:
    complete = wholes[which]
    with tempfile.TemporaryDirectory(dir=MEMORY) as place:
        path = copy_of(complete, Path(place))
        files = sorted(file.name for file in (path / "journal").iterdir())
        bad: dict[str, list[tuple[int, int]]] = {}
        for hit in hits:
            name = files[hit.file % len(files)]
            bad.setdefault(name, []).append(strike(path / "journal", name, hit))
        before = tree(path)
        report = salvage(str(path), str(Path(place) / "new"), ManualClock(), quiet)
        assert tree(path) == before

        def touched(lsn: int) -> bool:
            name, first, end, _ = complete.block_of(lsn)
            return any(low < end and first < high for low, high in bad.get(name, []))

        check_salvaged(complete, open_and_show(Path(place) / "new"), report, touched)


def test_nobody_says_that_all_is_there_where_half_a_mark_is_left(wholes: list[Whole], tmp_path: Path) -> None:
    """The salvage is not complete if the newer copy of the mark is lost, which proved the lost blocks durable."""
    path = copy_of(wholes[0], tmp_path)
    strike(path / "journal", "log.mark", Hit(0, 4096, 512, 0))
    strike(path / "journal", wholes[0].container_of[max(wholes[0].container_of)], Hit(0, 45_730, 1 << 19, 0xFF))
    report = salvage(str(path), str(tmp_path / "new"), ManualClock(), quiet)
    assert not report.is_complete
    assert any(finding.place == "log.mark" for finding in report.findings)


def test_a_whole_store_is_salvaged_to_the_last_byte(wholes: list[Whole], tmp_path: Path) -> None:
    for number, complete in enumerate(wholes):
        target = tmp_path / str(number)
        report = salvage(str(complete.path), str(target), ManualClock(), quiet)
        assert (report.is_complete, report.doubtful, report.exit_status) == (True, [], 0)
        assert open_and_show(target) == complete.shown
        assert report.queues == {queue: len(contents) for queue, contents in complete.shown.items()}


def test_the_payload_of_one_message_costs_that_message_alone(wholes: list[Whole], tmp_path: Path) -> None:
    """Only the damaged message is lost, and no other one is doubtful: valid checksums prove the record headers."""
    complete = wholes[0]
    path = copy_of(complete, tmp_path)
    content = complete.shown["orders"][3]
    [lsn] = complete.needed[content]
    name, _, end, _ = complete.block_of(lsn)
    strike(path / "journal", name, Hit(0, end - 10, 5, -1))
    report = salvage(str(path), str(tmp_path / "new"), ManualClock(), quiet)
    lost = [message.message_id for message in report.lost]
    assert len(lost) == 1
    assert report.doubtful == []
    assert [gap.unknown for gap in report.gaps] == [[]]
    assert report.exit_status == 3
    shown = open_and_show(tmp_path / "new")
    left = {queue: [found for found in contents if complete.ids[found] not in lost]
            for queue, contents in complete.shown.items()}  # fmt: skip
    assert shown == left
    raw = next((tmp_path / "new" / "quarantine").glob("*.raw"))
    assert raw.read_bytes()[-512:] in (path / "journal" / name).read_bytes()


def test_a_block_without_its_head_still_gives_its_messages(wholes: list[Whole], tmp_path: Path) -> None:
    """The messages are recovered, and listed as doubtful, because nothing proves their queue."""
    complete = wholes[0]
    path = copy_of(complete, tmp_path)
    content = complete.shown["orders"][-1]
    [lsn] = complete.needed[content]
    name, first, _, _ = complete.block_of(lsn)
    strike(path / "journal", name, Hit(0, first, 64, 0))
    report = salvage(str(path), str(tmp_path / "new"), ManualClock(), quiet)
    assert content in open_and_show(tmp_path / "new")["orders"]
    reason = [message.reason for message in report.doubtful if message.message_id == complete.ids[content]]
    assert reason == [f"the head of its record at LSN {lsn} is not proven"]


def test_without_mark_and_wiring_the_messages_are_there_under_other_queue_names(
    wholes: list[Whole], tmp_path: Path
) -> None:
    path = copy_of(wholes[1], tmp_path)
    (path / "journal" / "log.mark").unlink()
    (path / "wiring.sqlite").write_bytes(b"rot" * 5000)
    report = salvage(str(path), str(tmp_path / "new"), ManualClock(), quiet)
    assert report.unnamed == ["salvaged-1", "salvaged-2"]
    assert open_and_show(tmp_path / "new") == {
        f"salvaged-{number}": wholes[1].shown[queue] for number, queue in ((1, "orders"), (2, "bills"))
    }
    assert [finding.place for finding in report.findings] == ["log.mark", "wiring.sqlite"]
    assert report.exit_status == 3


def test_a_store_without_its_journal_gives_its_queues(wholes: list[Whole], tmp_path: Path) -> None:
    path = copy_of(wholes[0], tmp_path)
    shutil.rmtree(path / "journal")
    report = salvage(str(path), str(tmp_path / "new"), ManualClock(), quiet)
    assert report.exit_status == 3
    store, _ = open_store(str(tmp_path / "new"), ManualClock())
    assert [row.name for row in store.queues()] == ["orders", "bills"]
    store.close()


def test_a_broker_that_runs_is_not_salvaged(wholes: list[Whole], tmp_path: Path) -> None:
    path = copy_of(wholes[0], tmp_path)
    held = StoreDirectory(str(path))
    with pytest.raises(StoreInUse):
        salvage(str(path), str(tmp_path / "new"), ManualClock(), quiet)
    with pytest.raises(StoreInUse):
        salvage_in_place(str(path), ManualClock(), quiet)
    held.close()
    assert not (tmp_path / "new").exists()


@pytest.mark.parametrize(
    ("target", "reason"), [("store/new", "it lies in the damaged store"), ("there", "it exists already")]
)
def test_a_target_that_would_do_harm_is_refused(wholes: list[Whole], tmp_path: Path, target: str, reason: str) -> None:
    path = copy_of(wholes[0], tmp_path)
    (tmp_path / "there").mkdir()
    with pytest.raises(CairnError, match=reason):
        salvage(str(path), str(tmp_path / target), ManualClock(), quiet)


# ---- in place -------------------------------------------------------------------------------------------------------


def broken(complete: Whole, place: Path) -> Path:
    path = copy_of(complete, place)
    strike(path / "journal", complete.container_of[max(complete.container_of) - 1], Hit(0, 300_000, 30_000, 0))
    with pytest.raises(CairnError):
        open_store(str(path), ManualClock())
    return path


def test_in_place_the_damaged_files_are_kept(wholes: list[Whole], tmp_path: Path) -> None:
    path = broken(wholes[0], tmp_path)
    before = tree(path)
    expected = salvage(str(path), str(tmp_path / "beside"), ManualClock(), quiet)
    report = salvage_in_place(str(path), ManualClock(), quiet)
    assert isinstance(report, SalvageReport)
    assert open_and_show(path) == open_and_show(tmp_path / "beside")
    assert report.fields()["findings"] == expected.fields()["findings"]
    [quarantine] = path.glob("quarantine-*")
    kept = tree(quarantine)
    assert {name: data for name, data in kept.items() if name in before} == before
    assert json.loads((quarantine / "report.json").read_text())["complete"] is False
    left = ["checkpoint", "journal", "lock", quarantine.name, "wiring.sqlite"]
    assert sorted(found.name for found in path.iterdir()) == left


def test_in_place_a_sound_store_stays_as_it_is(wholes: list[Whole], tmp_path: Path) -> None:
    path = copy_of(wholes[1], tmp_path)
    before = tree(path)
    report = salvage_in_place(str(path), ManualClock(), quiet)
    assert isinstance(report, SalvageReport)
    assert (report.salvaged, report.exit_status) == ("", 0)
    assert tree(path) == before


@pytest.mark.parametrize("step", range(8))
def test_in_place_a_crash_at_any_step_is_refused_or_done_and_the_next_run_ends_it(
    wholes: list[Whole], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step: int
) -> None:
    path = broken(wholes[0], tmp_path)
    damaged = tree(path / "journal")
    salvage(str(path), str(tmp_path / "beside"), ManualClock(), quiet)
    expected = open_and_show(tmp_path / "beside")
    steps = 0
    rename = os.rename

    def crash(*arguments: Any) -> None:
        nonlocal steps
        if steps == step:
            raise OSError(errno.EIO, "crash")
        steps += 1
        rename(*arguments)

    monkeypatch.setattr(os, "rename", crash)
    clock = ManualClock()
    try:
        salvage_in_place(str(path), clock, quiet)
        done = True
    except DiskError:
        done = False
    monkeypatch.undo()
    assert done == (step >= 5)
    if not done:
        with pytest.raises(CairnError):
            open_store(str(path), ManualClock())
        clock.advance(5)
        report = salvage_in_place(str(path), clock, quiet)
        assert (report["complete"] if isinstance(report, dict) else report.is_complete) is False
    assert open_and_show(path) == expected
    assert damaged in [tree(found / "journal") for found in path.glob("quarantine-*") if (found / "journal").exists()]


# ---- the command ----------------------------------------------------------------------------------------------------


@pytest.fixture
def salvage_it(command: Dump) -> Dump:
    return partial(command, "salvage")


def test_the_command_tells_what_was_salvaged(wholes: list[Whole], tmp_path: Path, salvage_it: Dump) -> None:
    path = broken(wholes[0], tmp_path)
    out, err, status = salvage_it(path, "--to", tmp_path / "new")
    assert (err, status) == ("", 3)
    assert "corrupt" in out
    assert "orders" in out
    assert str(tmp_path / "new") in out
    out, err, status = salvage_it(path, "--to", tmp_path / "other", "--json")
    found = json.loads(out)
    assert (err, status, found["complete"]) == ("", 3, False)
    assert found == {**json.loads((tmp_path / "other" / "quarantine" / "report.json").read_text()),
                     "quarantine": found["quarantine"]}  # fmt: skip
    complete = wholes[1].path
    assert salvage_it(complete, "--to", tmp_path / "third")[2] == 0


@pytest.mark.parametrize("options", [[], ["--in-place", "--to", "new"]])
def test_the_command_wants_to_know_where_to(wholes: list[Whole], salvage_it: Dump, options: list[str]) -> None:
    out, err, status = salvage_it(wholes[0].path, *options)
    assert (out, status) == ("", 2)
    assert err == "cairnmq: salvage: where to?; give either --to NEW_STORE or --in-place\n"


def test_in_place_needs_yes_without_a_terminal(
    wholes: list[Whole], tmp_path: Path, salvage_it: Dump, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = broken(wholes[0], tmp_path)
    before = tree(path)
    with open(os.devnull) as nothing:
        monkeypatch.setattr("sys.stdin", nothing)
        out, err, status = salvage_it(path, "--in-place")
    assert (out, status) == ("", 2)
    assert err == "cairnmq: salvage --in-place: no confirmation, and no terminal to ask on; give --yes\n"
    assert tree(path) == before
    assert salvage_it(path, "--in-place", "--yes")[2] == 3
    assert tree(path) != before


@pytest.mark.parametrize(
    ("options", "change"),
    [
        (("--in-place",), "move the journal and the wiring of {} to a quarantine, and put what is complete in their"),
        (("--to", "new"), "copy every complete message of {} to new"),
    ],
)
def test_dry_run_shows_the_damage_and_writes_nothing(
    wholes: list[Whole], tmp_path: Path, salvage_it: Dump, options: tuple[str, ...], change: str
) -> None:
    path = broken(wholes[0], tmp_path)
    before = tree(tmp_path)
    out, err, status = salvage_it(path, *options, "--dry-run")
    assert (err, status) == ("", 0)
    assert "corrupt" in out
    assert f"would {change.format(path)}" in out
    found = json.loads(salvage_it(path, *options, "--dry-run", "--json").out)
    assert found["would"].startswith(change.format(path))
    assert [one["kind"] for one in found["findings"]] == ["corrupt"]
    assert salvage_it(path, *options, "--dry-run", "--output", "csv").out.count("\n") == 2
    assert tree(tmp_path) == before
    sound = salvage_it(wholes[1].path, "--in-place", "--dry-run").out
    assert sound == f"would change nothing: {wholes[1].path} is complete\n"
    (tmp_path / "there").mkdir()
    for target, reason in ((tmp_path / "there", "it exists already"), (path / "new", "it lies in the damaged store")):
        _, err, status = salvage_it(path, "--to", target, "--dry-run")
        assert (reason in err, status) == (True, 1)


def test_what_is_no_store_is_refused(tmp_path: Path, salvage_it: Dump) -> None:
    (tmp_path / "empty").mkdir()
    for name, wanted in (("empty", 1), ("nothing", 2)):
        out, err, status = salvage_it(tmp_path / name, "--to", tmp_path / "new")
        assert (out, status, err.count("\n")) == ("", wanted, 1)
        assert list(tmp_path.iterdir()) == [tmp_path / "empty"]

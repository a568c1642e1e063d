"""Of all copies of a store, one archives in an archive; its owner keeps it through kills, moves and restores."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from cairnmq.analytics.views.journal import open_journal
from cairnmq.base.clock import SystemClock
from cairnmq.base.disk.real import RealDirectory
from cairnmq.base.errors import CairnError, ForeignStore, StoreInUse
from cairnmq.store.contract.options import StoreOptions
from cairnmq.store.embedded.library import Store, open_store
from cairnmq.tools.backup.backup import back_up
from cairnmq.tools.backup.restore import restore
from cairnmq.tools.history.history import find_history
from cairnmq.tools.inspect.evidence import open_evidence
from cairnmq.tools.verify.archive_check import verify_archive
from cairnmq.tools.verify.verdicts import VerifyReport

SMALL = 16 << 10


class Place:
    """Copies of one store, and an archive."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.archive = path / "archive"

    def open(self, name: str = "first", archive: str = "archive") -> Store:
        options = StoreOptions(container_bytes=SMALL, min_container_bytes=SMALL, reserve_bytes=4 * SMALL,
                               archive_dir=str(self.path / archive))  # fmt: skip
        return open_store(str(self.path / name), options=options)

    def live(self, name: str = "first", archive: str = "archive", rounds: int = 12, size: int = 2000) -> None:
        with self.open(name, archive) as store:
            for _ in range(rounds):
                store.queue("q").put(name.encode()[:1] * size).result()
                store.queue("q").purge().result()

    def clone(self, name: str, source: str = "first") -> None:
        shutil.copytree(self.path / source, self.path / name)

    def archived(self) -> list[str]:
        return sorted(name for name in os.listdir(self.archive) if name.endswith(".cairn"))

    def lease(self) -> Path:
        (found,) = self.archive.glob("*.lease")
        return found


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place(tmp_path)


READERS: dict[str, Callable[[Path, Path], object]] = {
    "sql": lambda store, archive: open_journal(str(store), archive=str(archive)),
    "as-of": lambda store, archive: find_history([RealDirectory(f"{store}/journal"), RealDirectory(str(archive))]),
    "dump": lambda store, archive: open_evidence([str(store), str(archive)]),
    "verify": lambda store, archive: verified(store, archive),
}


def verified(store: Path, archive: Path) -> None:
    report = VerifyReport(str(store))
    verify_archive(report, str(archive), lambda *_: None)
    for found in report.verdicts:
        if found.kind != "note":
            raise CairnError(found.place, found.what)


@pytest.mark.parametrize("takes_turns", [False, True])
def test_archive_is_refused_to_a_clone_whose_blocks_are_at_equal_places(place: Place, takes_turns: bool) -> None:
    # S5
    place.live()
    place.clone("other")
    if takes_turns:
        place.live()
        place.live("other", "elsewhere")
    before = place.archived()
    with place.open() if not takes_turns else place.open("first", "third"):
        with pytest.raises((StoreInUse, ForeignStore), match="another copy of th") as caught:
            place.open("other")
        assert "\n" not in str(caught.value)
        assert "--archive-dir" in str(caught.value)
    assert place.archived() == before


@pytest.mark.parametrize("reader", READERS)
def test_every_reader_refuses_the_archive_of_another_copy(place: Place, reader: str) -> None:
    # S5
    place.live()
    place.clone("other")
    place.live("first")
    place.live("other", "elsewhere")
    READERS[reader](place.path / "first", place.archive)
    with pytest.raises(CairnError, match="not of the history of"):
        READERS[reader](place.path / "other", place.archive)


def test_a_copy_adopts_an_archive_whose_lease_was_removed(place: Place) -> None:
    place.live()
    place.clone("other")
    place.live(size=900)
    with pytest.raises(ForeignStore) as caught:
        place.open("other")
    assert f"remove {place.lease()}" in str(caught.value)
    place.lease().unlink()
    place.live("other")
    place.live("other")
    with pytest.raises(ForeignStore):
        place.open("first")


def test_the_owner_keeps_the_archive(place: Place) -> None:
    place.live()
    kept = place.path / "kept"
    back_up(str(place.path / "first"), str(kept), SystemClock(), lambda *_: None)
    restore(str(kept), str(place.path / "restored"), lambda *_: None)
    os.rename(place.path / "first", place.path / "lost")
    for name in ("restored", "renamed", "renamed"):
        if not (place.path / name).exists():
            os.rename(place.path / "restored", place.path / name)
        place.live(name)
        for read in READERS.values():
            read(place.path / name, place.archive)
    os.rename(place.archive, place.path / "moved")
    place.live("renamed", "moved")
    place.live("renamed", "third")
    place.live("renamed", "moved")


def test_the_owner_keeps_the_archive_after_a_kill_between_the_two_tokens(place: Place) -> None:
    place.live()
    before = place.lease().read_bytes()
    place.live()
    place.lease().write_bytes(before)  # the store has the next token, the archive did not get it
    place.live()
    place.lease().write_bytes(before[:7])  # not whole: the archive is claimed by its containers
    place.live()


def test_an_archive_from_before_leases_is_claimed_by_its_containers(place: Place) -> None:
    place.live()
    place.clone("other")
    place.live()
    place.live("other", "elsewhere", size=3100)
    place.lease().unlink()
    (place.path / "first" / "archive.lease").unlink()
    place.live("first")
    with pytest.raises(ForeignStore):
        place.open("other")


def test_nothing_is_archived_without_the_lease(place: Place, caplog: pytest.LogCaptureFixture) -> None:
    place.live()
    before = place.archived()
    with place.open() as store:
        place.lease().unlink()
        for _ in range(12):
            store.queue("q").put(bytes(4000)).result()
            store.queue("q").purge().result()
    assert place.archived() == before
    assert "was removed or replaced" in caplog.text

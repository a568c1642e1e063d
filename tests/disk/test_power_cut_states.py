"""Tests of the exact set of states that a power cut can leave, in small cases."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import pytest

from cairnmq.base.errors import DiskError
from cairnmq.base.testing.memory_disk import MemoryDirectory, MemoryFile
from cairnmq.base.testing.sectors import Pending


def content(directory: MemoryDirectory, name: str) -> bytes:
    return directory.open(name).read_at(0, 1 << 20)


def state(directory: MemoryDirectory) -> dict[str, bytes]:
    return {name: content(directory, name) for name in directory.names()}


def subsets(items: list[Pending]) -> Iterator[tuple[Pending, ...]]:
    return itertools.chain.from_iterable(itertools.combinations(items, size) for size in range(len(items) + 1))


def outcomes(directory: MemoryDirectory, *, ordered: bool = False) -> set[tuple[tuple[str, bytes], ...]]:
    cuts = [directory.after_power_cut(kept, ordered=ordered) for kept in subsets(directory.pending())]
    return {tuple(state(cut).items()) for cut in cuts}


def synced_file(content: bytes) -> tuple[MemoryDirectory, MemoryFile]:
    directory = MemoryDirectory()
    file = directory.create("a")
    file.write_at(0, content)
    file.sync()
    directory.sync()
    return directory, file


def test_every_subset_of_sectors_can_survive() -> None:
    directory, file = synced_file(b"." * 1536)
    file.write_at(500, b"x" * 600)
    old = [b"." * 512, b"." * 512, b"." * 512]
    new = [b"." * 500 + b"x" * 12, b"x" * 512, b"x" * 76 + b"." * 436]
    mixtures = itertools.product(*zip(old, new, strict=True))
    assert outcomes(directory) == {(("a", b"".join(mixture)),) for mixture in mixtures}


def test_every_version_of_a_sector_can_survive() -> None:
    directory, file = synced_file(b"...")
    for fill in (b"x", b"y"):
        file.write_at(0, fill)
    assert outcomes(directory) == {(("a", b"..."),), (("a", b"x.."),), (("a", b"y.."),)}


def test_size_and_content_survive_apart() -> None:
    directory, file = synced_file(b"...")
    file.write_at(2, b"xy")
    assert outcomes(directory) == {(("a", data),) for data in (b"...", b"..x", b"..xy", b"...\0")}


def test_every_size_on_the_way_can_survive() -> None:
    directory, file = synced_file(b"...")
    file.write_at(3, b"x")
    file.write_at(4, b"y")
    sizes = {len(data) for ((_, data),) in outcomes(directory)}
    assert sizes == {3, 4, 5}


def test_what_lies_beyond_a_lost_size_does_not_come_back() -> None:
    directory, file = synced_file(b"...")
    file.write_at(0, b"x" * 2000)
    cut = directory.after_power_cut(lambda item: item.kind != "size")
    again = cut.open("a", writable=True)
    again.write_at(1999, b"!")
    assert content(cut, "a") == b"xxx" + bytes(1996) + b"!"


def test_a_synced_file_is_lost_with_its_name() -> None:
    directory = MemoryDirectory()
    directory.create("a").sync()
    assert directory.after_power_cut([]).names() == []


def test_names_survive_as_any_subset_or_as_a_prefix() -> None:
    directory, _ = synced_file(b"old")
    file = directory.create("t")
    file.write_at(0, b"new")
    file.sync()
    directory.rename("t", "a")
    directory.create("b")
    untouched, with_t, replaced = {"a": b"old"}, {"a": b"old", "t": b"new"}, {"a": b"new"}
    prefixes = [untouched, with_t, replaced, replaced | {"b": b""}]
    leaps = [untouched | {"b": b""}, {"a": b"old", "b": b"", "t": b"new"}]
    assert outcomes(directory, ordered=True) == {tuple(files.items()) for files in prefixes}
    assert outcomes(directory) == {tuple(files.items()) for files in prefixes + leaps}


def test_the_last_change_of_a_name_decides_what_it_leads_to() -> None:
    directory, _ = synced_file(b"old")
    directory.create("t").sync()
    directory.sync()
    directory.rename("t", "a")
    directory.unlink("a")
    assert outcomes(directory) == {(("a", b"old"), ("t", b"")), (("a", b""),), ()}


def test_a_lost_rename_leaves_the_old_name_to_later_changes() -> None:
    directory, _ = synced_file(b"old")
    directory.rename("a", "b")
    cut = directory.after_power_cut([])
    cut.open("a", writable=True).write_at(0, b"x")
    assert [item.name for item in cut.pending()] == ["a"]


def test_a_lost_unlink_brings_the_content_back() -> None:
    directory, _ = synced_file(b"old")
    directory.unlink("a")
    directory.create("a")
    assert outcomes(directory) == {(("a", b"old"),), (), (("a", b""),)}


def test_a_moved_file_is_never_lost_if_the_new_name_is_synced_first() -> None:
    directory, file = synced_file(b"old")
    other = directory.beside("/other")
    directory.link("a", other, "b")
    cuts = [directory.after_power_cut(kept) for kept in subsets(directory.pending())]
    assert [(cut.names(), cut.beside("/other").names()) for cut in cuts] == [(["a"], []), (["a"], ["b"])]
    other.sync()
    directory.unlink("a")
    for kept in subsets(directory.pending()):
        cut = directory.after_power_cut(kept)
        assert content(cut.beside("/other"), "b") == b"old"
        assert cut.beside("/other").link_count("b") == (1 if kept else 2)
        if not kept:
            cut.open("a", writable=True).write_at(0, b"new")
            assert content(cut.beside("/other"), "b") == b"new"
    assert [item.kind for item in directory.pending()] == ["unlink"]
    assert file.read_at(0, 3) == b"old"


def test_directories_on_one_disk_lose_power_together() -> None:
    directory, _ = synced_file(b"old")
    other = directory.beside("/other")
    other.create("b").write_at(0, b"xy")
    assert {item.name for item in directory.pending()} == {"b"}
    assert directory.after_kill().beside("/other").names() == ["b"]
    assert directory.after_power_cut([]).beside("/other").names() == []
    assert content(directory.after_power_cut(lambda _: True).beside("/other"), "b") == b"xy"


def test_junk_is_asked_for_with_the_synced_content() -> None:
    directory, file = synced_file(b"." * 700)
    file.write_at(0, b"x" * 700)
    cut = directory.after_power_cut([], junk=lambda name, sector, synced: f"{name}{sector}".encode() + synced[2:])
    assert content(cut, "a") == b"a0" + b"." * 510 + b"a1" + b"." * 186


def test_after_a_failed_sync_another_one_proves_nothing() -> None:
    directory, file = synced_file(b"." * 1024)
    file.write_at(0, b"x" * 1024)
    file.sync_failed()
    file.sync()
    assert content(directory, "a") == b"x" * 1024
    assert content(directory.after_kill().after_power_cut([]), "a") == b"." * 1024
    directory.after_kill().open("a", writable=True).write_at(0, b"z")
    file.sync()
    assert content(directory.after_power_cut([]), "a") == b"." * 1024
    file.write_at(0, b"y")
    file.sync()
    assert content(directory.after_power_cut([]), "a") == b"y" + b"x" * 511 + b"." * 512


def test_the_hook_hears_each_change_once_and_afterwards() -> None:
    directory = MemoryDirectory()
    received: list[str] = []
    states: list[dict[str, bytes]] = []

    def hear(operation: str) -> None:
        received.append(operation)
        states.append(state(directory.after_kill()))

    directory.on_operation = hear
    file = directory.create("a")
    file.write_at(3, b"xy")
    file.sync()
    file.read_at(0, 1)
    directory.rename("a", "b")
    directory.sync()
    directory.unlink("b")
    with pytest.raises(DiskError, match="No such file"):
        directory.unlink("b")
    assert received == ["create a", "write a 3+2", "sync a", "rename a b", "sync directory", "unlink b"]
    assert states == [{"a": b""}, *[{"a": b"\0\0\0xy"}] * 2, *[{"b": b"\0\0\0xy"}] * 2, {}]


def test_pending_tells_what_and_in_which_order() -> None:
    directory = MemoryDirectory()
    file = directory.create("a")
    file.write_at(511, b"xy")
    directory.rename("a", "b")
    assert directory.pending() == [
        Pending(1, "create", 1, "a", new_name="a"),
        Pending(2, "sector", 1, "b", 0),
        Pending(2, "sector", 1, "b", 1),
        Pending(2, "size", 1, "b", 513),
        Pending(3, "rename", 1, "a", new_name="b"),
    ]


def test_a_write_of_what_was_there_changes_nothing() -> None:
    directory, file = synced_file(b"x" * 1024)
    file.write_at(0, b"x" * 512 + b"y" * 512)
    file.write_at(512, b"y" * 512)
    assert [(item.kind, item.at) for item in directory.pending()] == [("sector", 0), ("sector", 1), ("sector", 1)]
    changing = directory.pending(changing=True)
    assert [(item.kind, item.at) for item in changing] == [("sector", 1)]
    kept_all = {tuple(state(directory.after_power_cut(kept)).items()) for kept in subsets(changing)}
    assert kept_all == outcomes(directory)


def test_disks_with_the_same_content_have_the_same_fingerprint() -> None:
    """Fingerprints are equal if and only if the contents are, whatever the order of changes."""
    directory, file = synced_file(b"x" * 600)
    before = directory.fingerprint()
    assert directory.after_kill().fingerprint() == before
    file.write_at(100, b"y")
    assert directory.fingerprint() != before
    assert directory.after_power_cut([]).fingerprint() == before
    file.write_at(100, b"x")
    assert directory.fingerprint() == before
    file.write_at(600, b"\0")
    assert directory.fingerprint() != before  # the size is included
    other = MemoryDirectory()
    other.create("b").write_at(0, b"x" * 600)
    assert other.fingerprint() != before
    other.rename("b", "a")
    assert other.fingerprint() == before

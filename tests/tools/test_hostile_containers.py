"""Containers with forged heads or sizes: each tool ends, in bounded memory, and `verify` reports them."""

from __future__ import annotations

import struct
from pathlib import Path

import pytest

from cairnmq.journal.files.archive import archive_name
from cairnmq.journal.format import container

from .conftest import Dump, Store

_CONTAINER_BYTES, _PREV_LSN = 32, 56


@pytest.mark.parametrize("ahead", [0, container.DATA_OFFSET, 512 << 10, 1 << 40])
@pytest.mark.parametrize("slot", [0, 1])
def test_container_that_names_a_later_predecessor_is_reported(
    tmp_path: Path, command: Dump, slot: int, ahead: int
) -> None:
    # A17
    store = Store(tmp_path / "store")
    store.name_queues("orders")
    store.fill(2)
    store.journal.close()
    slot_lsn = slot * store.journal.container_bytes
    path = store.file_of(slot_lsn)
    data = bytearray(path.read_bytes())
    struct.pack_into("<Q", data, _PREV_LSN, max(slot_lsn + ahead, 1))
    data[: container.DATA_OFFSET] = container.in_sector(bytes(data[: container.HEAD.size]))
    path.write_bytes(data)
    for words in (("sql", store.path, "select count(*) from records"), ("as-of", store.path, "end"),
                  ("trace", store.path, "1088"), ("dump", store.path, "--json"), ("stat", store.path)):  # fmt: skip
        assert command(*words).status in (0, 1, 2)
    assert command("verify", store.path).status == 1


@pytest.mark.parametrize("name", ["00000099.cairn", f"{0:020d}-00000000.cairn"])
def test_huge_file_with_the_name_of_a_container_is_left_out(tmp_path: Path, command: Dump, name: str) -> None:
    # S9
    store = Store(tmp_path / "store")
    store.name_queues("orders")
    [lsn] = store.put_flushed(b"content")
    store.journal.close()
    archive = tmp_path / "archive"
    archive.mkdir()
    for directory in (store.journal_path, archive):
        with open(directory / name, "wb") as file:
            file.truncate(1 << 40)
    for words in (("trace", store.path, lsn), ("as-of", store.path, "end"), ("dump", store.path, "--json"),
                  ("dump", archive / name), ("dump", archive)):  # fmt: skip
        found = command(*words)
        assert found.status in (0, 1, 2)
        assert "Traceback" not in found.err


@pytest.mark.parametrize("claimed", [0, 1, 511, 1 << 40, 1 << 62])
@pytest.mark.parametrize("is_archived", [False, True])
def test_container_that_claims_another_size_is_read_within_bounds(
    tmp_path: Path, command: Dump, claimed: int, is_archived: bool
) -> None:
    # S9
    store = Store(tmp_path / "store")
    store.name_queues("orders")
    [lsn] = store.put_flushed(b"content")
    store.journal.close()
    archive = tmp_path / "archive"
    archive.mkdir()
    own = store.file_of(0)
    data = bytearray(own.read_bytes())
    struct.pack_into("<Q", data, _CONTAINER_BYTES, claimed)
    data[: container.DATA_OFFSET] = container.in_sector(bytes(data[: container.HEAD.size]))
    path = archive / archive_name(0, store.uuid) if is_archived else own
    path.write_bytes(data)
    for words in (("trace", store.path, lsn), ("as-of", store.path, "end"), ("dump", store.path, "--json"),
                  ("sql", store.path, "select count(*) from records"), ("verify", store.path),
                  ("export", store.path, tmp_path / "export")):  # fmt: skip
        found = command(*words, "--archive-dir", archive)
        assert found.status in (0, 1, 2), (words, found)
    for words in (("dump", path), ("dump", archive), ("stat", store.path)):
        assert command(*words).status in (0, 1, 2), words


@pytest.mark.parametrize("path", ["s3a://bucket/store", "hdfs://host/store"])
def test_store_that_is_on_no_file_system_is_refused_with_one_message(command: Dump, path: str) -> None:
    # T9
    for words in (("sql", path, "select 1"), ("dump", path), ("as-of", path, "end"), ("trace", path, "64"),
                  ("stat", path), ("verify", path), ("backup", path, "/nowhere"), ("backup", "store", path),
                  ("export", path, "/nowhere"), ("salvage", path, "--to", "/nowhere")):  # fmt: skip
        found = command(*words)
        assert (found.status, "on file systems only; mount it" in found.err) == (2, True), (words, found)

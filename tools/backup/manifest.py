"""The manifest of a backup: the names, sizes and checksums of its files. It is written last.

A backup is a directory with `manifest.json`, `wiring.sqlite`, and `journal/` with the mark and the containers of the
log, cut at one LSN. In the manifest, a JSON object:

format           1
version          the version of CairnMQ that made it
store_uuid
time             the start of the backup, in UTC
container_bytes
base_lsn         the start of the log
end_lsn          every record below it is in the backup, no later one is
files            a list of objects with `name` (with its directory), `size_bytes` and `crc32c` (8 hexadecimal digits)
crc32c           of the object without this field, as JSON with sorted keys and no spaces
"""

from __future__ import annotations

import json
import os
import re
from contextlib import closing
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from crc32c import crc32c
from msgspec import Struct, convert, to_builtins

from ...base.disk.real import RealDirectory
from ...base.errors import ForeignStore, MissingStore
from ...base.typed_json import JsonFormat, decode_json
from ...journal.format import log_mark as mark
from ...store.contract.layout import ARCHIVE_LEASE_NAME, JOURNAL_NAME, MANIFEST_NAME
from ...store.wiring.wiring import FILE_NAME as WIRING_NAME

FORMAT = 1
MARK_FILE = f"{JOURNAL_NAME}/{mark.NAME}"
_FILES = "|".join(map(re.escape, (WIRING_NAME, ARCHIVE_LEASE_NAME, MARK_FILE)))
_FILE = re.compile(rf"{_FILES}|{JOURNAL_NAME}/\d{{8}}\.cairn", re.ASCII)
_MAX_BYTES = 1 << 30


@dataclass(frozen=True)
class BackedUpFile:
    """A file of a backup."""

    name: str
    size_bytes: int
    crc32c: str


class Manifest(Struct, frozen=True, forbid_unknown_fields=True):
    """See the table above."""

    version: str
    store_uuid: str
    time: str
    container_bytes: int
    base_lsn: int
    end_lsn: int
    files: list[BackedUpFile]
    format: int = FORMAT

    @property
    def total_bytes(self) -> int:
        return sum(file.size_bytes for file in self.files)

    def encode(self) -> bytes:
        fields = to_builtins(self)
        return (json.dumps({**fields, "crc32c": _checksum(fields)}, indent=1) + "\n").encode()


class _Stored(Manifest, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """A manifest as it is stored."""

    crc32c: str


def write(directory: RealDirectory, manifest: Manifest) -> None:
    """Write and sync it."""
    with closing(directory.create(MANIFEST_NAME)) as file:
        file.write_at(0, manifest.encode())
        file.sync()


def read(directory: RealDirectory) -> Manifest:
    """Return the manifest in *directory*. Raises `ForeignStore` without a valid manifest."""
    place = os.path.join(directory.path, MANIFEST_NAME)
    if MANIFEST_NAME not in directory.names():
        reason = f"not a backup: {MANIFEST_NAME} is missing"
        raise MissingStore(directory.path, reason, "name what `cairnmq backup` made")
    with closing(directory.open(MANIFEST_NAME)) as file:
        data = file.read_at(0, min(file.size_bytes(), _MAX_BYTES))
    try:
        version = decode_json(data, JsonFormat).format
        if version != FORMAT:
            reason = f"backup format {version} is newer than this program's {FORMAT}"
            raise ForeignStore(place, reason, "use the CairnMQ version that wrote it")
        stored = decode_json(data, _Stored)
        UUID(stored.store_uuid)
    except ValueError as error:
        raise ForeignStore(place, f"damaged: it can't be read ({error})", "use another backup") from error
    fields = to_builtins(stored)
    checksum = fields.pop("crc32c")
    found = convert(fields, Manifest)
    names = {file.name for file in found.files}
    is_complete = {WIRING_NAME, MARK_FILE} <= names and all(map(_FILE.fullmatch, names))
    if checksum != _checksum(fields) or not is_complete:
        raise ForeignStore(place, "damaged: its checksum fails", "use another backup")
    return found


def _checksum(fields: dict[str, Any]) -> str:
    return f"{crc32c(json.dumps(fields, sort_keys=True, separators=(',', ':')).encode()):08x}"

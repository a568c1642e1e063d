"""File names in a store directory, for tools that inspect one without opening it.

STORE/lock              held with flock by the program that has the store open, as is STORE itself
STORE/hold              held with flock by backups while they copy the log; removed by a broker that must break that
STORE/archive.lease     tokens by which an archive knows this store, see `archive_lease`
STORE/wiring.sqlite     the wiring and the identity of the store, in SQL
STORE/wiring.json       instead of it, if they are on a server: the location
STORE/store.sqlite      instead of the wiring and the journal: an all-SQL store in a file
STORE/trusted-logins    keyed digests of addresses and names that have logged in
STORE/journal/          the containers of the log and its mark
STORE/bookmarks/        the positions of readers of the log as history, see `bookmarks`
STORE/checkpoint/       the message map as of an LSN, in LMDB; a cache that is rebuilt if it is missing
STORE/aside/            the content before the cluster replaced it, see `aside`
STORE/quarantine*       left by a salvage, for people
"""

from __future__ import annotations

from collections.abc import Container

JOURNAL_NAME = "journal"
CHECKPOINT_NAME = "checkpoint"
LOCK_NAME = "lock"
HOLD_NAME = "hold"
ARCHIVE_LEASE_NAME = "archive.lease"
ASIDE_NAME = "aside"
SQL_STORE_NAME = "store.sqlite"
"""Differs from the wiring's, so that code which takes one for the other finds and changes nothing."""
MANIFEST_NAME = "manifest.json"
"""The manifest file of a backup, which is not a store."""
_UNNAMED = "$queue-"  # no queue of a client has a name that begins with $


def unnamed_queue(queue_id: int) -> str:
    """The name by which a queue is shown that the wiring does not know: it was deleted, or the wiring is elsewhere."""
    return f"{_UNNAMED}{queue_id}"


def recovered_name(queue_id: int, taken: Container[str]) -> str:
    """The name, none of those *taken*, that a queue without a known name gets in a new store."""
    name = f"queue-{queue_id}"
    while name in taken:
        name += "-"
    return name


def id_in(text: str) -> int | None:
    """The ID in the name of an unnamed queue, or in a number; None for anything else."""
    number = text.removeprefix(_UNNAMED)
    return int(number) if number.isascii() and number.isdecimal() and len(number) < 20 else None

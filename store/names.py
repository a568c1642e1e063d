"""What stands in a store directory, by name; for those who look into one and open nothing.

STORE/lock              held with flock by the broker that runs on it
STORE/hold              held with flock by backups while they copy the log; removed by a broker that must break that
STORE/wiring.sqlite     the wiring and the store's identity, in SQL
STORE/wiring.json       instead of it, if they are on a server: which one
STORE/journal/          the log's containers and its mark
STORE/bookmarks/        how far those have come that read the log as history, see `bookmarks`
STORE/checkpoint/       the message map as of an LSN, in LMDB; a cache, made again when it is gone
STORE/aside/            what it held before a cluster gave it what others have, see `aside`
STORE/quarantine*       left by a salvage, for people
"""

from __future__ import annotations

JOURNAL_NAME = "journal"
CHECKPOINT_NAME = "checkpoint"
LOCK_NAME = "lock"
HOLD_NAME = "hold"
ASIDE_NAME = "aside"
MANIFEST_NAME = "manifest.json"
"""It stands in a backup, which is no store."""

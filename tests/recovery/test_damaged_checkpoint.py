"""Test that a real store opens with all its messages, twice, for any content of a page of the checkpoint's file.

LMDB trusts its pages and has no checksums, so a damaged page may crash its reader. Therefore another process opens the
stores here, and must exit normally.
"""

from __future__ import annotations

import json
import os
import random
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from cairnmq.base.clock import SystemClock
from cairnmq.recovery.recover import open_store
from cairnmq.store.contract.options import StoreOptions
from cairnmq.store.contract.wiring_rows import QueueRow
from tests.harness.thorough import THOROUGH

PAGE_BYTES = 4096
SEED = int(os.environ.get("CAIRN_SEED", "1"))
OPTIONS = StoreOptions(container_bytes=64 << 10, min_container_bytes=4096, reserve_bytes=64 << 10)
HOW = ("zeroed", "flipped", "cut")

LIVES = """
import json, sys
from cairnmq.base.clock import SystemClock
from cairnmq.recovery.recover import open_store
from cairnmq.store.contract.options import StoreOptions

for path in sys.argv[1:]:
    print(path, flush=True)
    for life in range(2):  # each closes with a checkpoint, that the next one begins with
        store, report = open_store(path, SystemClock(), StoreOptions(min_container_bytes=4096, reserve_bytes=64 << 10))
        store.run_inline(store.became_durable)
        found = {queue_id: list(ids) for queue_id, ids in store.messages().items()}
        print(json.dumps([bool(report.log.resumed_lsn), found]), flush=True)
        store.dequeue(found[1].pop(0), 1, 7)
        store.kick()
        store.close()
"""


def made(path: Path) -> dict[str, list[int]]:
    """Create a small store with all kinds of entries in its checkpoint; return the messages on its queues."""
    store, _ = open_store(str(path), SystemClock(), OPTIONS)
    store.run_inline(store.became_durable)
    rows: list[QueueRow | Exception] = []
    for name in ("a", "b"):
        store.create_queue(name, rows.append)
    for _ in range(6):
        ids, _ = store.put_all(1, [bytes(100)] * 300, 7)
        for message_id in ids[:10]:
            store.enqueue(message_id, 2, 7)
        for message_id in ids[-20:]:
            store.dequeue(message_id, 1, 7)
        store.kick()
    expected = {str(queue_id): list(ids) for queue_id, ids in store.messages().items()}
    store.close()
    return expected


def damage(data: bytes, page: int, how: str, rng: random.Random) -> bytes:
    begin, end = page * PAGE_BYTES, (page + 1) * PAGE_BYTES
    if how == "cut":
        return data[:begin]
    if how == "zeroed":
        return data[:begin] + bytes(PAGE_BYTES) + data[end:]
    flipped = bytearray(data)
    for _ in range(6):  # near the beginning, where the page's header is
        flipped[begin + rng.randrange(64)] ^= 1 << rng.randrange(8)
    return bytes(flipped)


@pytest.mark.timeout(900)
def test_a_store_opens_with_all_its_messages_whatever_a_page_holds(tmp_path: Path) -> None:
    expected = made(tmp_path / "whole")
    data = (tmp_path / "whole" / "checkpoint" / "data.mdb").read_bytes()
    pages = len(data) // PAGE_BYTES
    assert pages > 8
    rng = random.Random(SEED)
    chosen = [(page, how) for page in range(pages) for how in HOW]
    if not THOROUGH:  # LMDB's first two pages describe the others
        chosen = [*rng.sample(chosen[: 2 * len(HOW)], 3), *rng.sample(chosen[2 * len(HOW) :], 5)]
    paths = []
    for page, how in chosen:
        path = tmp_path / f"{how} {page}"
        shutil.copytree(tmp_path / "whole", path)
        (path / "checkpoint" / "data.mdb").write_bytes(damage(data, page, how, rng))
        paths.append(str(path))
    done = subprocess.run([sys.executable, "-c", LIVES, *paths], capture_output=True, text=True, check=False)
    lines = done.stdout.splitlines()
    assert done.returncode == 0, (done.returncode, lines[-1:], done.stderr[-2000:])
    told = iter(lines)
    resumed = 0
    for place in paths:
        assert next(told) == place
        left = {queue_id: list(ids) for queue_id, ids in expected.items()}
        for life in range(2):
            is_resumed, found = json.loads(next(told))
            assert found == left, (place, life)
            assert is_resumed or life == 0, place  # the next checkpoint is complete again
            resumed += is_resumed
            del left["1"][0]
    assert resumed < 2 * len(paths), "nothing was shown"

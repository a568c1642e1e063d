"""A store that is written while a test reads it."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from cairnmq.store.contract.options import StoreOptions
from cairnmq.store.embedded.library import open_store

SMALL = 16 << 10


@contextmanager
def written(path: Path, archive: Path | None = None) -> Iterator[None]:
    """Run traffic through the store at *path* until the block ends; one message in ten stays for long."""
    options = StoreOptions(
        container_bytes=SMALL, min_container_bytes=SMALL, reserve_bytes=4 * SMALL,
        archive_dir=str(archive) if archive else None,
    )  # fmt: skip
    store = open_store(str(path), options=options)
    stop = threading.Event()

    def write() -> None:
        passing, staying = store.queue("passing"), store.queue("staying")
        number = 0
        while not stop.is_set():
            passing.put_all([b"%06d" % number * 8] * 40).result()
            with store.transaction() as both:
                for place in range(40):
                    message = both.take(passing)
                    if message is not None and place % 10 == 0:
                        both.put(staying, message.content)
            while len(staying) > 300:
                message = staying.take()
                assert message is not None
                message.accept()
            number += 1

    thread = threading.Thread(target=write)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()
        store.close()

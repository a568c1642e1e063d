"""A process of its own: messages pass through a store in small containers until it is killed.

Arguments: store, archive.

It waits for the reader of its history now and then, so that a slow machine does not fill the disk.
"""

from __future__ import annotations

import sys
import time

from cairnmq.store.bookmarks import read_bookmarks
from cairnmq.store.library import open_store
from cairnmq.store.options import StoreOptions

SMALL = 64 << 10
MOST_AHEAD = 24 * SMALL


def main(path: str, archive: str) -> None:
    options = StoreOptions(
        container_bytes=SMALL, min_container_bytes=SMALL, reserve_bytes=4 * SMALL, archive_dir=archive
    )
    with open_store(path, options=options) as store:
        passing, staying = store.queue("passing"), store.queue("staying")
        print("open", flush=True)
        while True:
            passing.put_all([b"%04d" % number * 20 for number in range(60)]).result()
            with store.transaction() as both:
                for _ in range(6):
                    message = both.take(passing)
                    if message is not None:
                        both.put(staying, message.content)
            passing.accept([message for _ in range(54) if (message := passing.take()) is not None]).result()
            while len(staying) > 200:
                message = staying.take()
                assert message is not None
                message.accept()
            while store.inner.durable_lsn - min((one.lsn for one in read_bookmarks(path)), default=0) > MOST_AHEAD:
                time.sleep(0.01)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2])

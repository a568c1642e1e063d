"""The process that exports beside a broker: it runs the equivalent of `cairnmq export --sealed` periodically.

    python -m cairnmq.analytics.export.keeper STORE TARGET KIND ARCHIVE EVERY_S CATALOG

The broker starts it (`--export-to`), and it ends with the broker, see `sidecars.beside`. The log keeps data until it is
exported: in the archive or, without one, by a bookmark in the store, up to a limit.
"""

from __future__ import annotations

import logging
import os
import sys
from contextlib import suppress

from ..scan.files import open_log
from ..sidecars.side_process import is_asked_to_end, look_again_and_again, run_in_side_process
from ..views.retention_lease import hold, release_until
from .exporter import export
from .sources import ExportRequest

log = logging.getLogger(__name__)

SLOT = "export"
"""The bookmark's name."""
SLOT_BYTES = 8 << 30
"""The distance to the end of the log at which the broker drops the bookmark of data that is not exported yet."""


class _Ended(Exception):
    """The broker ends; committed data stays."""


def run(store: str, target: str, asked: ExportRequest, every_s: int) -> None:
    """Export *store* at intervals until standard input is closed. Raises `CairnError`."""
    if asked.archive is None:
        seen = open_log(store)
        hold(seen, SLOT, seen.first_lsn, SLOT_BYTES)

    def step() -> None:
        """Export the containers that were sealed since. Raises `CairnError`, and `_Ended` between two commits."""
        done = export(store, target, asked, _go_on)
        if asked.archive is None:
            release_until(open_log(store), SLOT, done.end_lsn, SLOT_BYTES)
        if done.records:
            log.info("%d records exported to %s, up to LSN %d", done.records, target, done.end_lsn)

    with suppress(_Ended):
        look_again_and_again(step, "exports", lambda: every_s)


def _go_on(what: str, done: int, total: int) -> None:
    if is_asked_to_end():
        raise _Ended


def main() -> None:
    """Run with the arguments of the broker; an empty KIND is detected from the target, other empty arguments mean none.

    The environment names the server of the wiring, if it is on one.
    """
    store, target, kind, archive, every_s, catalog = sys.argv[1:]
    asked = ExportRequest(
        kind or None, archive=archive or None, connect=os.environ.get("CAIRNMQ_CONNECT"), catalog=catalog or None,
        sealed_only=True, history=True,
    )  # fmt: skip
    run_in_side_process("exports", lambda: run(store, target, asked, int(every_s)))


if __name__ == "__main__":
    main()

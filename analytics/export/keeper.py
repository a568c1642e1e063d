"""The process that exports beside a broker: it runs the equivalent of `cairnmq export --sealed` periodically.

    python -m cairnmq.analytics.export.keeper STORE TARGET KIND ARCHIVE EVERY_S CATALOG

The broker starts it (`--export-to`), and it ends with the broker, see `sidecars.beside`. The log keeps data until it is
exported: in the archive or, without one, by a bookmark in the store, up to a limit.
"""

from __future__ import annotations

import logging
import os
import sys

from ..scan.files import open_log
from ..sidecars.side_process import is_asked_to_end, look_again_and_again, run_in_side_process
from ..views.retention_lease import hold, release_until
from .exporter import ExportRequest, export

log = logging.getLogger(__name__)

SLOT = "export"
"""The bookmark's name."""
SLOT_BYTES = 8 << 30
"""The distance to the end of the log at which the broker drops the bookmark of data that is not exported yet."""


class _Ended(Exception):
    """The broker ends; committed data stays."""


class ExportKeeper:
    """Exports one store. One thread."""

    def __init__(self, store: str, target: str, kind: str, archive: str | None, catalog: str | None) -> None:
        """Take the server of the wiring, if it is on one, from the environment."""
        self._store = store
        self._target = target
        self._archive = archive
        connect = os.environ.get("CAIRNMQ_CONNECT")
        self._asked = ExportRequest(
            kind or None, archive=archive, connect=connect, catalog=catalog, sealed_only=True, history=True
        )
        if archive is None:
            seen = open_log(store)
            hold(seen, SLOT, seen.first_lsn, SLOT_BYTES)

    def step(self) -> None:
        """Export the containers that were sealed since. Raises `CairnError`, and `_Ended` between two commits."""
        done = export(self._store, self._target, self._asked, _go_on)
        if self._archive is None:
            release_until(open_log(self._store), SLOT, done.end_lsn, SLOT_BYTES)
        if done.records:
            log.info("%d records exported to %s, up to LSN %d", done.records, self._target, done.end_lsn)


def _go_on(what: str, done: int, total: int) -> None:
    if is_asked_to_end():
        raise _Ended


def main() -> None:
    """Run with the arguments of the broker; an empty KIND is detected from the target, other empty arguments mean none.
    """
    store, target, kind, archive, every_s, catalog = sys.argv[1:]

    def run() -> None:
        keeper = ExportKeeper(store, target, kind, archive or None, catalog or None)
        try:
            look_again_and_again(keeper.step, "exports", lambda: int(every_s))
        except _Ended:
            return

    run_in_side_process("exports", run)


if __name__ == "__main__":
    main()

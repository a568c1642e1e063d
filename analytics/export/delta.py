"""A table of Delta Lake, by `deltalake`.

A commit is one of Delta's: the rows, and which LSNs are exported, as application transactions (`txn` actions), which
checkpoints of the table keep. Each run of LSNs is two of them, under IDs of the log and the number of the run.
"""

from __future__ import annotations

import os
from collections.abc import Iterator

import pyarrow as pa
from deltalake import CommitProperties, DeltaTable, Transaction, write_deltalake
from deltalake.exceptions import DeltaError, TableNotFoundError

from ...base.errors import CairnError, DiskFull
from ..scan.ranges import Ranges
from .rows import Rows, Shape
from .sources import ExportPart
from .target import Target

_FULL = tuple(f"os error {number}" for number in (27, 28, 122))
"""The text of EFBIG, ENOSPC and EDQUOT in errors from Rust."""


class DeltaSink:
    """A Delta table as a target of exports. One process at a time, see `Target`; others may add rows, or compact it."""

    def __init__(self, target: Target, shape: Shape) -> None:
        """Raise `CairnError` for a Delta table that can't be read."""
        assert target.identity is not None
        self._path = target.path
        self._shape = shape
        self._app = f"cairnmq:{target.identity.log}"
        self._table = self._open()
        self._stored = self._reported()
        try:
            self.exported = Ranges.of(self._stored)
        except ValueError as error:
            reason = f"the Delta log has invalid ranges of LSNs: {error}"
            raise CairnError(self._path, reason, "export into another directory") from error

    def write_batch(self, part: ExportPart, rows: Rows) -> None:
        """Write the *rows* of *part* as one transaction of Delta."""
        after = part.added_to(self.exported)
        properties = CommitProperties(
            app_transactions=list(self._changes(after)),
            custom_metadata={"cairnmq.lsns": f"{part.first_lsn}-{part.end_lsn}"},
        )
        try:
            write_deltalake(
                self._path if self._table is None else self._table, rows.reader(), mode="append",
                partition_by=list(self._shape.partition) or None, name="records",
                description=f"records of the log {self._app.partition(':')[2]}", commit_properties=properties,
            )  # fmt: skip
            self._table = self._open()
        except (DeltaError, OSError, ValueError, pa.ArrowException) as error:
            if rows.error is not None:
                raise rows.error from None
            raise self._explained(error) from error
        self.exported, self._stored = after, after.runs

    def close(self) -> None:
        """Do nothing: each batch is committed already."""

    def _open(self) -> DeltaTable | None:
        if not os.path.isdir(os.path.join(self._path, "_delta_log")):
            return None
        try:
            return DeltaTable(self._path)
        except TableNotFoundError:
            return None
        except (DeltaError, OSError) as error:
            raise self._explained(error) from error

    def _reported(self) -> tuple[tuple[int, int], ...]:
        """The runs that the transactions of the table record."""
        table = self._table
        if table is None:
            return ()

        def version(what: str) -> int:
            return table.transaction_version(f"{self._app}:{what}") or 0

        return tuple((version(f"first:{number}"), version(f"end:{number}")) for number in range(version("runs")))

    def _changes(self, after: Ranges) -> Iterator[Transaction]:
        """The metadata that has to be written again."""
        if len(after.runs) != len(self._stored):
            yield Transaction(f"{self._app}:runs", len(after.runs))
        for number, run in enumerate(after.runs):
            if run not in self._stored[number : number + 1]:
                yield Transaction(f"{self._app}:first:{number}", run[0])
                yield Transaction(f"{self._app}:end:{number}", run[1])

    def _explained(self, error: Exception) -> CairnError:
        said = " ".join(str(error).split())[:300]
        if any(text in said for text in _FULL):
            return DiskFull(self._path, "no space left", "free some space or raise the quota")
        return CairnError(self._path, f"Delta Lake: {said}", "nothing was added; fix the cause and try again")

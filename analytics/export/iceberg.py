"""A table of Apache Iceberg, by `pyiceberg`, in a catalog of its own: `catalog.sqlite` in the directory.

A commit is one transaction of Iceberg's: the rows, in some snapshots, and which LSNs are exported, as a property of
the table. The catalog's row changes from the metadata before to the metadata after, or not at all.
"""

from __future__ import annotations

import json
import os

import pyarrow as pa
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.exceptions import NoSuchTableError
from pyiceberg.io.pyarrow import schema_to_pyarrow
from pyiceberg.table import Table, Transaction
from pyiceberg.transforms import DayTransform
from sqlalchemy import URL
from sqlalchemy.exc import SQLAlchemyError

from ...base.disk.real import disk_error
from ...base.errors import CairnError, DiskError
from ..scan.files import in_runs
from ..scan.ranges import Ranges
from .rows import Rows, Shape
from .sources import ExportPart
from .target import Target, unreadable

CATALOG = "catalog.sqlite"
TABLE = "cairnmq.records"
_EXPORTED = "cairnmq.exported"
_SNAPSHOT_BYTES = 64 << 20
"""A snapshot holds about so much, as Arrow has it: what is in memory at a time."""
_PROPERTIES = {
    "write.metadata.delete-after-commit.enabled": "true", "write.metadata.previous-versions-max": "20",
    "commit.manifest-merge.enabled": "true", "write.parquet.compression-codec": "zstd",
}  # fmt: skip


class IcebergSink:
    """An Iceberg table as a target of exports. One process at a time, see `Target`; others may add rows, or compact it.
    """

    def __init__(self, target: Target, shape: Shape) -> None:
        """Raise `CairnError` for an Iceberg table that can't be read."""
        self._path = target.path
        self._shape = shape
        try:
            place = os.path.join(self._path, CATALOG)
            catalog = URL.create("sqlite", database=place).render_as_string()
            self._catalog = SqlCatalog("cairnmq", uri=catalog, warehouse=f"file://{self._path}")
            self._catalog.create_namespace_if_not_exists("cairnmq")
            self._table = self._load()
        except (SQLAlchemyError, OSError) as error:
            raise self._explained(error) from error
        reported = {} if self._table is None else self._table.properties
        try:
            self.exported = Ranges.of(json.loads(reported.get(_EXPORTED, "[]")))
        except (TypeError, ValueError) as error:
            raise unreadable(f"{self._path}: property {_EXPORTED}", repr(error)) from error

    def write_batch(self, part: ExportPart, rows: Rows) -> None:
        """Write the *rows* of *part* as one transaction of Iceberg."""
        after = part.added_to(self.exported)
        try:
            with self._begun() as transaction:
                target = schema_to_pyarrow(transaction.table_metadata.schema(), include_field_ids=False)  # no int16
                for some in in_runs(rows, lambda batch: batch.nbytes, _SNAPSHOT_BYTES):
                    transaction.append(pa.Table.from_batches(some).cast(target))
                transaction.set_properties({_EXPORTED: json.dumps(after.runs)})
            self._table = self._load()
        except Exception as error:
            if rows.error is not None:
                raise rows.error from None
            raise self._explained(error) from error
        self.exported = after

    def close(self) -> None:
        """Close nothing: the catalog has no open resources."""
        self._catalog.close()

    def _load(self) -> Table | None:
        try:
            return self._catalog.load_table(TABLE)
        except NoSuchTableError:
            return None

    def _begun(self) -> Transaction:
        """A transaction on the table, or one that makes it: partitioned by the day of `time`, as Iceberg does it."""
        if self._table is not None:
            return self._table.transaction()
        begun = self._catalog.create_table_transaction(TABLE, schema=self._shape.schema, properties=_PROPERTIES)
        with begun.update_spec() as spec:
            for name in self._shape.partition:
                if name == "day":
                    spec.add_field("time", DayTransform(), "day")
                else:
                    spec.add_identity(name)
        return begun

    def _explained(self, error: Exception) -> CairnError:
        if isinstance(error, CairnError):
            return error
        if isinstance(error, OSError) and error.errno:
            return disk_error(self._path, "write", error)
        said = " ".join(str(error).split())[:300]
        if "database or disk is full" in said:
            return DiskError(self._path, "no space left", "free some space or raise the quota")
        reason = f"Iceberg: {type(error).__name__}: {said}"
        return CairnError(self._path, reason, "nothing was added; fix the cause and try again")

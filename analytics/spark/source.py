"""The data source `journal` for Spark.

Spark sends it to each worker by pickle. `guarded` makes it report a missing package in the Python of a worker.
"""

from __future__ import annotations

from collections.abc import MutableMapping

from pyspark.sql.datasource import DataSource, DataSourceReader, DataSourceStreamReader
from pyspark.sql.types import StructType

from ..scan.files import check_place
from .batch import JournalReader
from .options import check_batch, check_stream, parse
from .schemas import batch_schema, schema_of
from .stream import JournalStreamReader
from .workers import Reduced, guarded, settle


class JournalSource(DataSource):
    """`spark.read.format("journal").load(store)`, and `spark.readStream`; docs/reference/spark.md has the options."""

    def __init__(self, options: MutableMapping[str, str]) -> None:
        super().__init__(options)

    @classmethod
    def name(cls) -> str:
        return "journal"

    def schema(self) -> StructType:
        options = parse(self.options)
        check_place(options.path)  # so that an invalid path is reported here
        schema = schema_of(options)
        settle()
        return schema

    def reader(self, schema: StructType) -> DataSourceReader:
        options = parse(self.options)
        check_batch(options)
        return JournalReader(options, batch_schema(schema, options))

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        options = parse(self.options)
        check_stream(options)
        return JournalStreamReader(options, batch_schema(schema, options))

    def __reduce__(self) -> Reduced:
        return guarded(self)

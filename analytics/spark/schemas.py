"""From Arrow's schemas to Spark's and back: Spark wants batches to have exactly the schema that it makes of its own."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import pyarrow as pa
from pyspark.sql.pandas.types import from_arrow_schema, to_arrow_schema
from pyspark.sql.types import StructType

from ...base.errors import CairnError
from .options import Options


def schema_of(options: Options) -> StructType:
    """The schema of a view in Spark's types."""
    return from_arrow_schema(options.arrow_schema())


def batch_schema(schema: StructType, options: Options) -> pa.Schema:
    """The schema of batches for one that a user may have written. Raises `CairnError` if that does not fit the view."""
    own = from_arrow_schema(options.arrow_schema(tuple(schema.fieldNames())))
    for wanted, there in zip(schema.fields, own.fields, strict=True):
        asked, is_kind = wanted.dataType.simpleString(), there.dataType.simpleString()
        if asked != is_kind:
            remedy = "leave the schema out: the view has its own"
            raise CairnError(f"column {wanted.name!r}", f"it is {is_kind}, not {asked}", remedy)
    return to_arrow_schema(schema, timezone="UTC")


def converted(batches: Iterable[pa.RecordBatch], schema: pa.Schema) -> Iterator[Any]:
    """The batches with rows, in *schema*."""
    for batch in batches:
        if batch.num_rows:
            yield batch if batch.schema.equals(schema) else batch.cast(schema)

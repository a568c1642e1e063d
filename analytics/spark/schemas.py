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


def names_in(schema: StructType, options: Options) -> tuple[str, ...]:
    """The columns that a schema asks for, which a user may have written. Raises `CairnError` if it does not fit."""
    names = tuple(schema.fieldNames())
    own = from_arrow_schema(options.arrow_schema(names))
    for wanted, there in zip(schema.fields, own.fields, strict=True):
        asked, is_kind = wanted.dataType.simpleString(), there.dataType.simpleString()
        if asked != is_kind:
            remedy = "leave the schema out: the view has its own"
            raise CairnError(f"column {wanted.name!r}", f"it is {is_kind}, not {asked}", remedy)
    return names


class Conversion:
    """Gives batches the schema that Spark expects."""

    def __init__(self, schema: StructType) -> None:
        self._target = to_arrow_schema(schema, timezone="UTC")

    def converted(self, batches: Iterable[pa.RecordBatch]) -> Iterator[Any]:
        target = self._target
        for batch in batches:
            if batch.num_rows:
                yield batch if batch.schema.equals(target) else batch.cast(target)

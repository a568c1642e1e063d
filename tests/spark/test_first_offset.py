"""Spark asks for the first offset again if it was stopped in its first batch: the answer must be the same."""

from __future__ import annotations

from pathlib import Path

import pytest

from cairnmq.spark.options import parse
from cairnmq.spark.schemas import Conversion, schema_of
from cairnmq.spark.stream import JournalStreamReader
from cairnmq.store.bookmarks import read_bookmark

from ..store.test_bookmarks import Churn


@pytest.mark.parametrize("begin", ["earliest", "latest"])
def test_a_slot_says_where_the_first_batch_began(tmp_path: Path, begin: str) -> None:
    churn = Churn(tmp_path)
    churn.pass_through(5)
    churn.store.journal.write_mark()

    def reader() -> JournalStreamReader:
        options = parse({"path": str(tmp_path), "slot": "s", "startingOffsets": begin})
        return JournalStreamReader(options, options.names(), Conversion(schema_of(options)))

    first = reader().initialOffset()
    churn.pass_through(10)
    churn.store.journal.write_mark()
    again = reader().initialOffset()
    assert again == first
    end = reader().reportLatestOffset()
    assert reader().partitions(first, {**first, **end})
    reader().commit({**first, **end})
    found = read_bookmark(str(tmp_path), "s")
    assert found is not None
    assert found.lsn == end["lsn"]
    churn.store.close()

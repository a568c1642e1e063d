"""The option `queues` of the data source."""

from __future__ import annotations

import json

import pytest

from cairnmq.analytics.spark.options import parse
from cairnmq.base.errors import CairnError


def test_queue_with_a_comma_is_named_in_a_json_list() -> None:
    # S10
    names = ("a,b", '["c"]', " d ", "17")
    assert parse({"path": "/data", "queues": json.dumps(names)}).queues == names
    assert parse({"path": "/data", "queues": "a, 17"}).queues == ("a", "17")


@pytest.mark.parametrize("value", ["[", "[1]", '[["a"]]'])
def test_list_that_is_no_json_is_refused(value: str) -> None:
    with pytest.raises(CairnError, match="JSON list of names"):
        parse({"path": "/data", "queues": value})

"""Errors pass between processes as they are: a pool of workers that can't say what went wrong breaks instead."""

from __future__ import annotations

import pickle

import pytest

from cairnmq.base.errors import CairnError, CorruptJournal, DiskFull


@pytest.mark.parametrize(
    "error",
    [CairnError("here", "it is so"), DiskFull("/disk", "no space", "free some"), CorruptJournal("a", "b", "c", 64, 99)],
    ids=lambda error: type(error).__name__,
)
def test_errors_can_be_pickled(error: CairnError) -> None:
    again = pickle.loads(pickle.dumps(error))
    assert (type(again), str(again), vars(again)) == (type(error), str(error), vars(error))

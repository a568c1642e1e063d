"""Tests of the code path of one durable message from the socket to the disk and to the consumer.

The limits may only be lowered. `docs/PATH.md` lists the files of the path; `python -m tests.structure.path_page`
updates it.
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.conftest import Tell

from .modules import ROOT
from .tracing import Figures, Trace, traced

MOST = {"calls": 100, "files": 28, "stays": 74, "climbs": 18}
"""Limits of the figures of one message that is enqueued and delivered.

A flush that ends while its worker still plays the core saves about 13 calls, which the limits do not assume. On a
loaded machine the best of all messages has 92 to 99 calls.
"""

BY_CHANCE = 6
"""Number of files that a message passes or not, depending on the timing of threads."""


@pytest.fixture(scope="module")
def traces(tmp_path_factory: pytest.TempPathFactory) -> list[Trace]:
    return traced(tmp_path_factory.mktemp("path") / "store")


def test_path_of_a_durable_message(traces: list[Trace], tell: Tell) -> None:
    measured = [Figures.of(trace.values()) for trace in traces]
    found = {name: min(getattr(figures, name) for figures in measured) for name in MOST}
    tell(f"path of one durable message: {found}")
    assert all(found[name] <= most for name, most in MOST.items()), found


def test_page_lists_the_files_of_the_path(traces: list[Trace]) -> None:
    page: Path = ROOT / "docs" / "PATH.md"
    listed = set(re.findall(r"`([\w/]+\.py)`", page.read_text()))
    always = set.intersection(*({entry.path for entries in trace.values() for entry in entries} for trace in traces))
    ever = {entry.path for trace in traces for entries in trace.values() for entry in entries}
    assert not always - listed, "write it anew: python -m tests.structure.path_page"
    assert len(listed - ever) <= BY_CHANCE, "write it anew: python -m tests.structure.path_page"

"""Tests that errors are passed between processes unchanged, and that their remedies work."""

from __future__ import annotations

import pickle
import re
from pathlib import Path

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


def test_nobody_is_told_to_install_an_unpublished_name() -> None:  # usability 3
    """No text recommends installing `cairnmq` from an index, where third parties could register this name."""
    root = Path(__file__).parent.parent
    pages = [root / "README.md", root / "CONTRIBUTING.md", *(root / "docs").rglob("*.md"), *root.glob("docs/*/*.ipynb")]
    sources = list((root / "typings/cairnmq").glob("*/**/*.py"))
    assert len(pages) > 15
    assert len(sources) > 200
    told = re.compile(r"(?:pip3?|uv pip|pipx) install[^\n;]*?['\" ]cairnmq(?=['\"\[ `]|$)", re.M)
    texts = {str(path.relative_to(root)): path.read_text() for path in (*pages, *sources)}
    found = [(name, one[0]) for name, text in texts.items() for one in told.finditer(text)]
    assert not found

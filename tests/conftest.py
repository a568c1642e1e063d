"""What tests of several folders need."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import count

import pytest

from .postgresql import Server, why_not

_numbers = count()


@pytest.fixture(scope="session")
def server() -> Iterator[Server]:
    """A real PostgreSQL server."""
    reason = why_not()
    if reason:
        pytest.skip(reason)
    made = Server()
    try:
        yield made
    finally:
        made.remove()


@pytest.fixture
def catalog() -> str:
    """A catalog that nothing is in."""
    return f'Catalog {next(_numbers)} "of" tests'

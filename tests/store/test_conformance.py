"""Tests of all stores with the conformance suite, which detects stores that violate the contract.

E4, E46, E50 to E53, E64 to E66: each test names its own.
"""

from __future__ import annotations

from itertools import count

import pytest

from tests.harness.postgresql import Server
from tests.harness.store.makers import JournalMaker, MemoryMaker, SqlMaker

pytest.register_assert_rewrite("cairnmq.store.conformance")

from cairnmq.store.conformance import StoreConformance, StoreMaker  # noqa: E402

_numbers = count()


class TestMemory(StoreConformance):
    def make(self) -> StoreMaker:
        return MemoryMaker()


class TestJournal(StoreConformance):
    def make(self) -> StoreMaker:
        return JournalMaker()


class TestSqlite(StoreConformance):
    def make(self) -> StoreMaker:
        return SqlMaker()


class TestPostgresql(StoreConformance):
    histories = 8

    @pytest.fixture(autouse=True)
    def _on(self, server: Server) -> None:
        self.server = server

    def make(self) -> StoreMaker:
        return SqlMaker(self.server, f'Conformance {next(_numbers)} "of" tests')

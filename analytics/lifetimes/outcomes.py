"""Outcomes of transactions, as far as the log still has them, and the operations that count.

A tx-commit means every operation of its transaction. A copied one lists those that still count when it was copied: what
is not listed was done, and is over. A missing outcome is not needed any more, or did not exist: what
was written last before the log was opened again was never committed, and what stands at its very end may still be.
"""

from __future__ import annotations

from array import array
from typing import NamedTuple

import numpy as np

from ...journal.format.record import Flag, RecordType
from ...store.message_map.transaction_log import UNPLACED
from ..scan.number_sets import Flags, Longs, is_in, unique
from .record_tables import Bytes, RecordTables

FATES = ("", "rolled back", "open", "forgotten")
ROLLED_BACK, OPEN, FORGOTTEN = 1, 2, 3
_TELLS_OUTCOME = np.zeros(256, bool)
_TELLS_OUTCOME[[RecordType.TX_ROLLBACK, RecordType.TX_PREPARE, RecordType.TX_END, RecordType.TX_DELETE]] = True


class Outcomes(NamedTuple):
    """The outcomes of all transactions in a log."""

    committed: Longs
    """Ids of those with a tx-commit."""
    copied: Longs
    """Ids of those of which only copies of it are left."""
    listed: Longs
    """LSNs of the operations that these list."""
    unplaced: Longs
    """LSNs of Start records among them whose message is not on that queue any more."""
    undecided: Longs
    """Ids, ascending, of those without an outcome that were not prepared."""
    fates: Bytes
    """The fates of the undecided transactions, as numbers of `FATES`."""
    undone: Longs
    """LSNs of all that belongs to transactions that were committed from the LSN on as of which this is."""

    def counts(self, facts: RecordTables) -> Flags:
        """Return whether each of these records was done: it belongs to no transaction, or to a committed one."""
        counts: Flags = facts.txn_id == 0
        inside = np.flatnonzero(~counts)
        counts[inside] = is_in(facts.txn_id[inside], self.committed)
        return counts

    def is_over(self, facts: RecordTables) -> Flags:
        """Return whether each of these is one that counts no more, by the copy of its tx-commit."""
        over = is_in(facts.txn_id, self.copied)
        inside = np.flatnonzero(over)
        over[inside] = ~is_in(facts.lsn[inside], self.listed)
        return over

    def fate_of(self, txn_ids: Longs) -> Bytes:
        """The fate of each transaction, a number of `FATES`; 0 if its outcome is known."""
        found = np.zeros(len(txn_ids), np.uint8)
        here = np.flatnonzero(is_in(txn_ids, self.undecided))
        found[here] = self.fates[np.searchsorted(self.undecided, txn_ids[here])]
        return found


def outcomes_of(facts: RecordTables, as_of: int) -> Outcomes:
    """Return the outcomes as of an LSN: transactions that were committed from there on were open then."""
    commits = facts.of_type(RecordType.TX_COMMIT)
    later = commits.txn_id[(commits.lsn >= as_of) & ~commits.has(Flag.MOVED)]
    commits = commits.where(~is_in(commits.txn_id, later))
    is_copy = commits.has(Flag.MOVED)
    committed = unique(commits.txn_id)
    copied = committed[~is_in(committed, commits.txn_id[~is_copy])]
    reported: list[int] = []
    for lsn in commits.lsn[is_copy & is_in(commits.txn_id, copied)].tolist():
        reported += array("Q", facts.payloads[lsn])
    listed = np.array(reported, np.int64)
    decided = np.concatenate((committed, facts.txn_id[_TELLS_OUTCOME[facts.type]]))
    known = unique(facts.txn_id[facts.txn_id != 0])
    undecided = known[~is_in(known, decided)]
    fates = _fates(facts, undecided)
    fates[is_in(undecided, later)] = OPEN
    steps, is_unplaced = listed & ~UNPLACED, (listed & UNPLACED) != 0
    undone = facts.lsn[is_in(facts.txn_id, later)]
    return Outcomes(committed, copied, steps, steps[is_unplaced], undecided, fates, undone)


def prepared_transactions(facts: RecordTables, as_of: int | None = None) -> Longs:
    """The ids of the transactions that are prepared, and whose outcome was not decided before the LSN *as_of*."""

    def known(kind: RecordType) -> Longs:
        some = facts.of_type(kind)
        return some.txn_id if as_of is None else some.txn_id[some.lsn < as_of]

    prepared = known(RecordType.TX_PREPARE)
    return prepared[~is_in(prepared, np.concatenate((known(RecordType.TX_COMMIT), known(RecordType.TX_ROLLBACK))))]


def _fates(facts: RecordTables, undecided: Longs) -> Bytes:
    """By what stands behind the last record of each of these; if that can't be read, it may be an outcome."""
    opens = np.flatnonzero(facts.type == int(RecordType.LOG_OPEN))
    before = opens[opens > 0] - 1
    breaks = np.searchsorted(facts.breaks, facts.lsn)
    fates = np.full(len(undecided), FORGOTTEN, np.uint8)
    fates[is_in(undecided, facts.txn_id[before[breaks[before] == breaks[before + 1]]])] = ROLLED_BACK
    if len(breaks) and breaks[-1] == len(facts.breaks):
        fates[is_in(undecided, facts.txn_id[-1:])] = OPEN
    return fates

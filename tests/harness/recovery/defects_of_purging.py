"""Seeded defects in purges of a queue by one record (cuts)."""

from __future__ import annotations

import pytest

from cairnmq.journal.format.record import RecordHead
from cairnmq.store.message_map.pins import Pins
from cairnmq.store.message_map.purges import PurgeMark, PurgeMarks
from cairnmq.store.message_map.state import QUEUE_DELETE, State
from cairnmq.store.reclaim.relocation import Relocation
from tests.harness.recovery.defects import defect


@defect
def a_cut_does_not_hold_its_record(patch: pytest.MonkeyPatch) -> None:
    """Let the record of a cut leave the log before the cut is applied to all messages: nothing else holds it."""
    real, let_go, lsns = State.cut, Pins.release, set[int]()

    def cut(self: State, cut: PurgeMark, source_lsn: int = 0) -> None:
        lsns.add(cut.lsn)
        with pytest.MonkeyPatch.context() as inner:
            inner.setattr(Pins, "hold", lambda self, lsn, size_bytes: None)
            real(self, cut, source_lsn)

    patch.setattr(State, "cut", cut)
    patch.setattr(Pins, "release", lambda self, lsn, size: None if lsn in lsns else let_go(self, lsn, size))


@defect
def a_cut_ends_nothing(patch: pytest.MonkeyPatch) -> None:
    """Let the record leave the log when the cut is applied, so that the messages reappear."""
    patch.setattr(Pins, "end_once", lambda self, lsn, ended_lsn: None)


@defect
def a_cut_is_not_relocated(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Relocation, "_copy_cut", lambda self, block, lsn, head: None)


@defect
def messages_are_relocated_though_their_queue_was_cut(patch: pytest.MonkeyPatch) -> None:
    """Copy purged messages: a recovery that starts behind the cut reads the copies without it."""
    real = Relocation.__init__
    patch.setattr(Relocation, "__init__", lambda self, state, journal, _: real(self, state, journal, lambda one: None))


@defect
def a_relocated_cut_cuts_where_it_stands(patch: pytest.MonkeyPatch) -> None:
    """Purge also the messages that were enqueued between the record and its copy."""
    real = State.cut

    def cut(self: State, cut: PurgeMark, source_lsn: int = 0) -> None:
        real(self, cut._replace(position=cut.lsn), source_lsn)

    patch.setattr(State, "cut", cut)


@defect
def a_relocated_cut_keeps_nothing(patch: pytest.MonkeyPatch) -> None:
    real = State.cut

    def cut(self: State, cut: PurgeMark, source_lsn: int = 0) -> None:
        real(self, cut if cut.lsn == cut.position else cut._replace(kept=frozenset()), source_lsn)

    patch.setattr(State, "cut", cut)


@defect
def a_checkpoint_knows_no_cuts(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(PurgeMarks, "encode", lambda self: b"")


@defect
def a_cut_is_forgotten_when_its_messages_were_looked_at(patch: pytest.MonkeyPatch) -> None:
    """Forget a cut although a checkpoint in progress has older pages."""
    patch.setattr(PurgeMarks, "swept", lambda self, queue_id: [self.unswept.pop(queue_id)])


@defect
def the_oldest_cut_of_a_queue_counts(patch: pytest.MonkeyPatch) -> None:
    real = PurgeMarks.add

    def add(self: PurgeMarks, cut: PurgeMark) -> list[PurgeMark]:
        return [] if cut.queue_id in self.unswept else real(self, cut)

    patch.setattr(PurgeMarks, "add", add)


@defect
def a_copied_cut_ends_only_what_is_looked_at_again(patch: pytest.MonkeyPatch) -> None:
    """Let a recovery from a checkpoint without the messages drop the copy of the cut, so that they reappear."""
    real = State.cut
    patch.setattr(State, "cut", lambda self, cut, source_lsn=0: real(self, cut))


@defect
def recovery_takes_no_notice_of_cuts(patch: pytest.MonkeyPatch) -> None:
    real = State.apply

    def apply(self: State, lsn: int, head: RecordHead, payload: object) -> None:
        if head.type != QUEUE_DELETE:
            real(self, lsn, head, payload)  # type: ignore[arg-type]

    patch.setattr(State, "apply", apply)


@defect
def a_cut_takes_what_comes_later(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(PurgeMark, "takes", lambda self, message_id, position: message_id not in self.kept)

"""The verification of a store: every byte that a checksum covers, and every reference from one part to another.

The journal is read once, as recovery reads it, also while a broker writes it, and nothing is ever written. The checks:

* each block: its checksum, its place in the chain, and zeros in its padding
* each payload: its own checksum
* references between records: see `references`
* the resulting state: compared with the checkpoint and with SQL

The broker may recycle containers that are about to be read. Records that left the log are not reported as missing, and
properties that the log no longer shows are not judged.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field

from ...base.disk.seam import SECTOR_BYTES, ReadableDirectory
from ...base.errors import JournalError
from ...journal.read.scanner import Damage
from ...recovery.replay import Replay
from ...store.checkpoint.checkpoint_file import CheckpointFile
from ...store.message_map.state import State
from ...store.wiring.rescue import Rescued
from ..inspect.journal_check import Progress, byte_counter
from .checked_reader import CheckedReader
from .checkpoint_check import CheckpointComparison
from .container_check import container_verdicts, first_block_verdicts, mark_verdicts
from .gap_check import gap_verdicts
from .payload_check import PayloadSums, payload_verdicts
from .references import References, reference_verdicts
from .verdicts import SALVAGE, Verdict, VerifyReport
from .wiring_check import judge_sql


@dataclass(eq=False)
class Verify:
    """One verification of a store; *report* has the results so far, even if `run` is interrupted."""

    report: VerifyReport
    directory: ReadableDirectory
    """The journal's."""
    read_sql: Callable[[], Rescued] | None
    """None to leave SQL out."""
    checkpoint: CheckpointFile | None
    progress: Progress
    _gaps: list[Damage] = field(default_factory=list, init=False)

    def run(self) -> None:
        """Raises `CairnError` if there is nothing that could be verified."""
        begun_s = time.monotonic()
        rescued = None if self.read_sql is None else self.read_sql()
        reader = CheckedReader(self.directory, None if rescued is None else rescued.uuid)
        self.report.verdicts += mark_verdicts(reader.mended.identity)
        replay = Replay(State(reader.container_bytes), self.directory.path, reader.container_bytes)
        compared = CheckpointComparison(self.checkpoint, reader) if self.checkpoint is not None else None
        heads = reader.heads
        references = References(reader.container_bytes, lambda slot: slot in heads.by_slot and reader.holds(slot))
        try:
            self._scan(reader, replay, references, compared)
        finally:
            self.report.seconds = time.monotonic() - begun_s
        # at its end the reader has looked at all heads once more: what is the log by now
        slots = dict.fromkeys([slot for slot in reader.slots if reader.holds(slot)], 0)
        count, verdicts = container_verdicts(self.directory, reader, slots)
        self.report.containers += count
        self.report.verdicts += verdicts
        self.report.verdicts += reference_verdicts(references, slots, self._gaps, reader)
        if self._gaps:
            self.report.verdicts += gap_verdicts(self.directory, self._gaps, rescued, reader, self.progress)
        try:
            replay.reconcile(slots)
        except JournalError as error:
            self.report.verdicts.append(Verdict("corrupt", error.place, error.reason, remedy=SALVAGE))
        else:
            self.report.messages = replay.state.on_queues
            if compared is not None:
                self.report.verdicts += compared.verdicts(replay.state, slots, reader, is_complete=not self._gaps)
                self.report.checked.append("checkpoint")
            if self.read_sql is not None and rescued is not None:
                self.report.verdicts += judge_sql(rescued, self.read_sql(), reader.log_uuid, replay.state)
                self.report.checked.append("SQL")
        for first, end in reader.recycled:
            what = "it left the log while it was about to be read"
            self.report.verdicts.append(Verdict("note", "the log", what, first_lsn=first, end_lsn=end))
        self.report.seconds = time.monotonic() - begun_s

    def _scan(
        self, reader: CheckedReader, replay: Replay, references: References, compared: CheckpointComparison | None
    ) -> None:
        report, size = self.report, reader.container_bytes
        tell = report.verdicts.append
        sums = PayloadSums()
        total = len(reader.slots) * size
        add = byte_counter("reading the journal", total, self.progress)
        last = 0
        report.base_lsn = reader.heads.base_lsn
        report.checked += ["blocks", "chain", "records", "references", "containers"]
        for found in reader.scan():
            if isinstance(found, Damage):
                report.end_lsn = reader.end_lsn
                if found.torn:
                    what = f"a torn end: {found.reason}; nothing in it was ever confirmed"
                    place, remedy = reader.file_name_of(found.first_lsn), "the next start cuts it"
                    tell(Verdict("torn", place, what, "", remedy, found.first_lsn, found.end_lsn))
                    break
                self._gaps.append(found)
                continue
            lsn = found.lsn
            if (not last or lsn // size != last // size) and reader.last is found:
                report.verdicts += first_block_verdicts(reader, found)
            last = lsn
            sums.take(found)
            if sums.doubtful:
                report.verdicts += payload_verdicts(sums, reader)
            references.take(found)
            replay.take(found)
            if compared is not None:
                compared.take(found)
            report.blocks += 1
            report.records += found.head.records
            report.bytes += found.end_lsn - lsn
            add(found.end_lsn - lsn)
        report.end_lsn = reader.end_lsn
        sums.check()
        report.verdicts += payload_verdicts(sums, reader)
        references.finish()
        replay.apply()
        self.progress("reading the journal", total, total)
        for lsn, end in sorted(reader.ragged.items()):
            what = f"the block at LSN {lsn} is whole, and what fills its last sector is not zeros"
            remedy = "nothing needs it; look after the disk"
            tell(Verdict("corrupt", reader.file_name_of(lsn), what, "nothing", remedy, end - SECTOR_BYTES, end))

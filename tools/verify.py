"""Whether a store is as it was written: every byte that a checksum covers, every claim that one part makes of another.

The journal is read once, as recovery reads it, also while a broker writes it, and nothing is ever written. Each block
is checked by its checksum and its place in the chain, its padding for being zeros, each payload by its own checksum,
what records say of others by `references`. What they add up to is compared with the checkpoint and with SQL.

The broker may recycle what is about to be read. What left the log is not missed, and what can't be told any more is not
judged.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable

from ..base.errors import CairnError, JournalError
from ..disk.seam import SECTOR_BYTES, Directory
from ..journal import container, mark
from ..journal.block import BadBlock, Block, padded
from ..journal.reader import Damage, LogReader
from ..journal.record import HEAD_BYTES
from ..recovery.identity import identify
from ..recovery.mending import MendedDirectory
from ..recovery.replay import Replay
from ..recovery.survey import Survey, survey
from ..store.checkpoint_file import CheckpointFile
from ..store.placement import count_by_queue
from ..store.rescue import Rescued
from ..store.state import State
from .checking import Progress
from .payload_sums import PayloadSums, bad_records
from .references import References
from .verdicts import SALVAGE, Verdict, VerifyReport
from .verify_checkpoint import Compared
from .verify_sql import judge_sql

_ZEROS = bytes(SECTOR_BYTES)
_STEP_BYTES = 4 << 20
_NAMED = 100
"""So many wrong references are told one by one."""


class _Reader(LogReader):
    """Notes blocks whose padding is not zeros."""

    def __init__(self, directory: Directory) -> None:
        self.ragged: dict[int, int] = {}
        """Their LSN, and where they end."""
        super().__init__(directory)

    def _block_at(self, lsn: int) -> Block | BadBlock:
        found = super()._block_at(lsn)
        if isinstance(found, Block):
            size = found.head.size_bytes
            rest = padded(size) - size
            window = self._window(lsn // self.container_bytes) if rest else None
            if window is not None and window.at(lsn % self.container_bytes + size, rest)[:rest] != _ZEROS[:rest]:
                self.ragged[lsn] = lsn + size + rest
        return found

    def block_at(self, lsn: int) -> Block | None:
        """A block that was read before, again; None if it is not there any more."""
        found = self._block_at(lsn)
        return found if isinstance(found, Block) else None


class Verify:
    """One look at a store, in *report*, which holds what is known by now also if `run` is broken off."""

    def __init__(
        self,
        report: VerifyReport,
        directory: Directory,
        read_sql: Callable[[], Rescued] | None,
        checkpoint: CheckpointFile | None,
        progress: Progress,
    ) -> None:
        """*directory*: the journal's. *read_sql* and *checkpoint*: None to leave them out."""
        self.report = report
        self._directory = directory
        self._read_sql = read_sql
        self._checkpoint = checkpoint
        self._progress = progress
        self._gaps: list[Damage] = []
        self._tell = report.verdicts.append

    def run(self) -> None:
        """Raises `CairnError` if there is nothing that could be verified."""
        begun_s = time.monotonic()
        rescued = None if self._read_sql is None else self._read_sql()
        identity = identify(self._directory, None if rescued is None else rescued.uuid)
        if identity.finding is not None:
            remedy = f"nothing proves the end of the log any more; {SALVAGE}"
            self._tell(Verdict("corrupt", mark.NAME, identity.finding.why, remedy=remedy))
        elif identity.doubt is not None:
            self._tell(Verdict("torn", mark.NAME, identity.doubt.why, remedy="the next start writes both places"))
        shown = b"" if identity.finding is None else mark.encode(identity.mark)
        mended = MendedDirectory(self._directory, identity.mark, shown_mark=shown)
        reader = _Reader(mended)
        state = State(reader.container_bytes)
        compared = Compared(self._checkpoint, reader) if self._checkpoint is not None else None
        references = References(reader.container_bytes, lambda slot: slot in reader.heads and reader.holds(slot))
        try:
            self._scan(reader, state, references, compared)
        finally:
            self.report.seconds = time.monotonic() - begun_s
        # at its end the reader has looked at all heads once more: what is the log by now
        slots = dict.fromkeys([slot for slot in reader.slots if reader.holds(slot)], 0)
        self._judge_containers(reader, slots, mended)
        self._judge_references(references, slots, reader)
        self._judge_gaps(reader, rescued)
        try:
            state.finish(slots)
        except JournalError as error:
            self._tell(Verdict("corrupt", error.place, error.reason, remedy=SALVAGE))
        else:
            self.report.messages = len(state) - len(state.unfinished())
            if compared is not None:
                self.report.verdicts += compared.verdicts(state, slots, reader, is_whole=not self._gaps)
                self.report.checked.append("checkpoint")
            if self._read_sql is not None and rescued is not None:
                counts = count_by_queue(state)
                self.report.verdicts += judge_sql(rescued, self._read_sql(), identity.mark.log_uuid, counts)
                self.report.checked.append("SQL")
        for first, end in reader.recycled:
            what = "it left the log while it was about to be read"
            self._tell(Verdict("note", "the log", what, first_lsn=first, end_lsn=end))
        self.report.seconds = time.monotonic() - begun_s

    # ---- reading --------------------------------------------------------------------------------------------------

    def _scan(self, reader: _Reader, state: State, references: References, compared: Compared | None) -> None:
        report, size = self.report, reader.container_bytes
        replay, sums = Replay(state, self._directory.path, size), PayloadSums()
        total = len(reader.slots) * size
        last, next_step = 0, 0
        report.base_lsn = reader.base_lsn
        report.checked += ["blocks", "chain", "records", "references", "containers"]
        for found in reader.scan():
            if isinstance(found, Damage):
                report.end_lsn = reader.end_lsn
                if found.torn:
                    what = f"a torn end: {found.why}; nothing in it was ever confirmed"
                    self._tell(Verdict("torn", _name(reader, found.first_lsn), what, "", "the next start cuts it",
                                       found.first_lsn, found.end_lsn))  # fmt: skip
                    break
                self._gaps.append(found)
                continue
            lsn = found.lsn
            if lsn // size != last // size and last and reader.last is found:
                self._judge_step(reader, last, found)
            last = lsn
            sums.take(found)
            if sums.doubtful:
                self._judge_payloads(sums, reader)
            references.take(found)
            replay.take(found)
            if compared is not None:
                compared.take(found)
            report.blocks += 1
            report.records += found.head.records
            report.bytes += found.end_lsn - lsn
            if report.bytes >= next_step:
                next_step = report.bytes + _STEP_BYTES
                self._progress("reading the journal", min(report.bytes, total), total)
        report.end_lsn = reader.end_lsn
        sums.check()
        self._judge_payloads(sums, reader)
        references.finish()
        replay.apply()
        self._progress("reading the journal", total, total)
        for lsn, end in sorted(reader.ragged.items()):
            what = f"the block at LSN {lsn} is whole, and what fills its last sector is not zeros"
            remedy = "nothing needs it; look after the disk"
            self._tell(Verdict("corrupt", _name(reader, lsn), what, "nothing", remedy, end - SECTOR_BYTES, end))

    def _judge_payloads(self, sums: PayloadSums, reader: _Reader) -> None:
        """Each payload by its own checksum: it was made when the record was appended, before the block was."""
        doubtful, sums.doubtful = sums.doubtful, []
        for block_lsn in doubtful:
            block = reader.block_at(block_lsn)
            if block is None:  # it has left the log meanwhile
                continue
            for number in bad_records(block):
                lsn = block.record_lsn(number)
                message_id = block.heads()[number].message_id
                what = f"the payload of the record at LSN {lsn} does not match its checksum, though its block is whole"
                lost = f"message {message_id}" if message_id else ""
                self._tell(Verdict("corrupt", _name(reader, lsn), what, lost, SALVAGE, lsn, lsn + HEAD_BYTES))

    def _judge_step(self, reader: LogReader, last: int, first: Block) -> None:
        """A container's head names the same block before it as its first block does."""
        head = reader.heads.get(first.lsn // reader.container_bytes)
        if head is None or first.lsn % reader.container_bytes != container.DATA_OFFSET:
            return
        if head.prev_lsn != first.head.prev_lsn:
            what = f"its head names the block at LSN {head.prev_lsn} as the last before it, its first block another"
            name = container.file_name(head.number)
            self._tell(Verdict("corrupt", name, what, "nothing", SALVAGE, head.slot_lsn, first.end_lsn))

    # ---- judging --------------------------------------------------------------------------------------------------

    def _judge_containers(self, reader: LogReader, slots: Iterable[int], mended: MendedDirectory) -> None:
        size = reader.container_bytes
        names = {slot: container.file_name(reader.heads[slot].number) for slot in slots}
        told = {finding.place for finding in mended.findings.values()}
        for finding in mended.findings.values():
            if names.get(finding.first_lsn // size) == finding.place:  # else it is half a copy of another
                what = f"its head can't be read ({finding.why}); its blocks tell what it holds"
                self._tell(Verdict("corrupt" if finding.kind == "corrupt" else "torn", finding.place, what, "nothing",
                                   SALVAGE, finding.first_lsn, finding.end_lsn))  # fmt: skip
        for slot, name in names.items():
            if name in told:
                continue
            self.report.containers += 1
            for what in self._faults(name, size):
                self._tell(Verdict("corrupt", name, what, "nothing", SALVAGE, slot * size, slot * size + SECTOR_BYTES))
        newest = reader.mark.incarnation
        written = 0 if reader.last is None else reader.last.head.incarnation
        if written > newest and self._has_whole_mark():
            what = f"it knows of {newest} openings of the log, the log of {written}: an older copy was put back"
            self._tell(Verdict("corrupt", mark.NAME, what, remedy="put back the newest; the next start writes it"))
        for remark in dict.fromkeys([*mended.remarks, *reader.remarks]):
            self._tell(Verdict("note", "journal", remark))

    def _has_whole_mark(self) -> bool:
        return mark.NAME in self._directory.names() and all(mark.read_places(self._directory))

    def _faults(self, name: str, size_bytes: int) -> list[str]:
        """What is wrong with a container that holds a part of the log, beside its blocks."""
        try:
            file = self._directory.open(name)
        except CairnError as error:
            return [error.reason]
        try:
            found = file.size_bytes()
            sector = file.read_at(0, SECTOR_BYTES)
        except CairnError as error:
            return [error.reason]
        finally:
            file.close()
        faults = [] if found == size_bytes else [f"it has {found} bytes, a container has {size_bytes}"]
        try:
            number = container.decode_head(sector, name).number
        except container.BadContainer as error:
            return [*faults, f"its head can't be read ({error}); its blocks tell what it holds"]
        if container.file_name(number) != name:
            faults.append(f"it was written as {container.file_name(number)}")
        if any(sector[container.HEAD.size :]):
            faults.append("what fills the sector of its head is not zeros")
        return faults

    def _judge_references(self, references: References, slots: dict[int, int], reader: LogReader) -> None:
        size = reader.container_bytes
        wrong = [
            one for one in references.wrong
            if one.named // size in slots and one.lsn // size in slots and not self._is_in_gap(one.named)
        ]  # fmt: skip
        for one in wrong[:_NAMED]:
            what = f"the record at LSN {one.lsn} names LSN {one.named} as {one.what}, where no such record stands"
            self._tell(Verdict("corrupt", _name(reader, one.lsn), what, "", SALVAGE, one.lsn, one.lsn + HEAD_BYTES))
        if len(wrong) > _NAMED:
            more = references.wrong_count - _NAMED
            self._tell(Verdict("corrupt", "the log", f"at most {more} more records name others that are not there"))

    def _is_in_gap(self, lsn: int) -> bool:
        return any(gap.first_lsn <= lsn < gap.end_lsn for gap in self._gaps)

    def _judge_gaps(self, reader: LogReader, rescued: Rescued | None) -> None:
        """What can't be read, and what is lost with it: the survey tells, which reads the log once more."""
        if not self._gaps:
            return
        names = {} if rescued is None else rescued.queue_names
        try:
            found: Survey | None = survey(
                self._directory, names, None if rescued is None else rescued.uuid,
                lambda done, total: self._progress("telling what is lost", done, total),
            )  # fmt: skip
        except CairnError:
            found = None
        for gap in self._gaps:
            lost = "" if found is None else _lost(found, gap, names)
            what = f"it was durable and can't be read: {gap.why}"
            self._tell(Verdict("corrupt", _name(reader, gap.first_lsn), what, lost, SALVAGE, gap.first_lsn,
                               gap.end_lsn))  # fmt: skip


def _name(reader: LogReader, lsn: int) -> str:
    head = reader.heads.get(lsn // reader.container_bytes)
    return "no container" if head is None else container.file_name(head.number)


def _lost(found: Survey, gap: Damage, names: dict[int, str]) -> str:
    """What went with *gap*, in words."""
    first, end = gap.first_lsn, gap.end_lsn
    counts: dict[str, int] = {}
    for message in found.lost.values():
        if first <= message.message_id < end:
            name = ", ".join(names.get(queue, f"id {queue}") for queue in message.queue_ids) or "not known"
            counts[name] = counts.get(name, 0) + 1
    told = [f"{count} messages of queue {name}" for name, count in counts.items()]
    hidden = [one for one in found.gaps if one.finding.first_lsn < end and one.finding.end_lsn > first]
    at_most = sum(one.unknown_records for one in hidden)
    if at_most:
        told.append(f"at most {at_most} records of which nothing is known")
        if found.doubtful:
            told.append(f"{min(at_most, len(found.doubtful))} older messages may come back")
    return "; ".join(told) or "no message"

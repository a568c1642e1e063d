"""The check that a checkpoint and the log behind it yield the state of the whole log, as a start assumes."""

from __future__ import annotations

from itertools import islice

from ...base.errors import JournalError
from ...base.texts import counted
from ...journal.format.block import Block
from ...journal.read.scanner import LogReader
from ...recovery.replay import Replay
from ...recovery.restore import read_checkpoint
from ...store.checkpoint.checkpoint_file import BadCheckpoint, CheckpointFile, DamagedCheckpoint
from ...store.message_map.state import State
from .verdicts import Verdict

PLACE = "checkpoint"
_REMEDY = "stop the broker and remove the directory checkpoint: the next start reads the whole log and makes it anew"
_NAMED = 3


class CheckpointComparison:
    """The state that a start would derive from the checkpoint. `take` gets the blocks of the log in order."""

    def __init__(self, file: CheckpointFile, reader: LogReader) -> None:
        self._found: list[Verdict] = []
        self._state: State | None = None
        self._replay: Replay | None = None
        self._size = reader.container_bytes
        self._path = reader.directory.path
        try:
            self._meta, self._state = read_checkpoint(file, reader)
        except DamagedCheckpoint as error:
            self._found.append(Verdict("corrupt", PLACE, str(error), "nothing", "the next start makes it anew"))
        except BadCheckpoint as error:
            what = f"not used: {error}; the next start reads the whole log"
            self._found.append(Verdict("note", PLACE, what))

    def take(self, block: Block) -> None:
        if self._replay is not None:
            self._replay.take(block)
        elif self._state is not None and block.lsn == self._meta.block_lsn:
            if block.head.crc32c == self._meta.block_crc:
                self._replay = Replay(self._state, self._path, self._size)
            else:
                self._state = None
                what = f"the block at LSN {block.lsn} is not the one that it continues; the next start reads all"
                self._found.append(Verdict("note", PLACE, what))

    def verdicts(self, state: State, slots: dict[int, int], reader: LogReader, *, is_complete: bool) -> list[Verdict]:
        """Return the verdicts on the checkpoint. *state*: read from the log. *is_complete*: the log is complete."""
        if self._state is None:
            return self._found
        skipped = any(end > self._meta.block_lsn for _, end in reader.recycled)
        if self._replay is None or skipped or not is_complete:
            reason = "the log can't be read through"
            if is_complete:
                reason = "the block before its first record was not read"
            return [*self._found, Verdict("note", PLACE, f"not compared with the log: {reason}")]
        self._replay.apply()
        try:
            self._replay.reconcile(slots)
        except JournalError as error:
            return [*self._found, Verdict("corrupt", PLACE, str(error), remedy=_REMEDY)]
        differences = _differences(self._state, state)
        if differences:
            what = f"it does not agree with the log: {'; '.join(differences)}"
            self._found.append(Verdict("corrupt", PLACE, what, remedy=_REMEDY))
        return self._found


def _differences(known: State, true: State) -> list[str]:
    reported = []
    pages = {slot for slot in {*known.pages, *true.pages} if known.pages.get(slot) != true.pages.get(slot)}
    ids = {
        message_id
        for slot in pages
        for message_id, _ in known.pages.get(slot, {}).items() ^ true.pages.get(slot, {}).items()
    }
    ids |= {one for one in {*known.detailed, *true.detailed} if _particulars(known, one) != _particulars(true, one)}
    ids |= {message_id for message_id, _ in known.moved.items() ^ true.moved.items()}
    if ids:
        named = ", ".join(map(str, islice(sorted(ids), _NAMED))) + (", ..." if len(ids) > _NAMED else "")
        reported.append(f"differences in {counted(len(ids), 'message')} ({named})")
    for name in ("prepared", "decided"):
        one, other = set(getattr(known.outcomes, name)), set(getattr(true.outcomes, name))
        if one != other:
            reported.append(f"transactions that are {name}: {sorted(one ^ other)[:_NAMED]}")
    return reported


def _particulars(state: State, message_id: int) -> object:
    found = state.detailed.get(message_id)
    return None if found is None else (found.start, found.size_bytes, found.pieces, found.last, found.queues)

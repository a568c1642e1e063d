"""The state as a checkpoint knows it, if it belongs to the log that is there."""

from __future__ import annotations

from ..journal.reader import LogReader
from ..store import checkpoint
from ..store.checkpoint_file import BadCheckpoint, CheckpointFile
from ..store.state import State


class Restored:
    """Puts a checkpoint into a state, and has the log read from there on only. Anything wrong with it is no error.

    It stays where it is until the next one takes its place: a start that is refused changes nothing.
    """

    def __init__(self, state: State, file: CheckpointFile | None) -> None:
        self.why_not = ""
        """Why the checkpoint could not be used."""
        self._state = state
        self._file = file

    def resume(self, reader: LogReader) -> None:
        """Fill the state and have *reader* resume; or leave both as they are."""
        if self._file is None:
            return
        try:
            entries = self._file.load()
            meta = checkpoint.meta_of(entries)
            if meta.log_uuid != reader.log_uuid or meta.container_bytes != reader.container_bytes:
                raise BadCheckpoint("it is of another log")
            known = State(reader.container_bytes)
            checkpoint.restore(known, entries)
            if not reader.resume_after(meta.block_lsn, meta.block_crc):
                raise BadCheckpoint(f"the log does not have the block at LSN {meta.block_lsn} that it goes on behind")
        except (BadCheckpoint, ValueError, KeyError, TypeError) as error:  # what is sealed but not as it should be
            self.why_not = str(error)
            return
        self._state.take_over(known)

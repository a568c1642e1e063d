"""Restoration of the state from a checkpoint, if the checkpoint belongs to the log."""

from __future__ import annotations

from ..journal.read.scanner import LogReader
from ..store.checkpoint import checkpoint
from ..store.checkpoint.checkpoint_file import BadCheckpoint, CheckpointFile
from ..store.message_map.state import State


class Restored:
    """A loader that fills a state from a checkpoint, so that the log is read only from there on.

    An unusable checkpoint is not an error. The checkpoint stays until the next one replaces it: a refused start changes
    nothing.
    """

    def __init__(self, state: State, file: CheckpointFile | None) -> None:
        self.denial_reason = ""
        """The reason why the checkpoint was not used; empty if it was used."""
        self._state = state
        self._file = file

    def resume(self, reader: LogReader) -> None:
        """Fill the state and let *reader* resume behind the checkpoint, or leave both unchanged."""
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
                raise BadCheckpoint(f"the log does not have the block at LSN {meta.block_lsn} that it continues")
        except (BadCheckpoint, ValueError, KeyError, TypeError) as error:  # sealed, but invalid content
            self.denial_reason = str(error)
            return
        self._state.take_over(known)

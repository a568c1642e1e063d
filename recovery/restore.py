"""Restoration of the state from a checkpoint, if the checkpoint belongs to the log."""

from __future__ import annotations

from ..journal.read.scanner import LogReader
from ..store.checkpoint import checkpoint
from ..store.checkpoint.checkpoint_file import BadCheckpoint, CheckpointFile
from ..store.message_map.state import State


def read_checkpoint(file: CheckpointFile, reader: LogReader) -> tuple[checkpoint.Meta, State]:
    """Return the content of a checkpoint of the log of *reader*. Raises `BadCheckpoint`."""
    try:
        entries = file.load()
        meta = checkpoint.meta_of(entries)
        if meta.log_uuid != reader.log_uuid or meta.container_bytes != reader.container_bytes:
            raise BadCheckpoint("it is of another log")
        state = State(reader.container_bytes)
        checkpoint.restore(state, entries)
    except (ValueError, KeyError, TypeError) as error:  # sealed, but invalid content
        raise BadCheckpoint(str(error)) from error
    return meta, state


def resume(state: State, file: CheckpointFile, reader: LogReader) -> str | None:
    """Fill *state* from a checkpoint, and let *reader* resume behind it; or return why it can't be used."""
    try:
        meta, known = read_checkpoint(file, reader)
        if not reader.resume_after(meta.block_lsn, meta.block_crc):
            raise BadCheckpoint(f"the log does not have the block at LSN {meta.block_lsn} that it continues")
    except BadCheckpoint as error:
        return str(error)
    state.take_over(known)
    state.restored_lsn = meta.end_lsn
    return None

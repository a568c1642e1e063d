"""A small coordinator of distributed transactions: two phases, presumed abort, and a log of its own.

The log says `commit XID`, fsynced, before anybody is told to commit, and `end XID` when nobody can ask any more. Of an
xid that it does not know the outcome is: rolled back. So a rollback writes nothing at all.

With one participant there is nothing to agree on: it commits in one phase, and the log does not hear of it.

A participant may have been decided on by an operator. If that is not the outcome, the log says `conflict XID NAME HOW`,
fsynced, before the participant may forget it.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from enum import Enum
from typing import Protocol


class Standing(Enum):
    """What a participant says of a transaction that is in doubt there."""

    PREPARED = "prepared"
    COMMITTED = "committed by an operator"
    ROLLED_BACK = "rolled back by an operator"


class RefusedError(Exception):
    """A participant votes no."""


class LostError(Exception):
    """A participant can't be reached; perhaps it did what was asked for."""


class Participant(Protocol):
    """What is asked for is durable when `wait` returned."""

    name: str

    def begin(self, xid: bytes) -> None: ...

    def prepare(self, xid: bytes) -> None: ...

    def end(self, xid: bytes, *, commit: bool) -> None:
        """Of a prepared one, or of one that is open: then a commit is one phase."""
        ...

    def forget(self, xid: bytes) -> None:
        """One that an operator decided on."""
        ...

    def wait(self) -> None: ...

    def in_doubt(self) -> dict[bytes, Standing]: ...

    def close(self) -> None: ...


class DecisionLog:
    """A file of lines; one that has no end was never written."""

    def __init__(self, path: str) -> None:
        self._fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
        content = os.read(self._fd, os.fstat(self._fd).st_size)
        os.ftruncate(self._fd, content.rfind(b"\n") + 1)
        self.committing: dict[bytes, None] = {}
        """To be committed, and perhaps not by everybody yet."""
        self.conflicts: dict[bytes, dict[str, Standing]] = {}
        for line in content.decode().splitlines():
            self._learn(line)

    def write(self, what: str, xid: bytes, *more: str) -> None:
        line = "\t".join((what, xid.hex(), *more))
        os.write(self._fd, f"{line}\n".encode())
        self._learn(line)

    def sync(self) -> None:
        os.fsync(self._fd)

    def close(self) -> None:
        os.close(self._fd)

    def _learn(self, line: str) -> None:
        what, xid_hex, *more = line.split("\t")
        xid = bytes.fromhex(xid_hex)
        if what == "commit":
            self.committing[xid] = None
        elif what == "end":
            self.committing.pop(xid, None)
        else:
            name, standing = more
            self.conflicts.setdefault(xid, {})[name] = Standing(standing)


class Coordinator:
    """*step* is told after each step what was done, for a test to do its worst there."""

    def __init__(self, log: DecisionLog, participants: Sequence[Participant], step: Callable[[str], None]) -> None:
        self._log = log
        self._participants = participants
        self._step = step

    def run(self, xid: bytes, work: Mapping[str, Callable[[], None]], *, rolls_back: bool = False) -> bool | None:
        """Do a transaction; whether it was committed, None if that can't be known. *work*: what each is to do."""
        agreed = self._work(xid, work)
        if len(self._participants) == 1:
            return self._end_in_one_phase(xid, commit=agreed and not rolls_back)
        commit = agreed and self._prepare(xid) and not rolls_back
        if commit:
            self._log.write("commit", xid)
            self._step("commit written")
            self._log.sync()
        self._step("decided")
        asked = [one for one in self._participants if self._ask(one, xid, commit=commit)]
        told = [one for one in asked if self._wait(one)]
        if commit and len(told) == len(self._participants):
            self._end(xid)
        return commit

    def recover(self) -> bool:
        """Tell the outcome of whatever is in doubt; whether everybody heard of it."""
        told = []
        for one in self._participants:
            try:
                found = one.in_doubt()
            except LostError:
                continue
            self._step(f"{one.name}: listed")
            asked = [self._ask(one, xid, commit=xid in self._log.committing) for xid in found]
            if all(asked) and self._wait(one):
                told.append(one)
        if len(told) < len(self._participants):
            return False
        for xid in list(self._log.committing):
            self._end(xid)
        return True

    # ---- inside ---------------------------------------------------------------------------------------------------

    def _work(self, xid: bytes, work: Mapping[str, Callable[[], None]]) -> bool:
        self._step("nothing yet")
        try:
            for one in self._participants:
                one.begin(xid)
                self._step(f"{one.name}: begun")
            for one in self._participants:
                work[one.name]()
                self._step(f"{one.name}: worked")
        except (RefusedError, LostError):
            return False
        return True

    def _prepare(self, xid: bytes) -> bool:
        try:
            for one in self._participants:
                one.prepare(xid)
                self._step(f"{one.name}: prepare called")
            for one in self._participants:
                one.wait()
                self._step(f"{one.name}: prepare durable")
        except (RefusedError, LostError):
            return False
        return True

    def _ask(self, one: Participant, xid: bytes, *, commit: bool) -> bool:
        """Tell the outcome, or hear that there was another one; False if the participant is lost."""
        try:
            standing = one.in_doubt().get(xid)
            if standing in (None, Standing.PREPARED):
                one.end(xid, commit=commit)
                self._step(f"{one.name}: {'commit' if commit else 'rollback'} called")
                return True
            assert standing is not None
            if (standing is Standing.COMMITTED) != commit:
                self._log.write("conflict", xid, one.name, standing.value)
                self._step(f"{one.name}: conflict written")
                self._log.sync()
                self._step(f"{one.name}: conflict logged")
            one.forget(xid)
            self._step(f"{one.name}: forget called")
        except LostError:
            return False
        return True

    def _wait(self, one: Participant) -> bool:
        try:
            one.wait()
        except LostError:
            return False
        self._step(f"{one.name}: durable")
        return True

    def _end(self, xid: bytes) -> None:
        """Not synced: if it is lost, the next recovery finds out once more that there is nothing to do."""
        self._log.write("end", xid)
        self._step("forgotten")

    def _end_in_one_phase(self, xid: bytes, *, commit: bool) -> bool | None:
        [one] = self._participants
        try:
            one.end(xid, commit=commit)
            self._step(f"{one.name}: called")
            one.wait()
        except RefusedError:
            return False
        except LostError:
            return None if commit else False
        self._step(f"{one.name}: durable")
        return commit

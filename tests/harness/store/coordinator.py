"""A small coordinator of distributed transactions with two phases, presumed abort and a log.

The log contains `commit XID`, synced before any participant is asked to commit, and `end XID` once all participants
have completed. The outcome of an xid that is not in the log is a rollback, so a rollback writes nothing.

A single participant commits in one phase, without a log entry.

An operator may have decided the transaction at a participant. If that decision differs from the outcome, the log gets
`conflict XID NAME HOW`, synced before the participant is asked to forget it.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from enum import Enum
from typing import Protocol


class Standing(Enum):
    """The state of a transaction in doubt at a participant."""

    PREPARED = "prepared"
    COMMITTED = "committed by an operator"
    ROLLED_BACK = "rolled back by an operator"


class RefusedError(Exception):
    """A refusal by a participant to do or to prepare its part."""


class LostError(Exception):
    """A lost connection to a participant, which may have executed the request."""


class Participant(Protocol):
    """A participant in transactions; requested changes are durable once `wait` returns."""

    name: str

    def begin(self, xid: bytes) -> None: ...

    def prepare(self, xid: bytes) -> None: ...

    def end(self, xid: bytes, *, commit: bool) -> None:
        """End a prepared transaction, or an open one: then the commit has one phase."""
        ...

    def forget(self, xid: bytes) -> None:
        """Forget a transaction that an operator decided."""
        ...

    def wait(self) -> None: ...

    def in_doubt(self) -> dict[bytes, Standing]: ...

    def close(self) -> None: ...


class DecisionLog:
    """A file of lines; an incomplete last line is removed."""

    def __init__(self, path: str) -> None:
        self._fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
        content = os.read(self._fd, os.fstat(self._fd).st_size)
        os.ftruncate(self._fd, content.rfind(b"\n") + 1)
        self.committing: dict[bytes, None] = {}
        """Transactions to commit, which some participants may not have committed yet."""
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
    """A coordinator that calls *step* with a name after each step, so that a test can inject faults there."""

    def __init__(self, log: DecisionLog, participants: Sequence[Participant], step: Callable[[str], None]) -> None:
        self._log = log
        self._participants = participants
        self._step = step

    def run(self, xid: bytes, work: Mapping[str, Callable[[], None]], *, rolls_back: bool = False) -> bool | None:
        """Run a transaction; return whether it was committed, None if unknown. *work*: the part of each participant."""
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
        """Complete all transactions in doubt; return whether all participants were reached."""
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
        """Request the outcome, or forget an operator's decision, logging a conflict; return False if *one* is lost."""
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
        """Log the end without a sync: if it is lost, the next recovery finds again that nothing is left to do."""
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

"""Errors of CairnMQ. Each names the place, the reason and the remedy in one line."""

from __future__ import annotations

from typing import Any


class CairnError(Exception):
    """Something CairnMQ can explain: `str()` of it is a sentence fit for a user."""

    def __init__(self, place: str, reason: str, remedy: str = "") -> None:
        super().__init__(f"{place}: {reason}" + (f"; {remedy}" if remedy else ""))
        self.place = place
        self.reason = reason
        self.remedy = remedy

    def __reduce__(self) -> tuple[Any, ...]:
        """Support pickling: the arguments of the constructor differ from the state of `Exception`."""
        return _again, (type(self), str(self), self.__dict__)


def _again(kind: type[CairnError], said: str, fields: dict[str, Any]) -> CairnError:
    error = kind.__new__(kind, said)
    error.__dict__.update(fields)
    return error


class InvalidOption(CairnError):
    """The value of an option, of an environment variable or in a configuration file is invalid: exit status 2."""


class MissingPath(CairnError):
    """A file or directory that the user named does not exist: an invalid argument, with exit status 2."""


def unreadable(place: str, error: OSError, remedy: str) -> CairnError:
    """Return the error for a file that can't be read; a `MissingPath` if it does not exist."""
    kind = MissingPath if isinstance(error, FileNotFoundError | NotADirectoryError) else CairnError
    return kind(place, f"can't be read: {error.strerror}", remedy)


class IncompleteResult(CairnError):
    """A negative or incomplete result of an operation that read everything it needed."""


class BrokerError(CairnError):
    """The broker is unreachable, closed the connection, or rejected a request that the client needs."""


class DiskError(CairnError):
    """The operating system refused an operation on a file."""


class DiskFull(DiskError):
    """No space was left; any part of the data may have been written."""


class CannotLink(DiskError):
    """A file can't have a name in both directories: they are not on one file system, or it knows no second names."""


class NotAFile(DiskError):
    """Something else has the file's name: a directory, a pipe, a socket. No waiting makes it readable."""


class JournalError(CairnError):
    """The journal can't perform the request."""


class JournalFailed(JournalError):
    """A write or sync failed. Nothing more is confirmed; the process must restart and recover."""


class CorruptJournal(JournalError):
    """Bytes that were once durable can't be read back. Nothing was changed."""

    def __init__(self, place: str, reason: str, remedy: str, first_lsn: int, end_lsn: int) -> None:
        super().__init__(place, reason, remedy)
        self.first_lsn = first_lsn
        self.end_lsn = end_lsn


class SharedDirectory(CairnError):
    """Others than the owner of a store directory can write to it."""


class ForeignStore(JournalError):
    """The files are not from CairnMQ, belong to another store, or have a newer format."""


class MissingStore(ForeignStore, MissingPath):
    """The directory of a store, archive or backup does not exist, or holds something else."""


class StoreError(CairnError):
    """The store can't perform the request; its state is unchanged."""


class QuotaExceeded(CairnError):
    """A user has as much of something as their quota allows. Nothing was changed."""


class StoreInUse(StoreError):
    """Another process holds the store directory."""


class HoldBroken(StoreError):
    """The disk of a store is full, and its broker had to reuse containers that another process reads."""


class SqlUnreachable(StoreError):
    """The SQL server is unavailable: nothing was done, or all of it if it failed at the very end.

    The same call may be made again, and succeeds when the server is available again.
    """


class SqlDenied(StoreError):
    """The SQL server knows no such user or password, or the user may not do that."""


class SqlReadOnly(StoreError):
    """The SQL database can't be written at present."""


class UnusableConnect(StoreError, InvalidOption):
    """The URL of the SQL server is none, or there is nothing here or there that it could reach."""


class TransactionError(StoreError):
    """The transaction can't perform the request."""


class UnknownTransaction(TransactionError):
    """No transaction has that xid."""


class TransactionEnded(TransactionError):
    """The transaction is committed or rolled back already, or is not in the state that the call requires."""


class TransactionTimedOut(TransactionEnded):
    """The transaction was rolled back because its timeout expired."""


class BadXid(TransactionError):
    """The xid is empty, too long, or in use by another transaction."""


class MessageLocked(StoreError):
    """A transaction that is not finished takes the message off that queue."""

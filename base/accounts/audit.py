"""The audit trail: a record for each login, each failed login, each change, and each read of messages by management.

A record is a log record of the logger `cairnmq.audit`. Its `event` is one of the names below and its `fields` are the
values of the event; the message renders them as a sentence. Failed logins and refused changes are `WARNING`, changes
`INFO`, and successful logins `DEBUG`, or `INFO` if the options request it.

An unauthenticated client must not be able to fill the disk with records. Each user and each address therefore has a
budget of records of each kind. So records of one user do not hide those of another. Records above the budget are
counted, and one record reports their number and their users when the budget allows.
"""

from __future__ import annotations

import errno
import json
import logging
import os
import sys
import threading
from collections import Counter
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from io import TextIOWrapper
from logging.handlers import WatchedFileHandler
from typing import Any, NamedTuple

from ..clock import Clock, SystemClock
from ..errors import CairnError, InvalidOption
from ..printable import printable, printable_json
from .networks import network_of

LOGGER = "cairnmq.audit"
log = logging.getLogger(LOGGER)

CREDENTIALS = "credentials"
"""The user name or the password is wrong."""
MECHANISM = "mechanism"
"""The client chose a SASL mechanism that is not offered, or does not support any offered one."""
IDENTITY = "identity"
"""The client requested an identity other than the authenticated one, or its certificate has no valid user name."""
FORBIDDEN = "forbidden"
"""The user is known, and the access rules do not let it connect."""
LIMIT = "limit"
"""There are too many connections, or too many logins are waiting."""
PROTOCOL = "protocol"
"""The client violated the protocol."""
REASONS = (CREDENTIALS, MECHANISM, IDENTITY, FORBIDDEN, LIMIT, PROTOCOL)

NO_MECHANISM, OTHER_MECHANISM = "none", "other"
MECHANISMS = ("EXTERNAL", "SCRAM-SHA-256", "PLAIN", "ANONYMOUS", NO_MECHANISM, OTHER_MECHANISM)

LOGIN, LOGIN_FAILED, CHANGE, CHANGE_REFUSED = "login", "login.failed", "change", "change.refused"
MESSAGES_READ = "messages.read"
SUPPRESSED = "suppressed"

DONE, DENIED, REFUSED, FAILED = "done", "denied", "refused", "failed"
"""Outcomes of a change: carried out; not allowed to this user; not possible; failed on the way."""

_COUNTED_FROM_THE_START = ("SCRAM-SHA-256", CREDENTIALS), ("PLAIN", CREDENTIALS)
"""Shown as 0 by metrics, so that the first failure is an increase."""

_WRONG_PATH = (errno.ENOENT, errno.ENOTDIR, errno.EISDIR, errno.ELOOP)
"""Errors of the path of a file, which do not pass without another path."""

SIGNAL = "SIGHUP"
"""The address of a change that the operator requested by a signal."""

PERIOD_S = 10.0
BUDGETS = {LOGIN: 1000, MESSAGES_READ: 1000, LOGIN_FAILED: 100, CHANGE_REFUSED: 100}
"""Records of an event within `PERIOD_S`, of a user or an address. Each change that is carried out is recorded."""
MOST_SOURCES = 50
"""Users and addresses with budgets of their own in a period; the others share one."""
MOST_USERS_SHOWN = 10
"""Users that a record of suppressed ones names: those with most of them."""
_MOST_TEXT = 512


class LoginFailure(NamedTuple):
    """A login that failed."""

    address: str
    """The address of the client: host and port."""
    user: str
    """The name that the client gave, if it did; not authenticated."""
    mechanism: str
    """The SASL mechanism that it chose; empty for none."""
    reason: str
    """The reason for the failure, an element of `REASONS`."""
    detail: str
    """The reason as a sentence, for the log only."""


class Login(NamedTuple):
    """A login that succeeded."""

    address: str
    user: str
    """The user who logged in; empty for an anonymous client."""
    mechanism: str
    container: str
    """The AMQP container ID of the client."""


class Change(NamedTuple):
    """A change by management."""

    user: str
    """The user who requested the change; empty for an anonymous client."""
    address: str
    """The source of the request: host and port, or `SIGNAL`."""
    operation: str
    type: str
    name: str
    outcome: str
    status: int
    reason: str = ""
    """The reason why the change was rejected; empty if it succeeded."""
    messages: int | None = None
    """The number of messages that the change purged, deleted or moved; None if it does not concern messages."""
    closed: int | None = None
    """The number of connections and links that the change closed; None if it can close none."""
    container: str = ""
    """The AMQP container ID of the client; that of the web console contains the address of the browser."""


class Audit:
    """The audit trail of one broker. Any thread."""

    def __init__(self, clock: Clock | None = None, *, logins: bool = False) -> None:
        """*logins*: successful logins are `INFO`, not `DEBUG`."""
        self.failures: Counter[tuple[str, str]] = Counter(dict.fromkeys(_COUNTED_FROM_THE_START, 0))
        """Failed logins by mechanism (one of `MECHANISMS`) and reason (one of `REASONS`)."""
        self.log_logins(logins)
        self._budgets = {
            event: _Budget(clock or SystemClock(), most, by_address=event == LOGIN_FAILED)
            for event, most in BUDGETS.items()
        }
        self._lock = threading.Lock()
        self._timer: threading.Timer | None = None
        self._closed = False

    def log_logins(self, logins: bool) -> None:
        """Record successful logins as `INFO`, or as `DEBUG`, from now on."""
        self._login_level = logging.INFO if logins else logging.DEBUG

    def login_failed(self, failure: LoginFailure) -> None:
        """Record a login that failed."""
        mechanism = failure.mechanism or NO_MECHANISM
        if mechanism not in MECHANISMS:
            mechanism = OTHER_MECHANISM
        with self._lock:
            self.failures[mechanism, failure.reason] += 1
        about = _fields(failure._replace(mechanism=failure.mechanism or NO_MECHANISM))
        who = f" of user {about['user']!r}" if failure.user else ""
        text = f"{failure.address}: login{who} failed ({printable(about['mechanism'])}): {printable(about['detail'])}"
        level = logging.INFO if failure.reason == PROTOCOL else logging.WARNING
        self._record(LOGIN_FAILED, level, text, about)

    def logged_in(self, login: Login) -> None:
        """Record a login that succeeded."""
        if not log.isEnabledFor(self._login_level):
            return
        about = _fields(login._replace(mechanism=login.mechanism or NO_MECHANISM))
        who = f"user {login.user!r}" if login.user else "an anonymous client"
        text = f"{login.address}: login of {who} ({about['mechanism']}), AMQP container ID {about['container']!r}"
        self._record(LOGIN, self._login_level, text, about)

    def changed(self, change: Change) -> None:
        """Record a change by management, or one that was refused."""
        about, text = self._described(change)
        if change.outcome == DONE:
            self._record(CHANGE, logging.INFO, text, about)
        else:
            self._record(CHANGE_REFUSED, logging.WARNING, text, about)

    def messages_read(self, read: Change) -> None:
        """Record that messages on a queue were read by management, or that this was refused."""
        if log.isEnabledFor(self._login_level):
            about, text = self._described(read)
            self._record(MESSAGES_READ, self._login_level, text, about)

    def _described(self, change: Change) -> tuple[dict[str, Any], str]:
        """Return the fields of a record, and its sentence."""
        fields = _fields(change)
        optional = {name: fields.pop(name) for name in ("messages", "closed", "reason")}
        about = {"user": "", "address": "", "container": ""} | fields
        about |= {name: value for name, value in optional.items() if value not in (None, "")}
        who = f"user {change.user!r}" if change.user else "an anonymous client"
        if change.address == SIGNAL:
            who = "the operator"
        text = (
            f"{change.address}: {printable(about['operation'])} {printable(about['type'])} {about['name']!r} "
            f"by {who}: {change.outcome}"
        )
        counts = {"messages": change.messages, "connections and links closed": change.closed}
        text += "".join(f", {label} {count}" for label, count in counts.items() if count is not None)
        if change.reason:
            text += f" ({printable(about['reason'])})"
        return about, text

    def close(self) -> None:
        """Report the records that are still suppressed, and stop suppressing records."""
        with self._lock:
            self._closed = True
            timer, self._timer = self._timer, None
        if timer is not None:
            timer.cancel()
        self._report_suppressed()

    def _record(self, event: str, level: int, text: str, about: Mapping[str, Any]) -> None:
        budget = self._budgets.get(event)
        if budget is not None:
            with self._lock:
                has_room, suppressed = budget.take(about["user"], network_of(about["address"].rpartition(":")[0]))
                if not has_room and self._timer is None and not self._closed:
                    self._timer = threading.Timer(PERIOD_S, self._on_time)
                    self._timer.daemon = True
                    self._timer.start()
            if suppressed:
                _report(event, suppressed)
            if not has_room:
                return
        log.log(level, "%s", text, extra={"event": event, "connection": about["address"], "fields": about})

    def _on_time(self) -> None:
        with self._lock:
            self._timer = None
        self._report_suppressed()

    def _report_suppressed(self) -> None:
        with self._lock:
            found = [(event, budget.forget()) for event, budget in self._budgets.items()]
        for event, suppressed in found:
            if suppressed:
                _report(event, suppressed)


class _Budget:
    """The maximum number of records of an event in a period, for each user and each address.

    A record of a failed login takes from the budget of its address. If that is empty, it takes from the budget of the
    name, so that guesses at a further name are recorded. Other events take from the budget of their user.
    """

    def __init__(self, clock: Clock, most: int, *, by_address: bool) -> None:
        self._clock = clock
        self._most = most
        self._by_address = by_address
        self._left: dict[tuple[str, str], int] = {}
        self._since_s = clock.monotonic_s()
        self._suppressed: Counter[str] = Counter()

    def take(self, user: str, address: str) -> tuple[bool, Counter[str]]:
        """Reserve a record; return whether the limits allow it, and the records suppressed in earlier periods by user.
        """
        now_s, suppressed = self._clock.monotonic_s(), Counter[str]()
        if now_s - self._since_s >= PERIOD_S:
            self._since_s = now_s
            self._left.clear()
            suppressed = self.forget()
        sources = [("", address)] if self._by_address or not user else []
        if user:
            sources.append((user, ""))
        if any(self._takes(source) for source in sources):
            return True, suppressed
        self._suppressed[user if user in self._suppressed or len(self._suppressed) < MOST_SOURCES else ""] += 1
        return False, suppressed

    def _takes(self, source: tuple[str, str]) -> bool:
        if source not in self._left and len(self._left) >= MOST_SOURCES:
            source = "", ""
        left = self._left.get(source, self._most)
        self._left[source] = max(0, left - 1)
        return left > 0

    def forget(self) -> Counter[str]:
        """Return the suppressed records that are not reported yet, by user, and reset them."""
        found, self._suppressed = self._suppressed, Counter()
        return found


def _report(event: str, suppressed: Counter[str]) -> None:
    count, users = suppressed.total(), dict(suppressed.most_common(MOST_USERS_SHOWN))
    shown = ", ".join(f"{user!r}: {number}" for user, number in users.items())
    about = {"of": event, "count": count, "users": users}
    text = "suppressed %d audit records of %s, by user: %s"
    log.warning(text, count, event, shown, extra={"event": SUPPRESSED, "fields": about})


def _fields(record: LoginFailure | Login | Change) -> dict[str, Any]:
    """The fields of a record, with long texts cut."""
    fields = record._asdict()
    long = {name: text for name, text in fields.items() if isinstance(text, str) and len(text) > _MOST_TEXT}
    return fields | {name: text[:_MOST_TEXT] + "..." for name, text in long.items()}


# ---- the file -------------------------------------------------------------------------------------------------------


def open_file(path: str) -> Callable[[], None]:
    """Append all audit records to the file at *path*, as JSON lines; what it returns ends that. Raises `CairnError`.

    The file is created with mode 0600, and is never a symbolic link. If it is renamed or deleted, the next record
    creates it anew, so that it can be rotated.
    """
    try:
        handler = _AuditFile(path)
    except OSError as error:
        reason = f"can't be written: {error.strerror}"
        kind = InvalidOption if error.errno in _WRONG_PATH else CairnError
        raise kind(f"--audit-file {path}", reason, "name a file of this user, not a symbolic link") from error
    log.addHandler(handler)
    level = log.level
    log.setLevel(logging.DEBUG)

    def end() -> None:
        log.removeHandler(handler)
        log.setLevel(level)
        handler.close()

    return end


class _AuditFile(WatchedFileHandler):
    """A handler that writes one JSON object per line."""

    def __init__(self, path: str) -> None:
        self._failed = self._fails = False
        super().__init__(path, encoding="utf-8", errors="backslashreplace")

    def _open(self) -> TextIOWrapper:
        return open(self.baseFilename, "a", encoding=self.encoding, errors=self.errors, opener=_private)

    def format(self, record: logging.LogRecord) -> str:
        reported = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "event": getattr(record, "event", ""),
            **getattr(record, "fields", {}),
        }
        return printable_json(json.dumps(reported, ensure_ascii=False, default=str))

    def emit(self, record: logging.LogRecord) -> None:
        self._fails = False
        try:
            super().emit(record)
        except OSError:  # the file was to be created anew, and could not be
            self.handleError(record)
        self._failed = self._fails

    def handleError(self, record: logging.LogRecord) -> None:
        """Report a full disk or a missing directory once, in the log of the broker; the broker continues to run."""
        self._fails = True
        if not self._failed:
            error = sys.exc_info()[1]
            text = "the audit file %s can't be written: %s; free space, or create its directory"
            logging.getLogger(__name__).error(text, self.baseFilename, error, extra={"event": "audit.failed"})


def _private(path: str, flags: int) -> int:
    descriptor = os.open(path, flags | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    os.fchmod(descriptor, 0o600)
    return descriptor

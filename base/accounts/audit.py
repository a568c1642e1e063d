"""The audit trail: a record for each login, each failed login, and each change by management.

A record is a log record of the logger `cairnmq.audit`. Its `event` is one of the names below and its `fields` are the
values of the event; the message renders them as a sentence. Failed logins and refused changes are `WARNING`, changes
`INFO`, and successful logins `DEBUG`, or `INFO` if the options request it.

An unauthenticated client must not be able to fill the disk with records. Each kind therefore has a budget of records.
Records above the budget are counted, and one record reports their number when the budget allows.
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
BUDGETS = {LOGIN: 1000, LOGIN_FAILED: 100, CHANGE_REFUSED: 100}
"""Records of an event within `PERIOD_S`. Changes that are carried out have no budget: each is recorded."""
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
        self._budgets = {event: _Budget(clock or SystemClock(), most) for event, most in BUDGETS.items()}
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
        if change.outcome == DONE:
            self._record(CHANGE, logging.INFO, text, about)
        else:
            self._record(CHANGE_REFUSED, logging.WARNING, text, about)

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
                has_room, suppressed = budget.take()
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
        for event, count in found:
            if count:
                _report(event, count)


class _Budget:
    """The maximum number of records in a period."""

    def __init__(self, clock: Clock, most: int) -> None:
        self._clock = clock
        self._most = most
        self._left = most
        self._since_s = clock.monotonic_s()
        self._suppressed = 0

    def take(self) -> tuple[bool, int]:
        """Reserve a record; return whether the limit allows it, and the number suppressed in earlier periods."""
        now_s, suppressed = self._clock.monotonic_s(), 0
        if now_s - self._since_s >= PERIOD_S:
            self._since_s, self._left = now_s, self._most
            suppressed = self.forget()
        if self._left > 0:
            self._left -= 1
            return True, suppressed
        self._suppressed += 1
        return False, suppressed

    def forget(self) -> int:
        """Return the number of suppressed records that are not reported yet, and reset it."""
        found, self._suppressed = self._suppressed, 0
        return found


def _report(event: str, count: int) -> None:
    about = {"of": event, "count": count}
    log.warning("suppressed %d audit records of %s", count, event, extra={"event": SUPPRESSED, "fields": about})


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

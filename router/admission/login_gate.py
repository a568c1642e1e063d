"""The gate of logins and of the connections of each user. Shared by all workers; any thread."""

from __future__ import annotations

import logging
import threading
from collections import Counter
from collections.abc import Callable
from functools import partial
from typing import Any

from ...amqp.sasl.server import Check, Login
from ...amqp.sasl.server_handshake import ServerHandshake
from ...base.accounts.audit import CREDENTIALS, Audit, LoginFailure
from ...base.accounts.audit import Login as LoggedIn
from ...base.accounts.login_turns import LoginTurns
from ...base.clock import Clock, SystemClock

log = logging.getLogger(__name__)

MOST_WAITING, MOST_DELAYED = 8192, 1024
"""The number of waiting logins, more than connections may be unauthenticated, and that of delayed ones besides."""
BUSY = object()
"""The result of a login that had to yield to others, in place of the result of its check."""


class LoginGate:
    """The gate of logins, which the router creates, and which terminals use after `start`."""

    _post: Callable[..., None]
    """Runs an action on the core; set by `start`."""

    def __init__(
        self,
        login: Login,
        most_per_user: int,
        audit: Audit | None = None,
        clock: Clock | None = None,
        trusted_path: str = "",
    ) -> None:
        """*most_per_user*: connections that one user may have; anonymous clients are not counted.

        *audit*: where logins and failed logins are recorded. *trusted_path*: the file of `TrustedLogins`.
        """
        self._audit = audit or Audit()
        self.login = login
        """The mechanisms and users of the broker."""
        self.most_per_user = most_per_user
        self._lock = threading.Lock()
        self._there: Counter[str] = Counter()
        self._turns = LoginTurns(
            clock or SystemClock(), MOST_WAITING, most_delayed=MOST_DELAYED, trusted_path=trusted_path
        )

    def start(self, post: Callable[..., None]) -> None:
        """*post* runs an action on the core. Called before the first login."""
        self._post = post

    def front(self, *, secure: bool, certified: str) -> ServerHandshake:
        """Return the login part of a new connection."""
        return ServerHandshake(self.login, secure=secure, certified=certified)

    def check(
        self, check: Check, peer: str, wanted: Callable[[], bool], then: Callable[[Any], None], origin: str = ""
    ) -> bool:
        """Run *check* on its thread, and *then* on the core with the result. Return False if too many logins wait.

        *peer*: host and port of the client. *origin*: those of the browser if the client is the broker's web console,
        which has delayed the login itself. *then* gets `BUSY` if the login has to yield to others later.
        """
        run, refused = partial(self._run, check, wanted, then), partial(self._post, then, BUSY)
        return self._turns.submit(
            _host_of(origin or peer), check.user, run, wanted, refused, is_hash=check.is_hash, may_delay=not origin
        )

    def _run(self, check: Check, wanted: Callable[[], bool], then: Callable[[Any], None]) -> None:
        found = None
        try:
            if wanted():
                found = check()
        except Exception:  # one login fails, and the next one may not
            log.exception("internal error at a login", extra={"event": "broker.internal-error"})
        finally:
            self._post(then, found)

    def login_failed(self, failure: LoginFailure) -> None:
        """Record a failed login. Every failed login, of any mechanism and for any reason, calls this method."""
        if failure.reason == CREDENTIALS:
            self._turns.failed(_host_of(failure.address), failure.user)
        self._audit.login_failed(failure)

    def logged_in(self, login: LoggedIn) -> None:
        """Note a login that succeeded."""
        if login.user:
            self._turns.succeeded(_host_of(login.address), login.user)
        self._audit.logged_in(login)

    def enter(self, user: str, most: int = 0) -> str:
        """Count a connection of *user*; why not, if there are too many, and then it is not counted."""
        if user:
            with self._lock:
                most = most or self.most_per_user
                if self._there[user] >= most:
                    return (
                        f"user {user!r} has {self._there[user]} of {most} connections (max-connections); close some, "
                        "or have max-connections raised in [[quotas]] of the file of --acl-file, or "
                        "--max-connections-per-user"
                    )
                self._there[user] += 1
        return ""

    def leave(self, user: str) -> None:
        """Stop counting a connection that is closed."""
        if user:
            with self._lock:
                self._there[user] -= 1
                if not self._there[user]:
                    del self._there[user]

    def stop(self) -> None:
        """Stop: waiting logins are abandoned."""
        self._turns.stop()


def _host_of(peer: str) -> str:
    return peer.rpartition(":")[0]

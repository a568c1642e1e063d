"""The server side of SASL: PLAIN, SCRAM-SHA-256, EXTERNAL and ANONYMOUS. Bytes in, replies out; no frame, no thread.

Slow operations (reading the users file, hashing a password) are not done here: the exchange requests them with a
`Check`, and continues with the result. Any input of a client results in a reply or in `Denied`, never in another error
(A9). An unknown user gets the same replies, after the same work, as a user with a wrong password (A10).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple, Protocol

from scramp import ScramException

from ...base.accounts.audit import CREDENTIALS, IDENTITY, PROTOCOL
from ...base.accounts.credentials import SCRAM, Credentials, prove

WRONG = "wrong user name or password"
"""The reason for a failed login that either side of a connection reports, whatever the mechanism."""
_INVALID_PROOF = "invalid-proof"


class Denied(Exception):
    """The login is denied. The reason is for the log only; it is never sent to the client."""

    def __init__(self, text: str, reason: str = PROTOCOL, user: str = "") -> None:
        """*reason*: one of `accounts.audit.REASONS`; *user*: the name that the client gave, if it came that far."""
        super().__init__(text)
        self.reason = reason
        self.user = user


class Challenge(NamedTuple):
    """To be sent; a response is expected."""

    data: bytes


class Check(NamedTuple):
    """A check that may block; its result goes to `Exchange.checked`."""

    job: Callable[[], Any]
    user: str = ""
    """The user who logs in, if the broker is the server."""
    is_hash: bool = True
    """The check takes milliseconds of CPU; otherwise it is only a lookup."""

    def __call__(self) -> Any:
        return self.job()


class Success(NamedTuple):
    """A successful login of *user* (empty: anonymous); *data* is sent with the outcome."""

    user: str
    data: bytes = b""


Reply = Challenge | Check | Success


class Exchange(Protocol):
    """The attempt of one client with one mechanism."""

    def respond(self, data: bytes | None) -> Reply:
        """The client said *data*; None if it begins without saying anything. Raises `Denied`."""

    def checked(self, found: Any) -> Reply:
        """Process the result of the `Check`. Raises `Denied`."""


class Login(NamedTuple):
    """The ways in which clients may log in."""

    find: Callable[[str], Credentials] | None = None
    """Looks up a user, without revealing that a user does not exist; None if no user has a password."""
    anonymous: bool = True
    """Clients may log in without a user name, also without SASL."""
    insecure: bool = False
    """PLAIN may be used without TLS."""

    def mechanisms(self, secure: bool, certified: str) -> tuple[str, ...]:
        """Return the mechanisms to offer, the best first. *certified*: the name in the client's certificate, if any."""
        offered = ["EXTERNAL"] if certified else []
        if self.find is not None:
            offered.append("SCRAM-SHA-256")
            if secure or self.insecure:
                offered.append("PLAIN")
        if self.anonymous:
            offered.append("ANONYMOUS")
        return tuple(offered)

    def begin(self, mechanism: str, certified: str) -> Exchange:
        """An exchange with one of the mechanisms that are offered."""
        if mechanism == "EXTERNAL":
            return _External(certified)
        if mechanism == "ANONYMOUS":
            return _Anonymous()
        assert self.find is not None
        return _Plain(self.find) if mechanism == "PLAIN" else _Scram(self.find)


class _Anonymous:
    def respond(self, data: bytes | None) -> Reply:
        return Success("")  # a trace may be given; it proves nothing

    def checked(self, found: Any) -> Reply:
        raise AssertionError("nothing is checked")


class _External:
    def __init__(self, certified: str) -> None:
        self._certified = certified

    def respond(self, data: bytes | None) -> Reply:
        if data and data != self._certified.encode():
            text = f"the certificate is that of {self._certified!r}, and another identity is asked for"
            raise Denied(text, IDENTITY, self._certified)
        return Success(self._certified)

    def checked(self, found: Any) -> Reply:
        raise AssertionError("nothing is checked")


class _Plain:
    def __init__(self, find: Callable[[str], Credentials]) -> None:
        self._find = find
        self._user = ""

    def respond(self, data: bytes | None) -> Reply:
        if data is None:
            return Challenge(b"")
        parts = data.split(b"\0")
        if len(parts) != 3:
            raise Denied("PLAIN takes three fields")
        try:
            acting, self._user, password = (part.decode("utf-8") for part in parts)
        except UnicodeDecodeError as error:
            raise Denied("a field of PLAIN is not UTF-8") from error
        if acting not in ("", self._user):
            raise Denied(f"{self._user!r} asks for the identity of another user", IDENTITY, self._user)
        user, find = self._user, self._find
        return Check(lambda: prove(password, find(user)), user)

    def checked(self, found: Any) -> Reply:
        if found is not True:
            raise Denied(WRONG, CREDENTIALS, self._user)
        return Success(self._user)


class _Scram:
    def __init__(self, find: Callable[[str], Credentials]) -> None:
        self._find = find
        self._first = ""
        self._user = ""
        self._server: Any = None

    def respond(self, data: bytes | None) -> Reply:
        if data is None:
            return Challenge(b"")
        try:
            text = data.decode("utf-8")
            if self._server is None:
                return self._begin(text)
            self._server.set_client_final(text)
            return Success(self._user, self._server.get_server_final().encode())
        except (ScramException, ValueError) as error:
            if getattr(getattr(error, "server_error", None), "value", "") == _INVALID_PROOF:
                raise Denied(WRONG, CREDENTIALS, self._user) from error
            raise Denied(f"SCRAM: {error}", PROTOCOL, self._user) from error

    def _begin(self, first: str) -> Reply:
        names: list[str] = []

        def note(name: str) -> None:
            names.append(name)

        try:  # the library passes the name to a callback; the file is not read here
            SCRAM.make_server(note).set_client_first(first)
        except ScramException:
            if not names:
                raise
        self._first, self._user = first, names[0]
        find, user = self._find, self._user
        return Check(lambda: find(user), user, is_hash=False)

    def checked(self, found: Any) -> Reply:
        if not isinstance(found, tuple):
            raise Denied("the users can't be looked up", PROTOCOL, self._user)
        try:
            self._server = SCRAM.make_server(lambda name: tuple(found))
            self._server.set_client_first(self._first)
            return Challenge(self._server.get_server_first().encode())
        except ScramException as error:
            raise Denied(f"SCRAM: {error}", PROTOCOL, self._user) from error

"""SASL, the server's side: PLAIN, SCRAM-SHA-256, EXTERNAL and ANONYMOUS. Bytes in, replies out; no frame, no thread.

What takes long (reading the users file, hashing a password) is not done here: the exchange asks for it with a `Check`,
and goes on with what came of it. Whatever a client sends ends in a reply or in `Denied`, never in anything else (A9). A
user there is none of gets the same replies, after the same work, as one whose password was wrong (A10).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple, Protocol

from scramp import ScramException

from ..accounts.credentials import SCRAM, Credentials, prove

WRONG = "wrong user name or password"


class Denied(Exception):
    """The client is not let in. Why is for the log only: it is never told."""


class Challenge(NamedTuple):
    """To be sent; a response is expected."""

    data: bytes


class Check(NamedTuple):
    """To be called where it may take its time; `Exchange.checked` wants what it returns."""

    job: Callable[[], Any]


class Success(NamedTuple):
    """The client is *user* (empty: nobody in particular); *data* goes with the outcome."""

    user: str
    data: bytes = b""


Reply = Challenge | Check | Success


class Exchange(Protocol):
    """One client's attempt with one mechanism."""

    def respond(self, data: bytes | None) -> Reply:
        """The client said *data*; None if it begins without saying anything. Raises `Denied`."""
        ...

    def checked(self, found: Any) -> Reply:
        """What the `Check` returned. Raises `Denied`."""
        ...


class Login(NamedTuple):
    """Who is let in, and how."""

    find: Callable[[str], Credentials] | None = None
    """Looks up a user, and never tells that there is none; None if nobody has a password here."""
    anonymous: bool = True
    """Nobody in particular is let in, also without SASL."""
    insecure: bool = False
    """PLAIN may be used without TLS."""

    def mechanisms(self, secure: bool, certified: str) -> tuple[str, ...]:
        """What is offered, the best first. *certified*: whom the client's certificate, if any, names."""
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
            raise Denied(f"the certificate is that of {self._certified!r}, and it wants to be somebody else")
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
            raise Denied("a field of PLAIN is no UTF-8") from error
        if acting not in ("", self._user):
            raise Denied(f"{self._user!r} wants to be somebody else")
        user, find = self._user, self._find
        return Check(lambda: prove(password, find(user)))

    def checked(self, found: Any) -> Reply:
        if found is not True:
            raise Denied(f"{WRONG} of {self._user!r}")
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
            raise Denied(f"SCRAM of {self._user!r}: {error}" if self._user else f"SCRAM: {error}") from error

    def _begin(self, first: str) -> Reply:
        names: list[str] = []

        def note(name: str) -> None:
            names.append(name)

        try:  # which name it is, the library tells only on its way; the file is not read here
            SCRAM.make_server(note).set_client_first(first)
        except ScramException:
            if not names:
                raise
        self._first, self._user = first, names[0]
        find, user = self._find, self._user
        return Check(lambda: find(user))

    def checked(self, found: Any) -> Reply:
        if not isinstance(found, tuple):
            raise Denied("the users can't be looked up")
        try:
            self._server = SCRAM.make_server(lambda name: tuple(found))
            self._server.set_client_first(self._first)
            return Challenge(self._server.get_server_first().encode())
        except ScramException as error:
            raise Denied(f"SCRAM: {error}") from error

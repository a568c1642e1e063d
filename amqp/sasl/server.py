"""The server side of SASL: PLAIN, SCRAM-SHA-256, EXTERNAL and ANONYMOUS. Bytes in, replies out; no frame, no thread.

Slow operations (reading the users file, hashing a password) are not done here: the exchange requests them with a
`Check`, and continues with the result. Any input of a client results in a reply or in `Denied`, never in another error
(A9). An unknown user gets the same replies, after the same work, as a user with a wrong password (A10).
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from hmac import compare_digest
from typing import Any, NamedTuple

from scramp import ScramException
from scramp.core import Gs2Header

from ...base.accounts.audit import CREDENTIALS, IDENTITY, PROTOCOL
from ...base.accounts.credentials import SCRAM, Credentials, canonical_name, prove

CONSOLE = "cairnmq-console"
"""The first word of what the web console sends as the host name of SASL; its token and an address follow."""
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
    """A check that may block; its result goes to the `Exchange`."""

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
    stored_key: bytes = b""
    """The key of the password that was proved; empty for a login without one."""


Reply = Challenge | Check | Success


Exchange = Generator[Reply, Any, None]
"""The attempt of one client with one mechanism. It receives responses and the results of checks. Raises `Denied`."""


class Login(NamedTuple):
    """The ways in which clients may log in."""

    find: Callable[[str], Credentials] | None = None
    """Looks up a user, without revealing that a user does not exist; None if no user has a password."""
    anonymous: bool = True
    """Clients may log in without a user name, also without SASL."""
    insecure: bool = False
    """PLAIN may be used without TLS."""
    prove: Callable[[str, Credentials], bool] = prove
    """Returns whether credentials were derived from a password."""
    console_token: str = ""
    """The secret by which the broker's own web console proves the addresses of its browsers; empty without one."""

    def origin_in(self, hostname: object) -> str:
        """Return the host and port of the browser that the web console names in the host name of SASL; empty if none.
        """
        kind, _, proved = hostname.partition(" ") if isinstance(hostname, str) else ("", "", "")
        token, _, origin = proved.partition(" ")
        is_console = bool(self.console_token) and compare_digest(token.encode(), self.console_token.encode())
        return origin if kind == CONSOLE and is_console else ""

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

    def begin(self, mechanism: str, certified: str, said: bytes | None) -> Exchange:
        """An exchange with one of the mechanisms that are offered; *said*: the initial response, None without one."""
        if mechanism == "EXTERNAL":
            return _external(certified, said)
        if mechanism == "ANONYMOUS":
            return _anonymous()
        assert self.find is not None
        return _plain(self, self.find, said) if mechanism == "PLAIN" else _scram(self.find, said)


def _anonymous() -> Exchange:
    yield Success("")  # a trace may be given; it proves nothing


def _external(certified: str, said: bytes | None) -> Exchange:
    if said and said != certified.encode():
        text = f"the certificate is that of {certified!r}, and another identity is asked for"
        raise Denied(text, IDENTITY, certified)
    yield Success(certified)


def _plain(login: Login, find: Callable[[str], Credentials], said: bytes | None) -> Exchange:
    if said is None:
        said = yield Challenge(b"")
    parts = said.split(b"\0")
    if len(parts) != 3:
        raise Denied("PLAIN takes three fields")
    try:
        acting, user, password = (part.decode("utf-8") for part in parts)
    except UnicodeDecodeError as error:
        raise Denied("a field of PLAIN is not UTF-8") from error
    if acting not in ("", user):
        raise Denied(f"{user!r} asks for the identity of another user", IDENTITY, user)
    user = canonical_name(user)
    found = yield Check(lambda: _proved_key(login, password, find(user)), user)
    if not isinstance(found, bytes) or not found:
        raise Denied(WRONG, CREDENTIALS, user)
    yield Success(user, stored_key=found)


def _proved_key(login: Login, password: str, kept: Credentials) -> bytes:
    return kept.stored_key if login.prove(password, kept) else b""


def _scram(find: Callable[[str], Credentials], said: bytes | None) -> Exchange:
    if said is None:
        said = yield Challenge(b"")
    user = ""
    try:
        first = said.decode("utf-8")
        user = _name_in(_split_authzid(first)[1])
        found = yield Check(lambda: find(user), user, is_hash=False)
        if not isinstance(found, tuple):
            raise Denied("the users can't be looked up", PROTOCOL, user)
        server = SCRAM.make_server(lambda name: tuple(found))
        authzid, first = _split_authzid(first)
        if authzid and authzid.replace("=2C", ",").replace("=3D", "=") != user:
            raise Denied(f"{user!r} asks for the identity of another user", IDENTITY, user)
        server.set_client_first(first)
        if authzid:
            server.gs2_header = _Authorizing(first[0], authzid)
        final = yield Challenge(server.get_server_first().encode())
        server.set_client_final(final.decode("utf-8"))
        yield Success(user, server.get_server_final().encode(), found[1])
    except (ScramException, ValueError) as error:
        if getattr(getattr(error, "server_error", None), "value", "") == _INVALID_PROOF:
            raise Denied(WRONG, CREDENTIALS, user) from error
        raise Denied(f"SCRAM: {error}", PROTOCOL, user) from error


class _Authorizing(Gs2Header):  # type: ignore[misc]  # scramp is untyped
    """A GS2 header with an authzid, which the library does not read: the client repeats the header (RFC 5802, 7)."""

    def __init__(self, gs2_char: str, authzid: str) -> None:
        super().__init__(gs2_char, None)
        self._authzid = authzid

    def __str__(self) -> str:
        return f"{self.gs2_char},a={self._authzid},"


def _split_authzid(first: str) -> tuple[str, str]:
    """Return the authzid in the first message of a client, empty without one, and the message without it."""
    flag, _, rest = first.partition(",")
    authzid, comma, bare = rest.partition(",")
    if not (comma and flag in ("n", "y") and authzid.startswith("a=")):
        return "", first
    return authzid[2:], f"{flag},,{bare}"


def _name_in(first: str) -> str:
    """The user name in the first message of a client. Raises `ScramException`."""
    names: list[str] = []
    try:  # the library passes the name to a callback; the file is not read here
        SCRAM.make_server(names.append).set_client_first(first)
    except ScramException:
        if not names:
            raise
    return names[0]

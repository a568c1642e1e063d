"""SASL, the client's side: SCRAM-SHA-256, PLAIN, EXTERNAL and ANONYMOUS, for connections that the broker opens.

A password goes out as it is (PLAIN) only through TLS, or where that was allowed; SCRAM is used where it is offered, and
then the server has to prove that it knows the password, too.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from scramp import ScramClient, ScramException

from .server import Challenge, Check, Denied


@dataclass(frozen=True)
class Identity:
    """The identity with which the broker logs in."""

    user: str = ""
    """The user name; empty for an anonymous login."""
    password: str = field(default="", repr=False)
    certified: bool = False
    """True if a certificate identifies the client."""
    insecure: bool = False
    """The password may be sent as it is without TLS."""

    def begin(self, offered: Sequence[str], *, secure: bool) -> tuple[str, Attempt]:
        """Choose a mechanism from those *offered*; return its name and a new attempt. Raises `Denied`."""
        if self.user:
            if "SCRAM-SHA-256" in offered:
                return "SCRAM-SHA-256", _Scram(self.user, self.password)
            if "PLAIN" in offered and (secure or self.insecure):
                return "PLAIN", Attempt(b"\0".join((b"", self.user.encode(), self.password.encode())))
            if "PLAIN" in offered:
                raise Denied("it offers PLAIN only, and without TLS a password is not sent: see insecure-auth")
        elif self.certified and "EXTERNAL" in offered:
            return "EXTERNAL", Attempt(b"")
        elif "ANONYMOUS" in offered:
            return "ANONYMOUS", Attempt(b"cairnmq")
        raise Denied(f"it offers {', '.join(offered) or 'nothing'}: none of it can be used here")


class Attempt:
    """An attempt to log in with one mechanism: here with one in which all is said with the beginning."""

    def __init__(self, first: bytes) -> None:
        self.first = first
        """The initial response, sent with the name of the mechanism."""

    def challenged(self, data: bytes) -> Challenge | Check:
        """Process *data* of the server; return the response, or a check that may take time. Raises `Denied`."""
        raise Denied("it sent a challenge that was not expected")

    def checked(self, found: Any) -> Challenge:
        """The `Check` returned *found*. Raises `Denied`."""
        raise AssertionError("nothing is checked")

    def succeeded(self, data: bytes) -> None:
        """Process *data* of the server after success. Raises `Denied` if the server must authenticate itself and does
        not."""


class _Scram(Attempt):
    def __init__(self, user: str, password: str) -> None:
        try:
            self._client = ScramClient(["SCRAM-SHA-256"], user, password)
            super().__init__(self._client.get_client_first().encode())
        except ScramException as error:
            raise Denied(f"the name or the password can't be used: {error.args[0]}") from error
        self._answered = self._proved = False

    def challenged(self, data: bytes) -> Challenge | Check:
        if self._answered:
            self._prove(data)
            return Challenge(b"")
        try:
            self._client.set_server_first(data.decode())
        except (ScramException, ValueError) as error:  # also too many iterations: the library has a limit
            raise Denied("its SCRAM message is invalid or not supported") from error
        final: Callable[[], str] = self._client.get_client_final
        return Check(final)

    def checked(self, found: Any) -> Challenge:
        if not isinstance(found, str):
            raise Denied("the answer could not be made")
        self._answered = True
        return Challenge(found.encode())

    def succeeded(self, data: bytes) -> None:
        if data and self._answered and not self._proved:
            self._prove(data)
        if not self._proved:
            raise Denied("it has not proved that it knows the password")

    def _prove(self, data: bytes) -> None:
        try:
            self._client.set_server_final(data.decode())
        except (ScramException, ValueError) as error:
            raise Denied("its proof that it knows the password is wrong") from error
        self._proved = True

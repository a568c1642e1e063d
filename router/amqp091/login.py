"""The login of an AMQP 0-9-1 client, by the mechanisms of the broker."""

from __future__ import annotations

from typing import Any

from ...amqp.sasl.server import Challenge, Check, Denied, Exchange, Login, Success
from ...amqp091.tables import BadTable, read_table
from ...base.accounts.audit import MECHANISM, PROTOCOL

GUEST = b"\0guest\0guest"
"""The default login of client libraries: an anonymous one where no user has a password."""


class ClientLogin:
    """The attempt of one client to log in."""

    def __init__(self, login: Login, *, secure: bool, certified: str) -> None:
        self._login = login
        self._certified = certified
        offered = login.mechanisms(secure, certified)
        self.is_open_to_guests = "ANONYMOUS" in offered and login.find is None
        names = [name for name in offered if name in ("EXTERNAL", "PLAIN", "ANONYMOUS")]
        if self.is_open_to_guests or "PLAIN" in names:
            names = [*[name for name in names if name != "PLAIN"], "PLAIN", "AMQPLAIN"]
        self.mechanisms = tuple(names)
        """The mechanisms to offer."""
        self.mechanism = ""
        self._exchange: Exchange | None = None

    def begin(self, mechanism: str, response: bytes) -> Check | Success:
        """Begin with what the client chose. Raises `Denied`."""
        self.mechanism = mechanism
        if mechanism not in self.mechanisms:
            raise Denied(f"SASL mechanism {mechanism!r} is not offered ({', '.join(self.mechanisms)})", MECHANISM)
        if mechanism == "AMQPLAIN":
            mechanism, response = "PLAIN", _plain(response)
        if mechanism == "PLAIN" and self.is_open_to_guests:
            if response != GUEST:
                raise Denied("no user has a password here; log in as guest with the password guest", PROTOCOL)
            return Success("")
        self._exchange = self._login.begin(mechanism, self._certified, response)
        return self.go_on(None)

    def go_on(self, found: Any) -> Check | Success:
        """Continue with the result of a check. Raises `Denied`."""
        assert self._exchange is not None
        reply = self._exchange.send(found)
        if isinstance(reply, Challenge):
            raise Denied("the mechanism wants a second response, which is not supported", PROTOCOL)
        return reply


def _plain(response: bytes) -> bytes:
    """Return the response of PLAIN for that of AMQPLAIN. Raises `Denied`."""
    try:
        table, _ = read_table(len(response).to_bytes(4) + response, 0, len(response) + 4)
    except BadTable as error:
        raise Denied(f"AMQPLAIN: {error}", PROTOCOL) from error
    user, password = table.get("LOGIN"), table.get("PASSWORD")
    if not isinstance(user, str) or not isinstance(password, str):
        raise Denied("AMQPLAIN takes LOGIN and PASSWORD", PROTOCOL)
    return f"\0{user}\0{password}".encode()

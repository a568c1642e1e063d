"""TLS between a socket and a terminal, by the standard library: bytes in, bytes out.

The worker uses a `SecuredTerminal` like a terminal, so connections without TLS have no extra cost. The terminal is
created after the handshake, because the client's certificate is not known before.

A client is named by its certificate only if this process has verified the complete chain up to a CA of `--tls-ca`
(there are no tickets that outlive it). Its subject must have exactly one common name, which is the user (A19). Clients
cannot renegotiate. Input other than data (such as key updates) is bounded by `MOST_CHATTER_BYTES` (A18).
"""

from __future__ import annotations

import logging
import ssl
import threading
from collections.abc import Callable, Sized
from contextlib import suppress
from typing import Any, NamedTuple, cast

from ...amqp.connector_target import Target
from ...amqp.engine.engine import ALL_CONTROLS
from ...base.accounts.users import invalid_name_reason
from .terminal import Terminal, Turn

log = logging.getLogger(__name__)

HANDSHAKE_TIMEOUT_S = 60.0
MOST_CHATTER_BYTES = 64 << 10
"""Bytes that may arrive after the handshake without any client data in them: four records of full size."""
READ_BYTES = 256 << 10

_HINTS = {
    "WRONG_VERSION_NUMBER": "the client does not speak TLS; this is the port of --tls-port, for amqps:// URLs",
    "HTTP_REQUEST": "an HTTP request came to the port of --tls-port; metrics and health checks are at --metrics-port",
    "TLSV1_ALERT_UNKNOWN_CA": "the client does not trust this certificate; give it the CA that signed --tls-cert",
}
"""Explanations of frequent errors, by the reason of OpenSSL."""


def reason_of(error: Exception) -> str:
    """The reason of an error of TLS or of its files, as OpenSSL gives it."""
    verification = getattr(error, "verify_message", None)
    return verification or getattr(error, "reason", None) or getattr(error, "strerror", None) or str(error)


class Named(NamedTuple):
    """The user that a client's certificate names, or the reason why it names none."""

    user: str = ""
    """The user name; empty without a certificate, or if it names no valid user."""
    claimed: str = ""
    """The common name of a certificate that names no valid user."""
    reason: str = ""
    """The reason why it is invalid."""


def user_of(tls: ssl.SSLObject) -> Named:
    """Return the user that the client's verified certificate names, if its common name obeys the rules for user names.
    """
    certificate: dict[str, Any] = tls.getpeercert() or {}  # empty unless the chain was verified
    subject = certificate.get("subject", ())
    names = [str(value) for relative in subject for key, value in relative if key == "commonName"]
    if len(names) != 1:
        return Named()
    if reason := invalid_name_reason(names[0]):
        return Named("", names[0], f"its certificate names no user: {reason}")
    return Named(names[0])


class _Buffer(threading.local):
    """The buffer of decrypted data that all connections of a worker share: it is empty between their reads."""

    def __init__(self) -> None:
        self.plain = bytearray(READ_BYTES)


_buffer = _Buffer()


class SecuredTerminal:
    """A connection with TLS, without its socket. Used by its worker, as a terminal is."""

    def __init__(
        self,
        name: str,
        context: ssl.SSLContext,
        make: Callable[[str, bytes, Callable[[object], None]], Terminal],
        wake: Callable[[SecuredTerminal], None],
        server: str | None = None,
        refused: Callable[[str, str], None] | None = None,
    ) -> None:
        """*make* creates the terminal from the client's name by certificate, the certificate, and a wake-up callback.

        *server*: this side is the client, and the server's certificate must have that name. *refused* is called with
        the name and the reason if a certificate names no valid user.
        """
        self.name = name
        self._incoming, self._outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        self._tls = context.wrap_bio(self._incoming, self._outgoing, server_side=server is None, server_hostname=server)
        self._make = make
        self._wake = wake
        self._refused = refused
        self._terminal: Terminal | None = None
        self._over = False  # before the terminal existed, or because TLS failed
        self._said_goodbye = False
        self._reason = ""
        self._chatter_bytes = 0
        self._cipher = memoryview(b"")

    @property
    def user(self) -> str:
        return "" if self._terminal is None else self._terminal.user

    @property
    def closed(self) -> bool:
        return self._over or (self._terminal is not None and self._terminal.closed)

    @property
    def patience_s(self) -> float:
        return HANDSHAKE_TIMEOUT_S if self._terminal is None else self._terminal.patience_s

    @property
    def is_opening(self) -> bool:
        return self._terminal is None or self._terminal.is_opening

    @property
    def is_checked(self) -> bool:
        return self._terminal is not None and self._terminal.is_checked

    @property
    def brings_long(self) -> bool:
        return self._terminal is not None and self._terminal.brings_long

    # ---- bytes ----------------------------------------------------------------------------------------------------

    @property
    def holding(self) -> Sized:
        return () if self._terminal is None else self._terminal.holding

    @property
    def routing(self) -> Sized:
        return () if self._terminal is None else self._terminal.routing

    def receive(self, data: bytes | memoryview, controls: int = ALL_CONTROLS) -> Turn:
        turn = Turn(controls, False, False, False)
        self._incoming.write(data)
        try:
            if self._terminal is None:
                self._tls.do_handshake()
                user, claimed, reason = user_of(self._tls)
                log.debug("%s: %s, certificate of %r", self.name, self._tls.version(), user)
                if reason and self._refused is not None:
                    self._refused(claimed, reason)
                self._terminal = self._make(user, self._tls.getpeercert(True) or b"", lambda terminal: self._wake(self))
            else:
                self._chatter_bytes += len(data)
            turn = self._pass_on(self._terminal, turn)
        except ssl.SSLWantReadError:
            pass
        except ssl.SSLError as error:
            self._reason = f"TLS failed: {_HINTS.get(error.reason, reason_of(error))}"
            log.info("%s: %s", self.name, self._reason)
            self._fail()
        if self._chatter_bytes > MOST_CHATTER_BYTES:
            log.info("%s: TLS records without data", self.name)
            self._fail()
        return turn

    def _pass_on(self, terminal: Terminal, turn: Turn) -> Turn:
        """Pass decrypted data to the terminal, as much as is available; return the effect of the last part."""
        view = memoryview(_buffer.plain)
        while not terminal.closed:
            size = 0
            try:
                while size < READ_BYTES:
                    more = cast(int, self._tls.read(READ_BYTES - size, view[size:]))  # typed as if there were no buffer
                    if not more:
                        turn = terminal.receive(view[:size], turn.controls_left)
                        terminal.end_input()
                        break
                    size += more
            except ssl.SSLWantReadError:
                if size:
                    self._chatter_bytes = 0
                    turn = terminal.receive(view[:size], turn.controls_left)
                break
            except ssl.SSLZeroReturnError:  # it closed TLS in order
                if size:
                    turn = terminal.receive(view[:size], turn.controls_left)
                terminal.end_input()
                break
            self._chatter_bytes = 0
            turn = terminal.receive(view[:size], turn.controls_left)
        return turn

    def end_input(self) -> None:
        self._end(lambda terminal: terminal.end_input(), "it ended the connection before TLS was agreed on")

    def write(self, send: Callable[[bytes | memoryview], int], most_bytes: int, most_long_bytes: int) -> bool:
        written_bytes = 0
        while self._cipher or self._encrypt():
            size = send(self._cipher)
            self._cipher = self._cipher[size:]
            written_bytes += size
            if written_bytes >= most_long_bytes and (written_bytes >= most_bytes or self.takes_long()):
                return True
        return False

    def _encrypt(self) -> bool:
        """Encrypt the next output; return whether there is any."""
        terminal = self._terminal
        if terminal is not None and not self._over:
            is_more = terminal.write(self._tls.write, 1, 1)
            if not is_more and not self._outgoing.pending and terminal.finished():
                self._say_goodbye()
        self._cipher = memoryview(self._outgoing.read())
        return len(self._cipher) > 0

    def finished(self) -> bool:
        if self._cipher or self._outgoing.pending:
            return False
        return self._over or (self._terminal is not None and self._terminal.finished())

    def _say_goodbye(self) -> None:
        if not self._said_goodbye:
            self._said_goodbye = True
            with suppress(ssl.SSLError):  # the client's closing alert is not awaited
                self._tls.unwrap()

    def _fail(self) -> None:
        """End TLS after an error: only the alert is still sent."""
        self._over = True
        self._end(lambda terminal: terminal.give_up(), "TLS failed")

    def _end(self, end: Callable[[Terminal], None], reason: str) -> None:
        """End the terminal by *end*. Before the handshake is done, only TLS ends, for that *reason*."""
        if self._terminal is None:
            self._over = True
        else:
            end(self._terminal)

    # ---- methods of the terminal ----------------------------------------------------------------------------------

    def takes_long(self) -> bool:
        return self._terminal is not None and self._terminal.takes_long()

    def go_on(self, controls: int) -> Turn:
        if self._terminal is None:
            return Turn(controls, False, False, False)
        return self._terminal.go_on(controls)

    def is_full(self) -> bool:
        return self._terminal is not None and self._terminal.is_full()

    def unanswered(self) -> int:
        return 0 if self._terminal is None else self._terminal.unanswered()

    def client_is_done(self) -> bool:
        return self._terminal is None or self._terminal.client_is_done()

    def tick(self, now_ms: int) -> int:
        return 0 if self._terminal is None else self._terminal.tick(now_ms)

    def give_up(self) -> None:
        self._end(lambda terminal: terminal.give_up(), "TLS was not agreed on")

    def shut_down(self) -> None:
        self._end(lambda terminal: terminal.shut_down(), "the broker shuts down")

    def free(self) -> None:
        if self._terminal is not None:
            self._terminal.free()

    def do_work(self) -> bool:
        return self._terminal is not None and self._terminal.do_work()


class SecuredClientTerminal(SecuredTerminal):
    """A connection with TLS that the broker opens. The server's certificate and its name are verified."""

    def __init__(
        self,
        target: Target,
        context: ssl.SSLContext,
        make: Callable[[Callable[[object], None]], Terminal],
        wake: Callable[[SecuredTerminal], None],
    ) -> None:
        inner = self._inner = make(lambda terminal: wake(self))
        super().__init__(target.place, context, lambda user, certificate, wake: inner, wake, target.called)
        with suppress(ssl.SSLWantReadError):
            self._tls.do_handshake()  # this side sends first

    def _end(self, end: Callable[[Terminal], None], reason: str) -> None:
        """End the terminal, which existed from the beginning, also with the error of the handshake."""
        super()._end(end, reason)
        if self._over and not self._inner.closed:
            self._inner.reason = self._reason or reason
            self._inner.give_up()

    def free(self) -> None:
        self._inner.free()

    def do_work(self) -> bool:
        return self._inner.do_work()


Conversation = Terminal | SecuredTerminal
"""A connection as a worker uses it; `Terminal` documents its methods."""

"""The login of a client: TCP, TLS and SASL. Blocking, with one deadline for all of it.

It needs no SASL library: SCRAM-SHA-256, PLAIN and ANONYMOUS are those of `client_sasl`.
"""

from __future__ import annotations

import socket
import ssl
import time
from ipaddress import ip_address
from typing import Any, NamedTuple

from ...base.errors import BrokerError
from ..codec.primitives import Malformed, descriptor
from ..codec.types import Array, Symbol
from ..frames import performatives as p
from ..sasl.client import Attempt, Identity
from ..sasl.server import Check, Denied

USABLE = "SCRAM-SHA-256, PLAIN over TLS or to a loopback address, and ANONYMOUS"
"""The SASL mechanisms of this client, for error texts."""
_SASL_FRAME = 1
_CHECK = "check --user and CAIRNMQ_PASSWORD"
_MOST_SASL_BYTES = 64 << 10
_OUTCOMES = {2: "sys", 3: "sys-perm", 4: "sys-temp"}
_TLS_RECORDS = (b"\x15\x03", b"\x16\x03")
"""The first bytes of a TLS alert and of a TLS handshake."""


class BrokerLogin(NamedTuple):
    """A broker, and the user to log in as."""

    host: str = "127.0.0.1"
    port: int = 5672
    tls: bool = False
    ca: str | None = None
    """A PEM file with the CA to trust; by default those of the system."""
    user: str | None = None
    password: str = ""
    timeout_s: float = 10.0
    """Limit for the connection and for each answer."""
    sasl_host: str = ""
    """The host name of SASL; by default *host*. The web console proves the address of a browser by it."""

    @property
    def url(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{'amqps' if self.tls else 'amqp'}://{host}:{self.port}"


class LoginRefused(BrokerError):
    """The user name or the password is wrong or missing, in contrast to a login that could not be completed."""


class LoginSocket:
    """A socket to a broker, and the exact reads of a login."""

    def __init__(self, where: BrokerLogin) -> None:
        """Connect. Raises `BrokerError` if the connection or its TLS handshake fails."""
        self._where = where
        self._end_s = time.monotonic() + where.timeout_s
        try:
            sock = socket.create_connection((where.host, where.port), where.timeout_s)
        except (OSError, UnicodeError) as error:
            is_unknown = isinstance(error, socket.gaierror | UnicodeError)
            remedy = "check the host name" if is_unknown else "is a broker running there?"
            raise BrokerError(where.url, f"can't be reached: {_reason(error)}", remedy) from error
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if where.tls:
            try:
                context = ssl.create_default_context(cafile=where.ca)
            except OSError as error:
                sock.close()
                raise BrokerError(
                    str(where.ca), f"it can't be used as a CA: {_reason(error)}", "name a PEM file with its certificate"
                ) from error
            try:
                sock = context.wrap_socket(sock, server_hostname=where.host)
            except OSError as error:
                sock.close()
                raise self._tls_failure(error) from error
        self.sock = sock

    def enter(self) -> None:
        """Log in, and agree on AMQP 1.0. The next bytes are a frame. Raises `BrokerError`."""
        try:
            self._log_in()
            self._agree(p.AMQP_HEADER)
        except (OSError, Malformed) as error:
            self.sock.close()
            reason = f"login failed: {_reason(error)}"
            raise BrokerError(self._where.url, reason, "see the log of the broker") from error
        except BrokerError:
            self.sock.close()
            raise

    def _tls_failure(self, error: OSError) -> BrokerError:
        where = self._where
        if isinstance(error, ssl.SSLCertVerificationError):
            reason = error.verify_message.rstrip(".")
            remedy = "name the CA that signed it with --ca"
            if "mismatch" in reason:
                remedy = "use a host name or address that the certificate names"
            return BrokerError(where.url, f"the broker's certificate is not trusted: {reason}", remedy)
        if isinstance(error, ssl.SSLError) and error.reason in ("WRONG_VERSION_NUMBER", "RECORD_LAYER_FAILURE"):
            return BrokerError(
                where.url, "that port does not speak TLS", "use amqp://, or the port of the broker's --tls-port"
            )
        return BrokerError(where.url, f"the TLS handshake failed: {_reason(error)}", "does that port speak TLS?")

    def _log_in(self) -> None:
        self._agree(p.SASL_HEADER)
        code, fields = self._read_frame()
        if code != p.SASL_MECHANISMS:
            raise self._astray(code)
        mechanism, attempt = self._begin(_names(fields[0]))
        host = self._where.sasl_host or self._where.host
        self._write(p.frame(p.SASL_INIT, Symbol(mechanism), attempt.first, host, kind=_SASL_FRAME))
        try:
            while True:
                code, fields = self._read_frame()
                data = bytes(fields[0]) if code == p.SASL_CHALLENGE and isinstance(fields[0], bytes) else None
                if code == p.SASL_OUTCOME:
                    self._check_outcome(mechanism, fields[0])
                    attempt.succeeded(fields[1] if len(fields) > 1 and isinstance(fields[1], bytes) else b"")
                    return
                if data is None:
                    raise self._astray(code)
                reply = attempt.challenged(data)
                if isinstance(reply, Check):
                    reply = attempt.checked(reply.job())
                self._write(p.frame(p.SASL_RESPONSE, reply.data, kind=_SASL_FRAME))
        except Denied as denied:
            raise LoginRefused(self._where.url, f"login by {mechanism} failed: {denied}", _CHECK) from denied

    def _begin(self, offered: list[str]) -> tuple[str, Attempt]:
        """The mechanism to use, and its exchange. Raises `BrokerError` if the two sides have none in common."""
        where = self._where
        identity = Identity(where.user or "", where.password, insecure=_is_loopback(self.sock))
        offers = ", ".join(offered) or "no SASL mechanism"
        if where.user is None and "ANONYMOUS" not in offered:
            raise LoginRefused(
                where.url,
                f"the broker requires a user name (it offers {offers})",
                "name the user with --user; the password is asked for, or taken from CAIRNMQ_PASSWORD",
            )
        if where.user is not None and not {"SCRAM-SHA-256", "PLAIN"} & set(offered):
            remedy = "enable one of them on the broker"
            if "ANONYMOUS" in offered:
                remedy = "leave out --user, or start the broker with --users-file"
            raise BrokerError(where.url, self._nothing_in_common(offers), remedy)
        try:
            return identity.begin(offered, secure=where.tls)
        except Denied as denied:
            if "PLAIN" in offered and "SCRAM-SHA-256" not in offered:
                raise BrokerError(where.url, self._nothing_in_common(offers), "use TLS: amqps://") from denied
            raise LoginRefused(where.url, f"login failed: {denied}", _CHECK) from denied

    def _nothing_in_common(self, offers: str) -> str:
        user = self._where.user
        return f"no usable SASL mechanism for user {user!r}: the broker offers {offers}; this client has {USABLE}"

    def _check_outcome(self, mechanism: str, code: Any) -> None:
        where = self._where
        if code == 0:
            return
        if code != 1:
            reason = f"the broker can't check logins now (SASL outcome {_OUTCOMES.get(code, code)})"
            raise BrokerError(where.url, f"login failed: {reason}", "try again, and see its log")
        if where.user is None:
            raise LoginRefused(where.url, "login failed: the broker refuses anonymous clients", "log in with --user")
        raise LoginRefused(
            where.url, f"login failed: wrong user name or password (user {where.user!r}, {mechanism})", _CHECK
        )  # fmt: skip

    def _astray(self, code: int) -> BrokerError:
        return BrokerError(self._where.url, f"login failed: an unexpected SASL frame 0x{code:02x}", "check --url")

    def _agree(self, header: bytes) -> None:
        where = self._where
        self._write(header)
        try:
            found = self._read(len(header))
        except BrokerError:
            if header == p.SASL_HEADER and not where.tls:  # a TLS server may just close the connection
                raise BrokerError(
                    where.url, "the connection was closed before the login", "if that is a TLS port, use amqps://"
                ) from None
            raise
        except TimeoutError as error:
            reason = f"no answer to the AMQP header within {where.timeout_s:g} s"
            raise BrokerError(where.url, reason, "is it the port of a broker?") from error
        if found == header:
            return
        if found[:2] in _TLS_RECORDS:
            raise BrokerError(where.url, "that port speaks TLS", "use amqps://")
        if found[:4] != b"AMQP":
            raise BrokerError(where.url, "that port does not speak AMQP", "is it the port of a broker?")
        if found[4:] in (b"\x00\x00\x09\x01", b"\x01\x01\x00\x09", b"\x01\x01\x08\x00"):
            raise BrokerError(where.url, "that broker speaks AMQP 0-9-1, this client AMQP 1.0 only", "correct --url")
        name = ".".join(map(str, found[5:]))
        raise BrokerError(where.url, f"the broker speaks AMQP {name}, protocol {found[4]}", "check the port in --url")

    def _read_frame(self) -> tuple[int, list[Any]]:
        size = int.from_bytes(self._read(4))
        if not p.HEADER_BYTES <= size <= _MOST_SASL_BYTES:
            raise BrokerError(self._where.url, f"login failed: a frame of {size} bytes", "check the port in --url")
        data = self._read(size - 4)
        code, at = descriptor(data, data[0] * 4 - 4)
        return code, p.fields_of(data, at, 1)

    def _write(self, data: bytes) -> None:
        self._limit()
        self.sock.sendall(data)

    def _read(self, size: int) -> bytes:
        found = b""
        while len(found) < size:
            self._limit()
            try:
                more = self.sock.recv(size - len(found))
            except ConnectionResetError:
                more = b""
            if not more:
                raise BrokerError(self._where.url, "the broker closed the connection during the login", "see its log")
            found += more
        return found

    def _limit(self) -> None:
        left_s = self._end_s - time.monotonic()
        if left_s <= 0:
            raise TimeoutError(f"no answer within {self._where.timeout_s:g} s")
        self.sock.settimeout(left_s)


def _names(offered: Any) -> list[str]:
    return [str(name) for name in (offered.items if isinstance(offered, Array) else [offered]) if name is not None]


def _reason(error: Exception) -> str:
    """The reason of an error, without its number."""
    if isinstance(error, ConnectionRefusedError):
        return "connection refused"
    if isinstance(error, socket.gaierror | UnicodeError):
        return "unknown host name"
    return getattr(error, "strerror", None) or str(error)


def _is_loopback(sock: socket.socket) -> bool:
    try:
        return ip_address(sock.getpeername()[0]).is_loopback
    except ValueError:
        return False

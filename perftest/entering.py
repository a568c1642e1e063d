"""How a client gets in: TCP, TLS, SASL. Blocking, with one deadline for all of it."""

from __future__ import annotations

import socket
import ssl
import time
from collections.abc import Callable
from ipaddress import ip_address
from typing import Any, NamedTuple

from scramp import ScramClient, ScramException

from ..amqp.codec import Malformed, descriptor
from ..amqp.values import Array, Symbol
from . import performatives as p
from .errors import BrokerError

SCRAM = "SCRAM-SHA-256"
_SASL_FRAME = 1
_MOST_SASL_BYTES = 64 << 10


class Where(NamedTuple):
    """Which broker, and as whom."""

    host: str = "127.0.0.1"
    port: int = 5672
    tls: bool = False
    ca: str | None = None
    """Whose certificates to trust; the system's, if none is named."""
    user: str | None = None
    password: str = ""
    timeout_s: float = 10.0
    """How long a broker may take to answer."""

    @property
    def url(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{'amqps' if self.tls else 'amqp'}://{host}:{self.port}"


class Door:
    """A socket to a broker, and the exact reads that a beginning is made of."""

    def __init__(self, where: Where) -> None:
        """Raises `BrokerError` if nobody is there, or is not who the certificate says."""
        self._where = where
        self._end_s = time.monotonic() + where.timeout_s
        try:
            sock = socket.create_connection((where.host, where.port), where.timeout_s)
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            if where.tls:
                context = ssl.create_default_context(cafile=where.ca)
                sock = context.wrap_socket(sock, server_hostname=where.host)
        except OSError as error:
            raise BrokerError(where.url, f"can't be reached: {error}", "is a broker running there?") from error
        self.sock = sock

    def enter(self) -> None:
        """Log in, and agree on AMQP 1.0. The next bytes are a frame. Raises `BrokerError`."""
        try:
            self._log_in()
            self._agree(p.AMQP_HEADER)
        except (OSError, Malformed) as error:
            self.sock.close()
            raise BrokerError(self._where.url, f"does not let us in: {error}") from error
        except BrokerError:
            self.sock.close()
            raise

    def _log_in(self) -> None:
        self._agree(p.SASL_HEADER)
        code, fields = self._read_frame()
        offered = _names(fields[0]) if code == p.SASL_MECHANISMS and fields else []
        mechanism, answer = self._choose(offered)
        scram: Any = None
        if mechanism == SCRAM:
            scram = ScramClient([SCRAM], self._where.user, self._where.password)
            answer = scram.get_client_first().encode()
        self._write(p.frame(p.SASL_INIT, Symbol(mechanism), answer, self._where.host, kind=_SASL_FRAME))
        respond: list[Callable[[str], str]] = [lambda said: _second(scram, said), lambda said: _last(scram, said)]
        while True:
            code, fields = self._read_frame()
            if code == p.SASL_OUTCOME:
                if fields[0] != 0:
                    raise BrokerError(self._where.url, "the broker does not know that user and password")
                return
            if code != p.SASL_CHALLENGE or scram is None or not respond:
                raise BrokerError(self._where.url, f"the login went astray at 0x{code:02x}")
            try:
                said = respond.pop(0)(bytes(fields[0]).decode())
            except (ScramException, UnicodeDecodeError) as error:
                raise BrokerError(self._where.url, f"the broker does not prove that it knows us: {error}") from error
            self._write(p.frame(p.SASL_RESPONSE, said.encode(), kind=_SASL_FRAME))

    def _choose(self, offered: list[str]) -> tuple[str, bytes | None]:
        where = self._where
        if where.user is None:
            if "ANONYMOUS" in offered:
                return "ANONYMOUS", b"perftest"
            remedy = "say who asks with --user, and the password with CAIRNMQ_PASSWORD in the environment"
            raise BrokerError(where.url, "the broker lets in nobody without a name", remedy)
        if SCRAM in offered:
            return SCRAM, None
        if "PLAIN" in offered and (where.tls or _is_here(self.sock)):
            return "PLAIN", b"\x00" + where.user.encode() + b"\x00" + where.password.encode()
        if "PLAIN" in offered:
            raise BrokerError(where.url, "the broker wants the password in the clear", "use TLS: amqps://")
        raise BrokerError(where.url, f"no common way to log in: the broker offers {', '.join(offered) or 'none'}")

    def _agree(self, header: bytes) -> None:
        self._write(header)
        found = self._read(len(header))
        if found != header:
            if found[:4] != b"AMQP":
                raise BrokerError(self._where.url, "something else than AMQP is spoken there")
            raise BrokerError(self._where.url, f"the broker speaks another version of AMQP: {tuple(found[4:])}")

    def _read_frame(self) -> tuple[int, list[Any]]:
        size = int.from_bytes(self._read(4))
        if not p.HEADER_BYTES <= size <= _MOST_SASL_BYTES:
            raise BrokerError(self._where.url, f"a frame of {size} bytes while logging in")
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
            more = self.sock.recv(size - len(found))
            if not more:
                raise BrokerError(self._where.url, "the broker hung up while logging in")
            found += more
        return found

    def _limit(self) -> None:
        left_s = self._end_s - time.monotonic()
        if left_s <= 0:
            raise TimeoutError(f"no answer within {self._where.timeout_s:g} s")
        self.sock.settimeout(left_s)


def _names(offered: Any) -> list[str]:
    return [str(name) for name in (offered.items if isinstance(offered, Array) else [offered]) if name is not None]


def _second(scram: Any, said: str) -> str:
    scram.set_server_first(said)
    return str(scram.get_client_final())


def _last(scram: Any, said: str) -> str:
    scram.set_server_final(said)
    return ""


def _is_here(sock: socket.socket) -> bool:
    try:
        return ip_address(sock.getpeername()[0]).is_loopback
    except ValueError:
        return False

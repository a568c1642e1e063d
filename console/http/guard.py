"""Checks of every request, before any endpoint.

| check | refused | status |
|---|---|---|
| host | a `Host` with brackets that are not those of an IPv6 address | 400 |
| host | a `Host` that names neither this host nor an IP address: DNS rebinding | 421 |
| origin | a change whose `Origin` or `Sec-Fetch-Site` is another site's, or another scheme's | 403 |
| body | two lengths, `Content-Length` and `Transfer-Encoding`: request smuggling | 400 |
| body | more than `MOST_BODY_BYTES`; for a login, which needs no session, more than `MOST_SMALL_BYTES` | 413 |
| body | not complete after `BODY_S` | 408 |
| body | beyond its first `MOST_SMALL_BYTES`, if those of all requests have `MOST_SHARED_BYTES` | 503 |

All responses have the headers of `HEADERS`. Paths of the API are passed on as they are encoded, so that a name may
contain a slash.
"""

from __future__ import annotations

import asyncio
import ipaddress
import re
import socket
from collections.abc import Iterable
from typing import Any

import msgspec
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from ..session.sessions import Peer

API = "/api/"
LOGIN = "/api/v1/session"
MOST_BODY_BYTES = 1 << 20
MOST_SMALL_BYTES = 64 << 10
MOST_SHARED_BYTES = 16 << 20
BODY_S = 15.0
CSP = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; "
    "frame-ancestors 'none'; base-uri 'none'; form-action 'self'"
)
HEADERS = (
    (b"content-security-policy", CSP.encode()),
    (b"x-content-type-options", b"nosniff"),
    (b"x-frame-options", b"DENY"),
    (b"referrer-policy", b"no-referrer"),
    (b"cross-origin-opener-policy", b"same-origin"),
    (b"cross-origin-resource-policy", b"same-origin"),
)
TLS_HEADERS = ((b"strict-transport-security", b"max-age=31536000"),)
_SAFE = ("GET", "HEAD")
_BRACKETS = re.compile(r"\[[^][]*\](:\d*)?|[^][]*")
"""A `Host` without brackets, or with one pair of them, and a port."""


class Refused(Exception):
    """A request that is not answered by an endpoint."""

    def __init__(self, status: int, condition: str, text: str) -> None:
        self.status, self.condition, self.text = status, condition, text


class Guard:
    """The ASGI application that checks requests before *app*."""

    def __init__(self, app: ASGIApp, host_names: Iterable[str]) -> None:
        """*host_names*: names that browsers may use besides IP addresses."""
        self._app = app
        self._names = frozenset(name.lower() for name in host_names)
        self._bodies = _Bodies()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        guarded = _Guarded(scope, receive, send, self._bodies)
        try:
            headers = {key: value.decode("latin-1") for key, value in scope["headers"]}
            self._check_host(headers)
            self._check_origin(scope, headers)
            guarded.check_length(headers)
            if scope["path"].startswith(API):
                scope = {**scope, "path": scope["raw_path"].decode("ascii")}
            await self._app(scope, guarded.receive, guarded.send)
        except Refused as refused:
            await guarded.refuse(refused)
        finally:
            guarded.end()

    def _check_host(self, headers: dict[str | bytes, str]) -> None:
        host = headers.get(b"host", "")
        if not _BRACKETS.fullmatch(host):
            raise Refused(400, "cairnmq:request-refused", "Host is invalid: an IPv6 address is in brackets")
        name = host_of(host)
        if name.lower() not in self._names and not is_address(name):
            text = "the console is not served under this host name; see the option --http-host"
            raise Refused(421, "cairnmq:request-refused", text)

    def _check_origin(self, scope: Scope, headers: dict[str | bytes, str]) -> None:
        if scope["method"] in _SAFE:
            return
        origin, site = headers.get(b"origin"), headers.get(b"sec-fetch-site", "same-origin")
        host = headers.get(b"host", "").lower()
        own = [f"{scope['scheme']}://{host}"]
        if not _is_loopback(host_of(host)):
            own.append(f"https://{host}")  # a proxy added TLS
        is_other = origin is not None and origin.lower() not in own
        if is_other or site not in ("same-origin", "none"):
            raise Refused(403, "cairnmq:request-refused", "a page of another site may not change anything here")


class _Bodies:
    """The bytes of the bodies of requests that are being answered, without the first ones of each."""

    def __init__(self) -> None:
        self.shared_bytes = 0


class _Guarded:
    """The two directions of one request."""

    def __init__(self, scope: Scope, receive: Receive, send: Send, bodies: _Bodies) -> None:
        self._receive, self._send, self._bodies = receive, send, bodies
        self._most_bytes = MOST_SMALL_BYTES if scope["path"] == LOGIN else MOST_BODY_BYTES
        self._is_tls = scope["scheme"] == "https"
        self._body_bytes = 0
        self._is_complete = False
        self._until_s = asyncio.get_running_loop().time() + BODY_S

    def check_length(self, headers: dict[str | bytes, str]) -> None:
        if b"content-length" in headers and b"transfer-encoding" in headers:
            raise Refused(400, "cairnmq:request-refused", "Content-Length and Transfer-Encoding exclude each other")
        length = headers.get(b"content-length", "0")
        if not length.isdecimal() or int(length) > self._most_bytes:
            raise self._too_large()

    async def receive(self) -> Message:
        if self._is_complete:
            return await self._receive()
        try:
            async with asyncio.timeout_at(self._until_s):
                message = await self._receive()
        except TimeoutError:
            raise Refused(408, "cairnmq:request-refused", "the request is too slow") from None
        shared_bytes = self._shared_bytes
        self._body_bytes += len(message.get("body", b""))
        self._bodies.shared_bytes += self._shared_bytes - shared_bytes
        self._is_complete = not message.get("more_body", False)
        if self._body_bytes > self._most_bytes:
            raise self._too_large()
        if self._shared_bytes and self._bodies.shared_bytes > MOST_SHARED_BYTES:
            raise Refused(503, "amqp:resource-limit-exceeded", "too many large requests; try again later")
        return message

    def end(self) -> None:
        """Return the part of the request in the bytes of all requests."""
        self._bodies.shared_bytes -= self._shared_bytes

    @property
    def _shared_bytes(self) -> int:
        return max(0, self._body_bytes - MOST_SMALL_BYTES)

    async def send(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            more = (*HEADERS, *(TLS_HEADERS if self._is_tls else ()))
            message = {**message, "headers": [*message.get("headers", ()), *more]}
        await self._send(message)

    def _too_large(self) -> Refused:
        return Refused(413, "amqp:resource-limit-exceeded", f"this request has at most {self._most_bytes >> 10} KiB")

    async def refuse(self, refused: Refused) -> None:
        body = msgspec.json.encode({"error": {"condition": refused.condition, "text": refused.text}})
        headers = [
            (b"content-type", b"application/json"), (b"content-length", b"%d" % len(body)), (b"connection", b"close"),
        ]  # fmt: skip
        await self.send({"type": "http.response.start", "status": refused.status, "headers": headers})
        await self.send({"type": "http.response.body", "body": body})


def host_of(text: str) -> str:
    """Return the host in a `Host` header, without port and brackets."""
    if text.startswith("["):
        return text[1 : text.find("]")]
    name, colon, port = text.rpartition(":")
    return name if colon and port.isdecimal() else text


def is_address(name: str) -> bool:
    """Return whether *name* is an IP address: it is not resolved, so no other site can make it lead here."""
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True


def _is_loopback(name: str) -> bool:
    return name == "localhost" or (is_address(name) and ipaddress.ip_address(name).is_loopback)


def own_names(host: str, more: Iterable[str]) -> Iterable[str]:
    """Return the host names of the console that listens on *host*."""
    return {"localhost", host, socket.gethostname(), *more}


def client_of(scope: Any) -> Peer:
    """Return the address of the client."""
    client = scope.get("client")
    return Peer(str(client[0]), int(client[1])) if client else Peer("unknown")

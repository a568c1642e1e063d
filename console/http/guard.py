"""Checks of every request, before any endpoint.

| check | refused | status |
|---|---|---|
| host | a `Host` that names neither this host nor an IP address: DNS rebinding | 421 |
| origin | a change whose `Origin` or `Sec-Fetch-Site` is another site's | 403 |
| body | more than `MOST_BODY_BYTES` | 413 |
| body | not complete after `BODY_S` | 408 |
| response | not read by the client for `SEND_S` | the connection is closed |

All responses have the headers of `HEADERS`. Paths of the API are passed on as they are encoded, so that a name may
contain a slash.
"""

from __future__ import annotations

import asyncio
import ipaddress
import socket
from collections.abc import Iterable
from typing import Any
from urllib.parse import urlsplit

import msgspec
from starlette.types import ASGIApp, Message, Receive, Scope, Send

API = "/api/"
MOST_BODY_BYTES = 1 << 20
BODY_S = 15.0
SEND_S = 30.0
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


class _Refused(Exception):
    def __init__(self, status: int, condition: str, text: str) -> None:
        self.status, self.condition, self.text = status, condition, text


class Guard:
    """The ASGI application that checks requests before *app*."""

    def __init__(self, app: ASGIApp, host_names: Iterable[str]) -> None:
        """*host_names*: names that browsers may use besides IP addresses."""
        self._app = app
        self._names = frozenset(name.lower() for name in host_names)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        guarded = _Guarded(scope, receive, send)
        try:
            headers = {key: value.decode("latin-1") for key, value in scope["headers"]}
            self._check_host(headers)
            self._check_origin(scope["method"], headers)
            guarded.check_length(headers)
            if scope["path"].startswith(API):
                scope = {**scope, "path": scope["raw_path"].decode("ascii")}
            await self._app(scope, guarded.receive, guarded.send)
        except _Refused as refused:
            await guarded.refuse(refused)

    def _check_host(self, headers: dict[str | bytes, str]) -> None:
        name = host_of(headers.get(b"host", ""))
        if name.lower() not in self._names and not is_address(name):
            text = "the console is not served under this host name; see the option --http-host"
            raise _Refused(421, "cairnmq:request-refused", text)

    def _check_origin(self, method: str, headers: dict[str | bytes, str]) -> None:
        if method in _SAFE:
            return
        origin, site = headers.get(b"origin"), headers.get(b"sec-fetch-site", "same-origin")
        is_other = origin is not None and _netloc(origin) != headers.get(b"host", "").lower()
        if is_other or site not in ("same-origin", "none"):
            raise _Refused(403, "cairnmq:request-refused", "a page of another site may not change anything here")


class _Guarded:
    """The two directions of one request."""

    def __init__(self, scope: Scope, receive: Receive, send: Send) -> None:
        self._receive, self._send = receive, send
        self._is_tls = scope["scheme"] == "https"
        self._body_bytes = 0
        self._is_complete = False
        self._has_begun = False
        self._until_s = asyncio.get_running_loop().time() + BODY_S

    def check_length(self, headers: dict[str | bytes, str]) -> None:
        length = headers.get(b"content-length", "0")
        if not length.isdecimal() or int(length) > MOST_BODY_BYTES:
            raise _too_large()

    async def receive(self) -> Message:
        if self._is_complete:
            return await self._receive()
        try:
            async with asyncio.timeout_at(self._until_s):
                message = await self._receive()
        except TimeoutError:
            raise _Refused(408, "cairnmq:request-refused", "the request is too slow") from None
        self._body_bytes += len(message.get("body", b""))
        self._is_complete = not message.get("more_body", False)
        if self._body_bytes > MOST_BODY_BYTES:
            raise _too_large()
        return message

    async def send(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self._has_begun = True
            more = (*HEADERS, *(TLS_HEADERS if self._is_tls else ()))
            message = {**message, "headers": [*message.get("headers", ()), *more]}
        async with asyncio.timeout(SEND_S):
            await self._send(message)

    async def refuse(self, refused: _Refused) -> None:
        if self._has_begun:
            raise TimeoutError(refused.text)
        body = msgspec.json.encode({"error": {"condition": refused.condition, "text": refused.text}})
        headers = [
            (b"content-type", b"application/json"), (b"content-length", b"%d" % len(body)), (b"connection", b"close"),
        ]  # fmt: skip
        await self.send({"type": "http.response.start", "status": refused.status, "headers": headers})
        await self.send({"type": "http.response.body", "body": body})


def _too_large() -> _Refused:
    return _Refused(413, "amqp:resource-limit-exceeded", f"a request has at most {MOST_BODY_BYTES >> 20} MiB")


def _netloc(origin: str) -> str:
    """Return host and port of an origin; empty if it has none."""
    try:
        return urlsplit(origin).netloc.lower()
    except ValueError:
        return ""


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


def own_names(host: str, more: Iterable[str]) -> Iterable[str]:
    """Return the host names of the console that listens on *host*."""
    return {"localhost", host, socket.gethostname(), *more}


def client_of(scope: Any) -> str:
    """Return the address of the client."""
    client = scope.get("client")
    return str(client[0]) if client else "unknown"

"""An HTTP server for monitoring: GET /metrics for Prometheus, /health and /ready for orchestrators.

`docs/reference/metrics.md` lists their answers. The body of the last two is a JSON object with `status`, `ok` or
`failing`, and `reasons`, a list of sentences.

| refused | status | why |
|---|---|---|
| /metrics without the configured token | 401 | it contains names of queues |
| on loopback, any `Host` that does not name this host | 421 | DNS rebinding: pages of other sites could read it |
| more than `MOST_PAGES` requests for /metrics at a time | 503 | the others leave threads for /health and /ready |

A request must be complete `REQUEST_S` after its first byte. At most `MOST_REQUESTS` are read or answered at a time;
beyond that, the oldest incomplete one is closed.
"""

from __future__ import annotations

import hmac
import io
import ipaddress
import json
import logging
import os
import socket
import threading
from collections.abc import Callable, Iterable
from contextlib import suppress
from socketserver import ThreadingMixIn
from time import monotonic, sleep
from typing import Any, NamedTuple
from wsgiref.simple_server import WSGIRequestHandler, WSGIServer, make_server

from prometheus_client import CollectorRegistry, ProcessCollector, make_wsgi_app
from prometheus_client.registry import Collector

from ..base.errors import CairnError, unreadable
from ..base.secret_files import refuse_exposed
from .health import Health

log = logging.getLogger(__name__)

MOST_REQUESTS = 16
MOST_PAGES = 16
"""Requests for /metrics that wait for a page or receive one. Each may take many seconds."""
REQUEST_S = 10.0
REST = 4
"""The time without a page after each page, in multiples of the time that it took."""
ENDING_S = 1.0
"""The time that a new request waits for the threads of requests that were closed."""
LOOPBACK_HOSTS = ("localhost", "127.0.0.1", "[::1]")
MOST_TOKEN_BYTES = 4096
StartResponse = Callable[[str, list[tuple[str, str]]], Any]
_NOT_HTTP = b"HTTP/1.1 400 Bad Request\r\nConnection: close\r\n\r\nThis port speaks HTTP, for metrics.\n"
_OPEN_METRICS = "application/openmetrics-text"
_PATHS = "paths: /metrics, /health, /ready\n"


class _Server(ThreadingMixIn, WSGIServer):
    """A thread for each request, and a bounded number of requests."""

    daemon_threads = True
    request_queue_size = 64

    def __init__(self, *arguments: Any, **named: Any) -> None:
        self._lock = threading.Condition()
        self._reading: dict[socket.socket, None] = {}
        """Incomplete requests, the oldest first."""
        self._requests: set[socket.socket] = set()
        super().__init__(*arguments, **named)

    def process_request(self, request: Any, client_address: Any) -> None:
        with self._lock:
            if len(self._requests) >= MOST_REQUESTS and self._reading:
                oldest = next(iter(self._reading))
                del self._reading[oldest]
                with suppress(OSError):
                    oldest.shutdown(socket.SHUT_RDWR)  # its thread ends with that
            # those that were shut down are still ending their threads
            is_taken = self._lock.wait_for(lambda: len(self._requests) < 2 * MOST_REQUESTS, ENDING_S)
            if is_taken:
                self._requests.add(request)
                self._reading[request] = None
        if is_taken:
            super().process_request(request, client_address)
        else:
            self.shutdown_request(request)

    def shutdown_request(self, request: Any) -> None:
        with self._lock:
            self._requests.discard(request)
            self._reading.pop(request, None)
            self._lock.notify()
        super().shutdown_request(request)

    def note_complete(self, request: socket.socket) -> None:
        """Mark the request as complete: it is answered, whatever else arrives."""
        with self._lock:
            self._reading.pop(request, None)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Ignore errors of clients that disconnect or are too slow."""
        event = {"event": "metrics.failed"}
        log.debug("metrics: %s: the request failed", client_address, exc_info=True, extra=event)


class _Server6(_Server):
    address_family = socket.AF_INET6


class _Timed(io.RawIOBase):
    """A socket with a deadline for the whole request, even if it arrives in small pieces."""

    def __init__(self, sock: socket.socket) -> None:
        self._sock = sock
        self._until_s = monotonic() + REQUEST_S

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        left_s = self._until_s - monotonic()
        if left_s <= 0:
            raise TimeoutError("the request is too slow")
        self._sock.settimeout(left_s)
        size_bytes = self._sock.recv_into(buffer)
        if not size_bytes:  # http.server would answer a request whose headers are cut off
            raise ConnectionAbortedError("the request is incomplete")
        return size_bytes


class _Response(io.RawIOBase):
    """The response to a client: one that does not read it in time counts as disconnected."""

    def __init__(self, sock: socket.socket) -> None:
        self._sock = sock

    def writable(self) -> bool:
        return True

    def write(self, data: Any) -> int:
        try:
            self._sock.sendall(data)
        except TimeoutError as error:
            raise ConnectionAbortedError("the response is not read") from error  # wsgiref logs no traceback of it
        return len(data)


class _Handler(WSGIRequestHandler):
    timeout = REQUEST_S

    def setup(self) -> None:
        super().setup()
        self.wfile = _Response(self.connection)  # type: ignore[assignment]
        self.rfile.close()
        self.rfile = io.BufferedReader(_Timed(self.connection))

    def handle(self) -> None:
        assert isinstance(self.rfile, io.BufferedReader)
        first = self.rfile.peek(4)[:4]
        other = "AMQP" if first == b"AMQP" else "TLS" if first[:2] == b"\x16\x03" else ""
        if other:
            text = "metrics: %s: a client of %s came to --metrics-port"
            log.warning(text, self.client_address[0], other, extra={"event": "metrics.refused"})
            self.wfile.write(_NOT_HTTP)
        else:
            super().handle()

    def get_environ(self) -> Any:
        assert isinstance(self.server, _Server)
        self.server.note_complete(self.connection)
        self.connection.settimeout(REQUEST_S)  # the deadline also covers the whole answer
        return super().get_environ()

    def log_message(self, format: str, *args: Any) -> None:
        """Log nothing for scrapes."""


class _Page(NamedTuple):
    begun_s: float
    head: tuple[str, list[tuple[str, str]]]
    body: list[bytes]


def _format_of(asked: dict[str, Any]) -> tuple[str, str]:
    """Return the headers that select the page for a request: other texts of clients must not require other pages."""
    accept = _OPEN_METRICS if _prefers_open_metrics(asked.get("HTTP_ACCEPT", "")) else ""
    return accept, "gzip" if "gzip" in asked.get("HTTP_ACCEPT_ENCODING", "") else ""


def _prefers_open_metrics(accept: str) -> bool:
    """Return whether an `Accept` header prefers OpenMetrics 1.0.0, which a range without a version means, to text."""
    qualities: dict[str, float] = {}
    for kind, *texts in (one.split(";") for one in "".join(accept.lower().split()).split(",")):
        values = {name: value.strip('"') for name, _, value in (text.partition("=") for text in texts)}
        if kind != _OPEN_METRICS or values.get("version", "1.0.0") == "1.0.0":
            with suppress(ValueError):  # an invalid range accepts nothing
                qualities[kind] = max(qualities.get(kind, 0.0), float(values.get("q", 1)))
    least = next((qualities[kind] for kind in ("text/plain", "text/*", "*/*") if kind in qualities), 0.0)
    return qualities.get(_OPEN_METRICS, 0.0) >= max(least, 0.001)


class _SharedPages:
    """Pages of metrics, one rendered at a time: requests that wait meanwhile share the next page of their format.

    A page takes some 100 us for each queue, and the threads of the broker wait for the interpreter meanwhile. So pages
    take at most a part of the time, `1 / (1 + REST)`, however many are requested. Any thread.
    """

    def __init__(self, render: Callable[[dict[str, Any], StartResponse], Iterable[bytes]]) -> None:
        """*render*: the WSGI application that renders a page."""
        self._render = render
        self._lock = threading.Lock()
        self._latest: dict[tuple[str, str], _Page] = {}
        """By format, of which there are four."""
        self._rested_s = 0.0
        """The time at which the next page may be begun."""
        self._slots = threading.BoundedSemaphore(MOST_PAGES)

    def answer(self, asked: dict[str, Any], start: StartResponse) -> Iterable[bytes]:
        """Answer with a page that was begun after this call, or with 503 if `MOST_PAGES` requests have no end yet."""
        if not self._slots.acquire(blocking=False):
            return _respond(start, "503 Service Unavailable", "text/plain", _TOO_MANY, (("Retry-After", "10"),))
        try:
            return _PageBody(self._body_for(asked, start), self._slots.release)
        except BaseException:
            self._slots.release()
            raise

    def _body_for(self, asked: dict[str, Any], start: StartResponse) -> list[bytes]:
        asked_s = monotonic()
        format = _format_of(asked)
        with self._lock:
            page = self._latest.get(format)
            if page is None or page.begun_s < asked_s:
                page = self._latest[format] = self._rendered(*format)
        start(*page.head)
        return page.body

    def _rendered(self, accept: str, encoding: str) -> _Page:
        sleep(max(0.0, self._rested_s - monotonic()))
        begun_s = monotonic()
        asked = {"REQUEST_METHOD": "GET", "PATH_INFO": "", "HTTP_ACCEPT": accept, "HTTP_ACCEPT_ENCODING": encoding}
        heads: list[tuple[str, list[tuple[str, str]]]] = []
        body = list(self._render(asked, lambda *head: heads.append(head)))
        heads[0][1].append(("Content-Length", str(sum(map(len, body)))))
        self._rested_s = monotonic() + REST * (monotonic() - begun_s)
        return _Page(begun_s, heads[0], body)


class _PageBody(list[bytes]):
    """The body of a response. It is closed when it is sent, or cannot be sent."""

    def __init__(self, body: list[bytes], close: Callable[[], None]) -> None:
        super().__init__(body)
        self.close = close


class MetricsServer:
    """A server whose own threads answer; none of them touches the core. Used by the thread that starts the broker."""

    def __init__(self, host: str, port: int, health: Health, token_file: str = "") -> None:
        """Listen, so that a port in use is reported before anything else starts. Raises `CairnError`.

        *token_file*: the file with the token that /metrics requires; empty for none.
        """
        self._host = host
        self._token_file = token_file
        self._token = read_token(token_file) if token_file else b""
        self._health = health
        self._registry = CollectorRegistry()
        ProcessCollector(registry=self._registry)
        self._pages = _SharedPages(make_wsgi_app(self._registry))
        try:
            family = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0][0]
            server = _Server6 if family == socket.AF_INET6 else _Server
            self._server = make_server(host, port, self._answer, server, _Handler)
        except OSError as error:
            reason = os.strerror(error.errno) if error.errno and error.errno > 0 else str(error)
            remedy = "choose another --metrics-port or --metrics-listen"
            raise CairnError(f"metrics on {host}:{port}", f"can't listen: {reason}", remedy) from error
        self._hosts: tuple[str, ...] = ()
        if ipaddress.ip_address(str(self._server.server_address[0])).is_loopback:
            self._hosts = (*LOOPBACK_HOSTS, f"[{host}]" if ":" in host else host.lower())
        elif not token_file:
            text = "--metrics-listen %s: everyone who reaches it can read names of queues; set --metrics-token-file"
            log.warning(text, host, extra={"event": "metrics.open"})
        self._thread = threading.Thread(target=self._server.serve_forever, name="metrics", daemon=True)
        self._thread.start()

    @property
    def url(self) -> str:
        host = f"[{self._host}]" if ":" in self._host else self._host
        return f"http://{host}:{self._server.server_port}/metrics"

    def read_again(self) -> Callable[[], None]:
        """Read the file of the token again; return what puts it in place. Raises `CairnError`. Any thread."""
        token = read_token(self._token_file) if self._token_file else b""

        def put_in_place() -> None:
            self._token = token

        return put_in_place

    def show(self, collector: Collector) -> None:
        """Add a source of metrics to scrapes."""
        self._registry.register(collector)

    def stop(self) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    def _answer(self, asked: dict[str, Any], start: StartResponse) -> Iterable[bytes]:
        body = self._response(asked, start)
        if asked.get("REQUEST_METHOD") != "HEAD":
            return body
        if isinstance(body, _PageBody):
            body.close()
        return []

    def _response(self, asked: dict[str, Any], start: StartResponse) -> Iterable[bytes]:
        path = asked.get("PATH_INFO", "")
        if asked.get("REQUEST_METHOD") not in ("GET", "HEAD"):
            return _respond(start, "405 Method Not Allowed", "text/plain", "GET it\n")
        if not self._names_this_host(asked.get("HTTP_HOST", "")):
            return _respond(start, "421 Misdirected Request", "text/plain", "this host is not served here\n")
        if path == "/metrics" and not self._has_token(asked.get("HTTP_AUTHORIZATION", "")):
            return _respond(start, "401 Unauthorized", "text/plain", "a bearer token is required\n", _CHALLENGE)
        if path == "/metrics":
            return self._pages.answer(asked, start)
        if path == "/health":
            return _respond_health(start, self._health.liveness_failures())
        if path == "/ready":
            return _respond_health(start, self._health.readiness_failures())
        return _respond(start, "404 Not Found", "text/plain", _PATHS)

    def _names_this_host(self, host: str) -> bool:
        """Return whether a request may name *host*. A request without a name is allowed: no browser sends one."""
        if not self._hosts or not host:
            return True
        name, colon, port = host.rpartition(":")
        return (name if colon and port.isdecimal() else host).lower() in self._hosts

    def _has_token(self, authorization: str) -> bool:
        if not self._token:
            return True
        kind, _, token = authorization.partition(" ")
        return kind.lower() == "bearer" and hmac.compare_digest(token.strip().encode(), self._token)


_TOO_MANY = "too many requests for metrics at a time; scrape less often, or set --metrics-token-file\n"
_CHALLENGE = (("WWW-Authenticate", "Bearer"),)


def read_token(path: str) -> bytes:
    try:
        with open(path, "rb") as file:
            token = file.read(MOST_TOKEN_BYTES + 1).strip()
    except OSError as error:
        raise unreadable(path, error, "name a file with the token alone") from error
    refuse_exposed(path, path)
    if not token or len(token) > MOST_TOKEN_BYTES or not token.isascii() or len(token.split()) != 1:
        reason = f"invalid token: one word of 1 to {MOST_TOKEN_BYTES} ASCII characters is required"
        raise CairnError(path, reason, "write one there, such as the output of `openssl rand -hex 32`")
    return token


def _respond_health(start: StartResponse, reasons: list[str]) -> Iterable[bytes]:
    status = "503 Service Unavailable" if reasons else "200 OK"
    body = json.dumps({"status": "failing" if reasons else "ok", "reasons": reasons}) + "\n"
    return _respond(start, status, "application/json", body)


def _respond(
    start: StartResponse, status: str, kind: str, text: str, more: Iterable[tuple[str, str]] = ()
) -> Iterable[bytes]:
    body = text.encode()
    headers = [("Content-Type", kind), ("Content-Length", str(len(body))), ("X-Content-Type-Options", "nosniff")]
    start(status, [*headers, *more])
    return [body]

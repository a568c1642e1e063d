"""Over HTTP, for those who watch: GET /metrics for Prometheus, /health and /ready for who starts and stops processes.

| path | 200 | 503 |
|---|---|---|
| /health | the process lives | the broker has failed: it is to be started again |
| /ready | clients are let in, and messages are stored | not yet, or the store is full |

The body of the last two is a JSON object with `status`, `ok` or `failing`, and `reasons`, a list of sentences.
"""

from __future__ import annotations

import json
import os
import socket
import threading
from collections.abc import Callable, Iterable
from socketserver import ThreadingMixIn
from typing import Any
from wsgiref.simple_server import WSGIRequestHandler, WSGIServer, make_server

from prometheus_client import CollectorRegistry, ProcessCollector, make_wsgi_app
from prometheus_client.registry import Collector

from ..base.errors import CairnError
from .health import Health

StartResponse = Callable[[str, list[tuple[str, str]]], Any]
_PATHS = "there are /metrics, /health and /ready\n"


class _Server(ThreadingMixIn, WSGIServer):
    daemon_threads = True


class _Server6(_Server):
    address_family = socket.AF_INET6


class _Quiet(WSGIRequestHandler):
    timeout = 10  # whoever says nothing may go

    def log_message(self, format: str, *args: Any) -> None:
        """Scrapes are nothing to talk about."""


class MetricsServer:
    """Answers from threads of its own; none of them touches the core. The thread that starts the broker."""

    def __init__(self, host: str, port: int, health: Health) -> None:
        """Listen, so that a port that is taken is told before anything else is begun. Raises `CairnError`."""
        self._host = host
        self._health = health
        self._registry = CollectorRegistry()
        ProcessCollector(registry=self._registry)
        self._metrics = make_wsgi_app(self._registry)
        try:
            family = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0][0]
            server = _Server6 if family == socket.AF_INET6 else _Server
            self._server = make_server(host, port, self._answer, server, _Quiet)
        except OSError as error:
            reason = os.strerror(error.errno) if error.errno and error.errno > 0 else str(error)
            raise CairnError(
                f"metrics on {host}:{port}",
                f"can't listen: {reason}",
                "choose another --metrics-port or --metrics-listen",
            ) from error
        self._thread = threading.Thread(target=self._server.serve_forever, name="metrics", daemon=True)
        self._thread.start()

    @property
    def url(self) -> str:
        host = f"[{self._host}]" if ":" in self._host else self._host
        return f"http://{host}:{self._server.server_port}/metrics"

    def show(self, collector: Collector) -> None:
        """From now on a scrape tells of that, too."""
        self._registry.register(collector)

    def stop(self) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    def _answer(self, asked: dict[str, Any], start: StartResponse) -> Iterable[bytes]:
        path = asked.get("PATH_INFO", "")
        if asked.get("REQUEST_METHOD") not in ("GET", "HEAD"):
            return _say(start, "405 Method Not Allowed", "text/plain", "GET it\n")
        if path == "/metrics":
            found: Iterable[bytes] = self._metrics(asked, start)
            return found
        if path == "/health":
            return _judge(start, self._health.why_not_alive())
        if path == "/ready":
            return _judge(start, self._health.why_not_ready())
        return _say(start, "404 Not Found", "text/plain", _PATHS)


def _judge(start: StartResponse, reasons: list[str]) -> Iterable[bytes]:
    status = "503 Service Unavailable" if reasons else "200 OK"
    body = json.dumps({"status": "failing" if reasons else "ok", "reasons": reasons}) + "\n"
    return _say(start, status, "application/json", body)


def _say(start: StartResponse, status: str, kind: str, text: str) -> Iterable[bytes]:
    body = text.encode()
    headers = [("Content-Type", kind), ("Content-Length", str(len(body))), ("X-Content-Type-Options", "nosniff")]
    start(status, headers)
    return [body]

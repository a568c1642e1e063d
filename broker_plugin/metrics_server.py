"""Metrics over HTTP, for Prometheus to scrape: GET /metrics."""

from __future__ import annotations

import os

from prometheus_client import CollectorRegistry, ProcessCollector, start_http_server

from ..base.errors import CairnError
from ..store.journal_store import JournalStore
from ..store.metrics import measure
from ..store.owned import OwnedStore
from .exposition import JournalCollector


class MetricsServer:
    """Answers from threads of its own; none of them touches the core. The thread that starts the broker."""

    def __init__(self, host: str, port: int) -> None:
        """Listen, so that a port that is taken is told before anything else is begun. Raises `CairnError`."""
        self._host = host
        self._registry = CollectorRegistry()
        ProcessCollector(registry=self._registry)
        try:
            self._server, self._thread = start_http_server(port, host, self._registry)
        except OSError as error:
            reason = os.strerror(error.errno) if error.errno and error.errno > 0 else str(error)
            raise CairnError(
                f"metrics on {host}:{port}",
                f"can't listen: {reason}",
                "choose another --metrics-port or --metrics-listen",
            ) from error

    @property
    def url(self) -> str:
        host = f"[{self._host}]" if ":" in self._host else self._host
        return f"http://{host}:{self._server.server_port}/metrics"

    def show(self, store: OwnedStore) -> None:
        """From now on a scrape tells about *store*, if it has a journal; else only about the process."""
        if isinstance(store, JournalStore):
            self._registry.register(JournalCollector(lambda: measure(store)))

    def stop(self) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

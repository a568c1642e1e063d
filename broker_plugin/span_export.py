"""The export of spans by OpenTelemetry's SDK, on a thread of its own; needs the extra `otel`."""

from __future__ import annotations

import logging
import threading
from typing import TYPE_CHECKING

from .. import __version__
from ..base.errors import CairnError
from ..base.extras import install_hint
from .traces import Span, TraceOptions, Tracing

if TYPE_CHECKING:
    from opentelemetry.sdk.trace import ReadableSpan
    from opentelemetry.sdk.trace.export import SpanExporter

log = logging.getLogger(__name__)
_FAILED, _RESUMED = {"event": "broker.traces-failed"}, {"event": "broker.traces-resumed"}

INTERVAL_S = 1.0
BATCH = 512
TIMEOUT_S = 5.0
"""The time that the server has to answer; also the maximum delay of a stop."""


def otlp_exporter(url: str) -> SpanExporter:
    """Return the exporter to an OTLP/HTTP endpoint. Raises `CairnError` without the extra."""
    try:
        from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
    except ImportError as error:
        raise CairnError("--trace-to", "OpenTelemetry is missing", install_hint("otel")) from error
    return OTLPSpanExporter(url, timeout=TIMEOUT_S)


class SpanExport:
    """Takes finished spans, and exports them in batches."""

    def __init__(self, tracing: Tracing, exporter: SpanExporter, container_id: str) -> None:
        from opentelemetry.sdk.resources import Resource

        self.tracing = tracing
        self._exporter = exporter
        self._resource = Resource.create(
            {"service.name": "cairnmq", "service.version": __version__, "service.instance.id": container_id}
        )
        self._has_failed = False
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="cairnmq-spans", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Export what is left, as far as the server takes it in time."""
        self._stopping.set()
        self._thread.join(2 * TIMEOUT_S)

    def _run(self) -> None:
        while not self._stopping.wait(INTERVAL_S):
            self._export_all()
        self._export_all()
        self._exporter.shutdown()

    def _export_all(self) -> None:
        finished = self.tracing.finished
        while finished:
            batch = [finished.popleft() for _ in range(min(BATCH, len(finished)))]
            if self._export(batch) != self._has_failed:
                self._has_failed = not self._has_failed
                if self._has_failed:
                    log.warning("tracing: spans cannot be exported, and are dropped", extra=_FAILED)
                else:
                    log.info("tracing: spans are exported again", extra=_RESUMED)
            if self._has_failed:
                self.tracing.dropped += len(batch)
                if self._stopping.is_set():
                    return

    def _export(self, batch: list[Span]) -> bool:
        """Export a batch; return whether that failed."""
        from opentelemetry.sdk.trace.export import SpanExportResult

        try:
            return self._exporter.export([self._readable(span) for span in batch]) is not SpanExportResult.SUCCESS
        except Exception:  # of a library, and of the network: tracing must not end
            log.debug("tracing: export failed", exc_info=True, extra=_FAILED)
            return True

    def _readable(self, span: Span) -> ReadableSpan:
        from opentelemetry.sdk.trace import ReadableSpan
        from opentelemetry.trace import SpanContext, SpanKind, Status, StatusCode, TraceFlags

        trace_id, parent_id = span.context
        sampled = TraceFlags(TraceFlags.SAMPLED)
        kinds = {"publish": SpanKind.CONSUMER, "deliver": SpanKind.PRODUCER}
        return ReadableSpan(
            f"{span.name} {span.place}",
            SpanContext(trace_id, span.span_id, is_remote=False, trace_flags=sampled),
            SpanContext(trace_id, parent_id, is_remote=True, trace_flags=sampled) if parent_id else None,
            self._resource,
            {
                "messaging.system": "cairnmq",
                "messaging.destination.name": span.place,
                "messaging.operation.name": span.name,
                **({"error.type": span.error} if span.error else {}),
            },
            kind=kinds.get(span.name, SpanKind.INTERNAL),
            status=Status(StatusCode.ERROR, span.error) if span.error else Status(),
            start_time=span.start_ns,
            end_time=span.end_ns,
        )


def span_export(options: TraceOptions | None, container_id: str) -> SpanExport | None:
    """Start the export of spans; None without options. Raises `CairnError` without the extra."""
    return None if options is None else SpanExport(Tracing(options), otlp_exporter(options.url), container_id)

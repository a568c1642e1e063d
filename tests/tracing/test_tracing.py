"""Spans of messages: a real broker exports them by OTLP/HTTP to a receiver of this process."""

from __future__ import annotations

import gzip
import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from proton import Delivery, Message, symbol
from proton.utils import BlockingConnection

from cairnmq.broker_plugin import traces as module
from cairnmq.broker_plugin.span_export import SpanExport
from cairnmq.broker_plugin.traces import Context, TraceOptions, Tracing
from tests.harness.clients.peers import Peer
from tests.harness.process import DEADLINE_S, BrokerProcess, broker

proto = pytest.importorskip("opentelemetry.proto.collector.trace.v1.trace_service_pb2")
in_memory = pytest.importorskip("opentelemetry.sdk.trace.export.in_memory_span_exporter")

TRACE, PARENT = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"
SECOND_NS = 1_000_000_000


def traceparent(number: int = 0, flags: str = "01") -> str:
    return f"00-{int(TRACE, 16) + number:032x}-{PARENT}-{flags}"


class Receiver:
    """An OTLP/HTTP receiver that keeps the spans."""

    def __init__(self) -> None:
        self.spans: list[Any] = []
        self.resources: list[dict[str, str]] = []
        self._changed = threading.Condition()
        receiver = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                if self.headers.get("Content-Encoding") == "gzip":
                    body = gzip.decompress(body)
                receiver.take(proto.ExportTraceServiceRequest.FromString(body))
                self.send_response(200)
                self.send_header("Content-Length", "0")
                self.end_headers()

            def log_message(self, format: str, *args: Any) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        threading.Thread(target=self._server.serve_forever, daemon=True).start()
        self.url = f"http://127.0.0.1:{self._server.server_port}/v1/traces"

    def take(self, request: Any) -> None:
        with self._changed:
            for of_resource in request.resource_spans:
                self.resources.append({one.key: one.value.string_value for one in of_resource.resource.attributes})
                for of_scope in of_resource.scope_spans:
                    self.spans += of_scope.spans
            self._changed.notify_all()

    def of(self, number: int, *names: str) -> dict[str, Any]:
        """The spans of a trace by name, once all *names* are there."""
        trace_id = (int(TRACE, 16) + number).to_bytes(16)

        def found() -> dict[str, Any]:
            return {span.name: span for span in self.spans if span.trace_id == trace_id}

        with self._changed:
            assert self._changed.wait_for(lambda: found().keys() >= {*names}, DEADLINE_S), found().keys()
            return found()

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()


class Traced(NamedTuple):
    """A broker and the receiver of its spans."""

    broker: BrokerProcess
    receiver: Receiver


@pytest.fixture(scope="module")
def traced(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Traced]:
    receiver = Receiver()
    place: Path = tmp_path_factory.mktemp("traced")
    try:
        with broker(place / "store", "--trace-to", receiver.url, "--container-id", "traced-one") as running:
            yield Traced(running, receiver)
    finally:
        receiver.close()


@pytest.fixture
def connection(traced: Traced) -> Iterator[BlockingConnection]:
    found = BlockingConnection(f"127.0.0.1:{traced.broker.port}", timeout=DEADLINE_S)
    yield found
    found.close()


def test_message_has_a_span_for_each_stage(traced: Traced, connection: BlockingConnection) -> None:
    sender = connection.create_sender("orders")
    receiver = connection.create_receiver("orders", credit=1)
    sender.send(Message(body="x", durable=True, properties={"traceparent": traceparent()}))
    assert receiver.receive().properties == {"traceparent": traceparent()}  # the message does not change
    receiver.accept()
    receiver.close()  # proton's outcomes go out with it
    names = ("publish orders", "route orders", "store orders", "deliver orders", "settle orders")
    found = traced.receiver.of(0, *names)
    assert found.keys() == {*names}
    publish, route, store, deliver, settle = (found[name] for name in names)
    assert publish.parent_span_id == deliver.parent_span_id == bytes.fromhex(PARENT)
    assert route.parent_span_id == store.parent_span_id == publish.span_id
    assert settle.parent_span_id == deliver.span_id
    assert len({span.span_id for span in found.values()}) == 5
    assert publish.start_time_unix_nano == route.start_time_unix_nano <= route.end_time_unix_nano
    assert route.end_time_unix_nano == store.start_time_unix_nano < store.end_time_unix_nano
    assert publish.end_time_unix_nano == store.end_time_unix_nano
    assert deliver.end_time_unix_nano == settle.start_time_unix_nano < settle.end_time_unix_nano
    assert abs(time.time_ns() - settle.end_time_unix_nano) < DEADLINE_S * SECOND_NS
    attributes = {one.key: one.value.string_value for one in deliver.attributes}
    assert attributes["messaging.destination.name"] == "orders"
    assert traced.receiver.resources[0]["service.instance.id"] == "traced-one"


def test_context_in_message_annotations_is_found(traced: Traced, connection: BlockingConnection) -> None:
    message = Message(body="x", durable=True, annotations={symbol("traceparent"): traceparent(1)})
    connection.create_sender("annotated").send(message)
    assert traced.receiver.of(1, "publish annotated")


def test_rejected_message_has_a_dead_letter_span(traced: Traced, connection: BlockingConnection) -> None:
    connection.create_sender("refused").send(Message(body="x", properties={"traceparent": traceparent(2)}))
    receiver = connection.create_receiver("refused", credit=1)
    receiver.receive()
    receiver.settle(Delivery.REJECTED)
    receiver.close()
    found = traced.receiver.of(2, "dead-letter refused", "deliver refused", "settle refused")
    assert found["dead-letter refused"].parent_span_id == bytes.fromhex(PARENT)
    assert found["dead-letter refused"].status.code == 2


LONG = "x" * 300_000
"""Several frames: such a message arrives, is stored and is delivered in pieces."""
PUBLISHING = ("publish", "route", "store")


@pytest.mark.parametrize("is_durable", [True, False], ids=["durable", "transient"])
def test_long_message_has_the_spans_of_publishing(
    traced: Traced, connection: BlockingConnection, is_durable: bool
) -> None:
    number, queue = (10, "long") if is_durable else (11, "long-transient")
    context = {"traceparent": traceparent(number)}
    sender = connection.create_sender(queue)
    sender.send(Message(body=LONG, durable=is_durable, properties=context))
    receiver = connection.create_receiver(queue, credit=1)
    received = receiver.receive()
    assert (received.properties, received.body) == (context, LONG)
    receiver.accept()
    receiver.close()
    names = {f"{stage} {queue}" for stage in PUBLISHING}
    publish, route, store = (traced.receiver.of(number, *names)[f"{stage} {queue}"] for stage in PUBLISHING)
    assert publish.parent_span_id == bytes.fromhex(PARENT)
    assert route.parent_span_id == store.parent_span_id == publish.span_id
    assert publish.start_time_unix_nano == route.start_time_unix_nano < route.end_time_unix_nano
    assert route.end_time_unix_nano == store.start_time_unix_nano <= store.end_time_unix_nano
    assert publish.end_time_unix_nano == store.end_time_unix_nano
    sender.send(Message(body="short", durable=is_durable, properties={"traceparent": traceparent(number + 10)}))
    traced.receiver.of(number + 10, *names)  # spans are exported in order
    assert traced.receiver.of(number).keys() == names


def test_context_in_the_last_frame_of_a_long_message_is_content(traced: Traced, connection: BlockingConnection) -> None:
    sender = connection.create_sender("forged")
    looks_like_one = f"traceparent\xa1\x37{traceparent(14)}".encode("latin-1")
    body = b"x" * 100_000 + looks_like_one * 3000  # it begins behind the first frame, and is in all others
    sender.send(Message(body=body, durable=True, inferred=True))
    sender.send(Message(body="short", properties={"traceparent": traceparent(15)}))
    traced.receiver.of(15, "publish forged")
    assert traced.receiver.of(14) == {}


def test_spans_of_an_aborted_message_end(traced: Traced) -> None:
    peer = Peer(traced.broker.port)
    sender = peer.sender("aborted")
    begin = bytes(Message(body=LONG, properties={"traceparent": traceparent(16)}).encode())
    delivery = sender.delivery("aborted")
    sender.stream(begin[:200_000])
    peer.settle_down()
    delivery.abort()
    peer.settle_down()
    peer.send(sender, Message(body="short", properties={"traceparent": traceparent(17)}))
    assert traced.receiver.of(17, *(f"{stage} aborted" for stage in PUBLISHING))
    assert traced.receiver.of(16, "publish aborted")["publish aborted"].status.code == 2
    peer.close()


def test_presettled_delivery_and_transactions_have_spans(traced: Traced, connection: BlockingConnection) -> None:
    connection.create_sender("fast").send(Message(body="x", properties={"traceparent": traceparent(3)}))
    from proton.reactor import AtMostOnce

    receiver = connection.create_receiver("fast", credit=1, options=AtMostOnce())
    receiver.receive()
    assert traced.receiver.of(3, "deliver fast", "settle fast")


def test_message_without_the_sampled_flag_is_not_traced(traced: Traced, connection: BlockingConnection) -> None:
    sender = connection.create_sender("quiet")
    sender.send(Message(body="x", properties={"traceparent": traceparent(4, "00")}))
    sender.send(Message(body="x"))
    sender.send(Message(body="x", properties={"traceparent": "00-zz"}))
    sender.send(Message(body="x", properties={"traceparent": traceparent(5)}))
    traced.receiver.of(5, "publish quiet")
    assert [span.name for span in traced.receiver.spans].count("publish quiet") == 1


def content(value: str) -> bytes:
    return bytes(Message(body="x", properties={"traceparent": value}).encode())


def test_limit_bounds_the_cost_of_a_client_that_marks_everything() -> None:
    tracing = Tracing(TraceOptions("", 0.0, 10))
    chosen = [tracing.context(content(traceparent(number)), SECOND_NS + number) for number in range(1000)]
    assert sum(one is not None for one in chosen) == 10
    assert tracing.dropped == 990
    assert tracing.context(content(traceparent()), 2 * SECOND_NS) == Context(int(TRACE, 16), int(PARENT, 16))


@pytest.mark.parametrize("limit", ["MOST_OPEN", "MOST_WAITING"])
def test_spans_that_nobody_takes_are_bounded(limit: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, limit, 5)
    tracing = Tracing(TraceOptions("", 0.0, 1000))
    for number in range(20):
        context = tracing.context(content(traceparent(number)), SECOND_NS)
        if context is not None:
            tracing.open += limit == "MOST_OPEN"
            tracing.add("publish", context, 1, 2, "orders")
    assert len(tracing.finished) == 5
    assert tracing.dropped == 15


def test_ratio_chooses_messages_without_a_context() -> None:
    plain = bytes(Message(body="x").encode())
    for ratio, least, most in ((0.0, 0, 0), (0.25, 100, 400), (1.0, 1000, 1000)):
        tracing = Tracing(TraceOptions("", ratio, 10_000))
        chosen = [tracing.context(plain, SECOND_NS) for _ in range(1000)]
        assert least <= sum(one is not None for one in chosen) <= most
        assert all(one.trace_id and not one.parent_id for one in chosen if one is not None)


def test_context_behind_the_first_bytes_or_with_zero_ids_is_ignored() -> None:
    tracing = Tracing(TraceOptions(""))
    far = Message(body="x", properties={"a": "b" * module.SCAN_BYTES, "traceparent": traceparent()})
    for wrong in (
        bytes(far.encode()),
        content(f"00-{'0' * 32}-{PARENT}-01"),
        content(f"00-{TRACE}-{'0' * 16}-01"),
        content(f"ff-{TRACE}-{PARENT}-01"),
        None,
    ):
        assert tracing.context(wrong, SECOND_NS) is None
    assert tracing.dropped == 0


def test_failed_export_drops_spans_and_a_stop_exports_the_rest(caplog: pytest.LogCaptureFixture) -> None:
    exporter = in_memory.InMemorySpanExporter()
    tracing = Tracing(TraceOptions(""))
    export = SpanExport(tracing, exporter, "one")
    tracing.add("publish", Context(1, 2), 3, 4, "orders", "amqp:decode-error")
    export.stop()
    [span] = exporter.get_finished_spans()
    assert (span.name, span.start_time, span.end_time) == ("publish orders", 3, 4)
    assert (span.context.trace_id, span.parent.span_id, span.status.description) == (1, 2, "amqp:decode-error")
    assert tracing.dropped == 0
    stopped = SpanExport(tracing, exporter, "one")  # the exporter is shut down: it fails
    tracing.add("publish", Context(1, 2), 3, 4, "orders")
    stopped.stop()
    assert tracing.dropped == 1
    assert "spans cannot be exported" in caplog.text

"""Tests of message spans, which a real broker exports by OTLP/HTTP to a receiver in this process."""

from __future__ import annotations

import gzip
import threading
import time
from collections import Counter
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, NamedTuple, cast

import pytest
from proton import Delivery, Message, symbol
from proton.utils import BlockingConnection

from cairnmq.amqp.native.proton_ffi import ACCEPTED, REJECTED, RELEASED
from cairnmq.amqp.ports import MORE, Content, Outcome
from cairnmq.broker_plugin import traces as module
from cairnmq.broker_plugin.span_export import SpanExport
from cairnmq.broker_plugin.traces import Context, TraceOptions, Tracing, traced_drivers
from tests.harness.broker.resumable_receivers import Receiver as ResumableReceiver
from tests.harness.broker.resumable_receivers import put
from tests.harness.broker.transacting import Transacting
from tests.harness.broker.world import FakeTerminal, World, message
from tests.harness.clients.peers import Peer
from tests.harness.clients.resuming import ResumingReceiver, ResumingSender
from tests.harness.process import DEADLINE_S, BrokerProcess, broker

proto = pytest.importorskip("opentelemetry.proto.collector.trace.v1.trace_service_pb2")
in_memory = pytest.importorskip("opentelemetry.sdk.trace.export.in_memory_span_exporter")

TRACE, PARENT = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"
SECOND_NS = 1_000_000_000


def traceparent(number: int = 0, flags: str = "01") -> str:
    return f"00-{int(TRACE, 16) + number:032x}-{PARENT}-{flags}"


class Receiver:
    """An OTLP/HTTP receiver that stores the spans."""

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
        """Wait for all *names*, and return the spans of a trace by name."""
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
    receiver.close()  # also sends proton's outcomes
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
"""Body of several frames, with which a message arrives, is stored and is delivered in pieces."""
PUBLISHING = ("publish", "route", "store")
STAGES = (*PUBLISHING, "deliver", "settle")


@pytest.mark.parametrize("is_durable", [True, False], ids=["durable", "transient"])
def test_long_message_has_a_span_for_each_stage(
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
    names = [f"{stage} {queue}" for stage in STAGES]
    found = traced.receiver.of(number, *names)
    assert found.keys() == {*names}
    publish, route, store, deliver, settle = (found[name] for name in names)
    assert publish.parent_span_id == deliver.parent_span_id == bytes.fromhex(PARENT)
    assert route.parent_span_id == store.parent_span_id == publish.span_id
    assert settle.parent_span_id == deliver.span_id
    assert publish.start_time_unix_nano == route.start_time_unix_nano < route.end_time_unix_nano
    assert route.end_time_unix_nano == store.start_time_unix_nano <= store.end_time_unix_nano
    assert publish.end_time_unix_nano == store.end_time_unix_nano
    assert publish.start_time_unix_nano < deliver.start_time_unix_nano < deliver.end_time_unix_nano
    assert deliver.end_time_unix_nano == settle.start_time_unix_nano <= settle.end_time_unix_nano


def test_message_of_resumable_links_has_a_span_for_each_stage(traced: Traced) -> None:
    sender, receiver = ResumingSender("kept"), ResumingReceiver("kept")
    sender.connect(traced.broker.port)
    sender.send(b"tag", "kept", bytes(Message(body="x", properties={"traceparent": traceparent(20)}).encode()))
    sender.hear(b"tag", 0)
    sender.settle(b"tag", 0)
    receiver.connect(traced.broker.port)
    delivery = receiver.receive()
    receiver.accept(delivery)
    receiver.hear(delivery)
    names = [f"{stage} kept" for stage in STAGES]
    found = traced.receiver.of(20, *names)
    assert found.keys() == {*names}
    publish, route, store, deliver, settle = (found[name] for name in names)
    assert publish.parent_span_id == deliver.parent_span_id == bytes.fromhex(PARENT)
    assert route.parent_span_id == store.parent_span_id == publish.span_id
    assert settle.parent_span_id == deliver.span_id
    assert publish.start_time_unix_nano < route.end_time_unix_nano <= store.end_time_unix_nano
    assert store.end_time_unix_nano < deliver.end_time_unix_nano <= settle.end_time_unix_nano
    sender.cut()
    receiver.cut()


def test_long_message_on_a_resumable_link_has_deliver_and_settle_spans(
    traced: Traced, connection: BlockingConnection
) -> None:
    sent = Message(body=LONG, durable=True, properties={"traceparent": traceparent(21)})
    connection.create_sender("kept-long").send(sent)
    receiver = ResumingReceiver("kept-long")
    receiver.connect(traced.broker.port)
    delivery = receiver.receive()
    assert delivery.text == LONG
    receiver.accept(delivery)
    receiver.hear(delivery)
    found = traced.receiver.of(21, *(f"{stage} kept-long" for stage in STAGES))
    assert found["settle kept-long"].parent_span_id == found["deliver kept-long"].span_id
    receiver.cut()


def test_context_in_the_last_frame_of_a_long_message_is_content(traced: Traced, connection: BlockingConnection) -> None:
    sender = connection.create_sender("forged")
    looks_like_one = f"traceparent\xa1\x37{traceparent(14)}".encode("latin-1")
    body = b"x" * 100_000 + looks_like_one * 3000  # in all frames except the first
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


class InProcess:
    """A traced broker in this thread, whose spans the SDK's exporter keeps in memory."""

    def __init__(self, world: World | None = None, ratio: float = 0.0) -> None:
        self.world = world or World(1 << 24)
        self.tracing = Tracing(TraceOptions("", ratio, 100_000))
        burials = self.world.broker.core.events.burials
        self.world.broker.drivers = cast(Any, traced_drivers(self.world.broker.drivers, burials, self.tracing))
        self._exporter = in_memory.InMemorySpanExporter()

    def publish(self, number: int, *, size_bytes: int = 10, durable: bool = True) -> None:
        sender = self.world.open(to_client=False)
        sent = Message(body="x" * size_bytes, durable=durable, properties={"traceparent": traceparent(number)})
        data, delivery = bytes(sent.encode()), object()
        frames = [data[begin : begin + 40_000] for begin in range(0, len(data), 40_000)]
        flags = [MORE] * (len(frames) - 1) + [0]
        self.world.send(sender, *[(delivery, frame, flag) for frame, flag in zip(frames, flags, strict=True)])
        assert sender.confirmed == [delivery]

    def receive(self, **link: Any) -> FakeTerminal:
        """Return a receiver to which the messages were delivered, whose contents were read."""
        receiver = self.world.open(to_client=True, **link)
        self.world.do(receiver.driver.request, 10, False)
        self.world.read_all()
        for _, content in cast(list[tuple[Any, bytes | Content]], receiver.forwarded):
            _ = content if isinstance(content, bytes) else [content.piece(one) for one in range(content.pieces)]
        return receiver

    def settle(self, receiver: FakeTerminal, state: int = ACCEPTED) -> None:
        """Settle all messages of *receiver*, in the order of arrival."""
        for number, (entry, _) in enumerate(receiver.forwarded):
            self.world.do(receiver.driver.outcomes, [Outcome(f"delivery {number}", entry, state)])
            self.world.read_all()

    def spans(self) -> list[Any]:
        """Export all spans and return them; can be called once, as it ends the export."""
        export = SpanExport(self.tracing, self._exporter, "one")
        export.stop()
        return list(self._exporter.get_finished_spans())

    def names(self, number: int) -> list[str]:
        return sorted(one.name for one in self.spans() if one.context.trace_id == int(TRACE, 16) + number)


ON_Q = sorted(f"{stage} q" for stage in STAGES)


@pytest.mark.parametrize("durable", [True, False], ids=["durable", "transient"])
def test_content_in_pieces_has_deliver_and_settle_spans(durable: bool) -> None:
    traced = InProcess()
    traced.publish(1, size_bytes=200_000, durable=durable)
    receiver = traced.receive()
    [(_, found)] = receiver.forwarded
    assert not isinstance(found, bytes)
    traced.settle(receiver)
    assert traced.names(1) == ON_Q
    assert traced.tracing.open == 0


def test_redelivered_long_message_has_spans_of_each_delivery() -> None:
    traced = InProcess()
    traced.publish(1, size_bytes=200_000)
    for state in (RELEASED, ACCEPTED):
        receiver = traced.receive()
        traced.settle(receiver, state)
        traced.world.do(receiver.driver.close, [], False, True)
    assert traced.names(1) == sorted([*ON_Q, "deliver q", "settle q"])
    assert traced.tracing.open == 0


@pytest.mark.parametrize("durable", [True, False], ids=["durable", "transient"])
def test_presettled_delivery_of_a_long_message_has_spans(durable: bool) -> None:
    traced = InProcess()
    traced.publish(1, size_bytes=200_000, durable=durable)
    assert len(traced.receive(presettled=True).forwarded) == 1
    assert traced.names(1) == ON_Q
    assert traced.tracing.open == 0


def test_long_messages_without_the_sampled_flag_are_traced_by_the_ratio() -> None:
    for ratio, expected in ((0.0, 0), (1.0, 2)):
        traced = InProcess(ratio=ratio)
        sender = traced.world.open(to_client=False)
        sent = message(1, 200_000, True)
        traced.world.send(sender, (1, sent[:40_000], MORE), (1, sent[40_000:90_000], MORE), (1, sent[90_000:], 0))
        traced.settle(traced.receive())
        spans = traced.spans()
        assert len({span.context.trace_id for span in spans}) == expected
        assert [span.name for span in spans].count("deliver q") == expected / 2


def test_limit_bounds_the_deliveries_of_long_messages() -> None:
    traced = InProcess()
    for number in range(4):
        traced.publish(number, size_bytes=200_000)
    traced.tracing._options = TraceOptions("", 0.0, 0)  # limit of 0 messages per second
    traced.settle(traced.receive())
    assert {span.name for span in traced.spans()} == {f"{stage} q" for stage in PUBLISHING}
    assert traced.tracing.dropped == 4


def test_lost_link_drops_its_unfinished_spans() -> None:
    traced = InProcess()
    traced.publish(1)
    traced.publish(2, size_bytes=200_000)
    receiver = traced.receive()
    assert traced.tracing.open == 1
    traced.world.do(receiver.driver.close, [entry for entry, _ in receiver.forwarded], True, False)
    assert traced.tracing.open == 0
    assert "deliver q" not in {span.name for span in traced.spans()}


def test_browsed_messages_leave_no_unfinished_spans() -> None:
    traced = InProcess()
    traced.publish(1)
    traced.publish(2, size_bytes=200_000)
    browser = traced.receive(browse=True)
    assert len(browser.forwarded) == 2
    traced.settle(browser)
    assert traced.tracing.open == 0
    assert "deliver q" not in {span.name for span in traced.spans()}


def test_message_that_no_queue_gets_has_a_publish_span_with_an_error() -> None:
    traced = InProcess()
    made: list[Any] = []
    traced.world.do(traced.world.broker.nodes.create_exchange, "hub", "direct", {}, made.append)
    sender = traced.world.open(to_client=False, address="hub")
    traced.world.send(sender, ("lost", content(traceparent(1)), 0))
    assert sender.handed_back == ["lost"]
    [publish] = [span for span in traced.spans() if span.name == "publish hub"]
    assert publish.status.description == "released"
    assert traced.tracing.open == 0


@pytest.mark.parametrize("size_bytes", [10, 200_000], ids=["short", "long"])
def test_rejected_message_of_which_memory_has_all_or_nothing_has_a_dead_letter_span(size_bytes: int) -> None:
    traced = InProcess()
    traced.publish(1, size_bytes=size_bytes)
    traced.settle(traced.receive(), REJECTED)
    spans = {span.name: span for span in traced.spans()}
    assert spans["dead-letter q"].parent.span_id == int(PARENT, 16)
    assert spans["dead-letter q"].context.trace_id == int(TRACE, 16) + 1
    assert spans.keys() == {*ON_Q, "dead-letter q"}
    assert traced.tracing.open == 0
    assert not traced.tracing.settling


def test_relayed_message_without_a_target_has_a_publish_span_with_an_error() -> None:
    traced = InProcess()
    sender = traced.world.open(to_client=False, address=None)
    traced.world.send(sender, ("lost", content(traceparent(1)), 0))
    assert sender.rejected == {"lost": "amqp:not-found"}
    [publish] = [span for span in traced.spans() if span.name.startswith("publish")]
    assert publish.status.description == "amqp:not-found"
    assert traced.tracing.open == 0


@pytest.mark.parametrize("is_settled", [True, False], ids=["settled", "unsettled"])
def test_outcome_in_a_transaction_ends_the_spans(is_settled: bool) -> None:
    """A transactional outcome ends the spans, settled with the outcome (JMS clients) or after the broker's response."""
    transacting = Transacting()
    traced = InProcess(transacting.world)
    traced.publish(1)
    receiver = traced.receive()
    txn_id = transacting.declare()
    outcome = Outcome(None if is_settled else "delivery", receiver.forwarded[0][0], ACCEPTED)
    traced.world.do(receiver.driver.outcomes_in, transacting.connection, [(txn_id, outcome)])
    assert transacting.discharge(txn_id) == ""
    assert traced.names(1) == ON_Q
    assert traced.tracing.open == 0


def test_delivery_that_a_client_resumes_has_spans_from_its_resumption() -> None:
    traced = InProcess(ratio=1.0)
    put(traced.world, 4)  # a long message
    receiver = ResumableReceiver(traced.world)
    receiver.attach()
    assert receiver.receive() is not None
    receiver.leave()
    assert "deliver" not in {span.name for span in traced.tracing.finished}
    receiver.attach()
    resumed = receiver.receive()
    assert resumed is not None
    assert resumed.is_resumed
    receiver.decide()
    receiver.hear()
    names = Counter(span.name for span in traced.spans())
    assert (names["deliver q"], names["settle q"]) == (1, 1)
    assert traced.tracing.open == 0


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
    stopped = SpanExport(tracing, exporter, "one")  # fails, as the exporter is shut down
    tracing.add("publish", Context(1, 2), 3, 4, "orders")
    stopped.stop()
    assert tracing.dropped == 1
    assert "spans cannot be exported" in caplog.text

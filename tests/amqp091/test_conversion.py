"""Tests of the conversion of messages: without loss within AMQP 0-9-1, and valid in AMQP 1.0."""

from __future__ import annotations

import string
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cairnmq.amqp.codec import encode, sections
from cairnmq.amqp.codec.header import parse, redelivered
from cairnmq.amqp.codec.types import Symbol, Timestamp
from cairnmq.amqp091.conversion import AMQP10_TYPE, BadContent, encoded_start, outgoing
from cairnmq.amqp091.properties import BasicProperties
from cairnmq.amqp091.tables import MAX_DEPTH
from tests.harness.amqp.tables import depth_of, names, typed, values

short = st.text(st.characters(codec="utf-8", exclude_characters="\0"), max_size=50)
ascii_texts = st.text(string.ascii_letters + "/-", min_size=1, max_size=30)
header_names = names.filter(lambda name: not name.startswith("x-"))
headers = st.dictionaries(header_names, values, max_size=5).filter(lambda table: depth_of(table) <= MAX_DEPTH)
properties_of = st.builds(
    BasicProperties, st.none() | ascii_texts, st.none() | ascii_texts,
    st.none() | headers, st.sampled_from((1, 2)),
    st.none() | st.integers(0, 9), st.none() | short, st.none() | short,
    st.none() | st.integers(0, 1 << 40).map(str), st.none() | short,
    st.none() | st.integers(0, 1 << 40).map(lambda seconds: Timestamp(seconds * 1000)),
    st.none() | short, st.none() | short, st.none() | short, st.none() | short,
)  # fmt: skip


@given(properties_of, short, short, st.binary(max_size=400))
def test_nothing_is_lost_within_amqp_0_9_1(properties: BasicProperties, exchange: str, key: str, body: bytes) -> None:
    content = encoded_start(properties, exchange, key, len(body)) + body
    found = outgoing(content)
    assert (found.exchange, found.routing_key, found.redelivered) == (exchange, key, False)
    assert content[found.body_at :] == body
    assert found.body_bytes == len(body)
    assert found.properties._replace(headers=None) == properties._replace(headers=None)
    assert typed(found.properties.headers) == typed(properties.headers)
    assert outgoing(redelivered(content, 1)).redelivered
    assert outgoing(redelivered(content, 0)).redelivered, "also if the delivery before did not fail"


@given(properties_of, short)
def test_clients_of_amqp_1_0_see_the_message(properties: BasicProperties, key: str) -> None:
    content = encoded_start(properties, "e", key, 3) + b"abc"
    found = sections.index(content)
    header = parse(content)
    assert header.durable == (properties.delivery_mode == 2)
    assert header.priority == (properties.priority or 0)
    assert found.properties is not None
    there = sections.properties(content, found.properties.value)
    assert (there.subject, there.reply_to, there.group_id) == (key, properties.reply_to, properties.app_id)
    assert found.message_annotations is not None
    annotations = sections.annotations_of(content, found.message_annotations.value)
    assert (annotations["x-exchange"], annotations["x-routing-key"]) == ("e", key)


def message(*parts: bytes) -> bytes:
    return b"".join(parts)


def test_a_message_of_amqp_1_0_as_rabbitmq_converts_it() -> None:
    uuid = UUID("550e8400-e29b-41d4-a716-446655440000")
    content = message(
        encode.described(0x70, encode.value([True, None, None])),
        encode.described(0x72, encode.value({Symbol("x-route"): "north", Symbol("x-opt-enqueued-time"): 1})),
        sections.properties_section(
            sections.Properties(message_id=uuid, correlation_id=7, content_type="text/plain", creation_time_ms=1_500)
        ),
        encode.described(0x74, encode.value({"a": 1, "b": True})),
        encode.described(0x75, encode.binary(b"body")),
    )
    found = outgoing(content)
    properties = found.properties
    assert properties.headers == {"a": 1, "b": True, "x-route": "north"}
    assert properties.message_id == f"urn:uuid:{uuid}"
    assert properties.correlation_id == "7"
    assert properties.content_type == "text/plain"
    assert properties.timestamp == 1_500
    assert properties.delivery_mode == 2
    assert content[found.body_at :] == b"body"


@pytest.mark.parametrize(
    "body",
    [
        encode.described(0x77, encode.value("text")),
        encode.described(0x76, encode.value([1, 2])),
        encode.described(0x75, encode.binary(b"a")) + encode.described(0x75, encode.binary(b"b")),
    ],
)
def test_a_body_that_amqp_0_9_1_cannot_express_is_sent_as_it_is(body: bytes) -> None:
    content = message(encode.described(0x70, encode.value([])), body)
    found = outgoing(content)
    assert found.body_bytes == -1
    assert content[found.body_at :] == body
    assert found.properties.type == AMQP10_TYPE


@pytest.mark.parametrize("expiration", ["", "-1", "1.5", "soon", "1" * 21])
def test_an_expiration_that_is_no_number_is_refused(expiration: str) -> None:
    with pytest.raises(BadContent, match="expiration"):
        encoded_start(BasicProperties(expiration=expiration), "", "q", 0)


def test_longer_times_than_amqp_1_0_has_do_not_expire() -> None:
    content = encoded_start(BasicProperties(expiration=str(1 << 40)), "", "q", 0)
    assert parse(content).ttl_ms is None
    assert outgoing(content).properties.expiration == str(1 << 40)


def test_values_have_any_size() -> None:
    for size in (0, 255, 256, 70_000):
        content = encoded_start(BasicProperties(), "", "q", size) + b"x" * size
        assert sections.index(content).end == len(content)

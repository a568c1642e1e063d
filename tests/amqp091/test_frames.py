"""Tests of frames of AMQP 0-9-1: they agree with pamqp, and come in any pieces."""

from __future__ import annotations

from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pamqp import commands, frame, header

from cairnmq.amqp.codec.types import Timestamp
from cairnmq.amqp091 import frames
from cairnmq.amqp091.frames import FrameError, FrameReader
from cairnmq.amqp091.properties import BasicProperties, read_content_header, short_string, write_content_header
from cairnmq.amqp091.tables import BadTable

short_texts = st.text(st.characters(codec="utf-8", exclude_characters="\0"), max_size=60)
channels = st.integers(1, 2047)
tags = st.integers(1, (1 << 64) - 1)


def payload_of(encoded: bytes) -> bytes:
    return encoded[7:-1]


@given(st.from_regex(r"[a-zA-Z0-9-_.:]{0,40}", fullmatch=True), short_texts, st.booleans(), st.booleans())
def test_publish_is_read_as_pamqp_writes_it(exchange: str, key: str, mandatory: bool, immediate: bool) -> None:
    encoded = frame.marshal(commands.Basic.Publish(0, exchange, key, mandatory, immediate), 1)
    assert frames.read_publish(payload_of(encoded)) == (exchange, key, mandatory, immediate)


@given(channels, tags, st.booleans())
def test_ack_is_that_of_pamqp(channel: int, tag: int, multiple: bool) -> None:
    encoded = frame.marshal(commands.Basic.Ack(tag, multiple), channel)
    assert frames.write_ack(channel, tag, multiple=multiple) == encoded
    assert frames.read_ack(payload_of(encoded)) == (tag, multiple)


@given(channels, short_texts, tags, st.booleans(), st.from_regex(r"[a-zA-Z0-9-_.:]{0,40}", fullmatch=True), short_texts)
def test_deliver_is_that_of_pamqp(
    channel: int, consumer: str, tag: int, redelivered: bool, exchange: str, key: str
) -> None:
    encoded = frame.marshal(commands.Basic.Deliver(consumer, tag, redelivered, exchange, key), channel)
    texts = [short_string(text) for text in (consumer, exchange, key)]
    assert frames.write_deliver(channel, texts[0], tag, redelivered, *texts[1:]) == encoded


@given(
    st.integers(0, 1 << 40), st.lists(short_texts | st.none(), min_size=10, max_size=10), st.none() | st.integers(0, 9)
)
def test_content_headers_are_kept_and_read_by_pamqp(size: int, texts: list[str | None], priority: int | None) -> None:
    kind, encoding, correlation, reply_to, expiration, message_id, of_type, user, app, _ = texts
    properties = BasicProperties(
        kind, encoding, {"a": "b", "n": None}, 2, priority, correlation, reply_to, expiration, message_id,
        Timestamp(86_400_000), of_type, user, app,
    )  # fmt: skip
    encoded = write_content_header(size, properties)
    assert read_content_header(encoded) == (size, properties)
    _, _, found = frame.unmarshal(frames.write_frame(frames.HEADER, 1, encoded))
    assert isinstance(found, header.ContentHeader)
    there = found.properties
    assert (found.body_size, there.headers, there.priority, there.message_id or None) == (
        size, {"a": "b", "n": None}, priority, message_id or None,
    )  # fmt: skip


@given(st.binary(max_size=80))
def test_other_content_headers_are_refused(data: bytes) -> None:
    try:
        _, properties = read_content_header(data)
    except BadTable:
        return
    write_content_header(1, properties)


@given(st.lists(st.tuples(channels, st.binary(max_size=300)), max_size=6), st.lists(st.integers(1, 50), max_size=80))
def test_frames_come_in_any_pieces(sent: list[tuple[int, bytes]], sizes: list[int]) -> None:
    data = b"".join([frames.write_frame(frames.BODY, channel, payload) for channel, payload in sent])
    found: list[tuple[int, bytes]] = []
    reader, at = FrameReader(), 0
    for size in [*sizes, len(data)]:
        reader.feed(memoryview(data)[at : at + size])
        at += size
        assert reader.has_frame == (len(found) < len(sent) and reader.has_frame)
        while (one := reader.next()) is not None:
            found.append((one.channel, one.payload))
    assert found == sent


def test_frames_are_bounded_and_end_as_they_must() -> None:
    reader = FrameReader()
    reader.feed(b"\3\0\1\xff\xff\xff\xff")
    with pytest.raises(FrameError, match="the limit is 4096"):
        reader.next()
    reader = FrameReader()
    reader.feed(b"\3\0\1\0\0\0\1x\0")
    with pytest.raises(FrameError, match="ends with 0x00"):
        reader.next()


@given(st.binary(max_size=60))
def test_other_methods_are_refused(payload: bytes) -> None:
    for read in (frames.read_publish, frames.read_ack, frames.read_method):
        with suppress(FrameError):
            read(payload)


def test_a_body_is_cut_into_frames() -> None:
    body = bytes(range(256)) * 40
    reader = FrameReader()
    reader.feed(frames.write_body(3, body, 4096))
    parts = []
    while (one := reader.next()) is not None:
        parts.append(one.payload)
    assert b"".join(parts) == body
    assert max(map(len, parts)) == 4096 - frames.OVERHEAD_BYTES

"""Tests of reading the header section and the address of messages that proton encoded."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from proton import Message

from cairnmq.amqp.codec import header
from cairnmq.amqp.codec.header import NO_HEADER, Header
from cairnmq.amqp.codec.primitives import Malformed
from cairnmq.amqp.links.link import MOST_CUT_BYTES, Link
from tests.harness.amqp.strategies import broken, messages

MOST = 2**32 - 1


def encode(message: Any) -> bytes:
    return bytes(message.encode())


@given(message=messages())
def test_what_proton_wrote_is_read(message: Any) -> None:
    read = header.parse(encode(message))
    assert (read.durable, read.priority, read.first_acquirer) == (
        message.durable,
        message.priority,
        message.first_acquirer,
    )
    assert read.delivery_count == message.delivery_count
    assert (read.ttl_ms or 0) == round(message.ttl * 1000)


@given(message=messages(), failures=st.integers(0, 2**33))
def test_a_redelivery_is_marked_and_nothing_else_is_touched(message: Any, failures: int) -> None:
    content = encode(message)
    marked = header.redelivered(content, failures)
    read, before = header.parse(marked), header.parse(content)
    assert marked[read.size_bytes :] == content[before.size_bytes :]
    again = Message()
    again.decode(marked)
    assert again.delivery_count == min(message.delivery_count + failures, MOST)
    assert not again.first_acquirer
    assert (again.durable, again.priority, again.ttl) == (message.durable, message.priority, message.ttl)
    assert read.ttl_ms == before.ttl_ms


@given(message=messages(), first=st.integers(0, 1000), second=st.integers(0, 1000))
def test_marks_add_up(message: Any, first: int, second: int) -> None:
    content = encode(message)
    assert header.redelivered(header.redelivered(content, first), second) == header.redelivered(content, first + second)


@given(body=st.binary(max_size=400))
def test_a_message_without_a_header_gets_one(body: bytes) -> None:
    content = b"\x00\x53\x75\xb0" + len(body).to_bytes(4) + body
    assert header.parse(content) == NO_HEADER
    marked = header.redelivered(content, 2)
    assert header.parse(marked)[:5] == (False, 4, None, False, 2)
    assert marked.endswith(content)


@given(message=messages())
def test_the_address_is_found(message: Any) -> None:
    assert header.address_of(encode(message)) == message.address


def test_a_message_without_properties_has_no_address() -> None:
    assert header.address_of(b"\x00\x53\x75\xa0\x01x") is None
    assert header.address_of(b"") is None


@given(content=broken())
@example(content=b"\x00")
@example(content=b"\x00\x53\x70")
@example(content=b"\x00\x53\x70\xc0")
@example(content=b"\x00\x53\x70\xc0\x02\x01\x53")
@example(content=b"\x00\x53\x70\xd0\xff\xff\xff\xff\xff\xff\xff\xff")
@example(content=b"\x00\x80\x00\x00\x00\x00\x00\x00\x00\x70\x45")
@example(content=b"\x00\x53\x73\xc0\x04\x03\x40\x40\xa1")
def test_bad_bytes_are_malformed_and_nothing_worse(content: bytes) -> None:
    for read in (header.parse, header.address_of, lambda content: header.redelivered(content, 1)):
        try:
            read(content)
        except Malformed:
            pass


@given(content=broken())
def test_what_was_kept_is_what_is_read(content: bytes) -> None:
    """A header from the cache is the same as the decoded one, and errors are the same, too."""

    def read() -> Header | str:
        try:
            return header.parse(content)
        except Malformed as error:
            return str(error)

    first = read()
    again = read()
    header._cache.clear()
    assert first == again == read()


def test_the_cache_is_bounded() -> None:
    for number in range(3000):
        header.parse(b"\x00\x53\x70\xc0\x0a\x05\x41\x40\x40\x42\x70" + number.to_bytes(4))
    assert len(header._cache) <= header._CACHE_LIMIT


@pytest.mark.parametrize(
    ("count", "fields"),
    [
        (1, b"\xa1\x01x"),  # durable is a string
        (1, b"\x50\x01"),  # durable is a number
        (2, b"\x40\xa1\x01x"),  # priority is a string
        (2, b"\x40\x70\x00\x00\x01\x00"),  # priority is 256
        (3, b"\x40\x40\x55\xff"),  # the time to live is negative
        (5, b"\x40\x40\x40\x40\x41"),  # the delivery count is a boolean
    ],
)
def test_fields_of_the_wrong_type_are_malformed(count: int, fields: bytes) -> None:
    with pytest.raises(Malformed):
        header.parse(b"\x00\x53\x70\xc0" + bytes((len(fields) + 1, count)) + fields)


LONG = b"\x80\x00\x00\x00\x00\x00\x00\x00"


@pytest.mark.parametrize("name", [b"\x53\x70", LONG + b"\x70", b"\xa3\x10amqp:header:list"])
@pytest.mark.parametrize("fields", [b"\xc0\x02\x01\x41", b"\xd0\x00\x00\x00\x05\x00\x00\x00\x01\x41"])
def test_every_encoding_of_a_header_is_read(name: bytes, fields: bytes) -> None:
    """Headers with short, long and symbolic descriptors and with short and long lists are read."""
    content = b"\x00" + name + fields + b"\x00\x53\x77\x40"
    assert header.parse(content)[:5] == (True, 4, None, False, 0)
    assert header.redelivered(content, 1).endswith(b"\x00\x53\x77\x40")


@pytest.mark.parametrize("name", [b"\x53\x73", b"\xa3\x14amqp:properties:list", LONG + b"\x73"])
def test_every_encoding_of_properties_is_read(name: bytes) -> None:
    assert header.address_of(b"\x00" + name + b"\xc0\x06\x03\x40\x40\xa1\x01q") == "q"


@pytest.mark.parametrize("head", [b"", b"\x00Sp\xc0\x02\x01A", b"\x00Sp\xd0\x00\x00\x00\x05\x00\x00\x00\x01A"])
@pytest.mark.parametrize(
    ("rest", "annotated"),
    [
        (b"", False),
        (b"\x00Su\xa0\x01x", False),
        (b"\x00Ss\x45", True),
        (b"\x00Sq\xc1\x01\x00", True),
        (b"\x00Sr\xc1\x01\x00", True),
        (b"\x00\x80" + (0x72).to_bytes(8) + b"\xc1\x01\x00", True),
        (b"\x00\xa3\x1camqp:message-annotations:map\xc1\x01\x00", True),
    ],
)
def test_it_tells_whether_annotations_or_properties_may_come_next(head: bytes, rest: bytes, annotated: bool) -> None:
    """`annotated` is the same from decoding and, the second time, from the cache."""
    for _ in range(2):
        assert header.parse(head + rest).annotated == annotated


def test_cut_header_of_a_transfer_with_a_format_is_kept_within_a_bound() -> None:
    """Each further frame would copy what is kept."""
    link = Link.__new__(Link)
    link.formats, link.cut_head = {b"t": 7}, b""
    endless = b"\x00\x53\x70\xd0\x7f\xff\xff\xff\x00\x00\x00\x06"
    kept: list[int] = []
    for _ in range(400):
        link.formatted(b"t", endless if not kept else bytes(500), has_more=True)
        kept.append(len(link.cut_head))
    assert max(kept) <= MOST_CUT_BYTES
    assert kept[-1] == 0

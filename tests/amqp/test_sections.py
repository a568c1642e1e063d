"""Tests of message sections: comparison with proton, insertion of annotations, and malformed messages."""

from __future__ import annotations

import struct
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from proton import Message, symbol, timestamp, uint, ulong

from cairnmq.amqp.codec import decode, encode, header, sections
from cairnmq.amqp.codec.header import Header
from cairnmq.amqp.codec.primitives import Malformed
from cairnmq.amqp.codec.sections import Properties, Section, Sections, annotated, envelope, index
from cairnmq.amqp.codec.types import Symbol, Ulong
from tests.harness.amqp import strategies
from tests.harness.amqp.encoding import message_annotations
from tests.harness.amqp.strategies import broken
from tests.harness.amqp.typed import characters, same, to_proton, values

texts = st.none() | st.text(characters, max_size=20)
symbols = st.none() | st.text(st.characters(max_codepoint=127), min_size=1, max_size=20).filter("None".__ne__)
ids = st.none() | st.text(characters, max_size=20) | st.uuids() | st.integers(0, 2**64 - 1) | st.binary(max_size=20)
times = st.none() | st.integers(0, 2**40).map(lambda seconds: 1000 * seconds)  # proton rounds to whole seconds
properties: strategies.Strategy = st.builds(
    Properties,
    ids,
    st.none() | st.binary(min_size=1, max_size=300),
    texts,
    texts,
    texts,
    ids,
    symbols,
    symbols,
    times,
    times,
    texts,
    st.none() | st.integers(0, 2**32 - 1),
    texts,
)
names = st.text(st.characters(max_codepoint=127), min_size=1, max_size=300)
entries = st.dictionaries(names, values, max_size=4)


def proton_with(of: Properties) -> Any:
    message = Message(body="x")
    message.id = ulong(of.message_id) if isinstance(of.message_id, int) else of.message_id
    message.correlation_id = ulong(of.correlation_id) if isinstance(of.correlation_id, int) else of.correlation_id
    message.address, message.subject, message.reply_to = of.to, of.subject, of.reply_to
    for name in ("user_id", "group_id", "reply_to_group_id"):
        if getattr(of, name) is not None:
            setattr(message, name, getattr(of, name))
    for name in ("content_type", "content_encoding"):
        if getattr(of, name) is not None:
            setattr(message, name, symbol(getattr(of, name)))
    if of.group_sequence is not None:
        message.group_sequence = of.group_sequence
    if of.absolute_expiry_time_ms:
        message.expiry_time = of.absolute_expiry_time_ms / 1000
    if of.creation_time_ms:
        message.creation_time = of.creation_time_ms / 1000
    return message


def complete(content: bytes) -> Any:
    message = Message()
    message.decode(content)
    return message


def copied(of: Any) -> Any:
    """Return a copy of a memory view, whose memory is freed with the message; return other values unchanged."""
    return bytes(of) if isinstance(of, memoryview) else of


def unless_none(text: Any) -> str | None:
    """Return *text*, or None if it is empty or "None": proton returns `symbol('None')` for an absent value."""
    return None if text in ("None", "") else str(text)


def fields_of(message: Any) -> tuple[Any, ...]:
    return (
        copied(message.id),
        message.user_id,
        message.address,
        message.subject,
        message.reply_to,
        copied(message.correlation_id),
        unless_none(message.content_type),
        unless_none(message.content_encoding),
        round(message.expiry_time * 1000),
        round(message.creation_time * 1000),
        message.group_id,
        message.group_sequence,
        message.reply_to_group_id,
    )


@given(of=properties)
def test_properties_that_proton_wrote_are_read(of: Properties) -> None:
    content = bytes(proton_with(of).encode())
    found = sections.properties(content, sections.find(content, sections.PROPERTIES))
    message = proton_with(of)
    expected = fields_of(message)
    assert [value or None for value in found] == [value or None for value in expected]
    assert type(found.message_id) is type(of.message_id)


@given(of=properties)
def test_properties_that_are_written_are_read_by_proton_and_here(of: Properties) -> None:
    content = sections.properties_section(of) + b"\x00\x53\x77\x40"
    assert sections.properties(content, sections.find(content, sections.PROPERTIES)) == of
    written, by_proton = complete(content), proton_with(of)
    assert [field or None for field in fields_of(written)] == [field or None for field in fields_of(by_proton)]


@given(named=st.dictionaries(st.text(characters, max_size=20), strategies.scalars, max_size=6))
def test_application_properties(named: dict[str, Any]) -> None:
    message = Message(body=None)
    message.properties = named
    content = bytes(message.encode())
    found = sections.application_properties(content, sections.find(content, sections.APPLICATION_PROPERTIES))
    assert found == named
    assert not {type(value) for value in found.values()} & {symbol, ulong, uint, timestamp}


@given(named=entries)
def test_application_properties_and_annotations_that_are_written_are_read_by_proton(named: dict[str, Any]) -> None:
    content = message_annotations(named) + b"\x00\x53\x77\x40"
    found = index(content)
    assert same(
        sections.annotations_of(content, value(found.message_annotations)),
        {Symbol(name): of for name, of in named.items()},
    )
    assert (complete(content).annotations or {}) == to_proton({Symbol(name): of for name, of in named.items()})
    simple = {name: of for name, of in named.items() if not isinstance(of, list | dict | tuple)}
    content = sections.application_properties_section(simple) + b"\x00\x53\x77\x40"
    assert same(
        decode.read_map(content, at(index(content).application_properties).value, plain=False),
        simple,
    )
    assert (complete(content).properties or {}) == to_proton(simple)


def at(section: Section | None) -> Section:
    assert section is not None
    return section


@given(
    durable=st.booleans(),
    priority=st.integers(0, 255),
    ttl_ms=st.none() | st.integers(0, 2**32 - 1),
    first=st.booleans(),
    count=st.integers(0, 2**32 - 1),
)
def test_a_header_that_is_written_is_read(
    durable: bool, priority: int, ttl_ms: int | None, first: bool, count: int
) -> None:
    of = Header(durable, priority, ttl_ms, first, count)
    content = sections.header_section(of)
    assert header.parse(content) == of._replace(size_bytes=len(content))
    message = complete(content)
    assert (message.durable, message.priority, message.first_acquirer, message.delivery_count) == (
        durable,
        priority,
        first,
        count,
    )
    assert round(message.ttl * 1000) == (ttl_ms or 0)


@given(message=strategies.messages())
def test_the_index_covers_the_message_without_gaps(message: Any) -> None:
    content = bytes(message.encode())
    found = index(content)
    there = [section for section in found[:5] if isinstance(section, Section)] + list(found.body)
    if found.footer is not None:
        there.append(found.footer)
    assert [section.begin for section in there] + [len(content)] == [0, *(section.end for section in there)]
    assert found.end == len(content)
    assert (found.header.end if found.header is not None else 0) == header.parse(content).size_bytes
    for section in there:
        if section.code < sections.DATA:
            assert sections.find(content, section.code) == section.value
    for code in {0x70, 0x71, 0x72, 0x73, 0x74} - {section.code for section in there}:
        assert sections.find(content, code) == 0


@given(message=strategies.messages(), data=st.data())
def test_the_beginning_of_a_message_has_the_sections_that_are_whole(message: Any, data: st.DataObject) -> None:
    content = bytes(message.encode())
    cut = data.draw(st.integers(0, len(content)))
    all_of_it = index(content)

    def seen(section: Section | None) -> Section | None:
        return section if section is not None and section.end <= cut else None

    found = index(content[:cut], complete=False)
    assert found[:5] == tuple(map(seen, all_of_it[:5]))
    assert found.body == tuple(filter(seen, all_of_it.body))
    assert found.end <= cut
    assert len(envelope(content[:cut])) == max((section.end for section in found[:5] if section is not None), default=0)
    if found.end < cut:
        with pytest.raises(Malformed):
            index(content[:cut])


@given(message=strategies.messages(), first=entries, second=entries)
@example(message=Message(body="x"), first={}, second={})
def test_annotations_are_put_in_and_nothing_else_is_touched(
    message: Any, first: dict[str, Any], second: dict[str, Any]
) -> None:
    content = bytes(message.encode())
    before = index(content)
    once = annotated(content, first)
    twice = annotated(once, second)
    after = index(twice)
    for one, other in zip(outside(content, before), outside(twice, after), strict=True):
        assert one == other
    found = sections.annotations_of(twice, value(after.message_annotations))
    old = sections.annotations_of(content, value(before.message_annotations))
    new: dict[Any, Any] = {Symbol(name): of for name, of in (first | second).items()}
    assert found == old | new
    for name, of in new.items():
        assert same(found[name], of)
    for key in set(old) - set(new):
        assert encode.value(key) + encode.value(old[key]) in encode.value(found)
    assert complete(twice).annotations == to_proton(found) or not found


def value(section: Section | None) -> int:
    return section.value if section is not None else 0


def outside(content: bytes, found: Sections) -> tuple[bytes, bytes]:
    """Return the bytes before and after the message annotations, or around the position where they would be."""
    section = found.message_annotations
    if section is None:
        before = found.delivery_annotations or found.header
        section = Section(0, before.end if before else 0, 0, before.end if before else 0)
    return content[: section.begin], content[section.end :]


@given(message=strategies.messages(), new=entries, size=st.integers(0, 300))
def test_annotations_are_put_into_the_beginning_of_a_long_message(message: Any, new: dict[str, Any], size: int) -> None:
    content = bytes(message.encode())
    cut = max((section.end for section in index(content)[:5] if isinstance(section, Section)), default=0) + size
    assert annotated(content[:cut], new) + content[cut:] == annotated(content, new)


def test_values_that_stay_keep_their_encoding() -> None:
    long_form = b"\x80\x00\x00\x00\x00\x00\x00\x00\x07"
    key = b"\xb3\x00\x00\x00\x01a"
    kept = key + long_form
    content = b"\x00\x53\x72" + encode.mapped([key, long_form, encode.symbol("b"), b"\x40"]) + b"\x00\x53\x77\x40"
    assert kept in annotated(content, {"b": 1})
    assert sections.annotations_of(annotated(content, {"a": 1}), 3)["a"] == 1


BODY = b"\x00\x53\x77\x40"
HEAD = b"\x00\x53\x70\x45"
PROPS = b"\x00\x53\x73\x45"


@pytest.mark.parametrize(
    "content",
    [
        BODY + PROPS,  # after the body
        BODY + HEAD,
        b"\x00\x53\x75\xa0\x00" + b"\x00\x53\x74\xc1\x01\x00",
        b"\x00\x53\x78\xc1\x01\x00" + PROPS,
        BODY + BODY,
        BODY + b"\x00\x53\x75\xa0\x00",
        b"\x00\x53\x75\xa0\x00" + b"\x00\x53\x76\x45",
        PROPS + PROPS + BODY,
        PROPS + HEAD + BODY,
        HEAD + HEAD,
        b"\x00\x53\x6f\x45" + BODY,
        b"\x00\x53\x79\x45" + BODY,
        b"\x00\x80\x00\x00\x46\x8c\x00\x00\x00\x73\x45" + BODY,  # a descriptor that ends like that of properties,
        b"\x00\xa3\x16amqp:properties:list:x\x45" + BODY,  # begins like its symbolic name,
        b"\x00\x50\x73\x45" + BODY,  # has another type,
        b"\x00\x00\x53\x73\x40\x45" + BODY,  # or is described itself
        b"\x00\x53\x73\xc1\x01\x00" + BODY,  # properties that are a map
        b"\x00\x53\x74\x45" + BODY,
        b"\x00\x53\x75\xa1\x01x",
        b"\x00\x53\x77",
        b"\x00\x53\x77" + b"\x00" * 100_000,
    ],
)
def test_what_is_no_message_is_malformed(content: bytes) -> None:  # A15, A2
    with pytest.raises(Malformed):
        index(content)


@pytest.mark.parametrize(
    "fields",
    [
        [b"\x41"],  # an id that is a boolean
        [b"\x40", b"\xa1\x01x"],  # a user that is a string
        [b"\x40"] * 8 + [b"\xa1\x01x"],  # a time that is a string
        [b"\x40"] * 11 + [b"\x45"],
        [b"\x40"] * 13 + [b"\x41"],  # 14 fields
    ],
)
def test_properties_of_other_types_are_malformed(fields: list[bytes]) -> None:
    content = encode.described(0x73, encode.listed(fields))
    with pytest.raises(Malformed):
        sections.properties(content, sections.find(content, sections.PROPERTIES))


def test_names_of_application_properties_are_strings() -> None:
    content = encode.described(0x74, encode.mapped([encode.value(Ulong(1)), b"\x40"]))
    with pytest.raises(Malformed):
        sections.application_properties(content, sections.find(content, sections.APPLICATION_PROPERTIES))


def test_many_body_sections_are_one_body() -> None:
    content = HEAD + b"\x00\x53\x75\xa0\x01x" * 5000 + b"\x00\x53\x78\xc1\x01\x00"
    found = index(content)
    assert len(found.body) == 5000
    assert at(found.footer).end == len(content)


@given(content=broken() | strategies.messages().map(lambda message: bytes(message.encode())), data=st.data())
def test_bad_bytes_are_malformed_and_nothing_worse(content: bytes, data: st.DataObject) -> None:
    changed = bytearray(content)
    for _ in range(data.draw(st.integers(0, 3)) if content else 0):
        changed[data.draw(st.integers(0, len(changed) - 1))] = data.draw(st.integers(0, 255))
    content = bytes(changed)
    try:
        found = index(content)
        sections.properties(content, value(found.properties))
        sections.application_properties(content, value(found.application_properties))
        sections.annotations_of(content, value(found.message_annotations))
    except Malformed:
        pass
    try:
        index(content, complete=False)
        sections.find(content, sections.PROPERTIES)
        annotated(content, {"x-opt-a": 1})
    except Malformed:
        pass


def test_a_long_map_is_read_whole() -> None:
    named = {f"name-{number}": number for number in range(1000)}
    content = sections.application_properties_section(named)
    assert content[3] == 0xD1
    assert struct.unpack_from(">I", content, 8)[0] == 2000
    assert sections.application_properties(content, sections.find(content, sections.APPLICATION_PROPERTIES)) == named

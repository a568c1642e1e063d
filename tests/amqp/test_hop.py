"""Tests of message copies between brokers: separate annotations, and shared content that is unchanged on arrival."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from proton import Message, symbol

from cairnmq.amqp.codec import hop_annotations as hop
from cairnmq.amqp.codec.annotated_message import AnnotatedMessage
from cairnmq.amqp.codec.hop_annotations import Hop
from cairnmq.amqp.codec.primitives import Cut, Malformed
from cairnmq.amqp.links.stream_cursor import StreamCursor


def complete(parcel: AnnotatedMessage) -> bytes:
    return b"".join(map(parcel.piece, range(parcel.pieces)))


def message(*, header: bool, instructions: bool) -> bytes:
    made = Message(body="x" * 1000, properties={"a": 1}, annotations={symbol("x-opt-a"): 1})
    if header:
        made.durable, made.priority = True, 7
    if instructions:
        made.instructions = {symbol("x-opt-theirs"): [1, 2], symbol("x-opt-cairnmq-to"): "forged"}
    return bytes(made.encode())


HOPS = (Hop("a.b", ("r1",), None), Hop("ä" * 300, ("r1", "r2"), ("r3",)), Hop("", (), ()))


@pytest.mark.parametrize("header", [False, True])
@pytest.mark.parametrize("instructions", [False, True])
@pytest.mark.parametrize("said", HOPS)
def test_what_is_put_on_is_read_and_taken_off(header: bool, instructions: bool, said: Hop) -> None:  # C29
    content = message(header=header, instructions=instructions)
    sent = hop.annotated(content, hop.section_of(said))
    assert sent.rest is content, "shared, not copied"
    read = Message()
    read.decode(complete(sent))
    assert read.instructions is not None
    assert read.instructions["x-opt-cairnmq-to"] == said.to
    found, clean = hop.take_off(complete(sent))
    assert found == said
    expected = Message()
    expected.decode(content)
    out = Message()
    out.decode(complete(clean))
    assert (out.body, out.properties, out.annotations) == (expected.body, expected.properties, expected.annotations)
    assert (out.durable, out.priority) == (expected.durable, expected.priority)
    if instructions:
        assert dict(out.instructions) == {"x-opt-theirs": [1, 2]}, "what is said in our name is not passed on"
    else:
        assert complete(clean) == content, "byte for byte"
    again = hop.annotated(clean, hop.section_of(HOPS[0]))
    assert again.rest is clean.rest
    assert hop.take_off(complete(again))[0] == HOPS[0]
    assert complete(hop.take_off(complete(again))[1]) == complete(clean)


def test_two_copies_of_one_message_differ_only_in_their_heads() -> None:  # C25, C29
    content = message(header=True, instructions=False)
    copies = [hop.annotated(content, hop.section_of(said)) for said in HOPS]
    assert len({one.head for one in copies}) == len(copies)
    assert all(one.rest is content for one in copies)


@pytest.mark.parametrize("step", [1, 7, 100, 5000])
@pytest.mark.parametrize("instructions", [False, True])
@pytest.mark.parametrize("before", [0, 3, 5000])
def test_a_copy_of_a_message_that_still_comes_in_begins_in_its_own_way(
    step: int, instructions: bool, before: int
) -> None:  # C28, C29, C30
    content = message(header=True, instructions=instructions)
    plain, own = StreamCursor(lambda: None), StreamCursor(lambda: None)
    for cursor in (plain, own):
        cursor.write(content[:before])
    section = hop.section_of(HOPS[0])
    own.rewrite(lambda begin: hop.annotated_beginning(begin, section))
    for at in range(before, len(content), step):
        for cursor in (plain, own):
            cursor.write(content[at : at + step])
    for cursor in (plain, own):
        cursor.end()
    assert own.backlog_bytes == len(complete(hop.annotated(content, section)))
    assert plain.take(1 << 20) == content
    assert own.take(1 << 20) == complete(hop.annotated(content, section))
    assert own.at_end
    assert own.backlog_bytes == 0


@given(st.binary(max_size=200))
def test_no_bytes_do_harm(content: bytes) -> None:
    for look in (hop.read_head, hop.take_off, lambda some: hop.annotated(some, hop.section_of(HOPS[0]))):
        try:
            look(content)
        except Malformed:
            pass


def test_a_beginning_that_is_too_short_is_told_from_a_wrong_one() -> None:
    sent = complete(hop.annotated(message(header=True, instructions=True), hop.section_of(HOPS[1])))
    needed = hop.read_head(sent).end
    for size in range(needed):
        with pytest.raises(Cut):
            hop.take_off(sent[:size])
    assert hop.take_off(sent[:needed])[0] == HOPS[1]

"""Tests of the bound on annotations that receivers add to a message again and again."""

from __future__ import annotations

from proton import Message, symbol

from cairnmq.amqp.codec import sections
from cairnmq.base.errors import CairnError
from cairnmq.broker.transactions.moves import MOST_ENVELOPE_BYTES, combined


def test_annotations_of_receivers_grow_a_message_within_a_bound() -> None:
    content, longest = bytes(Message(body="x" * 1000, annotations={symbol("x-opt-a"): 1}).encode()), 0
    for number in range(1000):
        try:
            content = combined(content, sections.annotated(b"", {f"x-opt-{number}": "n" * 1000})[3:])
        except CairnError:
            break
        longest = len(content)
    assert MOST_ENVELOPE_BYTES // 2 < longest <= MOST_ENVELOPE_BYTES + 1100

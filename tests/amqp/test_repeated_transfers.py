"""Tests of transfer layouts: transfers that repeat their predecessor, and those that need a check of each field."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from cairnmq.amqp.frames.frame_fields import read
from cairnmq.amqp.frames.repeated_transfers import Layout, layout_of, repeats
from tests.harness.security.wire import FALSE, TRANSFER, frame, performative, uint

PERFORMATIVE_AT = 11
"""Offset of the field list in a frame without extended header."""


def short(tag: bytes) -> bytes:
    return b"\xa0" + len(tag).to_bytes(1) + tag


def long(tag: bytes) -> bytes:
    return b"\xb0" + len(tag).to_bytes(4) + tag


def transfer(number: int, tag: bytes) -> bytes:
    return frame(performative(TRANSFER, uint(0), uint(number), tag, uint(0), FALSE) + b"payload")


def layout(said: bytes) -> Layout:
    found = layout_of(said, read(said, PERFORMATIVE_AT))
    assert found is not None
    return found


def matches(said: bytes, pattern: Layout) -> bool:
    return repeats(memoryview(said), 0, len(said), pattern)


@pytest.mark.parametrize("encoded", [short, long])
def test_layout_matches_transfers_that_differ_in_number_and_tag(encoded: Callable[[bytes], bytes]) -> None:
    pattern = layout(transfer(1, encoded(b"one")))
    assert matches(transfer(2, encoded(b"two")), pattern)


@pytest.mark.parametrize("encoded", [short, long])
def test_layout_differs_with_length_and_encoding_of_tag(encoded: Callable[[bytes], bytes]) -> None:
    pattern = layout(transfer(1, encoded(b"one")))
    assert not matches(transfer(2, encoded(bytes(33))), pattern)
    assert not matches(transfer(2, (long if encoded is short else short)(b"two")), pattern)

"""Tests of filter sets from clients: those of proton and JMS clients, and invalid ones."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from proton import Described, symbol, ulong

from cairnmq.amqp.codec.filters import NO_FILTERS, Filters, accepted, parse
from cairnmq.amqp.codec.primitives import Malformed
from cairnmq.amqp.codec.types import Symbol
from tests.harness.amqp.encoding import encoded
from tests.harness.amqp.typed import got_by_proton, put_by_proton, values

SELECTOR, NO_LOCAL = "apache.org:selector-filter:string", "apache.org:no-local-filter:list"
TEXT = "colour = 'blue'"


@pytest.mark.parametrize("name", ["selector", "jms-selector", SELECTOR])
@pytest.mark.parametrize("descriptor", [symbol(SELECTOR), ulong(0x0000468C00000004)])
def test_a_selector_is_found_by_its_descriptor(name: str, descriptor: Any) -> None:
    sent = encoded({symbol(name): Described(descriptor, TEXT)})
    filters = parse(sent)
    assert filters[:3] == (TEXT, False, ())
    assert filters.selector_entry in sent
    assert got_by_proton(accepted(filters)) == got_by_proton(sent)


@pytest.mark.parametrize("descriptor", [symbol(NO_LOCAL), ulong(0x0000468C00000003)])
def test_no_local_is_confirmed_where_it_is_applied(descriptor: Any) -> None:
    sent = {symbol("no-local"): Described(descriptor, []), symbol("s"): Described(symbol(SELECTOR), TEXT)}
    filters = parse(encoded(sent))
    assert filters[:3] == (TEXT, True, ())
    assert got_by_proton(accepted(filters, no_local=True)).keys() == sent.keys()
    assert list(got_by_proton(accepted(filters))) == [symbol("s")]


def test_an_empty_selector_is_none_and_confirmed() -> None:
    filters = parse(encoded({symbol("s"): Described(symbol(SELECTOR), " ")}))
    assert filters.selector is None
    assert len(got_by_proton(accepted(filters))) == 1


@given(value=values)
def test_what_nobody_knows_is_named_and_not_confirmed(value: Any) -> None:
    filters = parse(put_by_proton({Symbol("x"): value}))
    assert filters == Filters(others=("x",))
    assert accepted(filters) == b""


@pytest.mark.parametrize("sent", [b"", b"\x40", b"\xc1\x01\x00"])
def test_no_filters(sent: bytes) -> None:
    assert parse(sent) == NO_FILTERS
    assert accepted(NO_FILTERS) == b""


@pytest.mark.parametrize(
    "sent",
    [
        encoded({symbol("s"): Described(symbol(SELECTOR), 5)}),
        encoded({symbol("s"): Described(symbol(SELECTOR), symbol("a"))}),
        encoded({symbol(name): Described(symbol(SELECTOR), "a") for name in ("s", "t")}),
        encoded({"s": Described(symbol(SELECTOR), "a")}),
        encoded([1]),
        b"\xc1\x02\x01\x40",
    ],
)
def test_bad_filters_are_malformed(sent: bytes) -> None:
    with pytest.raises(Malformed):
        parse(sent)


@given(sent=st.binary(max_size=40) | values.map(put_by_proton))
def test_bad_bytes_are_malformed_and_nothing_worse(sent: bytes) -> None:
    try:
        accepted(parse(sent), no_local=True)
    except Malformed:
        pass

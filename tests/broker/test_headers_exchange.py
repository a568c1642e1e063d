"""Tests of headers exchanges against a small model, for any message properties and binding arguments."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from tests.harness.broker.policies import Policed

QUEUES = ["q0", "q1", "q2"]
VALUES = [None, True, False, 0, 1, 2, 1.0, "1", "", "x", b"x"]
Properties = dict[str, Any]
SELECTORS: Mapping[str | None, Callable[[Properties], bool]] = {
    None: lambda there: True,
    "a = 'x'": lambda there: there.get("a") == "x",
    "b IS NULL": lambda there: there.get("b") is None,
}
Bound = tuple[str, str, Properties]
"""The queue, key and arguments of a binding."""


def same(one: object, other: object) -> bool:
    alike = type(one) is type(other) or {type(one), type(other)} == {int, float}
    return alike and one == other


def is_wanted(asked: Properties, there: Properties) -> bool:
    """Return whether the arguments of a binding match the properties of a message."""
    wanted = {name: value for name, value in asked.items() if not name.startswith("x-")}
    fits = [name in there and (value is None or same(there[name], value)) for name, value in wanted.items()]
    enough = any(fits) if asked.get("x-match") == "any" else all(fits)
    return enough and SELECTORS[asked.get("x-selector")](there)


properties = st.dictionaries(st.sampled_from("abc"), st.sampled_from(VALUES))
more = st.fixed_dictionaries(
    {},
    optional={
        "x-match": st.sampled_from(["all", "any"]),
        "x-selector": st.sampled_from([text for text in SELECTORS if text]),
        "x-other": st.just(1),
    },
)
arguments: st.SearchStrategy[Properties] = st.builds(lambda wanted, how: {**wanted, **how}, properties, more)
bindings = st.lists(st.tuples(st.sampled_from(QUEUES), st.sampled_from(["", "k"]), arguments), max_size=6)


@given(bindings, st.lists(properties, min_size=1, max_size=4))
@example([("q0", "", {"a": None}), ("q1", "", {"a": None, "b": 1})], [{"a": None}, {"a": 1, "b": True}, {}])
@example([("q0", "", {"x-match": "any"}), ("q1", "", {}), ("q2", "", {"x-other": 1})], [{}, {"a": 1}])
@example([("q0", "", {"a": 1}), ("q0", "k", {"b": 1, "x-match": "any"})], [{"a": 1, "b": 1}, {"b": 1}, {"a": 2}])
@example([("q0", "", {"a": 1}), ("q0", "", {"a": 2})], [{"a": 1}, {"a": 2}])
@example([("q0", "", {"b": None, "x-selector": "a = 'x'"})], [{"a": "x", "b": 1}, {"a": "y", "b": 1}, {"a": "x"}])
def test_a_message_goes_once_to_each_queue_that_asks_for_it(bound: list[Bound], messages: list[Properties]) -> None:
    """A matching message goes once to each queue; a binding with the same queue and key replaces the earlier one."""
    policed = Policed()
    nodes = policed.world.broker.nodes
    exchange = nodes.exchanges["amq.match"]
    for name in QUEUES:
        nodes.add_queue(name, {})
    for name, key, asked in bound:
        policed.world.do(nodes.bind, exchange, nodes.queues[name], key, asked, lambda error: None)
    standing = {(name, key): asked for name, key, asked in bound}
    expected: dict[str, list[int]] = {name: [] for name in QUEUES}
    for number, there in enumerate(messages):
        policed.send("amq.match", number, properties=there)
        for name in {name for (name, _), asked in standing.items() if is_wanted(asked, there)}:
            expected[name].append(number)
    assert {name: policed.bodies(name) for name in QUEUES} == expected


def test_a_message_without_properties_is_one_that_asks_for_none() -> None:
    policed = Policed()
    nodes = policed.world.broker.nodes
    for name, asked in {"q0": {}, "q1": {"x-match": "any"}, "q2": {"a": None}}.items():
        policed.world.do(
            nodes.bind, nodes.exchanges["amq.match"], nodes.add_queue(name, {}), "", asked, lambda error: None
        )
    policed.send("amq.match", "m")
    assert [policed.bodies(name) for name in QUEUES] == [["m"], [], []]


@pytest.mark.parametrize("mode", ["some", 1, None, ["any"]])
def test_another_mode_is_refused(mode: Any) -> None:
    policed = Policed()
    nodes = policed.world.broker.nodes
    errors: list[Any] = []
    queue = nodes.add_queue("q0", {})
    policed.world.do(nodes.bind, nodes.exchanges["amq.match"], queue, "", {"x-match": mode}, errors.append)
    assert "x-match" in str(errors[0])
    assert not queue.bindings

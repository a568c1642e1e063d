"""Tests of the work budget of selectors (W2): results within it are correct, and exceeding it is an error."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from proton import Message

from cairnmq.amqp.codec import sections
from cairnmq.amqp.native.proton_ffi import ACCEPTED
from cairnmq.amqp.ports import Open, Terminus
from cairnmq.base.errors import StoreError
from cairnmq.broker.nodes import exchanges as exchange
from cairnmq.broker.selector.compiler import Parts, Selector
from cairnmq.broker.selector.like import AT_ONCE, SHORT_TEXT, compiled
from cairnmq.broker.selector.properties import Budget, OverBudget
from tests.harness.broker.filters import filters
from tests.harness.broker.policies import Policed, decoded
from tests.harness.broker.slow_selectors import slowly_like
from tests.harness.broker.world import FakeTerminal, WorkingClock

HEAVY = " OR ".join(["p LIKE '%b_c%'"] * 110)
"""A selector within the default length limit that exceeds its budget on 60 KB of text."""
LONG = "a" * 60_000


def with_properties(**named: Any) -> bytes:
    return sections.application_properties_section(named)


TERMS = st.builds(
    lambda name, wanted, pattern: f"{name} {wanted}LIKE '{pattern}'",
    st.sampled_from("pq"), st.sampled_from(["", "NOT "]), st.text("ab_%", max_size=6),
) | st.sampled_from(["p = 'ab'", "n > 3", "q IS NULL", "JMSPriority = 4"])  # fmt: skip
SELECTORS = st.recursive(
    TERMS, lambda inner: st.builds("({} {} {})".format, inner, st.sampled_from(["AND", "OR"]), inner), max_leaves=8
)


@given(
    SELECTORS, st.text("ab", max_size=200), st.none() | st.text("ab", max_size=20), st.integers(0, 5),
    st.integers(0, 3000),
)  # fmt: skip


def test_answer_within_the_budget_is_that_without_one(text: str, p: str, q: str | None, n: int, steps: int) -> None:
    named = {"p": p, "n": n} | ({} if q is None else {"q": q})
    parts, made = Parts(with_properties(**named)), Selector(text)
    unbounded = made.takes(parts, None)
    try:
        assert made.takes(parts, Budget(steps)) is unbounded
    except OverBudget:
        assert steps < made.most_steps(len(parts.content))
    assert made.takes(parts, Budget(made.most_steps(len(parts.content)))) is unbounded
    assert made.matches(parts.content) is unbounded


@given(
    st.text("ab_%", max_size=8), st.text("ab", max_size=6),
    st.integers(0, 3 * SHORT_TEXT) | st.integers(AT_ONCE - 9, AT_ONCE + 9), st.text("abc€\ud800", max_size=6),
)  # fmt: skip


def test_like_finds_the_same_in_long_texts(pattern: str, begin: str, many: int, end: str) -> None:
    text = begin + "c" * many + end
    assert compiled(pattern)(text) is slowly_like(text, pattern)


def test_each_selector_that_has_few_patterns_can_be_applied_to_any_message() -> None:
    made = Selector(" OR ".join(["p LIKE '%b_c%'"] * 16))
    assert not made.matches(with_properties(p=LONG))
    with pytest.raises(OverBudget):
        Selector(HEAVY).matches(with_properties(p=LONG))
    assert Selector(HEAVY).matches(with_properties(p="c" + "b" * 1000 + "c"))


# ---- receivers from a queue -----------------------------------------------------------------------------------------


@pytest.fixture
def policed() -> Policed:
    return Policed()


@pytest.mark.parametrize("browse", [False, True])
@pytest.mark.parametrize("durable", [False, True])
def test_selector_over_its_budget_closes_its_link_and_takes_nothing(
    policed: Policed, browse: bool, durable: bool
) -> None:
    policed.send("q", "before", properties={"p": "bbc"}, durable=durable)
    policed.send("q", "heavy", properties={"p": LONG}, durable=durable)
    policed.send("q", "behind", properties={"p": "bbc"}, durable=durable)
    taker = policed.world.open(to_client=True, filters=filters(HEAVY), browse=browse)
    policed.world.do(taker.driver.request, 10, False)
    policed.world.read_all()
    assert taker.failures == ["amqp:resource-limit-exceeded"]
    assert [decoded(content).body for _, content in taker.forwarded] == ["before"]
    policed.world.do(taker.driver.close, [tag for tag, _ in taker.forwarded], False, False)
    assert policed.bodies("q") == ["before", "heavy", "behind"]


def test_backlog_is_judged_in_time_slices_and_users_take_turns() -> None:
    policed = Policed(clock=WorkingClock(0.0002))
    for number in range(400):
        policed.send("q", number, properties={"number": number})
    takers = [policed.world.open(to_client=True, filters=filters("number >= 399")) for _ in range(4)]
    judged = 0
    matches = Selector.matches

    def counting(made: Selector, content: bytes) -> bool:
        nonlocal judged
        judged += 1
        return matches(made, content)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Selector, "matches", counting)
        for taker in takers:
            policed.world.do(taker.driver.request, 10, False)
        steps = most = before = 0
        while policed.world.readings:
            assert policed.send("other", steps) == "accepted", "another client waits for none of that"
            policed.world.read_one()
            most, before = max(most, judged - before), judged
            steps += 1
            assert steps < 5000
    assert judged >= 4 * 399
    assert most <= 100
    assert sum(len(taker.forwarded) for taker in takers) == 1


# ---- subscriptions --------------------------------------------------------------------------------------------------


@pytest.fixture
def small_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    """Limit the publisher's turn to the work of one selector."""
    monkeypatch.setattr(exchange, "MOST_STEPS", Selector("number >= 5").least_steps)


def subscribe(policed: Policed, text: str, **options: Any) -> FakeTerminal:
    taker = policed.world.open(to_client=True, address="amq.topic/news", filters=filters(text), **options)
    policed.world.do(taker.driver.request, 100, False)
    return taker


def take(policed: Policed, taker: FakeTerminal) -> list[Any]:
    policed.world.read_all()
    found = []
    while taker.forwarded:
        tag, content = taker.forwarded.pop(0)
        found.append(decoded(content).body)
        policed.world.settle(taker, tag, ACCEPTED)
        policed.world.read_all()
    return found


@pytest.mark.parametrize("durable", [False, True])
@pytest.mark.parametrize("size", [10, 200_000])
def test_publisher_waits_for_no_selector_beyond_its_turn(
    small_turn: None, durable: bool, size: int
) -> None:
    policed = Policed(1 << 26)
    texts = "number >= 5", "number >= 6", "number < 3", "JMSDeliveryMode = 'X'"
    takers = [subscribe(policed, text) for text in texts]
    everything = policed.world.open(to_client=True, address="amq.topic/news")
    policed.world.do(everything.driver.request, 100, False)
    for number in range(10):
        body = str(number) + "x" * size
        assert policed.send("amq.topic/news", body, properties={"number": number}, durable=durable) == "accepted"
    found = [[int(body[0]) for body in take(policed, taker)] for taker in [*takers, everything]]
    assert found == [list(range(5, 10)), list(range(6, 10)), [0, 1, 2], [], list(range(10))]
    assert all(queue.messages == 0 for queue in policed.world.broker.nodes.queues.values())


def test_durable_subscription_is_right_after_a_restart(small_turn: None, policed: Policed) -> None:
    def open_again() -> FakeTerminal:
        return subscribe(policed, "number >= 5", durability=2, expiry="never", capabilities=("shared",))

    subscribe(policed, "number = 0")
    late = open_again()
    policed.world.do(late.driver.close, (), False, False)
    for number in range(10):
        policed.send("amq.topic/news", number, properties={"number": number})
    policed.restart()
    policed.world.step()
    policed.world.read_all()
    again = open_again()
    assert take(policed, again) == list(range(5, 10))
    assert policed.send("amq.topic/news", 7, properties={"number": 7}) == "accepted"
    assert take(policed, again) == [7]


def test_subscription_over_its_budget_closes_its_link_not_the_publishers(policed: Policed) -> None:
    hostile = [subscribe(policed, f"{HEAVY} OR p = '{number}'") for number in range(3)]
    usual = subscribe(policed, "p LIKE '%aa%'")
    assert policed.send("amq.topic/news", "m", properties={"p": LONG}) == "accepted"
    policed.world.read_all()
    assert [taker.failures for taker in hostile] == [["amqp:resource-limit-exceeded"]] * 3
    assert take(policed, usual) == ["m"]


def test_draining_subscriber_gets_what_is_still_to_be_judged(small_turn: None) -> None:
    policed = Policed(clock=WorkingClock(0.001))
    takers = [subscribe(policed, text) for text in ("number >= 1", "number >= 2")]
    for number in range(10):
        policed.send("amq.topic/news", number, properties={"number": number})
    for taker in takers:
        policed.world.do(taker.driver.request, 200, True)
    policed.world.read_all()
    assert [len(taker.forwarded) for taker in takers] == [9, 8]
    assert [taker.drains for taker in takers] == [[191], [192]]


def test_subscription_that_ends_while_a_message_is_read_holds_no_memory(small_turn: None, policed: Policed) -> None:
    def open_again() -> FakeTerminal:
        return subscribe(policed, "number >= 5", durability=2, expiry="never")

    open_again()
    policed.send("amq.topic/news", "x" * 200_000, properties={"number": 7})
    policed.restart()
    policed.world.step()
    policed.world.read_all()
    again = open_again()
    policed.world.do(again.driver.request, 10, False)
    policed.world.read_one()  # the page of the message
    assert policed.world.readings, "its beginning is read for the selector"
    policed.world.do(again.driver.close, (), False, True)
    policed.world.read_all()
    assert not any(queue.messages for queue in policed.world.broker.nodes.queues.values())
    assert policed.world.broker.core.memory.used_bytes == 0


def test_bindings_of_queues_may_have_few_patterns_together(policed: Policed) -> None:
    nodes = policed.world.broker.nodes
    policed.make("q")
    topics, answers = nodes.exchanges["amq.topic"], list[Any]()
    many = " OR ".join(["p LIKE '%b%'"] * 15)
    for key, text in (("a", many), ("b", "p LIKE '%b%' OR p LIKE '%c%'"), ("c", "p = 'b'")):
        policed.world.do(nodes.bind, topics, policed.world.queue(), key, {"x-selector": text}, answers.append)
    assert [type(answer) for answer in answers] == [type(None), StoreError, type(None)]


def test_message_with_many_properties_is_decoded_once_for_all_subscriptions(
    policed: Policed, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(20):
        subscribe(policed, f"number >= {number}")
    decoded_times = 0
    decode = sections.application_properties

    def counting(content: bytes, at: int) -> dict[str, Any]:
        nonlocal decoded_times
        decoded_times += 1
        return decode(content, at)

    monkeypatch.setattr(sections, "application_properties", counting)
    message = Message(properties={f"n{number}": number for number in range(500)} | {"number": 7})
    assert policed.send("amq.topic/news", "m", properties=message.properties) == "accepted"
    assert decoded_times == 1


# ---- compiling ------------------------------------------------------------------------------------------------------


def attach(policed: Policed, text: str, user: str = "", connection: object = None) -> FakeTerminal:
    """Request a receiver with a selector for *user*; return its terminal, which may not be open yet."""
    terminal = FakeTerminal()
    asked = Open(True, Terminus(address="q", filters=filters(text)), False, connection, user=user)
    policed.world.do(policed.world.broker.drivers.open, asked, terminal)
    return terminal


def test_selectors_are_compiled_beside_the_core_and_users_take_turns() -> None:  # W8
    policed = Policed(clock=WorkingClock(0.0001), compiles_later=True)
    hostile = [attach(policed, f"n = {number} AND " + "n > 0 AND " * 190 + "TRUE", "evil") for number in range(60)]
    usual = attach(policed, "n = 77", "victim")
    assert not any(terminal.driver or terminal.failures for terminal in [*hostile, usual]), "the core compiled one"
    for reads in range(4):
        assert policed.send("q", reads, properties={"n": 77}) == "accepted"
        policed.world.read_one()
    assert usual.driver is not None
    assert sum(terminal.driver is not None for terminal in hostile) <= 3
    policed.world.read_all()
    opened = sum(terminal.driver is not None for terminal in hostile)
    assert 0 < opened < 30, "a user has a rate"
    for _ in range(200):
        policed.world.advance(0.1)
        policed.world.read_all()
    assert all(terminal.driver is not None for terminal in hostile), "all of them are opened in the end"


def test_link_that_ends_while_its_selector_is_compiled_is_not_opened() -> None:
    policed = Policed(compiles_later=True)
    policed.make("q")
    terminal = attach(policed, "n = 1")
    policed.world.do(policed.world.broker.drivers.link_closed, terminal)
    policed.world.read_all()
    assert terminal.driver is None
    assert not policed.world.queue().selecting


def test_same_selector_is_opened_at_once() -> None:
    policed = Policed(compiles_later=True)
    attach(policed, "n = 123456")
    policed.world.read_all()
    assert attach(policed, "n = 123456").driver is not None


def test_bad_selector_is_refused_when_it_is_compiled() -> None:
    policed = Policed(compiles_later=True)
    terminal = attach(policed, "n =")
    assert not terminal.failures
    policed.world.read_all()
    assert terminal.failures == ["amqp:invalid-field"]

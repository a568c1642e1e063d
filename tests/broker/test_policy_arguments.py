"""Tests of queue arguments and the policy that they set, without a queue."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cairnmq.base.errors import StoreError
from cairnmq.broker.contents.policy import AUTO_DELETES, CHANGEABLE, MOST_COUNT, NAMES, OVERFLOWS, PLAIN, policy_of


def test_queue_without_arguments_has_the_plain_policy() -> None:
    assert policy_of("q", {}) is PLAIN
    assert policy_of("q", {"x-note": 1, "x-max_messages": "many"}) == PLAIN
    assert not any([PLAIN.is_sorted, PLAIN.assigns, PLAIN.looks_inside, PLAIN.has_limits])


@given(
    st.fixed_dictionaries(
        {},
        optional={
            "max-messages": st.sampled_from([0, 1, MOST_COUNT]),
            "overflow": st.sampled_from(OVERFLOWS),
            "auto-delete": st.sampled_from(["", *AUTO_DELETES]),
            "last-value-key": st.sampled_from(["", "subject", "key"]),
            "priorities": st.booleans(),
            "duplicate-window": st.sampled_from([0, 1 << 24]),
        },
    )
)
def test_each_argument_sets_its_field_and_no_other(arguments: dict[str, object]) -> None:
    fields = {name.replace("_", "-"): value for name, value in policy_of("q", arguments)._asdict().items()}
    plain = {name.replace("_", "-"): value for name, value in PLAIN._asdict().items()}
    assert fields == plain | arguments


@pytest.mark.parametrize(
    ("argument", "value", "reason"),
    [
        ("max-message", 1, "there is no argument 'max-message'"),
        ("max_messages", 1, "there is no argument 'max_messages'"),
        ("max-messages", "1", "max-messages is '1'"),
        ("max-messages", True, "max-messages is True"),
        ("priorities", 1, "priorities is 1"),
        ("last-value-key", 1, "last-value-key is 1"),
        ("max-messages", -1, "max-messages is -1"),
        ("max-messages", MOST_COUNT + 1, f"max-messages is {MOST_COUNT + 1}"),
        ("max-deliveries", (1 << 31) + 1, f"max-deliveries is {(1 << 31) + 1}"),
        ("duplicate-window", (1 << 24) + 1, f"duplicate-window is {(1 << 24) + 1}"),
        ("message-ttl-ms", (1 << 44) + 1, f"message-ttl-ms is {(1 << 44) + 1}"),
        ("overflow", "burst", "overflow is 'burst'"),
        ("auto-delete", "never", "auto-delete is 'never'"),
    ],
)
def test_invalid_argument_is_refused_with_place_value_and_remedy(argument: str, value: object, reason: str) -> None:
    with pytest.raises(StoreError) as caught:
        policy_of("orders", {"max-bytes": 5, argument: value})
    error = str(caught.value)
    assert "queue 'orders'" in error
    assert reason in error
    assert ("use " if argument in NAMES else "known are ") in error


@pytest.mark.parametrize(
    ("arguments", "is_sorted", "assigns", "looks_inside", "has_limits"),
    [
        ({"priorities": True}, True, False, True, False),
        ({"last-value-key": "subject"}, True, False, True, False),
        ({"message-groups": True}, True, True, True, False),
        ({"single-active-consumer": True}, True, True, True, False),
        ({"duplicate-window": 1}, False, False, True, True),
        ({"max-messages": 1}, False, False, False, True),
        ({"max-bytes": 1}, False, False, False, True),
        ({"message-ttl-ms": 1, "exclusive": True}, False, False, False, False),
    ],
)
def test_derived_properties(
    arguments: dict[str, object], is_sorted: bool, assigns: bool, looks_inside: bool, has_limits: bool
) -> None:
    policy = policy_of("q", arguments)
    assert (policy.is_sorted, policy.assigns, policy.looks_inside, policy.has_limits) == (
        is_sorted,
        assigns,
        looks_inside,
        has_limits,
    )


def test_no_argument_that_sorts_can_be_changed_later() -> None:
    assert {*CHANGEABLE} < {*NAMES}
    assert not {*CHANGEABLE} & {"priorities", "last-value-key", "message-groups", "single-active-consumer"}

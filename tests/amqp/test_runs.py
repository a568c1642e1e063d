"""Tests that transfers and dispositions processed in runs have the effect of the same frames one at a time."""

from __future__ import annotations

from typing import Any

from hypothesis import example, given
from hypothesis import strategies as st

from cairnmq.amqp.frames import performatives
from tests.harness.amqp.side import FORWARDED, Side
from tests.harness.security import wire
from tests.harness.security.wire import FALSE, NULL, TRUE, binary, frame, performative, uint

STATES = {"accepted": b"\x00\x53\x24\x45", "released": b"\x00\x53\x26\x45", "rejected": b"\x00\x53\x25\x45"}
ABORTED, MORE, EMPTY, SKIPPED, IN_A_TRANSACTION = "aborted", "more", "empty", "skipped", "in a transaction"
ODD = [ABORTED, MORE, EMPTY, SKIPPED, IN_A_TRANSACTION]
Action = tuple[str, Any]


@st.composite
def transfers(draw: st.DrawFn) -> Action:
    """Draw messages on one link, some with an unusual one at the end."""
    count, detailed = draw(st.integers(1, 60)), draw(st.sampled_from([""] * 8 + ODD))
    sizes = draw(st.sampled_from([[9] * count, [1 + number % 5 * 100 for number in range(count)]]))
    return "transfers", (draw(st.integers(0, 1)), sizes, draw(st.booleans()), detailed)


@st.composite
def dispositions(draw: st.DrawFn) -> Action:
    """Draw a disposition of the next unsettled deliveries, or of a range with gaps."""
    state = draw(st.sampled_from(["accepted"] * 4 + ["released", "rejected"]))
    skip, count, is_settled = draw(st.integers(0, 3)), draw(st.integers(1, 2 * FORWARDED)), draw(st.integers(0, 5)) > 0
    return "disposition", (skip, count, state, is_settled)


def frames_of(actions: list[Action], *, is_usual: bool = True) -> list[bytes]:
    """Encode the actions as frames; unless *is_usual*, encode acceptances so that each is digested separately."""
    said: list[bytes] = []
    number = outcome = 0
    for kind, about in actions:
        if kind == "disposition":
            skip, count, state, is_settled = about
            first, last = outcome + skip, outcome + skip + count - 1
            if state == "accepted" and is_settled and is_usual:
                said.append(bytes(performatives.disposition(first, last, True)))
            else:
                fields = TRUE, uint(first), uint(last), TRUE if is_settled else FALSE, STATES[state]
                said.append(frame(performative(wire.DISPOSITION, *fields)))
            outcome = last + 1
            continue
        handle, sizes, is_settled, detailed = about
        for place, size in enumerate(sizes):
            name = detailed if place == len(sizes) - 1 or detailed == IN_A_TRANSACTION else ""
            number += 1 + (name == SKIPPED)
            more, aborted = TRUE if name == MORE else FALSE, TRUE if name == ABORTED else FALSE
            state = b"\x00\x53\x34\xc0\x05\x01\xa0\x02no" if name == IN_A_TRANSACTION else NULL
            head = [uint(handle), uint(number), binary(number.to_bytes(4)), uint(0), TRUE if is_settled else FALSE]
            transfer = performative(wire.TRANSFER, *head, more, NULL, state, FALSE, aborted)
            said.append(frame(transfer + (b"" if name == EMPTY else number.to_bytes(4) * size)))
            if name == MORE:
                said.append(frame(performative(wire.TRANSFER, uint(handle), NULL, NULL, NULL, head[4]) + b"end"))
    return said


@example([("transfers", (0, [9] * 5, False, detailed)) for detailed in (IN_A_TRANSACTION, "") * 2])
@given(st.lists(st.one_of(transfers(), dispositions()), min_size=1, max_size=8))
def test_runs_have_the_effect_of_single_frames(actions: list[Action]) -> None:
    together, apart = Side(), Side()
    together.say(b"".join(frames_of(actions)))
    for one in frames_of(actions, is_usual=False):
        apart.say(one)
    assert together.state() == apart.state()


def test_runs_are_not_digested_message_by_message() -> None:
    side = Side()
    said = frames_of([("transfers", (0, [9] * 200, False, "")), ("disposition", (0, FORWARDED, "accepted", True))])
    entered = side.entered(b"".join(said))
    assert len(side.seen["a"]) == 200
    assert len(side.seen["x"]) == FORWARDED
    assert entered["_transfer"] <= 2  # the first transfer is checked field by field
    assert entered["_outcome"] == 0

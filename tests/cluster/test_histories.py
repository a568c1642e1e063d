"""Tests of the simulation's checkers: each violation in histories and members is caused deliberately and detected."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from cairnmq.amqp.codec import header
from tests.harness.cluster import numbered_messages as letters
from tests.harness.cluster.cluster_harness import ClusterHarness, Sender
from tests.harness.cluster.consistency import checked
from tests.harness.cluster.histories import Broken, Histories, Standing, keys

SIZES = dict.fromkeys(range(100), 50)


def told(numbers: range, *queues: str) -> tuple[Histories, Sender]:
    """Return histories in which a sender's messages were confirmed on each of *queues*, and the sender."""
    histories, sender = Histories(), object.__new__(Sender)
    for queue in queues:
        histories.sends(queue, numbers, 50, sender)
        histories.confirmed |= keys(queue, numbers)
    return histories, sender


def standing(queue: str, *numbers: int) -> Standing:
    return Standing(queue, [*enumerate(numbers, 1)])


def test_a_message_for_two_queues_is_to_be_on_both() -> None:
    histories, _ = told(range(3), "q", "f")
    histories.check([standing("q", 0, 1, 2), standing("f", 0, 1, 2)])
    with pytest.raises(Broken, match=r"confirmed, and lost: \[\('f', 1\)\]"):
        histories.check([standing("q", 0, 1, 2), standing("f", 0, 2)])
    histories.accepts(keys("f", [1]))
    histories.check([standing("q", 0, 1, 2), standing("f", 0, 2)])


def test_what_was_moved_is_on_one_of_the_queues() -> None:
    histories, _ = told(range(3), "q")
    histories.may_move("q", "r")
    histories.check([standing("q", 1), standing("r", 0, 2)])
    for some in ([standing("q", 1), standing("r", 2)], [standing("q", 0, 1), standing("r", 0, 2)]):
        with pytest.raises(Broken, match=r"lost|on two queues"):
            histories.check(some)


def test_a_purge_excuses_what_was_there_and_nothing_else() -> None:
    histories, sender = told(range(3), "q")
    histories.may_be_gone("q")
    histories.sends("q", [3], 50, sender)
    histories.confirmed |= keys("q", [3])
    histories.check([standing("q", 3)])
    with pytest.raises(Broken, match="confirmed, and lost"):
        histories.check([])


def test_messages_of_one_sender_stand_in_their_order() -> None:
    histories, _ = told(range(3), "q")
    histories.check([standing("q", 0, 1, 2)])
    with pytest.raises(Broken, match="q: 1 stands behind 2"):
        histories.check([standing("q", 0, 2, 1)])
    histories.shuffled = 1  # as after a bootstrap from a store with transferred state
    histories.check([standing("q", 0, 2, 1)])


def test_a_message_that_was_shown_twice_says_so_once() -> None:
    harness = ClusterHarness(1)
    histories, _ = told(range(3), "q", "f")
    for queue in ("q", "f"):
        histories.forwarded(harness[1], queue, 0, marked=False, presettled=False)
    histories.forwarded(harness[1], "q", 0, marked=True, presettled=False)
    with pytest.raises(Broken, match="0 was handed out twice"):
        histories.forwarded(harness[1], "f", 0, marked=False, presettled=False)


def test_a_dead_letter_begins_anew_before_anybody_is_told_that_it_is_one() -> None:
    """A dead letter of a committed transaction may be delivered before the response to the commit."""
    harness = ClusterHarness(1)
    histories, _ = told(range(2), "q")
    for number in range(2):
        histories.forwarded(harness[1], "q", number, marked=False, presettled=False)
    histories.may_be_rejected("q", keys("q", [0]))
    histories.forwarded(harness[1], "dead", 0, marked=False, presettled=False)
    with pytest.raises(Broken, match="1 was handed out twice"):
        histories.forwarded(harness[1], "q", 1, marked=False, presettled=False)


def test_what_may_be_moved_may_come_from_there_and_from_nowhere_else() -> None:
    harness = ClusterHarness(1)
    histories, sender = told(range(2), "q")

    def comes(number: int, queue: str) -> None:
        histories.forwarded(harness[1], queue, number, marked=True, presettled=False)

    def can_not_come(number: int, queue: str) -> None:
        with pytest.raises(Broken, match=f"{number} came from a queue on which it can't be: {queue}"):
            comes(number, queue)

    comes(0, "q")
    can_not_come(0, "dead")
    histories.may_move("dead", "r")
    can_not_come(0, "r")
    histories.may_move("q", "dead")  # and further by the other move
    comes(0, "dead")
    comes(0, "r")
    histories.sends("q", [2], 50, sender)  # while the moves are in progress
    comes(2, "r")
    histories.moved("dead", "r")
    histories.sends("q", [3], 50, sender)
    comes(3, "dead")
    can_not_come(3, "r")
    comes(2, "r")  # may have been moved before the end of the move


def test_a_letter_tells_what_it_is() -> None:
    sent = letters.written(7, 50)
    assert letters.read(sent) == (7, 50, False, True)
    assert letters.read(header.redelivered(sent, 0)) == (7, 50, True, True)
    assert not letters.read(sent[:-3] + b"abc").is_complete


def other_content(harness: ClusterHarness) -> None:
    (entry, *_) = [entry for entry in harness[2].core.owners.replicas["q"].entries() if entry.position == 2]
    other, queue_id = letters.written(1, 49), harness[2].broker.nodes.queues["q"].queue_id
    harness[2].store.dequeue(entry.message_id, queue_id, 0)
    entry.message_id, _ = harness[2].store.put(queue_id, other, 0)
    harness[2].store.kick()
    harness.run(0.1)


def another_mark(harness: ClusterHarness) -> None:
    (entry, *_) = harness[2].core.owners.replicas["q"].entries()
    entry.previously_delivered = True


def other_arguments(harness: ClusterHarness) -> None:
    queue = harness[3].broker.nodes.queues["q"]
    queue.arguments = {**queue.arguments, "x-note": "a"}


def another_count(harness: ClusterHarness) -> None:
    harness[3].broker.nodes.queues["q"].messages += 1


@pytest.mark.parametrize(
    ("harm", "what"),
    [
        (other_content, r"what stands at \[2\] is not the same at the nodes 1 and 2"),
        (another_mark, "node 2 has other marks"),
        (other_arguments, "node 3 has the wiring"),
        (another_count, "node 3 counts 6 messages, there are 5"),
    ],
    ids=lambda one: getattr(one, "__name__", ""),
)
def test_what_members_have_alike(harm: Callable[[ClusterHarness], None], what: str) -> None:
    harness = ClusterHarness().start()
    sender = Sender(harness[1])
    harness.run(0.1)
    sender.send_whole({number: letters.written(number, 50) for number in range(5)})
    assert harness.until(lambda: len(sender.confirmed) == 5)
    harness.run(0.1)
    assert [found.contents for found in checked(harness, SIZES)] == [[*zip(range(1, 6), range(5), strict=True)]]
    harm(harness)
    with pytest.raises(Broken, match=what):
        [*checked(harness, SIZES)]

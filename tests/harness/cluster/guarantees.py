"""Properties of the records of a cluster's clients and of the final contents of its members.

* A confirmed message is on its queue, or a client has accepted it (D1).
* A message whose accept was settled is on no queue, and is not delivered to clients that connect later (D3).
* At most one delivery of a message is unmarked, that is, first-acquirer with a delivery-count of 0 (D2, D6).
* Unmarked deliveries of a sender's messages in one session are in the sender's order: a confirmed message comes
  before all messages sent after its confirmation. A message in doubt may come late: a stopped member can still have it
  in its socket, and read it when it resumes.
* Every delivered message was sent, is unchanged, and was not refused.
* All members have the same messages on every queue, each message once (D15).
"""

from __future__ import annotations

import json
import sys
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from cairnmq.tools.soak.history import KINDS, Answered, Confirmed, Event, Got, Refused, Sent, Settled
from tests.harness.cluster.failover_client import Came

Contents = Mapping[str, Sequence[str]]
"""The message IDs on each queue of a member."""


def read(directory: Path) -> list[Event | Came]:
    """Read all notebooks in *directory*, without the last, incomplete line of a killed client."""
    kinds = {**KINDS, Came.__name__: Came}
    events: list[Event | Came] = []
    for path in sorted(directory.glob("*.jsonl")):
        complete, _, _ = path.read_bytes().rpartition(b"\n")
        for line in complete.splitlines():
            kind, *fields = json.loads(line)
            events.append(kinds[kind](*fields))
    return events


def broken(history: Iterable[Event | Came], contents: Mapping[int, Contents]) -> list[str]:
    """Return a description of each violated property; *contents*: of each node, with no operation in progress."""
    history = [*history]
    sent = {event.message: event for event in history if isinstance(event, Sent)}
    confirmed = {event.message: event.at for event in history if isinstance(event, Confirmed)}
    refused = {event.message for event in history if isinstance(event, Refused)}
    taken = {event.message for event in history if isinstance(event, Answered) and event.outcome == "taken"}
    final: dict[str, int] = {event.message: event.at for event in history if isinstance(event, Settled)}
    came = {event.session: event.at for event in history if isinstance(event, Came)}
    gots = [event for event in history if isinstance(event, Got)]
    first, *others = contents.values()
    there = Counter(message for messages in first.values() for message in messages)
    queue_of = {message: queue for queue, messages in first.items() for message in messages}
    unmarked = Counter(got.message for got in gots if not got.marked)
    seen = {got.message for got in gots} | there.keys()
    found = {
        "nobody sent it": seen - sent.keys(),
        "it is not what was sent": {
            got.message for got in gots
            if got.message in sent and (got.digest, got.queue) != (sent[got.message].digest, sent[got.message].queue)
        } | {message for message, queue in queue_of.items() if message in sent and sent[message].queue != queue},
        "refused, and there": refused & seen,
        "confirmed, and lost": confirmed.keys() - there.keys() - taken,
        "accepted for good, and still there": final.keys() & there.keys(),
        "accepted for good, and handed out again": {
            got.message for got in gots if came[got.session] > final.get(got.message, came[got.session])
        },
        "handed out twice, and none of the two says so": {one for one, count in unmarked.items() if count > 1},
        "there twice": {message for message, count in there.items() if count > 1},
        "out of order": _out_of_order(gots, sent, confirmed),
        "not the same on all members": {
            message
            for other in others
            for queue in first.keys() | other.keys()
            for message in {*first.get(queue, ())} ^ {*other.get(queue, ())}
        },
    }  # fmt: skip
    return [
        f"{what}: {len(messages)}, {', '.join(sorted(messages)[:9])}" for what, messages in found.items() if messages
    ]


def _out_of_order(gots: Iterable[Got], sent: Mapping[str, Sent], confirmed: Mapping[str, int]) -> set[str]:
    """Return messages whose order violates the guarantee.

    These were delivered after a message of the same sender that was sent after they were confirmed, or that was sent
    later over the same connection.
    """
    found: set[str] = set()
    last_sent: dict[tuple[str, str], int] = defaultdict(int)
    last_number: dict[tuple[str, str, int], int] = defaultdict(int)
    for got in sorted(gots, key=lambda got: got.at):
        origin = sent.get(got.message)
        if origin is None or got.marked:
            continue
        way = got.session, origin.sender
        connection = *way, origin.life
        is_late = origin.number < last_number[connection] or confirmed.get(got.message, sys.maxsize) < last_sent[way]
        if is_late:
            found.add(got.message)
        last_sent[way] = max(origin.at, last_sent[way])
        last_number[connection] = max(origin.number, last_number[connection])
    return found

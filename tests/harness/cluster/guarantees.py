"""Properties of what the clients of a cluster recorded, and of what its members store at the end.

* What was confirmed is on its queue, or a client has said that it takes it (D1).
* What a client was told to be accepted is on no queue, and came to nobody who connected after that (D3).
* Of all deliveries of a message at most one says that nobody had it before (D2, D6).
* What one session gets of one sender for the first time comes in the sender's order: a message that was confirmed
  comes before all that were sent after that. One in doubt may come late: the member that the sender left can be
  stopped where it stands, with the message in its socket, and read it only when it goes on.
* Nothing comes that nobody sent, nor other than it was sent, nor what its sender was told to be refused.
* All members have the same on every queue, each message once (D15).
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
"""Of a member: the ids of the messages on each queue."""


def read(directory: Path) -> list[Event | Came]:
    """All notebooks there; what a killed client was just writing is left out."""
    kinds = {**KINDS, Came.__name__: Came}
    events: list[Event | Came] = []
    for path in sorted(directory.glob("*.jsonl")):
        complete, _, _ = path.read_bytes().rpartition(b"\n")
        for line in complete.splitlines():
            kind, *fields = json.loads(line)
            events.append(kinds[kind](*fields))
    return events


def broken(history: Iterable[Event | Came], contents: Mapping[int, Contents]) -> list[str]:
    """What of the above does not hold; *contents* by node, at rest."""
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
    """Messages delivered after one of the same sender that was sent when they had been confirmed already, or that was
    sent later over the same connection."""
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

"""Checker of the history of a soak against the guarantees of the broker; it knows only the events of the clients.

The checker tracks the state of every message as a client can know it, for each process (life) of the broker:

    maybe   it may be on the queue or not: sent and not confirmed, or taken and then the broker or the client was killed
    there   it must be on the queue: confirmed, or received by a client once
    held    a receiver has it
    taken   that receiver accepted it
    off     the session that accepted it ended in good order: off the queue until the broker is killed
    removed the broker confirmed the outcome

`maybe`, `there` -> Got -> `held` -> Answered -> `there` or `taken` -> Settled -> `removed`. At the end of the session
`held` becomes `there`, and `taken` becomes `off` or `maybe`. At the end of the broker process `held` becomes `there`,
`taken` and `off` become `maybe`. A history ends with all queues drained, so a message that is still `there` or `held`
is lost. In a history that was interrupted before that, no message is reported as lost.

Messages sent in a transaction are confirmed, and messages received in it are settled, with the answer to its commit.
Until a commit is requested, messages received in the transaction are `held`, and messages sent in it must never be
seen. After a commit without an answer, either all or none of its operations must be visible; otherwise it is half done.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from operator import attrgetter
from typing import Any

from ...base.texts import counted
from .history import (
    KINDS,
    Answered,
    Asked,
    Confirmed,
    Decided,
    Died,
    Ended,
    Event,
    Got,
    Refused,
    Sent,
    Settled,
    Stopped,
    Trouble,
)

DEFECTS = ("lost", "duplicated", "resurrected", "unmarked", "reordered", "corrupt", "phantom", "unanswered", "half")
"""The defects that are counted.

* duplicated: two consumers hold the message at once
* unmarked: delivered again, and not marked as redelivered
* resurrected: delivered again after its consumption was confirmed
* phantom: never sent, refused, rolled back, or sent elsewhere
* unanswered: kept by a broker that stopped in good order, without an outcome for the sender
* half: only a part of a transaction took effect; a transaction counts once
"""

Step = Got | Answered | Settled
_FOREVER = 1 << 63
_AT = attrgetter("at")
_RESTARTED = {"held": "there", "taken": "maybe", "off": "maybe"}
"""States that change with the end of the broker process."""


@dataclass
class Verdict:
    """The verdict on a history."""

    found: list[tuple[str, str]] = field(default_factory=list)
    """A defect and the message, or transaction, it befell, once for each."""
    confirmed: int = 0
    in_doubt: int = 0
    """Messages that were sent and neither confirmed nor refused."""
    consumed: int = 0
    """Messages that were taken off by a receiver that the broker confirmed this to, or that did not come again."""
    redelivered: int = 0
    """Deliveries of a message that had been delivered before."""
    troubles: list[Trouble] = field(default_factory=list)

    def counts(self) -> Counter[str]:
        return Counter(kind for kind, _ in self.found)

    def line(self) -> str:
        counts = self.counts()
        return (
            f"{counted(self.confirmed, 'message')} confirmed, {self.in_doubt} in doubt, {self.consumed} consumed, "
            f"{self.redelivered - counts['unmarked']} redelivered and marked, "
            + ", ".join(f"{counts[kind]} {kind}" for kind in DEFECTS)
        )

    def add(self, other: Verdict) -> None:
        """Sum both up here."""
        self.found += other.found
        self.confirmed += other.confirmed
        self.in_doubt += other.in_doubt
        self.consumed += other.consumed
        self.redelivered += other.redelivered
        self.troubles += other.troubles


class _Events:
    """The events of a history by kind, and what they show of sessions and transactions."""

    def __init__(self, history: Iterable[Event]) -> None:
        of: dict[type[Event], list[Any]] = {kind: [] for kind in KINDS.values()}
        for event in history:
            of[type(event)].append(event)
        self.gots: list[Got] = of[Got]
        self.answers: list[Answered] = of[Answered]
        self.ends: list[Ended] = of[Ended]
        self.stops: list[Died | Stopped] = of[Died] + of[Stopped]
        self.troubles: list[Trouble] = of[Trouble]
        self.sent: dict[str, Sent] = {event.message: event for event in of[Sent]}
        self.confirmed: dict[str, int] = {event.message: event.at for event in of[Confirmed]}
        self._sessions: dict[str, Ended] = {event.session: event for event in of[Ended]}
        self._clients: dict[str, Died] = {event.client: event for event in of[Died]}
        self._stopped: dict[int, int] = {event.life: event.at for event in of[Stopped]}
        self._requested = {event.txn for event in of[Asked] if event.commit}
        self._rolled_back = {event.txn for event in of[Decided] if not event.commit}
        self.refused: set[str] = {event.message for event in of[Refused]}
        """Refused messages, and those of transactions without effect."""
        self.refused.update(event.message for event in of[Sent] if self._is_undone(event.txn))
        self.steps: dict[str, list[Step]] = defaultdict(list)
        """The steps of each message. One that was received in a transaction without effect is still held."""
        for step in of[Got] + [event for event in of[Answered] if not self._is_undone(event.txn)] + of[Settled]:
            self.steps[step.message].append(step)

    def end_of(self, session: str, life: int) -> tuple[int, bool]:
        """The earliest end of *session*, and whether it was lost: its last frames may not have arrived."""
        ended = self._sessions.get(session)
        died = self._clients.get(session.partition("/")[0])
        cut_at = min(died.at if died is not None else _FOREVER, self.stopped_at(life))
        if ended is None or ended.at >= cut_at:
            return cut_at, True
        return ended.at, ended.lost or cut_at < _FOREVER  # its last words may have crossed with that

    def died(self, client: str) -> bool:
        return client in self._clients

    def stopped_at(self, life: int) -> int:
        """The time when the broker was asked to end in good order; from then on it may end any session."""
        return self._stopped.get(life, _FOREVER)

    def half_done(self, *, drained: bool) -> set[str]:
        """Return the transactions of which only a part was done."""
        gots: dict[str, list[tuple[int, int]]] = defaultdict(list)
        for got in self.gots:
            gots[got.message].append((got.life, got.at))
        done: dict[str, set[bool]] = defaultdict(set)
        for origin in self.sent.values():
            arrived = origin.message in gots
            if arrived or drained:
                done[origin.txn].add(arrived)
        for one in self.answers:
            again = any(got > (one.life, one.at) for got in gots[one.message])
            if again or drained:
                done[one.txn].add(not again)
        return {txn for txn, parts in done.items() if txn and len(parts) > 1 and not self._is_undone(txn)}

    def _is_undone(self, txn: str) -> bool:
        """True if *txn* is a transaction of which no operation may ever be visible."""
        return bool(txn) and (txn in self._rolled_back or txn not in self._requested)


def check(history: Sequence[Event], *, drained: bool = True) -> Verdict:
    """The defects of *history*, in any order; *drained*: it went on until there were no messages left."""
    events = _Events(history)
    verdict = Verdict(confirmed=len(events.confirmed), troubles=events.troubles)
    found = {("phantom" if message else "corrupt", message) for message in events.steps.keys() - events.sent.keys()}
    for origin in events.sent.values():
        defects = _defects_of(origin, events, verdict)
        found.update((defect, origin.message) for defect in defects if drained or defect != "lost")
    found.update(("reordered", message) for message in _reordered(events))
    found.update(("half", txn) for txn in events.half_done(drained=drained))
    verdict.found = sorted(found)
    return verdict


def _defects_of(origin: Sent, events: _Events, verdict: Verdict) -> Iterator[str]:
    """The defects of one message; it is counted in *verdict*."""
    message = origin.message
    is_confirmed, is_refused = message in events.confirmed, message in events.refused
    story = sorted(events.steps.get(message, ()), key=attrgetter("life", "at"))
    gots = [step for step in story if isinstance(step, Got)]
    if any(got.queue != origin.queue for got in gots) or (gots and is_refused):
        yield "phantom"
    if any(got.digest != origin.digest for got in gots):
        yield "corrupt"
    if not all(got.marked for got in gots[1:]):
        yield "unmarked"
    yield from _follow("there" if is_confirmed else "maybe", story, events, verdict)
    verdict.redelivered += max(0, len(gots) - 1)
    if not is_confirmed and not is_refused:
        verdict.in_doubt += 1
        if gots and events.stopped_at(origin.life) < _FOREVER and not events.died(origin.sender):
            yield "unanswered"


def _follow(known: str, story: list[Step], events: _Events, verdict: Verdict) -> list[str]:
    """The message's way through the states of the table above, and what was wrong on it."""
    wrong: list[str] = []
    holder, life = "", 0
    for step in story:
        if step.life != life:
            known = _RESTARTED.get(known, known)
            life = step.life
        elif known in ("held", "taken") and (step.session != holder or isinstance(step, Got)):
            ended_at, lost = events.end_of(holder, life)
            if ended_at <= step.at:
                known = "there" if known == "held" else "maybe" if lost else "off"
        if isinstance(step, Got):
            if known == "removed":
                wrong.append("resurrected")
            elif known not in ("there", "maybe"):
                wrong.append("duplicated")
            known, holder = "held", step.session
        elif isinstance(step, Answered):
            known = "there" if step.outcome == "returned" else "taken"
        else:
            known = "removed"
    if known in ("there", "held"):
        wrong.append("lost")
    if known in ("taken", "off", "removed") or (known == "maybe" and story):
        verdict.consumed += 1
    return wrong


# ---- order --------------------------------------------------------------------------------------------------------


def _reordered(events: _Events) -> set[str]:
    """Return the messages that were delivered after a later one.

    A session receives messages in the order of the queue, except for released messages, which are dispatched again as
    soon as a consumer has credit. Two kinds of sequences must therefore be in order:

    * the unmarked deliveries of a session, because redelivered messages are marked;
    * all deliveries of a session until any message of its queue is released in that broker process. Every session of
      the drain at the end is such a sequence.
    """
    sessions: dict[str, list[Got]] = defaultdict(list)
    for got in sorted(events.gots, key=_AT):
        if got.message in events.sent:
            sessions[got.session].append(got)
    returned: list[Ended | Answered] = [*events.ends, *(one for one in events.answers if one.outcome == "returned")]
    given_back = {(one.life, one.queue): one.at for one in sorted(returned, key=_AT, reverse=True)}
    ended_at = {one.life: one.at for one in sorted(events.stops, key=_AT, reverse=True)}
    found: set[str] = set()
    for gots in sessions.values():
        life, queue = gots[0].life, gots[0].queue
        until = min(given_back.get((life, queue), _FOREVER), ended_at.get(life, _FOREVER))
        for part in ([got for got in gots if not got.marked], gots[: bisect_right(gots, until, key=_AT)]):
            found |= _out_of_order(part, events)
    return found


def _out_of_order(gots: Sequence[Got], events: _Events) -> set[str]:
    """Those behind which stands a message that its sender sent before, or that was confirmed before they were sent."""
    found: set[str] = set()
    lowest: dict[tuple[str, str], int] = {}
    earliest = _FOREVER
    for got in reversed(gots):
        origin = events.sent[got.message]
        lane = origin.sender, origin.queue
        if origin.number > lowest.get(lane, _FOREVER) or origin.at > earliest:
            found.add(got.message)
        lowest[lane] = min(origin.number, lowest.get(lane, _FOREVER))
        earliest = min(events.confirmed.get(got.message, _FOREVER), earliest)
    return found

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
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from operator import attrgetter

from ...base.texts import counted
from .history import (
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


class _Ends:
    """The ends of the sessions."""

    def __init__(self, events: Iterable[Event]) -> None:
        self._sessions: dict[str, Ended] = {}
        self._clients: dict[str, Died] = {}
        self._stopped: dict[int, int] = {}
        for event in events:
            if isinstance(event, Ended):
                self._sessions[event.session] = event
            elif isinstance(event, Died):
                self._clients[event.client] = event
            elif isinstance(event, Stopped):
                self._stopped[event.life] = event.at

    def of(self, session: str, life: int) -> tuple[int, bool]:
        """The earliest end of *session*, and whether it was lost: its last frames may not have arrived."""
        ended = self._sessions.get(session)
        died = self._clients.get(session.partition("/")[0])
        cut_at = min(died.at if died is not None else _FOREVER, self.stopped(life))
        if ended is None or ended.at >= cut_at:
            return cut_at, True
        return ended.at, ended.lost or cut_at < _FOREVER  # its last words may have crossed with that

    def died(self, client: str) -> bool:
        return client in self._clients

    def stopped(self, life: int) -> int:
        """The time when the broker was asked to end in good order; from then on it may end any session."""
        return self._stopped.get(life, _FOREVER)


class _Transactions:
    """The outcome of each transaction, as far as its client knows, and its operations."""

    def __init__(self, events: Iterable[Event]) -> None:
        self._asked: set[str] = set()
        self._rolled_back: set[str] = set()
        self.sent: dict[str, list[str]] = defaultdict(list)
        self.taken: dict[str, list[Answered]] = defaultdict(list)
        for event in events:
            if isinstance(event, Asked) and event.commit:
                self._asked.add(event.txn)
            elif isinstance(event, Decided) and not event.commit:
                self._rolled_back.add(event.txn)
            elif isinstance(event, Sent) and event.txn:
                self.sent[event.txn].append(event.message)
            elif isinstance(event, Answered) and event.txn:
                self.taken[event.txn].append(event)

    def is_undone(self, txn: str) -> bool:
        """True if no operation of it may ever be visible."""
        return txn in self._rolled_back or txn not in self._asked

    def half(self, steps: Mapping[str, list[Step]], *, drained: bool) -> list[str]:
        """Return the transactions of which only a part was done."""
        gots: dict[str, list[tuple[int, int]]] = {
            message: [(step.life, step.at) for step in story if isinstance(step, Got)]
            for message, story in steps.items()
        }
        found: list[str] = []
        for txn in self.sent.keys() | self.taken.keys():
            if self.is_undone(txn):
                continue
            arrived = [bool(gots.get(message)) for message in self.sent[txn]]
            again = [any(got > (one.life, one.at) for got in gots.get(one.message, ())) for one in self.taken[txn]]
            done = any(arrived) or (drained and not all(again))
            not_done = any(again) or (drained and not all(arrived))
            if done and not_done:
                found.append(txn)
        return found


@dataclass
class _Reports:
    """The events of a history, by message."""

    sent: dict[str, Sent] = field(default_factory=dict)
    confirmed: dict[str, int] = field(default_factory=dict)
    refused: set[str] = field(default_factory=set)
    """Refused messages, and those of transactions without effect."""
    steps: dict[str, list[Step]] = field(default_factory=lambda: defaultdict(list))
    troubles: list[Trouble] = field(default_factory=list)

    def take(self, event: Event, transactions: _Transactions) -> None:
        """Add one event."""
        if isinstance(event, Sent):
            self.sent[event.message] = event
            if event.txn and transactions.is_undone(event.txn):
                self.refused.add(event.message)
        elif isinstance(event, Confirmed):
            self.confirmed[event.message] = event.at
        elif isinstance(event, Refused):
            self.refused.add(event.message)
        elif isinstance(event, Answered) and event.txn and transactions.is_undone(event.txn):
            pass  # the message is still held
        elif isinstance(event, Got | Answered | Settled):
            self.steps[event.message].append(event)
        elif isinstance(event, Trouble):
            self.troubles.append(event)


def check(history: Sequence[Event], *, drained: bool = True) -> Verdict:
    """The defects of *history*, in any order; *drained*: it went on until there were no messages left."""
    transactions = _Transactions(history)
    reports = _Reports()
    for event in history:
        reports.take(event, transactions)
    ends = _Ends(history)
    verdict = Verdict(confirmed=len(reports.confirmed), troubles=reports.troubles)
    found = {("phantom" if message else "corrupt", message) for message in reports.steps.keys() - reports.sent.keys()}
    for origin in reports.sent.values():
        defects = _defects_of(origin, reports, ends, verdict)
        found.update((defect, origin.message) for defect in defects if drained or defect != "lost")
    found.update(("reordered", message) for message in _reordered(history, reports.sent, reports.confirmed))
    found.update(("half", txn) for txn in transactions.half(reports.steps, drained=drained))
    verdict.found = sorted(found)
    return verdict


def _defects_of(origin: Sent, reports: _Reports, ends: _Ends, verdict: Verdict) -> Iterator[str]:
    """The defects of one message; it is counted in *verdict*."""
    message = origin.message
    is_confirmed, is_refused = message in reports.confirmed, message in reports.refused
    story = sorted(reports.steps.get(message, ()), key=attrgetter("life", "at"))
    gots = [step for step in story if isinstance(step, Got)]
    if any(got.queue != origin.queue for got in gots) or (gots and is_refused):
        yield "phantom"
    if any(got.digest != origin.digest for got in gots):
        yield "corrupt"
    if not all(got.marked for got in gots[1:]):
        yield "unmarked"
    yield from _follow("there" if is_confirmed else "maybe", story, ends, verdict)
    verdict.redelivered += max(0, len(gots) - 1)
    if not is_confirmed and not is_refused:
        verdict.in_doubt += 1
        if gots and ends.stopped(origin.life) < _FOREVER and not ends.died(origin.sender):
            yield "unanswered"


def _follow(known: str, story: list[Step], ends: _Ends, verdict: Verdict) -> list[str]:
    """The message's way through the states of the table above, and what was wrong on it."""
    wrong: list[str] = []
    holder, life = "", 0
    for step in story:
        if step.life != life:
            known = _restarted(known)
            life = step.life
        elif known in ("held", "taken") and (step.session != holder or isinstance(step, Got)):
            ended_at, lost = ends.of(holder, life)
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


def _restarted(known: str) -> str:
    return {"held": "there", "taken": "maybe", "off": "maybe"}.get(known, known)


# ---- order --------------------------------------------------------------------------------------------------------


def _reordered(history: Iterable[Event], sent: dict[str, Sent], confirmed: dict[str, int]) -> set[str]:
    """Return the messages that were delivered after a later one.

    A session receives messages in the order of the queue, except for released messages, which are dispatched again as
    soon as a consumer has credit. Two kinds of sequences must therefore be in order:

    * the unmarked deliveries of a session, because redelivered messages are marked;
    * all deliveries of a session until any message of its queue is released in that broker process. Every session of
      the drain at the end is such a sequence.
    """
    unmarked: dict[str, list[Got]] = defaultdict(list)
    sessions: dict[str, list[Got]] = defaultdict(list)
    given_back: dict[tuple[int, str], int] = {}
    ended_at: dict[int, int] = {}
    for event in history:
        if isinstance(event, Got) and event.message in sent:
            sessions[event.session].append(event)
            if not event.marked:
                unmarked[event.session].append(event)
        elif isinstance(event, Ended) or (isinstance(event, Answered) and event.outcome == "returned"):
            place = event.life, event.queue
            given_back[place] = min(event.at, given_back.get(place, _FOREVER))
        elif isinstance(event, Died | Stopped):
            ended_at[event.life] = min(event.at, ended_at.get(event.life, _FOREVER))
    found: set[str] = set()
    for gots in unmarked.values():
        gots.sort(key=attrgetter("at"))
        found |= _out_of_order(gots, sent, confirmed)
    for gots in sessions.values():
        gots.sort(key=attrgetter("at"))
        life = gots[0].life
        until = min(given_back.get((life, gots[0].queue), _FOREVER), ended_at.get(life, _FOREVER))
        found |= _out_of_order(gots[: bisect_right(gots, until, key=attrgetter("at"))], sent, confirmed)
    return found


def _out_of_order(gots: Sequence[Got], sent: dict[str, Sent], confirmed: dict[str, int]) -> set[str]:
    """Those behind which stands a message that its sender sent before, or that was confirmed before they were sent."""
    found: set[str] = set()
    lowest: dict[tuple[str, str], int] = {}
    earliest = _FOREVER
    for got in reversed(gots):
        origin = sent[got.message]
        lane = origin.sender, origin.queue
        if origin.number > lowest.get(lane, _FOREVER) or origin.at > earliest:
            found.add(got.message)
        lowest[lane] = min(origin.number, lowest.get(lane, _FOREVER))
        earliest = min(confirmed.get(got.message, _FOREVER), earliest)
    return found

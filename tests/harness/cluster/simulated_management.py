"""The management requests of a scenario: purges, moves, and changes of the wiring.

A request takes effect at an unknown point between request and response, and may take effect although the response was
lost with its member. So a purge excuses all messages that could have been on its queue until it completed; but messages
that were confirmed before the request, and not delivered before the response, must be removed, and so must those of a
deleted queue.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import NamedTuple

from tests.harness.cluster.cluster_harness import SimulatedMember
from tests.harness.cluster.histories import Histories, Key
from tests.harness.cluster.management_client import Answer, Manager

EXCHANGE = "y"
"""An exchange that is bound to some of the queues in `CHANGING` at times."""
CHANGING = ("t1", "t2")
_MOVES = (("q", "r"), ("r", "q"), ("dead", "q"), ("dead", "r"))
_PURGED = ("q", "r", "f", "f", *CHANGING)
_ARGUMENTS = (
    {"paused": True}, {"paused": None}, {"paused": None}, {"paused": None}, {"retry-delay-ms": 30},
    {"retry-delay-ms": None}, {"max-deliveries": 30}, {"max-deliveries": None}, {"x-note": "a"}, {"x-note": None},
)  # fmt: skip
_MOST_OPEN = 3


class Asked(NamedTuple):
    """A management operation in progress."""

    what: str
    manager: Manager
    life: int
    """The process of the member that received the request, as in `SimulatedMember.lives`."""
    queue: str = ""
    """The queue of a purge, a move or a deletion."""
    to: str = ""
    """The target queue of a move, or the queue of a new binding."""
    goes: frozenset[Key] = frozenset()
    """Messages that must be removed when the operation completes."""
    number: int = 0
    is_sure: bool = True
    """True if no deletion that was in progress at the request could undo the operation."""

    @property
    def is_lost(self) -> bool:
        """Return whether no response can arrive any more."""
        return not self.manager.member.runs(self.life) or bool(self.manager.connection.expelled)


class Operations:
    """The management operations of one scenario."""

    def __init__(self, histories: Histories, random: random.Random, note: Callable[[str], None]) -> None:
        self.histories = histories
        self.random = random
        self.note = note
        self.open: list[Asked] = []
        self.lost: list[Asked] = []
        """Operations without a response, which may take effect at any time or never."""
        self.bound: dict[str, int] = {}
        """Queues that are known to be bound to the exchange, and the operation since which they are."""
        self._number = 0
        self._last_deletion = 0

    def ask(self, member: SimulatedMember) -> None:
        """Send a random request to *member*, if it serves."""
        if not member.serves or len(self.open) >= _MOST_OPEN:
            return
        draw = self.random.random()
        if draw < 0.25:
            queue = self.random.choice(_PURGED)
            goes = frozenset(self.histories.stands_on(queue, unseen=True))
            self._ask(member, "PURGE", "queue", queue, queue=queue, goes=goes)
        elif draw < 0.55:
            queue, to = self.random.choice(_MOVES)
            body: dict[str, object] = {"to": to}
            if self.random.random() < 0.5:
                body["count"] = self.random.choice((1, 5, 50))
            self._ask(member, "MOVE", "queue", queue, body, queue=queue, to=to)
        elif draw < 0.7:
            queue = self.random.choice(("q", "r", "f", *CHANGING))
            arguments = self.random.choice(_ARGUMENTS)
            if queue != "q" or "paused" not in arguments:
                self._ask(member, "UPDATE", "queue", queue, {"arguments": arguments})
        elif draw < 0.77:
            queue = self.random.choice(CHANGING)
            self.bound.pop(queue, None)
            goes = frozenset(self.histories.stands_on(queue, unseen=False))
            self._ask(member, "DELETE", "queue", queue, queue=queue, goes=goes)
        elif draw < 0.84:
            self._ask(member, "CREATE", "queue", self.random.choice(CHANGING))
        elif draw < 0.92:
            queue = self.random.choice(CHANGING)
            self._ask(member, "CREATE", "binding", body={"exchange": EXCHANGE, "queue": queue}, to=queue)
        elif draw < 0.95:
            queue = self.random.choice(CHANGING)
            self.bound.pop(queue, None)
            self._ask(member, "DELETE", "binding", f"{EXCHANGE}/{queue}/")
        else:
            self._ask_for_others(member)

    def _ask_for_others(self, member: SimulatedMember) -> None:
        """Send a request to create or delete the exchange `z`, or to bind a queue to it."""
        draw = self.random.random()
        if draw < 0.4:
            self._ask(member, "CREATE", "exchange", "z", {"exchange-type": self.random.choice(("fanout", "direct"))})
        elif draw < 0.7:
            queue = self.random.choice("qr")
            self._ask(member, "CREATE", "binding", body={"exchange": "z", "queue": queue, "key": "k"})
        else:
            self._ask(member, "DELETE", "exchange", "z")

    def _ask(
        self, member: SimulatedMember, what: str, type: str, name: str = "", body: dict[str, object] | None = None,
        *, queue: str = "", to: str = "", goes: frozenset[Key] = frozenset(),
    ) -> None:  # fmt: skip
        manager = Manager(member)
        self._number += 1
        self.note(f"{what.lower()}-{type} {name} {body or ''} at {member.node}")
        is_sure = not any(one.what.startswith("DELETE") for one in (*self.open, *self.lost))
        self.open.append(Asked(f"{what} {type}", manager, member.lives, queue, to, goes, self._number, is_sure))
        if what == "DELETE":
            self._last_deletion = self._number
        if (what, type) == ("MOVE", "queue"):
            self.histories.may_move(queue, to)
        manager.ask(what, type, name, body)

    def look(self) -> None:
        """Process the responses of open operations, and those that are lost."""
        for asked in [*self.open]:
            answers = asked.manager.answers
            if answers:
                self._over(asked, answers[0])
            elif asked.is_lost:
                self.lost.append(asked)
            else:
                continue
            self.open.remove(asked)

    def _over(self, asked: Asked, answer: Answer) -> None:
        histories, what, done = self.histories, asked.what, answer.status < 300
        self.note(f"{what.lower().replace(' ', '-')}-{'done' if done else 'refused'} {asked.queue} {answer}")
        if what == "MOVE queue":
            histories.moved(asked.queue, asked.to)
        elif what in ("PURGE queue", "DELETE queue"):
            histories.may_be_gone(asked.queue)
            if done:
                goes = asked.goes - histories.seen if what == "PURGE queue" else asked.goes
                goes = frozenset(key for key in goes if histories.where[key] == {asked.queue})
                histories.is_final(goes, asked.manager.member)
        elif what == "CREATE binding" and asked.to and done and asked.is_sure and self._last_deletion < asked.number:
            self.bound[asked.to] = self._number

    def is_bound(self, queue: str, member: SimulatedMember, since: int) -> bool:
        """Return whether *member* routes messages of the exchange to *queue*, and has since operation *since*."""
        exchange = member.broker.nodes.exchanges.get(EXCHANGE)
        return (
            self.bound.get(queue, since + 1) <= since
            and exchange is not None
            and any(binding.queue.name == queue for binding in exchange.bindings())
        )

    @property
    def number(self) -> int:
        """The number of requested operations."""
        return self._number

    def end(self) -> None:
        """Process the last responses; treat all open operations as lost."""
        self.look()
        self.lost += self.open
        self.open.clear()
        for asked in self.lost:
            if asked.what in ("PURGE queue", "DELETE queue"):
                self.histories.may_be_gone(asked.queue)

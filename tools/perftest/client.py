"""The common part of publishers and subscribers: the links by which the roles meet, iterations, and reports."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

import msgspec

from ...amqp.client.links import ClientLink, Receiver, Sender, data_message
from ...amqp.client.wire import Wire
from ...base.clock import now_ns
from .figures import Report, Times
from .plan import Options
from .transactions import Coordinator

READY, START, NEXT = b"ready", b"start", b"next"
"""The words between the roles of a test."""


class LoadClient:
    """A client of a test, on a wire that it may share. Call `step` after all input is processed."""

    role: str
    """The role in reports; its first three characters are those of names of links and queues."""

    def __init__(
        self, wire: Wire, options: Options, number: int, share: Callable[[], float], link: ClientLink, words: str,
        transaction: int,
    ) -> None:  # fmt: skip
        """*share*: its share so far of the CPU time that this process took. *link*: the link of the messages.

        *words*: the queue of the words for this client. *transaction*: messages in a transaction; 0 without any.
        """
        self.number = number
        self.finished = False
        self.messages = self.iteration = self.total = 0
        """Settled or received messages of this iteration, its number, and the messages of complete iterations."""
        self.done: Callable[[Report], None] = lambda report: None
        """Called at the end of each iteration."""
        self._wire = wire
        self._options = options
        self._share = share
        self._running = self._is_ready = False
        self._words = Receiver(wire, f"{link.name}-words", options.control(words), self._came_word)
        self._tell = Sender(wire, f"{link.name}-done", options.control(f"{self.role[:3]}_done"))
        self._ready = Sender(wire, f"{link.name}-ready", options.control("ready"))
        self._links: list[ClientLink] = [link, self._words, self._tell, self._ready]
        self._coordinator = Coordinator(wire, f"{link.name}-control") if transaction else None
        if self._coordinator is not None:
            self._links.append(self._coordinator.link)
        link.durability = options.durability(wire.properties)
        for each in self._links:
            wire.attach(each)
        self._reset()

    def step(self) -> int:
        """Do what can be done; when, in ns, there may be more to do, 0 if only something that comes can change that."""
        if self._is_ready:
            return self._step() if self._running else 0
        if all(link.attached for link in self._links):
            self._is_ready = True
            self._begin()
            self._ready.post(data_message(READY))  # from here on no other client takes the word for this one
        return 0

    def report(self, *, partial: bool = False) -> Report:
        """Return the report of the current iteration, or of the last one."""
        ended_ns = now_ns() if self._running and partial else self._ended_ns
        return Report(
            self.role, self.number, self.iteration, self.messages, self._begun_ns, ended_ns,
            self._share() - self._cpu_s, self._times.encoded(), partial=partial, **self._wrong,
        )  # fmt: skip

    @property
    def started(self) -> bool:
        return self._running

    def is_idle(self) -> bool:
        """Return whether the peer has received the last message."""
        return self.finished and self._tell.is_settled(1 << 30)

    def _begin(self) -> None:
        """Begin the first iteration, by default with a word."""
        self._words.allow(1)

    def _step(self) -> int:
        """Do what can be done in an iteration, as `step` does."""
        raise NotImplementedError

    def _came_word(self, message: bytes) -> None:
        raise NotImplementedError

    def _reset(self) -> None:
        self.messages = 0
        self._wrong = Counter[str]()
        """The errors of this iteration, by field of the report."""
        self._times = Times()
        self._cpu_s = self._share()
        self._begun_ns = self._ended_ns = now_ns()

    def _end(self) -> None:
        self._running = False
        report = self.report()
        self.total += self.messages
        self.done(report)
        self.iteration += 1
        self.finished = self.iteration == self._options.iterations
        if not self.finished:  # before the report, so that no other client takes the next word
            self._words.allow(1)
        self._tell.post(data_message(msgspec.json.encode(report)))

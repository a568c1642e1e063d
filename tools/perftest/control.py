"""The control role: waits for all clients, starts each iteration, gathers the reports."""

from __future__ import annotations

from collections.abc import Callable

from ...amqp.client.links import ClientLink, Receiver, Sender, data_message, data_of
from ...amqp.client.wire import Wire
from ...base.errors import CairnError
from ...base.typed_json import decode_json
from .client import NEXT, READY, START
from .figures import Iteration, Report
from .plan import Options


class Controller:
    """The control role of a test, on a wire of its own."""

    def __init__(self, wire: Wire, options: Options, done: Callable[[Iteration], None]) -> None:
        """*done* is called with each completed iteration."""
        self.ready = 0
        """The number of clients that reported that they are ready."""
        self.finished = False
        self.current: Iteration | None = None
        self._options = options
        self._done = done
        self._all = options.all_pubs + options.all_subs
        name = f"{options.base_name}-control-{id(self):x}"
        self._ready = Receiver(wire, f"{name}-ready", options.control("ready"), self._came_ready)
        self._start = Sender(wire, f"{name}-start", options.control("pub_start"))
        self._next = Sender(wire, f"{name}-next", options.control("sub_iteration"))
        self._from_pubs = Receiver(wire, f"{name}-pubs", options.control("pub_done"), self._came_report)
        self._from_subs = Receiver(wire, f"{name}-subs", options.control("sub_done"), self._came_report)
        self._links: list[ClientLink] = [self._ready, self._start, self._next, self._from_pubs, self._from_subs]
        for link in self._links:
            wire.attach(link)
        self._begun = False
        self._iteration = 0

    def step(self) -> int:
        if not self._begun and all(link.attached for link in self._links):
            self._begun = True
            self._ready.allow(self._all)
            for receiver in (self._from_pubs, self._from_subs):
                receiver.allow(1000)
        if self._begun and self.current is None and not self.finished and self.ready == self._all:
            self._start_iteration()
        return 0

    @property
    def idle(self) -> bool:
        return self.finished and self._start.is_settled(1 << 30)

    def _start_iteration(self) -> None:
        self.current = Iteration(self._iteration, self._options.size_bytes)
        if self._iteration:
            for _ in range(self._options.all_subs):
                self._next.post(data_message(NEXT))
        for _ in range(self._options.all_pubs):
            self._start.post(data_message(START))

    def _came_ready(self, message: bytes) -> None:
        if data_of(message) == READY:
            self.ready += 1

    def _came_report(self, message: bytes) -> None:
        try:
            report = decode_json(data_of(message), Report)
        except ValueError as error:
            raise CairnError("a report", f"it can't be read: {error}", "are all processes of one version?") from error
        receiver = self._from_pubs if report.role == "publisher" else self._from_subs
        receiver.allow(1)
        if self.current is None or report.iteration != self.current.number:
            return
        self.current.reports.append(report)
        if len(self.current.reports) == self._all:
            complete, self.current = self.current, None
            self._iteration += 1
            self.finished = self._iteration == self._options.iterations
            self._done(complete)

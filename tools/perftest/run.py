"""A test, seen from the process that was started for it: workers for the clients, perhaps the control role."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import suppress
from typing import NamedTuple

from ...amqp.client.login import BrokerLogin
from ...amqp.client.loop import Loop
from ...amqp.client.wire import Wire
from ...base.errors import CairnError
from .control import Controller
from .figures import Iteration, Report
from .plan import Options
from .workers import Trouble, Worker, shared_out

_STOPPING_S = 10.0
TURN_MS = 200


class Roles(NamedTuple):
    """The roles of this process in the test."""

    control: bool = True
    publish: bool = True
    subscribe: bool = True

    @property
    def alone(self) -> bool:
        """True if no other process takes part."""
        return self.control and self.publish and self.subscribe


class View(NamedTuple):
    """The progress of a test."""

    published: int
    received: int
    ready: int
    """The number of clients that are ready."""
    iteration: int


class TestRun:
    """The test. Context manager: whatever happens, no process is left."""

    def __init__(self, where: BrokerLogin, options: Options, roles: Roles, processes: int) -> None:
        self.iterations: list[Iteration] = []
        """Complete ones, and a partial one at the end if the test was stopped."""
        self._options, self._roles = options, roles
        self._parts: dict[int, Iteration] = {}
        self._loop = Loop()
        self._controller: Controller | None = None
        if roles.control:
            wire = Wire(where, f"{options.base_name}-control")
            self._controller = Controller(wire, options, self.iterations.append)
            self._loop.add(wire, [self._controller])
        self._workers: list[Worker] = []
        try:
            for places in shared_out(
                options, publish=roles.publish, subscribe=roles.subscribe, alone=roles.alone, processes=processes
            ):
                worker = Worker(where, options, places)
                self._workers.append(worker)
                self._loop.watch(worker.pipe.fileno(), lambda worker=worker: self._hear(worker))  # type: ignore[misc]
        except BaseException:
            self.close()
            raise

    def run(self, look: Callable[[View], None], patience_s: float) -> None:
        """Until the test is done. *look* is called again and again. Raises `CairnError` as soon as anything fails.

        *patience_s* is how long nothing may come from clients elsewhere; 0: for ever.
        """
        received_s, before = time.monotonic(), self.view()
        while not self._is_done():
            self._loop.turn(TURN_MS)
            now = self.view()
            if now != before:
                received_s, before = time.monotonic(), now
            if patience_s and time.monotonic() - received_s > patience_s:
                reason = f"nothing has happened for {patience_s:g} s; {self._missing()}"
                raise CairnError("perftest", reason, self._remedy())
            look(now)
        look(self.view())

    def view(self) -> View:
        published = sum(worker.progress.published for worker in self._workers)
        received = sum(worker.progress.received for worker in self._workers)
        controller = self._controller
        return View(published, received, controller.ready if controller else 0, len(self.iterations))

    def stop(self) -> None:
        """Gather what there is so far, as a partial iteration."""
        for worker in self._workers:
            worker.stop()
        end_s = time.monotonic() + _STOPPING_S
        while not all(worker.over for worker in self._workers) and time.monotonic() < end_s:
            for worker in self._workers:
                with suppress(CairnError):  # it is one of those that are over
                    self._hear(worker)
            time.sleep(0.01)
        complete = {iteration.number for iteration in self.iterations}
        parts = dict(self._parts)
        current = self._controller.current if self._controller is not None else None
        if current is not None:  # the reports of others, which only the control role receives
            here = parts.setdefault(current.number, Iteration(current.number, self._options.size_bytes))
            known = {(report.role, report.number) for report in here.reports}
            for report in current.reports:
                if (report.role, report.number) not in known:
                    here.reports.append(report)
        for number, iteration in sorted(parts.items()):
            if number not in complete:
                for report in iteration.reports:
                    report.partial = True
                self.iterations.append(iteration)

    def close(self) -> None:
        for worker in self._workers:
            worker.end(0.0 if not worker.over else 5.0)
        self._loop.close()

    def _is_done(self) -> bool:
        workers = all(worker.over for worker in self._workers)
        return workers and (self._controller is None or self._controller.idle)

    def _hear(self, worker: Worker) -> None:
        was_over = worker.over
        for word in worker.words():
            if isinstance(word, Report):
                part = self._parts.setdefault(word.iteration, Iteration(word.iteration, self._options.size_bytes))
                part.reports.append(word)
                is_last = len(part.reports) == sum(len(worker.places) for worker in self._workers)
                if self._controller is None and not word.partial and is_last:  # of all clients that are here
                    self.iterations.append(part)
            elif isinstance(word, Trouble):
                raise CairnError("perftest", word.text)
        if worker.over and not was_over:
            self._loop.unwatch(worker.pipe.fileno())

    def _missing(self) -> str:
        controller, options = self._controller, self._options
        if controller is None:
            return "the word to start has not come"
        clients = options.all_pubs + options.all_subs
        if controller.ready < clients:
            return f"{controller.ready} of {clients} clients are ready"
        reports = controller.current.reports if controller.current else []
        subs = sum(report.role == "subscriber" for report in reports)
        pubs = len(reports) - subs
        return f"{pubs} of {options.all_pubs} publishers and {subs} of {options.all_subs} subscribers are done"

    def _remedy(self) -> str:
        if self._roles.alone:
            return "does the broker hold back messages, or lose them?"
        return "are the others started, with the same options?"

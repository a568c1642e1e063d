"""The services that all parts of the core share. A part takes them, or some of them, and never the broker."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

from ...amqp.ports import ConnectionEnd, TerminalEnd
from ...base.clock import Clock
from ...base.histogram import Histogram
from ...store.contract.interface import MessageStore
from ...store.journaled.store import JournalStore
from ..scheduling.background import BackgroundWork
from ..scheduling.disposal import Disposal
from ..scheduling.scheduler import Scheduler
from ..users.quotas import Quotas
from ..users.user_accounts import UserAccounts
from .acquisition_log import AcquisitionLog
from .commit_queue import CommitQueue
from .dispatch_turns import DispatchTurns
from .loader import CompleteLoads, Loader, Submit
from .memory_budget import MemoryBudget
from .ports import Dispatchable

BOUNDS_S = (
    0.0001, 0.0002, 0.0005, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 30.0, 60.0,
)  # fmt: skip
"""The bounds of latencies, from a flush of a fast disk to a consumer that works for a minute."""


class Latencies:
    """Latencies of messages as histograms, sampled per batch: no message costs a measurement of its own.

    | histogram | from | to | sample |
    |---|---|---|---|
    | `settle_s` | a record waits for the disk | durable, and its client has the answer | one for each flush or batch |
    | `dispatch_s` | records are durable | their messages are handed to connections | one for each flush |
    | `delivery_s` | a message is handed to a connection | its consumer settles it | one at a time for each consumer |

    The core counts, any thread reads.
    """

    def __init__(self) -> None:
        self.settle_s = Histogram(BOUNDS_S)
        self.dispatch_s = Histogram(BOUNDS_S)
        self.delivery_s = Histogram(BOUNDS_S)


class BrokerEvents:
    """Callbacks of a broker's parts for connections, links, and the log. Core only.

    A part appends a callback to the list of an event. Callbacks run in the order in which they were added.
    """

    def __init__(self) -> None:
        self.connection_opened: list[Callable[[ConnectionEnd], None]] = []
        self.connection_closed: list[Callable[[object], None]] = []
        self.link_closed: list[Callable[[TerminalEnd], None]] = []
        self.durable: list[Callable[[], None]] = []
        """The durable LSN of the store has moved."""
        self.burials: list[Callable[[Any, Any, str, Callable[[int], None]], Callable[[int], None]]] = []
        """A message is moved off its queue: gets queue, entry, reason and continuation; returns the continuation."""


class Post(Protocol):
    """Run *action* on the core, after the actions that wait there. Any thread."""

    def __call__(self, action: Callable[..., None], *args: Any) -> None: ...


@dataclass(frozen=True, slots=True)
class CoreContext:
    """The store, the clock, and the services for work that runs later, in time slices, or beside the core."""

    store: MessageStore
    clock: Clock
    post: Post
    loader: Loader
    background: BackgroundWork
    disposal: Disposal
    scheduler: Scheduler
    users: UserAccounts
    commits: CommitQueue
    dispatch_turns: DispatchTurns
    memory: MemoryBudget
    complete_loads: CompleteLoads
    acquisitions: AcquisitionLog | None
    """The log of acquisitions, if one is kept."""
    events: BrokerEvents
    latencies: Latencies

    @classmethod
    def build(
        cls,
        store: MessageStore,
        clock: Clock,
        post: Post,
        submit: Submit,
        *,
        memory_limit_bytes: int,
        quotas: Quotas | None,
        notes: JournalStore | None,
    ) -> CoreContext:
        """Build the services of one broker; *submit* runs work on the thread of the reader."""
        loader = Loader(store, submit, post)
        background = BackgroundWork(clock, loader.next_step)
        scheduler = Scheduler(clock, post)
        users = UserAccounts(store, clock, scheduler, Quotas() if quotas is None else quotas)
        latencies = Latencies()
        commits = CommitQueue(store, users.changed, latencies.settle_s)
        memory = MemoryBudget(memory_limit_bytes, users.throttles)
        acquisitions = None if notes is None else AcquisitionLog(notes, clock, scheduler)
        disposal = Disposal(background)
        turns, events = DispatchTurns(background, commits), BrokerEvents()
        return cls(
            store, clock, post, loader, background, disposal, scheduler, users, commits, turns, memory,
            CompleteLoads(loader, memory), acquisitions, events, latencies,
        )  # fmt: skip

    def schedule_dispatch(self, queue: Dispatchable) -> None:
        """Schedule the dispatch of *queue*, which changed, for the end of the step."""
        self.commits.dirty[queue] = None

"""The services that all parts of the core share. A part takes them, or some of them, and never the broker."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

from ...base.clock import Clock
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
from .events import BrokerEvents
from .latencies import Latencies
from .loader import CompleteLoads, Loader, Submit
from .memory_budget import MemoryBudget
from .ports import Dispatchable


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

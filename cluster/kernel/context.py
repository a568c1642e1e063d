"""The collaborators that most parts of a member need."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from ...base.clock import Clock
from ...broker.kernel.loader import Loader
from ...broker.kernel.ports import Dispatchable
from ...broker.scheduling.scheduler import Scheduler
from ...store.contract.interface import MessageStore
from ..group.group import Group
from .broadcaster import Broadcaster
from .commit_tracker import CommitTracker
from .inbox import Inbox
from .local_messages import LocalMessageMap
from .member_events import MemberEvents
from .member_state import MemberState
from .progress_record import ProgressRecord
from .service import Service


@dataclass(frozen=True, slots=True)
class MemberContext:
    """Collaborators of the parts of one member. It refers to no queue and no part."""

    group: Group
    state: MemberState
    service: Service
    record: ProgressRecord
    clock: Clock
    timers: Scheduler
    store: MessageStore
    reader: Loader
    broadcaster: Broadcaster
    locals: LocalMessageMap
    """The events of this member that have not come back."""
    commits: CommitTracker
    inbox: Inbox
    events: MemberEvents
    fail: Callable[[str, str], None]
    """Ends this membership, with the reason and the remedy."""
    touch: Callable[[Dispatchable], None]
    """Schedules the dispatch of a queue whose messages changed."""
    release_all: Callable[[], None]
    """Multicasts the releases of this step."""

"""The targets of responses: links on which a client receives from `$management`, or a node. Core only."""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from ...amqp.ports import TerminalEnd
from ...base.callbacks import ignore
from ...broker.kernel.commit_queue import CommitQueue
from ...broker.kernel.idle_driver import CreditDriver
from ...broker.kernel.memory_budget import ENTRY_BYTES
from ...broker.nodes.exchanges import Exchange, way_through
from ...broker.nodes.replication_port import Kept, Members
from ...broker.nodes.targets import ExchangeTarget, KeepingTarget

log = logging.getLogger(__name__)


class Receiver(CreditDriver):
    """The driver of a link whose source is `$management`."""

    def __init__(self, terminal: TerminalEnd, done: Callable[[Receiver], None], waiting: Callable[[int], None]) -> None:
        """*waiting* is called with the change of the number of bytes of responses that wait for credit."""
        super().__init__()
        self.terminal = terminal
        self._note_waiting = waiting
        self._is_closed = False
        self._waiting: deque[bytes] = deque()
        self._done = done

    def reply(self, content: bytes) -> None:
        if not self._is_closed:
            self._waiting.append(content)
            self._note_waiting(len(content))
            self._forward()

    def _forward(self) -> None:
        contents = [self._waiting.popleft() for _ in range(min(len(self._waiting), self._limit - self._forwarded))]
        if contents:
            self._note_waiting(-sum(map(len, contents)))
            self._forwarded += len(contents)
            self.terminal.forward([(self, content) for content in contents])

    def request(self, limit: int, drain: bool) -> None:
        self._limit = limit
        self._forward()
        if drain:
            self.terminal.drained(self._spend(limit))

    def close(self, returned: Sequence[Any], lost: bool, for_good: bool) -> None:
        self._is_closed = True
        self._note_waiting(-sum(map(len, self._waiting)))
        self._waiting.clear()
        self._done(self)


def put(
    exchanges: Mapping[str, Exchange], commits: CommitQueue, members: Members, place: KeepingTarget, content: bytes
) -> None:
    """Send a response to a node, as a message that is not durable; without room for it, it is dropped."""
    queues = (
        way_through(exchanges, place.exchange, place.key, content)[1] if isinstance(place, ExchangeTarget) else (place,)
    )
    size_bytes = len(content) + ENTRY_BYTES
    for queue in queues:
        if queue.is_deleting or queue.memory.spare_bytes() < size_bytes:
            about = {"event": "management.response-dropped", "queue": queue.name}
            log.warning("queue %s: a response of management is dropped for lack of room", queue.name, extra=about)
        elif queue.limits is not None and queue.limits.look_at(content, len(content)) != "":
            continue
        elif queue.order.remembers_together:  # all members have it, and give its messages the same positions
            members.enqueue([queue], Kept([(content, False)], False), ignore, ignore)
        else:
            commits.show(0, [(queue, queue.new_entries([(content, False)], (), False))], ignore)

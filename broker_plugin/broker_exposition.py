"""The metrics of the broker for Prometheus, read from plain numbers by the thread that answers a scrape.

No lock is taken and the core is not involved, so values of different nodes may be inconsistent for a moment. Queues and
exchanges have metrics of their own only if they match the patterns of `QueueChoice`, up to a limit.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from fnmatch import fnmatchcase
from itertools import islice
from typing import Any, NamedTuple, TypeVar

from .. import __version__
from ..base.accounts.audit import Audit
from ..broker.federation.federated_queues import FederatedQueue
from ..broker.federation.federation_link import UP
from ..broker.federation.upstream_link import DownstreamLink
from ..broker.nodes.addresses import DYNAMIC_PREFIX
from ..broker.nodes.exchanges import Exchange
from ..broker.outbound.connectors import Connector
from ..broker.parts import BrokerParts
from ..broker.queues.queue import Queue
from ..router.kernel.core import Core
from .exposition import Family, Samples, counter, gauge, histogram
from .traces import Tracing

_Node = TypeVar("_Node", Queue, Exchange)


class QueueChoice(NamedTuple):
    """The choice of queues and exchanges with metrics of their own."""

    patterns: tuple[str, ...] = ("*",)
    most: int = 100
    """The maximum number of queues, and of exchanges: the oldest ones are chosen."""

    def among(self, nodes: Iterable[_Node]) -> list[_Node]:
        return list(islice((node for node in nodes if self._fits(node.name)), self.most))

    def _fits(self, name: str) -> bool:
        patterns = self.patterns
        if name.startswith(DYNAMIC_PREFIX):  # they come and go with their clients: each would leave series behind
            patterns = tuple(pattern for pattern in patterns if pattern.startswith(DYNAMIC_PREFIX))
        return any(fnmatchcase(name, pattern) for pattern in patterns)


class Figures:
    """The values that a scrape reads."""

    def __init__(
        self,
        parts: BrokerParts,
        core: Core,
        choice: QueueChoice,
        audit: Audit | None = None,
        full: str = "",
        tracing: Tracing | None = None,
    ) -> None:
        """*full*: the reason why the store is full; empty if it is not."""
        self.core = core
        self.traced = (0, 0) if tracing is None else (tracing.spans, tracing.dropped)
        self.context = context = parts.links.core
        self.connections = parts.connections
        self.remote = parts.remote
        self.totals = parts.totals
        self.users = list(context.users.by_name.values())
        short = {"disk": bool(full), "memory": bool(context.memory.waiting)}
        self.alarms = Samples(("resource",), [((resource,), float(is_short)) for resource, is_short in short.items()])
        self.audit = audit
        self.queues = list(parts.links.nodes.queues.values())
        self.exchanges = list(parts.links.nodes.exchanges.values())
        self.shown_queues = choice.among(self.queues)
        self.shown_exchanges = choice.among(self.exchanges)

    def of_queues(self, read: Callable[[Queue], float]) -> float:
        return sum(map(read, self.queues))

    def of_exchanges(self, read: Callable[[Exchange], float]) -> float:
        return sum(map(read, self.exchanges))

    def by_queue(self, read: Callable[[Queue], float]) -> Samples:
        return _by_name("queue", self.shown_queues, read)

    def by_exchange(self, read: Callable[[Exchange], float]) -> Samples:
        return _by_name("exchange", self.shown_exchanges, read)

    def by_login_failure(self) -> Samples:
        """Return the number of failed logins, by mechanism and reason."""
        found = {} if self.audit is None else self.audit.failures.copy()
        return Samples(("mechanism", "reason"), [(labels, float(count)) for labels, count in sorted(found.items())])

    def by_connector(self, read: Callable[[Connector], float]) -> Samples:
        return _by_name("connector", self.remote.connectors.by_name.values(), read)

    def by_copy(self, read: Callable[[FederatedQueue], float]) -> Samples:
        return _by_name("queue", self.remote.federated_queues.by_name.values(), read)

    def by_downstream(self, read: Callable[[DownstreamLink], float]) -> Samples:
        found = list(self.remote.upstreams.feeders)
        return Samples(("queue", "downstream"), [((one.queue.name, one.follower), float(read(one))) for one in found])


def _by_name(label: str, named: Iterable[Any], read: Callable[[Any], float]) -> Samples:
    return Samples((label,), [((one.name,), float(read(one))) for one in list(named)])


_BUILD = Samples(("version",), [((__version__,), 1.0)])
BROKER_FAMILIES: tuple[Family[Figures], ...] = (
    gauge("build_info", "The version of the broker; always 1.", lambda f: _BUILD),
    gauge("connections", "Connections.", lambda f: len(f.connections.by_end)),
    counter("connections_opened_total", "Connections opened so far.", lambda f: f.connections.opened),
    counter("auth_failures_total", "Failed logins by SASL mechanism and class of reason.",
            lambda f: f.by_login_failure()),
    gauge("links", "Links.", lambda f: len(f.connections.links)),
    gauge("connectors", "Connectors.", lambda f: len(f.remote.connectors.by_name)),
    gauge("connector_up", "1 while the connector is connected.",
          lambda f: f.by_connector(lambda c: c.connection is not None)),
    counter("connector_failures_total", "Failed attempts and broken connections.",
            lambda f: f.by_connector(lambda c: c.failures)),
    gauge("routed_links", "Links to other containers.", lambda f: len(f.remote.link_routes.pairs)),
    gauge("routers", "Other brokers that can be reached.", lambda f: len(f.remote.network.topology.next_hops)),
    gauge("federated_queue_up", "1 while the federated queue is connected to its upstream.",
          lambda f: f.by_copy(lambda one: one.state == UP)),
    gauge("federated_queue_complete", "1 if the copy equals its upstream at a point in time.",
          lambda f: f.by_copy(lambda one: one.copy.is_complete)),
    gauge("federated_queue_messages", "Messages on the queue.", lambda f: f.by_copy(lambda one: len(one.copy.ids))),
    gauge("federated_queue_lag_seconds", "Time since the copy was last complete.",
          lambda f: f.by_copy(lambda one: one.lag_s(f.context.clock.wall_us()))),
    gauge("downstream_behind_bytes", "Log bytes (all queues) that a connected downstream has not received.",
          lambda f: f.by_downstream(lambda one: one.behind_bytes)),
    gauge("downstream_behind_messages", "Changes of a cluster's queue that were not sent to a downstream.",
          lambda f: f.by_downstream(lambda one: one.behind_messages)),
    gauge("queues", "Queues, with or without series of their own.", lambda f: len(f.queues)),
    gauge("exchanges", "Exchanges, with or without series of their own.", lambda f: len(f.exchanges)),
    gauge("messages", "Messages on all queues.", lambda f: f.of_queues(lambda q: q.messages)),
    gauge("consumers", "Consumers of all queues.", lambda f: f.of_queues(lambda q: q.taker_count)),
    counter("put_messages_total", "Messages enqueued on any queue.",
            lambda f: f.of_queues(lambda q: q.enqueued) + f.totals.enqueued),
    counter("taken_messages_total", "Messages dequeued from any queue.",
            lambda f: f.of_queues(lambda q: q.taken) + f.totals.taken),
    counter("dead_lettered_messages_total", "Dequeued messages that were rejected or exceeded the delivery limit.",
            lambda f: f.of_queues(lambda q: q.dead_lettered) + f.totals.dead_lettered),
    counter("expired_messages_total", "Dequeued messages that expired.",
            lambda f: f.of_queues(lambda q: q.expired) + f.totals.expired),
    counter("routed_messages_total", "Messages that an exchange routed to a queue.",
            lambda f: f.of_exchanges(lambda e: e.routed) + f.totals.routed),
    counter("unroutable_messages_total", "Messages for which an exchange found no queue.",
            lambda f: f.of_exchanges(lambda e: e.unrouted) + f.totals.unrouted),
    histogram(
        "settle_seconds",
        "Time until a record is durable and its client has the answer; one sample for each flush or batch.",
        lambda f: f.context.latencies.settle_s.value(),
    ),
    histogram(
        "dispatch_seconds",
        "Time from the end of a flush to the dispatch of its messages; one sample for each flush. Of more than 64 "
        "queues of one owner the first 64 count.",
        lambda f: f.context.latencies.dispatch_s.value(),
    ),
    histogram(
        "delivery_seconds",
        "Time from the dispatch of a message to its settlement; one sample at a time for each consumer.",
        lambda f: f.context.latencies.delivery_s.value(),
    ),
    counter("unreadable_messages_total",
            "Messages that are not delivered, as they cannot be read or are no AMQP messages; the log names them.",
            lambda f: f.context.loader.unreadable),
    gauge("memory_used_bytes", "Memory of waiting messages.", lambda f: f.context.memory.used_bytes),
    gauge("alarm", "1 while the disk is full, or senders wait for memory.", lambda f: f.alarms),
    gauge("throttled_users", "Users with senders that wait because of the limit of durable bytes.",
          lambda f: len([user for user in f.users if user.is_blocked])),
    gauge("throttled_links", "Senders that wait for space of a user, or for a rate limit.",
          lambda f: sum([len(user.blocked) + len(user.paced) for user in f.users])),
    gauge("memory_limit_bytes", "The limit of message memory.", lambda f: f.context.memory.limit_bytes),
    counter("traced_spans_total", "Spans of traced messages.", lambda f: f.traced[0]),
    counter(
        "trace_dropped_total",
        "Messages that were not traced, and spans that were dropped, because of a limit or a failed export.",
        lambda f: f.traced[1],
    ),
    counter("core_steps_total", "Batches of decisions of the core.", lambda f: f.core.steps),
    counter("core_busy_seconds_total", "Time spent in batches of decisions.", lambda f: f.core.busy_s),
    gauge("core_longest_turn_seconds", "The longest batch of decisions of the last 15 to 30 seconds.",
          lambda f: f.core.longest.longest_s()),
    gauge(
        "worker_longest_turn_seconds",
        "The longest turn of a worker (read, core, write) of the last 15 to 30 seconds.",
        lambda f: f.core.longest_of_workers.longest_s(),
    ),
    gauge("queue_messages", "Messages on the queue.", lambda f: f.by_queue(lambda q: q.messages)),
    gauge("queue_ready_messages", "Messages available to consumers.", lambda f: f.by_queue(lambda q: q.depth)),
    gauge("queue_consumers", "Consuming links.", lambda f: f.by_queue(lambda q: q.taker_count)),
    gauge("queue_held_bytes", "Memory of its messages.", lambda f: f.by_queue(lambda q: q.memory.held_bytes)),
    counter("queue_put_messages_total", "Messages enqueued on the queue.", lambda f: f.by_queue(lambda q: q.enqueued)),
    counter("queue_taken_messages_total", "Messages dequeued from the queue.", lambda f: f.by_queue(lambda q: q.taken)),
    counter(
        "queue_dead_lettered_messages_total",
        "Dequeued messages that were rejected or exceeded the delivery limit.",
        lambda f: f.by_queue(lambda q: q.dead_lettered),
    ),
    counter("queue_expired_messages_total", "Dequeued messages that expired.",
            lambda f: f.by_queue(lambda q: q.expired)),
    counter("exchange_routed_messages_total", "Messages that the exchange routed to a queue.",
            lambda f: f.by_exchange(lambda e: e.routed)),
    counter("exchange_unroutable_messages_total", "Messages for which the exchange found no queue.",
            lambda f: f.by_exchange(lambda e: e.unrouted)),
)  # fmt: skip

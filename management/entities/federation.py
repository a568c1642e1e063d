"""The federated queues of this broker, and the downstreams of its queues."""

from __future__ import annotations

from ...amqp.codec.types import Timestamp
from ...base.clock import Clock
from ...broker.federation.federated_queues import FederatedQueues
from ...broker.federation.upstream import Upstreams
from ...broker.federation.upstream_link import DownstreamLink
from ...broker.nodes.access_control import CONFIGURE, CONNECTOR_PREFIX, CREATE, DELETE, USE
from ..protocol.call import Call
from ..protocol.entity import Attribute, Listed, Named, Operation, boolean, number, string, time
from ..protocol.request import CREATED, arguments, flag, text
from .queues import check_owner, check_policy


class FederatedQueueType(Named):
    name = "federated-queue"
    meaning = "A federated queue: a copy of a queue at another site. It is locked until promotion."

    def __init__(self, federated_queues: FederatedQueues, clock: Clock) -> None:
        self._queues = federated_queues
        self._clock = clock
        super().__init__(
            self._queues.by_name,
            (
                string("connector", "The connector; it may be created later.", lambda f: f.connector),
                string("source", "The upstream queue.", lambda f: f.source),
                string("state", "`waiting`, `attaching`, `up`, `broken`, or `ending`.", lambda f: f.state),
                string("reason", "The last reason for a state other than `up`.", lambda f: f.reason),
                boolean("complete", "Whether the copy equals the upstream queue at a point in time: false "
                          "until the initial copy is complete.", lambda f: f.copy.is_complete),
                number("messages", "Messages on the queue.", lambda f: len(f.copy.ids)),
                number("place", "The position of the copy: an upstream LSN, or an event number of a cluster.",
                       lambda f: f.copy.place),
                time("as-of", "The upstream's clock when the copy was last complete.",
                     lambda f: Timestamp(f.as_of_us // 1000)),
                number("lag-seconds", "The time since `as-of`, by the local clock.",
                       lambda f: f.lag_s(self._clock.wall_us())),
                number("steps", "Changes applied since the broker started.", lambda f: f.copy.steps),
                Attribute("map", "arguments", "The arguments of the queue after promotion.", lambda f: f.arguments),
            ),
            (
                Operation("CREATE", ("connector", "source", "arguments"), "Starts federation of the queue `source`, by "
                          "default of the same name.", self._create),
                Operation("PROMOTE", ("force",), "Promotes the copy to an ordinary queue; `force` also if it is "
                          "incomplete.", self._promote),
                Operation("RESYNCHRONIZE", (), "Discards the copy and copies the upstream queue again.",
                          self._resynchronize),
                Operation("DELETE", (), "Stops federation and deletes the copy.", self._delete),
            ),
        )  # fmt: skip

    def _create(self, call: Call) -> None:
        name = self.new_name(call, CREATE)
        call.check(CONFIGURE, name)
        asked = call.asked()
        connector = text(asked, "connector")
        call.check(USE, CONNECTOR_PREFIX + connector)
        settings = arguments(asked)
        check_policy(call, name, settings)
        check_owner(call, settings)
        done = call.then_answer(lambda _: self.map_of(self.by_name[name]), CREATED)
        source = text(asked, "source", name) or name
        self._queues.create_for(call.link.attach.user, name, connector, source, settings, done)

    def _promote(self, call: Call) -> None:
        queue = self.wanted(call, CONFIGURE)
        asked = call.asked()
        reported = {"place": queue.copy.place, "messages": len(queue.copy.ids)}
        call.messages = len(queue.copy.ids)
        done = call.then_answer(lambda _: reported)
        self._queues.promote(queue, done, force=flag(asked, "force", default=False))

    def _resynchronize(self, call: Call) -> None:
        queue = self.wanted(call, CONFIGURE)
        call.messages = len(queue.copy.ids)
        self._queues.resynchronize(queue, call.then_answer(lambda _: self.map_of(queue)))

    def _delete(self, call: Call) -> None:
        queue = self.wanted(call, CONFIGURE)
        call.check(DELETE, queue.name)
        call.messages = len(queue.copy.ids)
        self._queues.delete(queue, call.then_answer())


class DownstreamType(Listed):
    name = "downstream"
    meaning = "A connected downstream site that copies a queue of this broker."

    def __init__(self, upstreams: Upstreams) -> None:
        super().__init__(
            lambda: upstreams.feeders,
            (
                string("queue", "The copied queue.", lambda f: f.queue.name),
                number("place", "The durable position of the downstream: an LSN, or an event number of a cluster.",
                       lambda f: f.place),
                number("behind-bytes", "Log bytes (of all queues) not received yet; 0 for a queue of a cluster.",
                       lambda f: f.behind_bytes),
                number("behind-messages", "Changes not sent yet, for a queue of a cluster; 0 for others.",
                       lambda f: f.behind_messages),
            ),
        )  # fmt: skip

    def name_of(self, entity: DownstreamLink) -> str:
        return entity.follower

    def resource_of(self, entity: DownstreamLink) -> str:
        return entity.queue.name

"""Queues that follow a queue of another site, and who follows the queues here."""

from __future__ import annotations

from functools import partial
from typing import Any

from ...amqp.codec.types import Timestamp
from ...base.clock import Clock
from ...broker.federation.federated_queues import FederatedQueues
from ...broker.federation.upstream import Upstreams
from ...broker.federation.upstream_link import DownstreamLink
from ...broker.nodes.access_control import CONFIGURE, CONNECTOR_PREFIX, CREATE, DELETE, USE
from ..protocol.call import Call
from ..protocol.entity import Attribute, Named, Operation, Type
from ..protocol.request import CREATED, arguments, flag, only, text
from .queues import check_name, check_owner, check_policy, gone


class FollowingType(Named):
    name = "following"
    meaning = "A queue that follows one of another site. It is locked until it is taken over."

    def __init__(self, federated_queues: FederatedQueues, clock: Clock) -> None:
        self._followings = federated_queues
        self._clock = clock
        super().__init__(
            self._followings.by_name,
            (
                Attribute("connector", "string", "Over which; it need not be there yet.", lambda f: f.connector),
                Attribute("source", "string", "The queue there.", lambda f: f.source),
                Attribute("state", "string", "`waiting`, `attaching`, `up`, `broken`, or `ending`.", lambda f: f.state),
                Attribute("why", "string", "Why it is not up, or was not the last time.", lambda f: f.why),
                Attribute("whole", "boolean", "It is what the source was at some moment: not before all has come that "
                          "stood there when it was begun.", lambda f: f.copy.is_whole),
                Attribute("messages", "number", "That are on it.", lambda f: len(f.copy.ids)),
                Attribute("place", "number", "Up to where it has followed: an LSN of the source, or a place in a "
                          "cluster's events.",
                          lambda f: f.copy.place),
                Attribute("as-of", "time", "The source's clock, when all that was done there was here.",
                          lambda f: Timestamp(f.as_of_us // 1000)),
                Attribute("lag-seconds", "number", "The time since then, by the clock here.",
                          lambda f: f.lag_s(self._clock.wall_us())),
                Attribute("steps", "number", "Done since the broker started.", lambda f: f.copy.steps),
                Attribute("arguments", "map", "Those of the queue when it is taken over.", lambda f: f.arguments),
            ),
            (
                Operation("CREATE", ("connector", "source", "arguments"), "Follow the queue `source`; by default it "
                          "has the same name.", self._create),
                Operation("TAKE-OVER", ("force",), "Follow no more: it is a queue as any other from now on. With "
                          "`force` also if it is not whole.", self._take_over),
                Operation("BEGIN-ANEW", (), "Drop what there is, and have all that the source has now.", self._anew),
                Operation("DELETE", (), "Follow no more, and drop what there is.", self._delete),
            ),
        )  # fmt: skip

    def _create(self, call: Call) -> None:
        name = call.name()
        check_name(self.name, name)
        call.check(CREATE, name)
        call.check(CONFIGURE, name)
        asked = call.request.map()
        only(asked, "connector", "source", "arguments")
        connector = text(asked, "connector")
        call.check(USE, CONNECTOR_PREFIX + connector)
        settings = arguments(asked)
        check_policy(call, name, settings)
        check_owner(call, settings)
        done = call.then_answer(lambda: self.map_of(self.by_name[name]), CREATED)
        source = text(asked, "source", name) or name
        self._followings.create_for(call.link.wish.user, name, connector, source, settings, done)

    def _take_over(self, call: Call) -> None:
        following = self.wanted(call, CONFIGURE)
        asked = call.request.map()
        only(asked, "force")
        told = {"place": following.copy.place, "messages": len(following.copy.ids)}
        call.messages = len(following.copy.ids)
        done = call.then_answer(lambda: told)
        self._followings.take_over(following, done, force=flag(asked, "force", default=False))

    def _anew(self, call: Call) -> None:
        following = self.wanted(call, CONFIGURE)
        call.messages = len(following.copy.ids)
        done = call.then_answer(lambda: self.map_of(following))
        self._followings.begin_anew(following, done)

    def _delete(self, call: Call) -> None:
        following = self.wanted(call, CONFIGURE)
        call.check(DELETE, following.name)
        call.messages = len(following.copy.ids)
        self._followings.delete(following, call.then(partial(gone, call)))


class FollowerType(Type):
    name = "follower"
    meaning = "Who follows a queue of this broker, and is there."

    def __init__(self, upstreams: Upstreams) -> None:
        self._streams = upstreams
        super().__init__(
            (
                Attribute("queue", "string", "Which it follows.", lambda f: f.queue.name),
                Attribute("place", "number", "Up to where it has that on its disk: an LSN, or a place in the cluster's "
                          "events.", lambda f: f.place),
                Attribute("behind-bytes", "number", "Of the log, of all queues, that it has not got; 0 of a queue of a "
                          "cluster.", lambda f: f.behind_bytes),
                Attribute("behind-messages", "number", "How many that came or went it has not been sent, of a queue of "
                          "a cluster; 0 of others.", lambda f: f.behind_messages),
            ),
            (),
        )  # fmt: skip

    def all(self) -> list[Any]:
        return list(self._streams.feeders)

    def find(self, name: str) -> DownstreamLink | None:
        return next((one for one in self._streams.feeders if one.follower == name), None)

    def name_of(self, entity: DownstreamLink) -> str:
        return entity.follower

    def is_there(self, entity: DownstreamLink) -> bool:
        return entity in self._streams.feeders

    def resource_of(self, entity: DownstreamLink) -> str:
        return entity.queue.name

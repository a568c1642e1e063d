"""A channel of an AMQP 0-9-1 connection: its methods, messages in both directions, and unsettled messages."""

from __future__ import annotations

import struct
from collections import OrderedDict
from collections.abc import Callable, Sequence
from itertools import count
from typing import Any, Protocol

from pamqp import base, commands

from ...amqp091 import frames
from ...amqp091.conversion import BadContent, Departure, encoded_start
from ...amqp091.properties import read_content_header, short_string, write_content_header
from ...amqp091.tables import BadTable
from .consumer import Consumer
from .end import REPLY_CODES, ChannelError, Host
from .publisher import Publisher, Publishing
from .topology import Topology

MOST_CONSUMERS = 1024
MOST_PUBLISHERS = 64
"""Exchanges, and queues of the default exchange, to which a channel keeps a way; the oldest is closed first."""
MOST_MESSAGE_BYTES = 256 << 20
MOST_MANDATORY_BYTES = 16 << 20
"""Mandatory messages of a channel that wait for an answer: each is kept, as it may have to be returned."""


Returned = tuple[frames.Publish, list[bytes]]
"""A mandatory message: its method, and the payloads of its content."""


class ChannelHost(Host, Protocol):
    """The connection of a channel."""

    unique: str
    """A text that no other connection has."""

    def has_messages(self, channel: Channel) -> None:
        """Have *channel* send messages, when there is room."""

    def touch(self, channel: Channel) -> None:
        """Have *channel* flushed at the end of the turn."""

    def channel_failed(self, channel: Channel, error: ChannelError, method: type[base.Frame]) -> None:
        """Close *channel*, whose method caused *error*."""

    def cancelled(self, channel: Channel, tag: str) -> None:
        """Tell the client, if it wants to know, that the broker has ended a consumer."""


class _Arriving:
    """The message that arrives on a channel."""

    def __init__(self, publish: frames.Publish) -> None:
        self.publish = publish
        self.publisher: Publisher | None = None
        """The way to its target; None if it has none, and is unroutable."""
        self.delivery: Publishing | None = None
        self.left_bytes = 0
        self.parts: list[bytes] | None = None
        """The properties and the body of a mandatory message, as they came."""


class Channel:
    """One channel. Its worker's thread only."""

    def __init__(self, host: ChannelHost, number: int, topology: Topology) -> None:
        self.number = number
        self.is_closing = False
        """A close was sent, and what comes before its answer is discarded."""
        self._host = host
        self._topology = topology
        self._publishers: OrderedDict[tuple[str, str], Publisher] = OrderedDict()
        self._arriving: _Arriving | None = None
        self._touched: dict[Publisher | Consumer, None] = {}
        """The ends to flush, in order."""
        self._confirms: count[int] | None = None
        """The numbers of messages for publisher confirms."""
        self._done: list[int] = []
        """Numbers to confirm at the next flush."""
        self._late: set[int] = set()
        """Confirmed numbers behind messages that are not confirmed yet."""
        self._first_open = 1
        """The number before which all messages were confirmed."""
        self._consumers: dict[str, Consumer] = {}
        self._getting: dict[Consumer, None] = {}
        self._long: Consumer | None = None
        """The consumer whose message is being sent, with a part of its body."""
        self._mandatory_bytes = 0
        self._sending: dict[Consumer, None] = {}
        """Consumers with messages for the client, in turns."""
        self._prefetch = 0
        self._tags = count(1)
        self._unsettled: OrderedDict[int, tuple[Consumer, Any]] = OrderedDict()
        self._names = count(1)
        self._methods: dict[type[base.Frame], Callable[[Any], None]] = {
            commands.Basic.Qos: self._qos,
            commands.Basic.Consume: self._consume,
            commands.Basic.Cancel: self._cancel,
            commands.Basic.Get: self._get,
            commands.Basic.Nack: lambda nack: self._settle(nack.delivery_tag, nack.multiple, nack.requeue),
            commands.Basic.Reject: lambda reject: self._settle(reject.delivery_tag, False, reject.requeue),
            commands.Basic.Recover: self._recover,
            commands.Confirm.Select: self._select_confirms,
        }

    def handle(self, method: base.Frame) -> None:
        """Handle a method other than the frequent ones. Raises `ChannelError`, `FrameError`."""
        if self._arriving is not None:
            raise frames.FrameError(505, f"{method.name} came before the content of basic.publish")
        handler = self._methods.get(type(method))
        if handler is not None:
            handler(method)
        else:
            self.flush()  # what was published before is routed by the bindings of then
            self._topology.handle(self, method)

    @property
    def is_receiving(self) -> bool:
        """Return whether the rest of a message must still arrive."""
        return self._arriving is not None

    @property
    def is_sending_long(self) -> bool:
        """Return whether a part of a long message was sent, and the rest was not."""
        return self._long is not None

    # ---- publishing --------------------------------------------------------------------------------------------------

    def publish(self, publish: frames.Publish) -> None:
        """Begin a message."""
        if self._arriving is not None:
            raise frames.FrameError(505, "a method came before the content of basic.publish")
        if publish.immediate:
            raise frames.FrameError(540, "immediate is not implemented")
        arriving = self._arriving = _Arriving(publish)
        key = (publish.exchange, "" if publish.exchange else publish.routing_key)
        publisher = self._publishers.get(key)
        if publisher is None:
            publisher = Publisher(self._host, self, *key)
            self._publishers[key] = publisher
            if len(self._publishers) > MOST_PUBLISHERS:
                self._flush_one(oldest := self._publishers.popitem(last=False)[1])
                oldest.close()
            publisher.start()
        arriving.publisher = publisher

    def header(self, payload: bytes) -> None:
        """Take the header of the content of a message."""
        arriving = self._arriving
        if arriving is None or arriving.delivery is not None:
            raise frames.FrameError(505, "a content header came without basic.publish")
        try:
            body_bytes, properties = read_content_header(payload)
        except BadTable as error:
            raise frames.FrameError(502, str(error)) from error
        if body_bytes > MOST_MESSAGE_BYTES:
            self._arriving = None
            raise ChannelError(406, f"message size {body_bytes} is larger than the limit of {MOST_MESSAGE_BYTES} bytes")
        publish = arriving.publish
        if properties.user_id is not None and properties.user_id != self._host.user:
            text = f"user_id property set to '{properties.user_id}' but authenticated user was '{self._host.user}'"
            raise ChannelError(406, text)
        try:
            start = encoded_start(properties, publish.exchange, publish.routing_key, body_bytes)
        except (BadContent, ValueError, TypeError) as error:
            raise ChannelError(406, f"a message can't be stored: {error}") from error
        number = 0 if self._confirms is None else next(self._confirms)
        if publish.mandatory:
            self._mandatory_bytes += len(payload) + body_bytes
            if self._mandatory_bytes > MOST_MANDATORY_BYTES:
                raise ChannelError(
                    506, f"more than {MOST_MANDATORY_BYTES} bytes of mandatory messages wait for an answer"
                )
            arriving.parts = [payload]
        arriving.left_bytes = body_bytes
        kept = None if arriving.parts is None else (publish, arriving.parts)
        arriving.delivery = Publishing(number, kept)
        self._add(arriving, start)

    def body(self, payload: bytes) -> None:
        """Take a part of the body of a message."""
        arriving = self._arriving
        if arriving is None or arriving.delivery is None or len(payload) > arriving.left_bytes:
            raise frames.FrameError(505, "a body frame came without a content header, or exceeds its size")
        arriving.left_bytes -= len(payload)
        if arriving.parts is not None:
            arriving.parts.append(payload)
        self._add(arriving, payload)

    def _add(self, arriving: _Arriving, data: bytes) -> None:
        """Pass on a piece of the arriving message."""
        is_last = not arriving.left_bytes
        publisher, delivery = arriving.publisher, arriving.delivery
        assert delivery is not None
        if is_last:
            self._arriving = None
        if publisher is not None and not publisher.is_closed:
            self._touch(publisher)
            publisher.add(delivery, data, more=not is_last)
        elif is_last:
            if delivery.kept is not None:
                self.returned(delivery.kept)
                self.answered(delivery.kept)
            if delivery.number:
                self.confirmed([delivery.number])

    def _touch(self, end: Publisher | Consumer) -> None:
        """Have *end* flushed, and before it the publisher whose messages came earlier."""
        if end not in self._touched:
            if isinstance(end, Publisher):
                for other in [one for one in self._touched if isinstance(one, Publisher)]:
                    self._flush_one(other)
            self._touched[end] = None

    def _flush_one(self, end: Publisher | Consumer) -> None:
        self._touched.pop(end, None)
        end.flush()

    def flush(self) -> None:
        """Pass on what arrived in this turn, and confirm what is due."""
        while self._touched:
            self._flush_one(next(iter(self._touched)))
        if self._done:
            self._confirm()

    def _confirm(self) -> None:
        """Send the confirmations that are due: one for all messages up to the first that is not confirmed."""
        done, self._done = sorted(self._done), []
        first = self._first_open
        together = 0
        while together < len(done) and done[together] == first + together:
            together += 1
        rest = done[together:]
        if together:
            self._first_open = first + together
            self._host.send(frames.write_ack(self.number, done[together - 1], multiple=together > 1))
        if rest:
            self._host.send(b"".join([frames.write_ack(self.number, one, multiple=False) for one in rest]))
            self._late.update(rest)
        while self._first_open in self._late:
            self._late.discard(self._first_open)
            self._first_open += 1

    def confirmed(self, numbers: Sequence[int]) -> None:
        self._done.extend(numbers)
        self._host.touch(self)

    def refused(self, numbers: Sequence[int]) -> None:
        for number in numbers:
            self._host.send_method(commands.Basic.Nack(number, False, False), self.number)
        self._late.update(numbers)
        self._host.touch(self)

    def answered(self, message: Returned) -> None:
        self._mandatory_bytes -= sum(map(len, message[1]))

    def returned(self, message: Returned) -> None:
        publish, parts = message
        names = [short_string(text) for text in ("NO_ROUTE", publish.exchange, publish.routing_key)]
        self._host.send(frames.write_named(commands.Basic.Return, self.number, b"\x01\x38", *names))
        self._host.send(frames.write_frame(frames.HEADER, self.number, parts[0]))
        if body := b"".join(parts[1:]):
            self._host.send(frames.write_body(self.number, body, self._host.most_frame_bytes))

    def publisher_failed(self, publisher: Publisher, condition: str, description: str) -> None:
        self._publishers.pop((publisher.exchange, publisher.key), None)
        code = REPLY_CODES.get(condition, 406)
        if publisher.is_open or (code == 404 and not publisher.exchange):
            return  # its target was deleted; or the key leads to no queue, so its messages are unroutable
        text = f"no exchange '{publisher.exchange}' in vhost '/'" if code == 404 else description
        self._host.channel_failed(self, ChannelError(code, text), commands.Basic.Publish)

    def _select_confirms(self, select: commands.Confirm.Select) -> None:
        if self._confirms is None:
            self._confirms = count(1)
        if not select.nowait:
            self._host.send_method(commands.Confirm.SelectOk(), self.number)

    # ---- consuming ------------------------------------------------------------------------------------------------

    def _qos(self, qos: commands.Basic.Qos) -> None:
        if qos.prefetch_size:
            raise ChannelError(540, "prefetch_size!=0 is not implemented")
        if qos.global_:
            raise ChannelError(540, "a prefetch count of a whole channel (global) is not implemented")
        self._prefetch = qos.prefetch_count
        self._host.send_method(commands.Basic.QosOk(), self.number)

    def _consume(self, consume: commands.Basic.Consume) -> None:
        tag = consume.consumer_tag or f"amq.ctag-{self._host.unique}-{self.number}-{next(self._names)}"
        if tag in self._consumers:
            raise frames.FrameError(530, f"attempt to reuse consumer tag '{tag}'")
        if len(self._consumers) + len(self._getting) >= MOST_CONSUMERS:
            raise ChannelError(506, f"a channel has at most {MOST_CONSUMERS} consumers")
        if consume.exclusive or consume.no_local:
            raise ChannelError(540, "exclusive and no_local are not implemented for consumers")
        if consume.arguments:
            raise ChannelError(540, f"arguments of consumers are not implemented: {', '.join(consume.arguments)}")
        queue = self._topology.queue_of(self, consume.queue)
        consumer = Consumer(self._host, self, tag, queue, no_ack=consume.no_ack, prefetch=self._prefetch)
        consumer.is_announced = consume.nowait
        self._consumers[tag] = consumer
        if not consume.nowait:
            self._host.pause(consumer)
        consumer.start()

    def _cancel(self, cancel: commands.Basic.Cancel) -> None:
        consumer = self._consumers.pop(cancel.consumer_tag or "", None)
        if consumer is not None:
            self._leave(consumer)
        if not cancel.nowait:
            self._host.send(
                frames.write_named(commands.Basic.CancelOk, self.number, short_string(cancel.consumer_tag or ""))
            )

    def _leave(self, consumer: Consumer) -> None:
        """End a consumer; it is closed when all its messages are settled."""
        unsent = consumer.stop()
        consumer.flush()
        if not consumer.unsettled:
            consumer.close(unsent)
        else:
            consumer.give_back(unsent)
            self._getting[consumer] = None

    def _get(self, get: commands.Basic.Get) -> None:
        if len(self._getting) >= MOST_CONSUMERS:
            raise ChannelError(506, f"{MOST_CONSUMERS} messages of basic.get wait to be settled; settle some")
        queue = self._topology.queue_of(self, get.queue)
        consumer = Consumer(self._host, self, "", queue, no_ack=get.no_ack, prefetch=1)
        consumer.gets = True
        self._getting[consumer] = None
        self._host.pause(consumer)
        consumer.start()

    def consumer_opened(self, consumer: Consumer) -> None:
        if consumer.gets:
            consumer.get()
        elif not consumer.is_announced:
            consumer.is_announced = True
            self._host.send(frames.write_named(commands.Basic.ConsumeOk, self.number, short_string(consumer.tag)))
            self._host.resume(consumer)

    def consumer_failed(self, consumer: Consumer, condition: str, description: str) -> None:
        self._host.resume(consumer)
        is_known = self._consumers.pop(consumer.tag, None) is not None
        self._getting.pop(consumer, None)
        for tag in [tag for tag, (owner, _) in self._unsettled.items() if owner is consumer]:
            self._unsettled[tag] = consumer, None
        if consumer.driver is not None and is_known:
            self._host.cancelled(self, consumer.tag)
        elif consumer.driver is None or consumer.gets:
            code = REPLY_CODES.get(condition, 406)
            text = f"no queue '{consumer.queue}' in vhost '/'" if code == 404 else description
            method = commands.Basic.Get if consumer.gets else commands.Basic.Consume
            self._host.channel_failed(self, ChannelError(code, text), method)

    def drained(self, consumer: Consumer) -> None:
        if consumer.gets and not consumer.has_output and not consumer.has_got and consumer in self._getting:
            self._host.send_method(commands.Basic.GetEmpty(), self.number)
            self._host.resume(consumer)
            del self._getting[consumer]
            consumer.close()

    def deliver(self, consumer: Consumer, tag: Any, start: Departure) -> None:
        number = next(self._tags)
        exchange, key = short_string(start.exchange), short_string(start.routing_key)
        if consumer.gets:
            head = struct.pack(">QB", number, start.redelivered)
            self._host.send(frames.write_named(commands.Basic.GetOk, self.number, head, exchange, key, bytes(4)))
            self._host.resume(consumer)
        else:
            self._host.send(
                frames.write_deliver(self.number, short_string(consumer.tag), number, start.redelivered, exchange, key)
            )
        header = write_content_header(start.body_bytes, start.properties)
        self._host.send(frames.write_frame(frames.HEADER, self.number, header))
        if not consumer.no_ack:
            self._unsettled[number] = consumer, tag
        consumer.has_got = True

    def send_body(self, piece: bytes) -> None:
        self._host.send(frames.write_body(self.number, piece, self._host.most_frame_bytes))

    def has_messages(self, consumer: Consumer) -> None:
        self._sending[consumer] = None
        self._host.has_messages(self)

    def pump(self, most_bytes: int) -> bool:
        """Send messages of the next consumer in turn, about *most_bytes*; return whether there may be more."""
        consumer = self._long or next(iter(self._sending), None)
        if consumer is None:
            return False
        self._sending.pop(consumer, None)
        sent_bytes = consumer.pump(most_bytes)
        self._long = consumer if consumer.is_within_body and not consumer.is_closed else None
        if consumer.gets and consumer.no_ack and not consumer.has_output:
            self._getting.pop(consumer, None)
            consumer.close()
        elif consumer.has_output and not consumer.is_closed:
            self._sending[consumer] = None
            return sent_bytes > 0 or (self._long is None and len(self._sending) > 1)
        return bool(self._sending)

    def acknowledge(self, tag: int, multiple: bool) -> None:
        """Handle a `basic.ack`."""
        self._settle(tag, multiple, None)

    def _settle(self, tag: int, multiple: bool, requeue: bool | None) -> None:
        """Settle messages; *requeue*: None for an acknowledgement."""
        unsettled = self._unsettled
        if multiple:
            numbers = list(unsettled) if not tag else []
            if tag:
                for number in unsettled:
                    if number > tag:
                        break
                    numbers.append(number)
        else:
            numbers = [tag] if tag in unsettled else []
        if not numbers and not (multiple and not tag):
            raise ChannelError(406, f"unknown delivery tag {tag}")
        for number in numbers:
            consumer, entry = unsettled.pop(number)
            if entry is None:  # its queue was deleted
                continue
            consumer.settled(entry, accepted=requeue is None, requeue=bool(requeue))
            self._touch(consumer)
            if (consumer.is_leaving or consumer.gets) and not consumer.unsettled:
                self._flush_one(consumer)
                self._getting.pop(consumer, None)
                consumer.close()

    def _recover(self, recover: commands.Basic.Recover) -> None:
        if not recover.requeue:
            raise frames.FrameError(540, "basic.recover with requeue=false is not implemented")
        if self._unsettled:
            self._settle(next(reversed(self._unsettled)), True, True)
        self._host.send_method(commands.Basic.RecoverOk(), self.number)

    # ---- the end --------------------------------------------------------------------------------------------------

    def close(self, *, lost: bool) -> None:
        """Close all ends; what the client has not settled returns to its queues."""
        self.flush()
        arriving, self._arriving = self._arriving, None
        if arriving is not None and arriving.delivery is not None and arriving.publisher is not None:
            arriving.publisher.abort(arriving.delivery)
            arriving.publisher.flush()
        returned: dict[Consumer, list[Any]] = {}
        for consumer, tag in self._unsettled.values():
            if tag is not None:
                returned.setdefault(consumer, []).append(tag)
        self._unsettled.clear()
        self._sending.clear()
        self._long = None
        for consumer in [*self._consumers.values(), *self._getting]:
            self._host.resume(consumer)
            consumer.close([*returned.get(consumer, ()), *consumer.unsent()], lost=lost)
        for publisher in self._publishers.values():
            self._host.resume(publisher)
            publisher.close(lost=lost)
        self._consumers.clear()
        self._getting.clear()
        self._publishers.clear()

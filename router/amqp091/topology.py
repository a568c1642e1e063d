"""Declarations, bindings and deletions of a connection, by requests to the broker's management."""

from __future__ import annotations

import secrets
import struct
import threading
from collections.abc import Callable
from typing import Any, Protocol
from urllib.parse import quote

from pamqp import base, commands

from ...amqp091.arguments import BadArgument, queue_arguments
from ...amqp091.frames import FrameError, write_named
from ...amqp091.properties import short_string
from .end import ChannelError, Host
from .requests import Requests, Response

_CODES = {400: 406, 403: 403, 404: 404, 409: 406, 501: 540, 503: 506, 507: 506}
"""Reply codes by the status of a response."""


class Caller(Protocol):
    """The channel of a request."""

    number: int
    is_closing: bool


class TopologyHost(Host, Protocol):
    """The connection that declares."""

    def channel_failed(self, channel: Any, error: ChannelError, method: type[base.Frame]) -> None:
        """Close the channel that made the request."""


class ExclusiveQueues:
    """The queues that exist for one connection each. Any thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._owners: dict[str, object] = {}

    def claim(self, queue: str, owner: object) -> bool:
        """Note that *queue* is exclusive to *owner*; return whether it is not another's."""
        with self._lock:
            return self._owners.setdefault(queue, owner) is owner

    def is_barred(self, queue: str, connection: object) -> bool:
        """Return whether *queue* is exclusive to another connection."""
        return self._owners.get(queue, connection) is not connection

    def release(self, queue: str, owner: object) -> None:
        """Forget *queue*, which was deleted."""
        with self._lock:
            if self._owners.get(queue) is owner:
                del self._owners[queue]


class Topology:
    """The declarations of one connection. Its worker's thread only."""

    def __init__(self, host: TopologyHost, exclusive: ExclusiveQueues) -> None:
        self._host = host
        self._exclusive = exclusive
        self._own: dict[str, None] = {}
        """The exclusive queues of the connection."""
        self._requests = Requests(host)
        self._last: dict[Caller, str] = {}
        """The queue that each channel declared last, which an empty name stands for."""
        self._handlers: dict[type[base.Frame], Callable[[Caller, Any], None]] = {
            commands.Queue.Declare: self._declare_queue,
            commands.Queue.Bind: self._bind,
            commands.Queue.Unbind: self._unbind,
            commands.Queue.Purge: self._purge,
            commands.Queue.Delete: self._delete_queue,
            commands.Exchange.Declare: self._declare_exchange,
            commands.Exchange.Delete: self._delete_exchange,
        }

    def handle(self, channel: Caller, method: base.Frame) -> None:
        """Handle a method. Raises `ChannelError`, `FrameError`."""
        handler = self._handlers.get(type(method))
        if handler is None:
            raise FrameError(540, f"{method.name} is not implemented")
        try:
            handler(channel, method)
        except BadArgument as error:
            raise ChannelError(error.code, str(error)) from error

    def queue_of(self, channel: Caller, name: str) -> str:
        """Return the name of a queue that *channel* may use; empty: the last it declared. Raises `ChannelError`."""
        name = name or self._last.get(channel, "")
        if not name:
            raise ChannelError(404, "no previously declared queue")
        if self._exclusive.is_barred(name, self._host):
            text = f"cannot obtain exclusive access to locked queue '{name}' in vhost '/'"
            raise ChannelError(405, text)
        return name

    def close(self, *, lost: bool) -> None:
        """Delete the exclusive queues."""
        for name in self._own:
            self._requests.ask("DELETE", "queue", name, None, lambda response: None)
            self._exclusive.release(name, self._host)
        self._own.clear()
        self._requests.close(lost=lost)

    def forget(self, channel: Caller) -> None:
        """Forget the last queue of a closed channel."""
        self._last.pop(channel, None)

    def _ask(
        self,
        channel: Caller,
        method: base.Frame,
        request: tuple[str, str, str, dict[str, Any] | None],
        answered: Callable[[Response], base.Frame | None],
        *,
        refused: str = "",
    ) -> None:
        """Send a request, and answer the method with what *answered* returns; *refused*: the text of a 404."""

        def respond(response: Response) -> None:
            if self._host.closed or channel.is_closing:
                return
            if response.status >= 400:
                code = _CODES.get(response.status, 541)
                text = refused if code == 404 and refused else response.description
                self._host.channel_failed(channel, ChannelError(code, text), type(method))
                return
            answer = answered(response)
            if answer is not None and not getattr(method, "nowait", False):
                self._host.send_method(answer, channel.number)

        self._requests.ask(*request, respond)

    # ---- queues ---------------------------------------------------------------------------------------------------

    def _declare_queue(self, channel: Caller, declare: commands.Queue.Declare) -> None:
        name = declare.queue or f"amq.gen-{secrets.token_urlsafe(16)}"
        missing = f"no queue '{name}' in vhost '/'"
        if self._exclusive.is_barred(name, self._host):
            text = f"cannot obtain exclusive access to locked queue '{name}' in vhost '/'"
            raise ChannelError(405, text)

        def declared(response: Response) -> None:
            self._last[channel] = name
            if declare.exclusive and not declare.passive:
                self._own[name] = None
            if not declare.nowait:
                counts = struct.pack(">II", response.body["ready"], response.body["consumers"])
                self._host.send(write_named(commands.Queue.DeclareOk, channel.number, short_string(name), counts))

        if declare.passive:
            self._ask(channel, declare, ("READ", "queue", name, None), declared, refused=missing)
            return
        if name.startswith("amq.") and declare.queue:
            raise ChannelError(403, f"queue name '{name}' contains reserved prefix 'amq.*'")
        arguments = queue_arguments(name, declare.arguments or {})
        if declare.auto_delete:
            arguments["auto-delete"] = "no-links"
        durable = declare.durable and not declare.exclusive
        if declare.exclusive and not self._exclusive.claim(name, self._host):
            raise ChannelError(405, f"cannot obtain exclusive access to locked queue '{name}' in vhost '/'")
        body = {"durable": durable, "arguments": arguments}
        self._ask(channel, declare, ("CREATE", "queue", name, body), declared)

    def _purge(self, channel: Caller, purge: commands.Queue.Purge) -> None:
        name = self.queue_of(channel, purge.queue)
        self._ask(
            channel,
            purge,
            ("PURGE", "queue", name, None),
            lambda response: commands.Queue.PurgeOk(response.body["purged"]),
            refused=f"no queue '{name}' in vhost '/'",
        )

    def _delete_queue(self, channel: Caller, delete: commands.Queue.Delete) -> None:
        name = self.queue_of(channel, delete.queue)
        conditions = {"if-unused": delete.if_unused, "if-empty": delete.if_empty}

        def read(response: Response) -> None:
            if response.status == 404:  # as RabbitMQ does since 3.2
                if not delete.nowait:
                    self._host.send_method(commands.Queue.DeleteOk(0), channel.number)
                return
            found = response.body or {}
            self._ask(channel, delete, ("DELETE", "queue", name, conditions), lambda _: deleted(found.get("ready", 0)))

        def deleted(count: int) -> base.Frame:
            self._own.pop(name, None)
            self._exclusive.release(name, self._host)
            return commands.Queue.DeleteOk(count)

        self._requests.ask("READ", "queue", name, None, read)

    # ---- bindings -------------------------------------------------------------------------------------------------

    def _bind(self, channel: Caller, bind: commands.Queue.Bind) -> None:
        name = self.queue_of(channel, bind.queue)
        if not bind.exchange:
            raise ChannelError(403, "operation not permitted on the default exchange")
        body = {"exchange": bind.exchange, "queue": name, "key": bind.routing_key, "arguments": bind.arguments or {}}
        self._ask(channel, bind, ("CREATE", "binding", "", body), lambda response: commands.Queue.BindOk())

    def _unbind(self, channel: Caller, unbind: commands.Queue.Unbind) -> None:
        name = self.queue_of(channel, unbind.queue)
        identity = "/".join(quote(part, safe="") for part in (unbind.exchange, name, unbind.routing_key))

        def answered(response: Response) -> None:
            if response.status in (200, 204, 404):
                self._host.send_method(commands.Queue.UnbindOk(), channel.number)
            else:
                error = ChannelError(_CODES.get(response.status, 541), response.description)
                self._host.channel_failed(channel, error, commands.Queue.Unbind)

        self._requests.ask("DELETE", "binding", identity, None, answered)

    # ---- exchanges ------------------------------------------------------------------------------------------------

    def _declare_exchange(self, channel: Caller, declare: commands.Exchange.Declare) -> None:
        name = declare.exchange
        declared = commands.Exchange.DeclareOk()
        if declare.passive:
            missing = f"no exchange '{name}' in vhost '/'"
            if name:
                self._ask(channel, declare, ("READ", "exchange", name, None), lambda _: declared, refused=missing)
            elif not declare.nowait:
                self._host.send_method(declared, channel.number)
            return
        if not name:
            raise ChannelError(403, "operation not permitted on the default exchange")
        if declare.internal or declare.auto_delete:
            raise ChannelError(540, "internal and auto-delete exchanges are not implemented")
        arguments = dict(declare.arguments or {})
        if "alternate-exchange" not in arguments and "x-alternate-exchange" in arguments:
            arguments["alternate-exchange"] = arguments["x-alternate-exchange"]
        body = {"exchange-type": declare.exchange_type, "durable": declare.durable, "arguments": arguments}

        def read(response: Response) -> None:
            if response.status == 404 and name.startswith("amq."):
                error = ChannelError(403, f"exchange name '{name}' contains reserved prefix 'amq.*'")
                self._host.channel_failed(channel, error, commands.Exchange.Declare)
            elif response.status == 200 and name.startswith("amq."):
                self._compare(channel, declare, response)
            else:
                self._ask(channel, declare, ("CREATE", "exchange", name, body), lambda _: declared)

        self._requests.ask("READ", "exchange", name, None, read)

    def _compare(self, channel: Caller, declare: commands.Exchange.Declare, response: Response) -> None:
        """Answer the declaration of a predeclared exchange."""
        there = response.body["exchange-type"]
        if there != declare.exchange_type:
            text = f"inequivalent arg 'type' for exchange '{declare.exchange}' in vhost '/': received "
            text += f"'{declare.exchange_type}' but current is '{there}'"
            self._host.channel_failed(channel, ChannelError(406, text), commands.Exchange.Declare)
        elif not declare.nowait:
            self._host.send_method(commands.Exchange.DeclareOk(), channel.number)

    def _delete_exchange(self, channel: Caller, delete: commands.Exchange.Delete) -> None:
        name = delete.exchange
        if not name or name.startswith("amq."):
            raise ChannelError(403, f"exchange '{name}' is predeclared, and can't be deleted")

        def answered(response: Response) -> None:
            if response.status in (200, 204, 404):
                if not delete.nowait:
                    self._host.send_method(commands.Exchange.DeleteOk(), channel.number)
            else:
                error = ChannelError(_CODES.get(response.status, 541), response.description)
                self._host.channel_failed(channel, error, commands.Exchange.Delete)

        self._requests.ask("DELETE", "exchange", name, {"if-unused": delete.if_unused}, answered)

"""A terminal for AMQP 0-9-1: the worker's side of one connection, with the interface of `connections.terminal`.

While a method waits for the core (a declaration, a new consumer), the connection is not read, so the order of its
methods is kept.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable
from functools import partial
from threading import get_ident
from typing import Any
from uuid import uuid4

from pamqp import base, commands

from ... import __version__
from ...amqp.engine.engine import ALL_CONTROLS
from ...amqp.ports import IDLE
from ...amqp.sasl.server import Check, Denied, Success
from ...amqp091 import frames
from ...amqp091.frames import FrameError
from ...amqp091.properties import short_string
from ...base.accounts.audit import FORBIDDEN, LIMIT, PROTOCOL, Login, LoginFailure
from ..admission.login_gate import BUSY
from ..connections.terminal import OPEN_TIMEOUT_S, TerminalContext, Turn, Work
from .channel import Channel
from .end import ChannelError, reply_text
from .login import ClientLogin
from .topology import ExclusiveQueues, Topology

log = logging.getLogger(__name__)

MOST_CHANNELS = 2047
FRAME_BYTES = 131_072
OUT_BYTES = 256 << 10
"""Output beyond which no more messages are begun."""
PUMP_BYTES = 64 << 10
CAPABILITIES = {
    "publisher_confirms": True, "basic.nack": True, "consumer_cancel_notify": True,
    "authentication_failure_close": True, "exchange_exchange_bindings": False, "per_consumer_qos": True,
    "connection.blocked": False, "consumer_priorities": False, "direct_reply_to": False,
}  # fmt: skip
_METHODS_OF_MESSAGES = (frames.PUBLISH, frames.ACK)


class Terminal091:
    """The worker's side of one connection; `Terminal` documents the interface."""

    dials = False
    patience_s = OPEN_TIMEOUT_S

    def __init__(
        self,
        context: TerminalContext,
        exclusive: ExclusiveQueues,
        name: str,
        *,
        wake: Callable[[Any], None],
        secure: bool = False,
        certified: str = "",
        certificate: bytes = b"",
        no_room: Callable[[bool], str] = lambda is_manager: "",
        idle_s: Callable[[], float | None] = lambda: None,
    ) -> None:
        """See `connections.terminal.Terminal`."""
        self.name, self.certified, self.certificate = name, certified, certificate
        self.idle_s = idle_s
        self.core, self.drivers = context.core, context.drivers
        self.closed = False
        self.user, self.container, self.stored_key, self.reason = "", "", b"", ""
        self.is_opening = True
        self.brings_long = False
        self.holding: dict[object, None] = {}
        """The reasons for which nothing is read."""
        self.routing: tuple[object, ...] = ()
        self.most_frame_bytes = frames.LEAST_FRAME_BYTES
        self.unique = uuid4().hex[:12]
        self._about = {"connection": name}
        self._admission, self._gate = context.admission, context.gate
        self._no_room = no_room
        self._wake = wake
        self._secure = secure
        self._frames = frames.FrameReader()
        self._awaits_header = True
        self._login = ClientLogin(self._gate.login, secure=secure, certified=certified)
        self._counted = self._is_authenticated = False
        self._capabilities: dict[str, Any] = {}
        self._out: deque[bytes] = deque()
        self._out_bytes = 0
        self._chunk = memoryview(b"")
        self._channels: dict[int, Channel] = {}
        self._touched: dict[Channel, None] = {}
        self._sending: dict[Channel, None] = {}
        """Channels with messages for the client, in turns."""
        self._topology = Topology(self, exclusive)
        self._work: deque[Work] = deque()
        self._scheduled = False
        self._controls_left = ALL_CONTROLS
        self._brought = False
        self._client_is_done = False
        self._leaving = False
        self._interval_ms = 0
        """The heartbeat interval; 0 for none."""
        self._heard_ms = self._spoke_ms = 0
        self._checking = False

    @property
    def is_checked(self) -> bool:
        return self._checking

    # ---- bytes ----------------------------------------------------------------------------------------------------

    def receive(self, data: bytes | memoryview, controls: int = ALL_CONTROLS) -> Turn:
        self._heard_ms = 0
        if self._awaits_header:
            self._awaits_header = False
            data = data[len(frames.PROTOCOL_HEADER) :]
            self._start()
        self._frames.feed(data)
        return self.go_on(controls)

    def go_on(self, controls: int) -> Turn:
        self._controls_left = controls
        self._brought = False
        before = self._frames.position
        try:
            while not (self.closed or self.holding or self._controls_left <= 0):
                frame = self._frames.next()
                if frame is None:
                    break
                self._take(frame)
        except FrameError as error:
            self._refuse(error.code, str(error))
        self._flush()
        is_behind = not self.closed and not self.holding and self._frames.has_frame
        is_small = self._frames.position != before and not self.brings_long
        return Turn(self._controls_left, is_behind, self._brought, is_small)

    def _take(self, frame: frames.Frame) -> None:
        """Handle one frame. Raises `FrameError`."""
        kind, number, payload = frame
        if kind == frames.HEARTBEAT:
            if number:
                raise FrameError(501, "a heartbeat frame has a channel")
            self._controls_left -= 1
            return
        if kind not in frames.TYPES:
            raise FrameError(501, f"there is no frame type {kind}")
        method = frames.method_of(payload) if kind == frames.METHOD else None
        if method not in _METHODS_OF_MESSAGES and kind == frames.METHOD:
            self._controls_left -= 1
        if number == 0:
            if method is None:
                raise FrameError(501, "content came on channel 0")
            self._handle_connection(frames.read_method(payload))
            return
        if not self._is_open:
            raise FrameError(504, "a method of a channel came before the connection was open")
        channel = self._channels.get(number)
        if method == (20, 10):
            self._open_channel(number, payload)
        elif channel is None:
            raise FrameError(504, f"expected 'channel.open' on channel {number}")
        elif channel.is_closing:
            if method in ((20, 41), (20, 40)):
                self._end_channel(channel, payload)
        else:
            self._take_in(channel, kind, method, payload)

    def _take_in(self, channel: Channel, kind: int, method: tuple[int, int] | None, payload: bytes) -> None:
        """Handle a frame on an open channel. Raises `FrameError`."""
        found: base.Frame | None = None
        try:
            if kind == frames.BODY:
                channel.body(payload)
                self._brought = True
                self.brings_long = channel.is_receiving
            elif kind == frames.HEADER:
                channel.header(payload)
                self._brought = True
            elif method == frames.PUBLISH:
                channel.publish(frames.read_publish(payload))
            elif method == frames.ACK:
                self._brought = True
                channel.acknowledge(*frames.read_ack(payload))
            elif method in ((20, 40), (20, 20)):
                self._handle_channel(channel, frames.read_method(payload))
            else:
                found = frames.read_method(payload)
                channel.handle(found)
            self._touched[channel] = None
        except ChannelError as error:
            class_id, method_id = method or frames.PUBLISH
            self._close_channel(channel, error, class_id, method_id)

    def _handle_channel(self, channel: Channel, method: base.Frame) -> None:
        if isinstance(method, commands.Channel.Close):
            channel.close(lost=False)
            self._topology.forget(channel)
            self._forget(channel)
            self.send_method(commands.Channel.CloseOk(), channel.number)
        elif isinstance(method, commands.Channel.Flow):
            if not method.active:
                raise ChannelError(540, "channel.flow with active=false is not implemented")
            self.send_method(commands.Channel.FlowOk(True), channel.number)

    def _open_channel(self, number: int, payload: bytes) -> None:
        if number in self._channels:
            raise FrameError(504, f"channel {number} is already open")
        if number > MOST_CHANNELS:
            raise FrameError(504, f"channel {number} exceeds the limit of {MOST_CHANNELS}")
        frames.read_method(payload)
        self._channels[number] = Channel(self, number, self._topology)
        self.core.post(self.drivers.session_begun, self, number)
        self.send_method(commands.Channel.OpenOk(), number)

    def _end_channel(self, channel: Channel, payload: bytes) -> None:
        """Handle the answer to a close of this side, or a close of the client that crossed it."""
        if isinstance(frames.read_method(payload), commands.Channel.Close):
            self.send_method(commands.Channel.CloseOk(), channel.number)
        else:
            self._forget(channel)

    def _forget(self, channel: Channel) -> None:
        """Remove a channel that is closed."""
        del self._channels[channel.number]
        self._touched.pop(channel, None)
        self._sending.pop(channel, None)
        self.core.post(self.drivers.session_ended, self, channel.number)

    # ---- the connection -------------------------------------------------------------------------------------------

    @property
    def _is_open(self) -> bool:
        return not self.is_opening

    def _start(self) -> None:
        properties: dict[str, Any] = {
            "capabilities": CAPABILITIES, "product": "CairnMQ", "version": __version__, "platform": "Python",
            "information": "see the documentation", "copyright": "",
        }  # fmt: skip
        start = commands.Connection.Start(0, 9, properties, " ".join(self._login.mechanisms), "en_US")
        self.send_method(start, 0)

    def _handle_connection(self, method: base.Frame) -> None:
        """Handle a method of channel 0. Raises `FrameError`."""
        if isinstance(method, commands.Connection.Close):
            self.send_method(commands.Connection.CloseOk(), 0)
            self._client_is_done = True
            self.give_up()
        elif isinstance(method, commands.Connection.CloseOk):
            self._client_is_done = True
            self.give_up()
        elif isinstance(method, commands.Connection.StartOk) and not self._login.mechanism:
            self._begin_login(method)
        elif isinstance(method, commands.Connection.TuneOk) and self._is_authenticated and not self._is_open:
            self._tune(method)
        elif isinstance(method, commands.Connection.Open) and self._is_authenticated and not self._is_open:
            self._open(method.virtual_host)
        elif isinstance(method, commands.Connection.UpdateSecret) and self._is_open:
            raise FrameError(540, "connection.update-secret is not implemented")
        else:
            raise FrameError(503, f"{method.name} is not expected now")

    def _begin_login(self, start: commands.Connection.StartOk) -> None:
        capabilities = (start.client_properties or {}).get("capabilities")
        self._capabilities = capabilities if isinstance(capabilities, dict) else {}
        name = (start.client_properties or {}).get("connection_name")
        self.container = name[:1024] if isinstance(name, str) else ""
        response = start.response.encode() if isinstance(start.response, str) else bytes(start.response)
        self._proceed(partial(self._login.begin, start.mechanism, response))

    def _proceed(self, step: Callable[[], Check | Success]) -> None:
        """Take a step of the login."""
        try:
            reply = step()
        except Denied as denied:
            self._deny(denied.reason, denied.user, str(denied))
            return
        if isinstance(reply, Check):
            self._checking = True
            self.pause(self._login)
            if not self._gate.check(reply, self.name, lambda: not self.closed, partial(self.note, self._checked)):
                self._deny(LIMIT, "", "too many others are logging in")
            return
        self.user, self.stored_key = reply.user, reply.stored_key
        self._is_authenticated = True
        self._frames.most_bytes = FRAME_BYTES
        interval_s = 60
        self.send_method(commands.Connection.Tune(MOST_CHANNELS, FRAME_BYTES, interval_s), 0)

    def _checked(self, found: object) -> None:
        self._checking = False
        self.resume(self._login)
        if self.closed:
            return
        if found is BUSY:
            self._deny(LIMIT, "", "too many others are logging in")
        else:
            self._proceed(partial(self._login.go_on, found))

    def _deny(self, reason: str, user: str, text: str) -> None:
        """Refuse the login. As in RabbitMQ, only clients with a certain capability receive the reason."""
        self._gate.login_failed(LoginFailure(self.name, user, self._login.mechanism, reason, text))
        self.reason = text
        if self._capabilities.get("authentication_failure_close"):
            refused = f"Login was refused using authentication mechanism {self._login.mechanism}"
            self.send_method(commands.Connection.Close(403, reply_text(403, refused), 0, 0), 0)
        self.give_up()

    def _tune(self, tune: commands.Connection.TuneOk) -> None:
        if tune.frame_max and tune.frame_max < frames.LEAST_FRAME_BYTES:
            raise FrameError(530, f"negotiated frame_max = {tune.frame_max} is lower than {frames.LEAST_FRAME_BYTES}")
        self.most_frame_bytes = self._frames.most_bytes = min(tune.frame_max or FRAME_BYTES, FRAME_BYTES)
        self._interval_ms = tune.heartbeat * 1000

    def _open(self, virtual_host: str) -> None:
        """Open the connection, if its user may have it and no limit forbids it. Raises `FrameError`."""
        if virtual_host != "/":
            raise FrameError(530, f"vhost {virtual_host} not found")
        denial, reason = self.drivers.denial_reason_in(self.user), FORBIDDEN
        if not denial:
            reason = LIMIT
            most = self.drivers.most_connections(self.user)
            denial = self._no_room(self.drivers.is_manager(self.user)) or self._gate.enter(self.user, most)
            self._counted = not denial
        if denial:
            self._gate.login_failed(LoginFailure(self.name, self.user, self._login.mechanism, reason, denial))
            raise FrameError(530, denial)
        answer = self._admission.admit(self, self.user, self.container, (), secure=self._secure)
        if answer.error is not None:
            raise FrameError(320, answer.error.description)
        self.is_opening = False
        self._gate.logged_in(Login(self.name, self.user, self._login.mechanism, self.container))
        self.send_method(commands.Connection.OpenOk(), 0)
        self.core.post(self.drivers.connection_opened, self)

    def _refuse(self, code: int, text: str) -> None:
        """Close the connection with an error of the client."""
        log.info("%s: closed: %s", self.name, text, extra={**self._about, "event": "connection.ended"})
        self.reason = text
        if not self._is_authenticated:
            self._gate.login_failed(LoginFailure(self.name, self.user, self._login.mechanism, PROTOCOL, text))
        self.send_method(commands.Connection.Close(code, reply_text(code, text), 0, 0), 0)
        self.give_up()

    # ---- for the channels -----------------------------------------------------------------------------------------

    def send(self, data: bytes) -> None:
        self._out.append(data)
        self._out_bytes += len(data)

    def send_method(self, method: base.Frame, channel: int) -> None:
        self.send(frames.write_method(method, channel))

    def pause(self, reason: object) -> None:
        self.holding[reason] = None

    def resume(self, reason: object) -> None:
        self.holding.pop(reason, None)

    def has_messages(self, channel: Channel) -> None:
        self._sending[channel] = None

    def touch(self, channel: Channel) -> None:
        self._touched[channel] = None

    def channel_failed(self, channel: Channel, error: ChannelError, method: type[base.Frame]) -> None:
        self._close_channel(channel, error, method.index >> 16, method.index & 0xFFFF)

    def _close_channel(self, channel: Channel, error: ChannelError, class_id: int, method_id: int) -> None:
        if channel.is_closing or self.closed:
            return
        channel.is_closing = True
        self._topology.forget(channel)
        channel.close(lost=False)
        text = reply_text(error.code, str(error))
        self.send_method(commands.Channel.Close(error.code, text, class_id, method_id), channel.number)

    def cancelled(self, channel: Channel, tag: str) -> None:
        if self._capabilities.get("consumer_cancel_notify"):
            self.send(frames.write_named(commands.Basic.Cancel, channel.number, short_string(tag), b"\x01"))

    def _flush(self) -> None:
        while self._touched:
            self._touched.popitem()[0].flush()

    # ---- for the worker -------------------------------------------------------------------------------------------

    def is_full(self) -> bool:
        return not self.closed and bool(self.holding)

    def unanswered(self) -> int:
        """Return about how many requests the output answers."""
        return self._out_bytes >> 6

    def takes_long(self) -> bool:
        return any(channel.is_sending_long for channel in self._sending)

    def write(self, send: Callable[[bytes | memoryview], int], most_bytes: int, most_long_bytes: int) -> bool:
        written_bytes = 0
        while True:
            if not self._chunk:
                if self._out_bytes < OUT_BYTES:
                    self._pump()
                if not self._out:
                    return False
                self._chunk = memoryview(b"".join(self._out))
                self._out.clear()
            size = send(self._chunk)
            self._spoke_ms = 0
            self._chunk = self._chunk[size:]
            self._out_bytes -= size
            written_bytes += size
            if written_bytes >= most_bytes or (written_bytes >= most_long_bytes and self.takes_long()):
                return True

    def _pump(self) -> None:
        """Let the channels send messages, in turns, while there is room."""
        sending = self._sending
        while sending and self._out_bytes < OUT_BYTES and not self.closed:
            channel = next(iter(sending))
            del sending[channel]
            if not channel.is_closing and channel.pump(PUMP_BYTES):
                sending[channel] = None

    def finished(self) -> bool:
        return self.closed and not self._out and not self._chunk

    def client_is_done(self) -> bool:
        return self._client_is_done

    def tick(self, now_ms: int) -> int:
        if not self._interval_ms or self.closed or self.is_opening:
            return 0
        self._heard_ms = now_ms if self.holding else self._heard_ms or now_ms
        self._spoke_ms = self._spoke_ms or now_ms
        if now_ms - self._heard_ms > 2 * self._interval_ms:
            self.reason = f"{IDLE}{self._interval_ms * 2 / 1000:g} s"
            log.info(
                "%s: %s: the client sent no heartbeats", self.name, self.reason,
                extra={**self._about, "event": "connection.ended"},
            )  # fmt: skip
            self.give_up()
            return 0
        if now_ms - self._spoke_ms >= self._interval_ms // 2:
            self.send(frames.HEARTBEAT_FRAME)
            self._spoke_ms = now_ms
        return now_ms + self._interval_ms // 4

    def end_input(self) -> None:
        if not self.closed and not self._is_authenticated:
            text = "the client closed the connection during the login"
            self._gate.login_failed(LoginFailure(self.name, "", self._login.mechanism, PROTOCOL, text))
        self._client_is_done = True
        self.give_up()

    def give_up(self) -> None:
        if self.closed:
            return
        self.closed = True
        self.holding.clear()
        self._admission.leave(self, self.user, self.container)
        if self._counted:
            self._gate.leave(self.user)
        for channel in self._channels.values():
            channel.close(lost=not self._client_is_done)
        self._channels.clear()
        self._topology.close(lost=True)
        self.core.post(self.drivers.connection_closed, self)

    def shut_down(self) -> None:
        if not self._is_open:
            self.give_up()
        elif not self._leaving:
            self._leaving = True
            self.core.post(self.drivers.when_answered, lambda: self.note(self._expel, "the broker shuts down"))

    def expel(self, description: str, *, elsewhere: bool = False) -> None:
        self.note(self._expel, description)

    def _expel(self, description: str) -> None:
        if not self.closed:
            self._flush()
            self.send_method(commands.Connection.Close(320, reply_text(320, description), 0, 0), 0)
            self.reason = description
            self.give_up()

    def free(self) -> None:
        """Do nothing: there is nothing beside Python's objects."""

    # ---- from the core to the client ------------------------------------------------------------------------------

    def note(self, action: Callable[..., None], *args: Any) -> None:
        assert self.core.player == get_ident()
        self._work.append((action, args))
        if not self._scheduled:
            self._scheduled = True
            self._wake(self)

    def do_work(self) -> bool:
        """Do the work that the core queued; return whether input waits for `go_on`."""
        self._scheduled = False
        work = self._work
        while work:
            action, args = work.popleft()
            action(*args)
        self._flush()
        return not self.closed and not self.holding and self._frames.has_frame

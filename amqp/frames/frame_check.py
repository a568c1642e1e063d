"""Checks on frames that arrive, before the engine digests them: fields, handles, channels, and the state of deliveries.

Proton accepts many frames that the specification forbids, and closes the connection for some errors that end only a
session. `FrameCheck` finds such frames, keeps them from proton, and reports an error with its scope. It tracks the
handles that the peer has attached on each channel.

Transfers are the hot path. Frames that repeat the layout of the transfer before them are compared with it instead of
decoded: only delivery-id and delivery-tag may differ. A run of frames of one size is compared by numpy at once. A frame
of a long message that repeats the performative of the frame before it is compared with that.
"""

from __future__ import annotations

from collections import deque
from struct import Struct
from typing import Protocol

from ..codec import decode
from ..codec.primitives import Malformed, descriptor
from ..links.attach import SECOND
from .frame_fields import (
    ATTACH,
    BEGIN,
    CLOSE,
    DETACH,
    DISPOSITION,
    END,
    FLOW,
    HEADER_BYTES,
    NULL,
    OPEN,
    TRANSFER,
    Invalid,
    Performative,
    bare_attach,
    bare_transfer,
    check,
    check_terminus,
    content_of,
    read,
    transaction_in,
)
from .peer_links import Channel, Half, Scope, Violation
from .repeated_transfers import MOST_PERFORMATIVE_BYTES, RUN_FRAMES, Layout, layout_of, payload_at, repeats, run
from .usual_frames import NO_HANDLE, accepted_by, flow_of

_size_at = Struct(">I").unpack_from
_AMQP_HEADER_BYTES = 8
_CODE_AT = 10
"""Offset of a performative's code in a frame without extended header."""
_INVALID = "amqp:invalid-field"
_MOST_TAG_BYTES = 32
MOST_ID_BYTES = 1024
LEAST_IDLE_MS = 200
"""The least idle-time-out for which heartbeats come in time, as the workers' timers have steps of 50 ms."""
_LONG = b"\0"
"""Stands for larger performatives: no frame has the data offset 0."""

_SOURCE, _TARGET, _INITIAL_COUNT = 5, 6, 9
"""Places of source, target and initial-delivery-count in an attach."""
_TAG, _FORMAT, _SETTLED, _MORE, _MODE, _RESUME, _ABORTED = 2, 3, 4, 5, 6, 8, 9
"""Places of these fields in a transfer."""
_FLOW_HANDLE, _COUNT, _CREDIT, _DRAIN, _ECHO = 4, 5, 6, 8, 9
"""Positions of the fields handle, delivery-count, link-credit, drain and echo in a flow."""
_SCOPED = slice(0, 3)
"""The fields of an attach without which there is no link that an error could be reported on."""
_EMPTY_OPEN = b"\0\0\0\x10\2\0\0\0\0\x53\x10\xc0\x03\x01\xa1\0"
"""An open that proton receives in place of a forbidden first frame: without an open it would not send the close."""
_IDS = slice(0, 2)
"""The fields of a transfer without which proton can't continue the session."""
_MOST_LAYOUTS = 64
_LEAST_RUN = 3
"""Fewer transfers, or accepted deliveries, are digested one by one."""
_KEY = slice(4, 17)
"""Bytes that identify a layout: a frame's channel, and the beginning of its performative up to the handle."""


class Handler(Protocol):
    """The engine: where checked bytes go, and its reactions to findings.

    All frames before the one in question have been processed.
    """

    def pass_on(self, data: bytes | memoryview) -> None:
        """Give checked bytes to proton."""

    def pass_flow(self, frame: bytes, txn_id: bytes) -> None:
        """Process a flow of a link that names a transaction, or with an empty *txn_id* that it names none any more."""

    def pass_alone(self, frame: bytes) -> None:
        """Process a frame whose effect the next one would hide."""

    def digest(self) -> None:
        """Digest the pushed bytes."""

    def take_run(self, before: memoryview, data: memoryview, contents: list[bytes], half: Half, settled: bool) -> None:
        """Process the bytes *before*, then transfers of whole messages, which are *contents*."""

    def take_accepted(self, before: memoryview, data: memoryview, most: int) -> None:
        """Process the bytes *before*, then a disposition that settles up to *most* deliveries as accepted."""

    def violated(self, channel: Channel | None, violation: Violation) -> None:
        """End the link, session or connection in the scope of the violation."""

    def awaits_begin(self) -> bool:
        """Return True if the peer has not answered all sessions that this side began."""

    def digest_answer(self) -> None:
        """Digest a begin that answers a session of this side, even without budget in this turn."""

    def most_handles(self) -> int:
        """Return the limit of attached handles on the connection."""


class FrameCheck:
    """Checks everything that arrives on a connection, from its AMQP header on."""

    def __init__(self, handler: Handler, most_bytes: int) -> None:
        """*most_bytes*: the maximum size of a frame that is checked."""
        self.begun: deque[Channel] = deque()
        """Begins that the engine has not seen yet, in order."""
        self.attached: deque[Half] = deque()
        """Attaches that the engine has not seen yet, in order."""
        self.echoes: dict[Half | Channel, Channel] = {}
        """Links and sessions whose state the peer wants to receive, by their session; the engine removes them."""
        self.names_transactions = False
        """True if flows that name a transaction are processed apart: deliveries for their credit are acquired in it.

        So are dispositions: proton has only the last state of a delivery, but each may be in another transaction."""
        self.repeats = 0
        """Requests for states that were requested already. The engine counts them as control frames, and resets it."""
        self._handler = handler
        self._most_bytes = most_bytes
        self._channels: dict[int, Channel] = {}
        self._handles = 0
        """Attached on all channels."""
        self._opened = False
        self._closing = False
        """The connection was closed for an error: only the peer's close is still of interest."""
        self._skip_bytes = _AMQP_HEADER_BYTES
        """Rest of a frame that was checked already."""
        self._drops_rest = False
        """True if the rest is not for Proton."""
        self._held = b""
        """The beginning of a frame that can't be checked yet; proton does not have it."""
        self._named: bytes | None = None
        """The transaction that the flow being checked names."""
        self._is_state = False
        """The frame being checked is a disposition, to be processed alone."""
        self._layouts: dict[bytes, Layout] = {}
        self._incomplete: dict[bytes, Half] = {}
        """Halves in the middle of a delivery, by the `_KEY` of their transfers; others may be left in it."""
        self._last: Layout | None = None
        """The layout that the last transfer had."""

    def push(self, data: bytes | memoryview) -> None:
        """Check *data*, and pass it on without the frames that are forbidden."""
        data = memoryview(self._held + bytes(data) if self._held else data)  # else without a copy
        end = len(data)
        at = min(self._skip_bytes, end)
        given = at if self._drops_rest else 0
        self._skip_bytes -= at
        is_regular = True
        while at + HEADER_BYTES <= end:
            if self._last is not None:
                at, given, is_regular = self._repeated(data, at, end, given, self._last, is_regular)
                if at + HEADER_BYTES > end:
                    break
            size = _size_at(data, at)[0]
            if size == HEADER_BYTES:
                at += size
                continue
            if not HEADER_BYTES < size <= self._most_bytes or data[at + 4] < 2 or data[at + 5]:
                self._closing, at = True, end  # proton ends the connection here
                break
            stop = at + size
            if self._begins_as_before(data, at, size, end):
                self._skip_bytes, self._drops_rest, at = max(0, stop - end), False, min(stop, end)
                continue
            if stop > end:
                if not payload_at(data, at, end):
                    break
                self._skip_bytes, self._drops_rest, stop = stop - end, False, end
            elif (passed := self._usual(data, at, stop, given)) is not None:
                at, given = stop, passed
                continue
            elif self._layouts:
                self._last = self._layouts.get(bytes(data[at + 4 : at + 17]))
                if self._last is not None and repeats(data, at, size, self._last):
                    continue
            replacement = self._replacement(data, at, stop, given)
            if replacement is not None:
                self._drops_rest = True
                given = stop
            at = stop
        self._held = bytes(data[at:])
        if given < at:
            self._handler.pass_on(data[given:at])

    def _replacement(self, data: memoryview, at: int, stop: int, given: int) -> bytes | None:
        """Check the frame at *at*. If proton is not to have it, give it what it has in its place, and return that."""
        if stop - at == 4 * data[at + 4]:
            return None  # an empty frame with an extended header
        number = int.from_bytes(data[at + 6 : at + 8])
        violation: Violation | None = None
        try:
            frame = bytes(data[at : payload_at(data, at, stop) or stop])
            replacement = self._check(frame, number, data[at + 4] * 4)
        except Violation as error:
            violation, replacement = error, error.replacement
            if not self._opened:
                replacement = _EMPTY_OPEN
        if replacement is None:
            return None
        if given < at:
            self._handler.pass_on(data[given:at])
        if violation is not None:
            self._report(number, violation)
        named, self._named = self._named, None
        is_state, self._is_state = self._is_state, False
        if named is not None:
            self._handler.pass_flow(replacement, named)
        elif is_state:
            self._handler.pass_alone(replacement)
        elif replacement:
            self._handler.pass_on(replacement)
        if violation is None and self.begun and self.begun[-1].is_answer:
            self._handler.digest_answer()
        return replacement

    def shut(self) -> None:
        """Pass nothing but a close from now on: the connection was closed for an error."""
        self._closing = True
        self._forget_links()

    def _usual(self, data: memoryview, at: int, stop: int, given: int) -> int | None:
        """Return None unless the frame at *at* is a valid flow or disposition of the usual form, for proton alone.

        Else return where the data begins that proton is to have: at *given*, or behind the frame if it has it now.
        """
        code = data[at + _CODE_AT] if stop - at > _CODE_AT else 0
        if code not in (FLOW, DISPOSITION) or data[at + 4] != 2 or self._closing:
            return None
        channel = self._channels.get(int.from_bytes(data[at + 6 : at + 8]))
        if channel is None or channel.is_ended:
            return None
        if code == DISPOSITION:
            accepted = accepted_by(data, at, stop)
            if accepted is None or accepted < _LEAST_RUN:
                return None if accepted is None else given
            self._handler.take_accepted(data[given:at], data[at:stop], accepted)
            return stop
        flow = flow_of(data, at, stop)
        if flow is None or flow[0] == NO_HANDLE:
            return None if flow is None else given
        half = channel.handles.get(flow[0])
        if half is not None and half.limit is not None:
            half.limit = flow[1]
        return None if half is None else given

    # ---- transfers that repeat ------------------------------------------------------------------------------------

    def _begins_as_before(self, data: memoryview, at: int, size: int, end: int) -> bool:
        """Return True if the frame at *at* is a transfer that repeats one before it.

        Either it has the performative of another frame of the same message. Or it has a known layout, and its rest has
        not arrived.
        """
        is_complete = at + size <= end
        if is_complete and not self._incomplete:
            return False
        key = bytes(data[at + 4 : at + 17])
        half = self._incomplete.get(key)
        if half is not None and half.in_delivery:
            stop = at + 4 + len(half.performative)
            return stop <= at + size and data[at + 4 : stop] == half.performative
        layout = None if is_complete else self._layouts.get(key)
        return layout is not None and at + layout.end <= end and repeats(data, at, size, layout)

    def _repeated(
        self, data: memoryview, at: int, end: int, given: int, layout: Layout, is_regular: bool
    ) -> tuple[int, int, bool]:
        """Pass the transfers at *at* that repeat *layout*: where the next other frame begins.

        Also returns where the data begins that proton does not have, and whether to look for frames of one size.
        """
        head, tag_head, tail, least_bytes, unpack = (
            layout.head, layout.tag_head, layout.tail, layout.end, layout.unpack,
        )  # fmt: skip
        most_bytes, last, begin = self._most_bytes, end - least_bytes, at
        contents: list[bytes] | None = [] if at + _LEAST_RUN * _size_at(data, at)[0] <= end else None
        while at <= last:
            size, its_head, its_tag_head, its_tail = unpack(data, at)
            stop = at + size
            if (
                stop > end
                or not least_bytes <= size <= most_bytes
                or its_head != head
                or its_tag_head != tag_head
                or its_tail != tail
            ):
                break
            if is_regular and stop + RUN_FRAMES * size <= end and _size_at(data, stop)[0] == size:
                count = run(data, at, (end - at) // size, size, layout)
                is_regular = count >= RUN_FRAMES
                stop = at + count * size
                if contents is not None:
                    raw = bytes(data[at:stop])
                    contents += [raw[one - size + least_bytes : one] for one in range(size, len(raw) + 1, size)]
            elif contents is not None:
                contents.append(bytes(data[at + least_bytes : stop]))
            at = stop
        if contents and len(contents) >= _LEAST_RUN:
            self._handler.take_run(data[given:begin], data[begin:at], contents, layout.half, layout.is_settled)
            given = at
        return at, given, is_regular

    def _forget_layouts(self) -> None:
        self._layouts.clear()
        self._last = None

    def _forget_links(self) -> None:
        """Forget what later transfers are compared with, since links have ended."""
        self._forget_layouts()
        self._incomplete.clear()

    # ---- one frame ------------------------------------------------------------------------------------------------

    def _report(self, number: int, violation: Violation) -> None:
        self._handler.digest()
        self._forget_links()
        channel = self._channels.get(number)
        if violation.scope is Scope.CONNECTION:
            self._closing = True
        elif violation.scope is Scope.SESSION and channel is not None:
            channel.is_ended = True
        self._handler.violated(channel, violation)

    def _check(self, frame: bytes, number: int, at: int) -> bytes | None:
        """Check a frame: what proton is to have in its place, None for the frame itself. Raises `Violation`."""
        channel = self._channels.get(number)
        code = 0
        try:
            code, at = descriptor(frame, at)
            if self._closing:
                return None if code == CLOSE else b""
            if not OPEN <= code <= CLOSE:
                return None  # proton ends the connection here
            if not self._opened and code != OPEN:
                raise Violation(Scope.CONNECTION, "amqp:illegal-state", "the first frame must be an open (2.4.1)")
            if channel is not None and channel.is_ended and code not in (END, CLOSE):
                return b""
            return self._checked(code, frame, read(frame, at), number, channel)
        except Invalid as error:
            scope = Scope.SESSION if channel is not None and code not in (OPEN, BEGIN, END, CLOSE) else Scope.CONNECTION
            raise Violation(scope, _INVALID, str(error)) from error
        except (Malformed, IndexError, TypeError) as error:
            raise Violation(Scope.CONNECTION, "amqp:decode-error", f"a frame can't be decoded: {error}") from error

    def _checked(
        self, code: int, frame: bytes, fields: Performative, number: int, channel: Channel | None
    ) -> bytes | None:
        if code == OPEN:
            self._open(fields, number)
        elif code == BEGIN:
            return self._begin(frame, fields, number)
        elif channel is None:
            check(code, fields.raw)
            if code != CLOSE:
                raise Violation(Scope.CONNECTION, "amqp:not-allowed", f"channel {number} has no session (2.5.1)")
        elif code == ATTACH:
            return self._attach(frame, fields, channel)
        elif code == TRANSFER:
            return self._transfer(frame, fields, channel)
        elif code == FLOW:
            return self._flow(frame, fields, channel)
        elif code == DETACH:
            self._detach(fields, channel)
        elif code == DISPOSITION:
            _check_disposition(fields)
            self._is_state = self.names_transactions
            return frame if self._is_state else None
        else:
            if code == END:
                del self._channels[number]
                self._handles -= len(channel.handles)
                self.echoes = {asked: its for asked, its in self.echoes.items() if its is not channel}
                self._forget_links()
            check(code, fields.raw)
        return None

    def _open(self, fields: Performative, number: int) -> None:
        if number:
            reason = f"an open is sent on channel 0, not {number} (2.4.1)"
            raise Violation(Scope.CONNECTION, "amqp:not-allowed", reason)
        check(OPEN, fields.raw)
        if len(content_of(fields.raw[0])) > MOST_ID_BYTES:
            raise Violation(Scope.CONNECTION, _INVALID, f"a container-id has up to {MOST_ID_BYTES} bytes here")
        if 0 < (fields.number(4) or 0) < LEAST_IDLE_MS:  # heartbeats would come too late
            reason = f"an idle-time-out of less than {LEAST_IDLE_MS} ms is not supported (2.4.5)"
            raise Violation(Scope.CONNECTION, "amqp:not-implemented", reason)
        self._opened = True

    def _begin(self, frame: bytes, fields: Performative, number: int) -> bytes | None:
        """Check a begin. Proton gets one that answers a session of this side apart from other frames.

        Proton would map any session of the connection on a second channel, and use it there after it is freed.
        """
        if number in self._channels:
            raise Violation(Scope.CONNECTION, "amqp:not-allowed", f"channel {number} has a session already (2.5.1)")
        check(BEGIN, fields.raw)
        is_answer = bool(fields.raw) and fields.raw[0][0] != NULL
        if is_answer and not self._handler.awaits_begin():
            reason = "begin with a remote-channel on which no session waits for an answer (2.7.2)"
            raise Violation(Scope.CONNECTION, "amqp:not-allowed", reason)
        channel = self._channels[number] = Channel(is_answer=is_answer)
        self.begun.append(channel)
        return frame if is_answer else None

    def _attach(self, frame: bytes, fields: Performative, channel: Channel) -> bytes | None:
        check(ATTACH, fields.raw, _SCOPED)
        handle = fields.number(1) or 0
        if handle in channel.handles:
            raise Violation(Scope.SESSION, "amqp:session:handle-in-use", f"handle {handle} has a link already (2.7.3)")
        half = Half(fields)
        key = half.name, half.sends
        if key in channel.names:
            # ends the connection, as clients like Proton's `BlockingConnection` do not show the end of a session
            name = decode.complete(fields.raw[0])
            reason = f"the session has a link {name!r} of that direction already: keep it, or name the second one"
            raise Violation(Scope.CONNECTION, _INVALID, reason)
        if self._handles >= (most := self._handler.most_handles()):
            reason = f"a connection may have {most} attached handles, refused links among them: detach those"
            raise Violation(Scope.CONNECTION, "amqp:resource-limit-exceeded", reason)
        replacement = None
        try:
            self._check_attach(fields, half)
        except Invalid as error:
            half.refusal = Violation(Scope.LINK, _INVALID, str(error))
            replacement = bare_attach(frame, fields)
        channel.handles[handle] = half
        channel.names.add(key)
        self._handles += 1
        self.attached.append(half)
        return replacement

    def _check_attach(self, fields: Performative, half: Half) -> None:
        check(ATTACH, fields.raw)
        if half.sends and fields.number(_INITIAL_COUNT) is None:
            raise Invalid("attach of a sender without initial-delivery-count")
        for place in (_SOURCE, _TARGET):
            if place < len(fields.raw):
                check_terminus(fields.raw[place], is_source=place == _SOURCE)

    def _detach(self, fields: Performative, channel: Channel) -> None:
        check(DETACH, fields.raw)
        handle = fields.number(0) or 0
        half = self._half(channel, handle, "detach")
        del channel.handles[handle]
        self.echoes.pop(half, None)
        channel.names.discard((half.name, half.sends))
        self._handles -= 1
        self._forget_links()

    def _flow(self, frame: bytes, fields: Performative, channel: Channel) -> bytes | None:
        """Check a flow. One that names a transaction is passed on apart: proton does not show its properties."""
        check(FLOW, fields.raw)
        handle = fields.number(_FLOW_HANDLE)
        half = None if handle is None else self._half(channel, handle, "flow")
        # a drain without credit has no credit to return, so proton would not answer it (2.6.7)
        is_empty_drain = half is not None and not half.sends and fields.is_set(_DRAIN) and not fields.number(_CREDIT)
        is_echo = fields.is_set(_ECHO) or is_empty_drain
        if half is not None and (is_echo or half.limit is not None):
            half.limit = (fields.number(_COUNT) or 0) + (fields.number(_CREDIT) or 0)
        if is_echo:
            self.repeats += (half or channel) in self.echoes
            self.echoes[half or channel] = channel
        if half is not None and self.names_transactions:
            self._named = transaction_in(fields)
        return None if self._named is None else frame

    def _half(self, channel: Channel, handle: int, what: str) -> Half:
        half = channel.handles.get(handle)
        if half is None:
            reason = f"{what} for handle {handle}, which has no link (2.7.4)"
            raise Violation(Scope.SESSION, "amqp:session:unattached-handle", reason)
        return half

    def _transfer(self, frame: bytes, fields: Performative, channel: Channel) -> bytes | None:
        raw = fields.raw
        check(TRANSFER, raw, _IDS)
        half = self._half(channel, fields.number(0) or 0, "transfer")
        if not half.sends:
            reason = "a transfer came on a link on which its sender receives (2.7.5)"
            raise Violation(Scope.SESSION, "amqp:not-allowed", reason)
        is_first = not half.in_delivery
        if is_first and fields.number(1) is None:
            raise Invalid("the first transfer of a delivery has no delivery-id (2.7.5)")
        is_aborted = fields.is_set(_ABORTED)
        half.in_delivery = fields.is_set(_MORE) and not is_aborted
        if not is_first or half.in_delivery:
            self._forget_layouts()
        if half.refusal is not None:
            return bare_transfer(frame, fields, is_first=is_first)
        try:
            self._check_transfer(fields, half, is_first=is_first)
        except Invalid as error:
            half.refusal = Violation(Scope.LINK, _INVALID, str(error), half=half)
            half.refusal.replacement = bare_transfer(frame, fields, is_first=is_first)
            raise half.refusal from error
        resuming = None if half.link is None or half.link.closed else half.link.resuming
        if resuming is not None and fields.is_set(_RESUME):
            resuming.resumed.add(half.tag)
        if half.in_delivery:
            if len(self._incomplete) >= _MOST_LAYOUTS:
                self._incomplete.clear()
            half.performative = frame[4 : fields.end] if fields.end <= MOST_PERFORMATIVE_BYTES else _LONG
            self._incomplete[frame[_KEY]] = half
        elif is_first and not is_aborted and not fields.is_set(_RESUME):
            self._note_layout(frame, fields, half)
        return None

    def _check_transfer(self, fields: Performative, half: Half, *, is_first: bool) -> None:
        check(TRANSFER, fields.raw)
        tag = fields.raw[_TAG] if len(fields.raw) > _TAG else b"\x40"
        has_tag, value = tag[0] != NULL, tag[2 if tag[0] == 0xA0 else 5 :]
        if has_tag and len(value) > _MOST_TAG_BYTES:
            raise Invalid(f"a delivery-tag has up to {_MOST_TAG_BYTES} octets, found {len(value)} (2.8.7)")
        message_format = fields.number(_FORMAT)
        if is_first:
            if not has_tag:
                raise Invalid("the first transfer of a delivery has no delivery-tag (2.7.5)")
            half.format, half.tag = message_format or 0, value
            if half.format:
                half.formats[bytes(value)] = half.format
        else:
            if has_tag and value != half.tag:
                raise Invalid("the delivery-tag changes between transfers of a delivery (2.7.5)")
            if message_format not in (None, half.format):
                raise Invalid("the message-format changes between transfers of a delivery (2.7.5)")
        if fields.number(_MODE) == SECOND and not half.is_second and not fields.is_set(_SETTLED):
            raise Invalid("rcv-settle-mode is second on a link whose mode is first (2.7.5)")

    def _note_layout(self, frame: bytes, fields: Performative, half: Half) -> None:
        """Compare the next transfers with this one, if delivery-id and delivery-tag are written in the usual way."""
        layout = None if half.format else layout_of(frame, fields, half)
        if layout is None:
            return
        self._last = layout
        if len(self._layouts) >= _MOST_LAYOUTS:
            self._layouts.clear()
        self._layouts[frame[_KEY]] = layout


def _check_disposition(fields: Performative) -> None:
    check(DISPOSITION, fields.raw)
    first, last = fields.number(1) or 0, fields.number(2)
    if last is not None and (last - first) & 0xFFFFFFFF >= 1 << 31:
        raise Invalid(f"disposition of a range that runs backwards, from {first} to {last} (2.7.6)")

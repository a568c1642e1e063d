"""A connection to a broker: frames in, frames out, on one session with any number of links.

It maintains the state that AMQP requires: windows, credit, and the owner of each delivery ID. Each link processes its
own input (`client_links`). Runs of messages are passed on as runs.
"""

from __future__ import annotations

import socket
import ssl
import time
from collections import deque
from contextlib import suppress
from typing import Any

from ...base.errors import BrokerError
from ..codec.primitives import Malformed, descriptor
from ..codec.types import Described, Uint, Ushort
from ..frames import performatives as p
from ..frames.frame_runs import Transfer, is_disposition, is_transfer, outcomes_alike, read_run, read_transfer
from .links import ClientLink, Outgoing, Receiver
from .login import BrokerLogin, LoginSocket

MAX_FRAME = 64 << 10
WINDOW = 1 << 20
"""The number of incoming frames that the broker may send before the window is renewed."""
_BUFFER_BYTES = 512 << 10
_NEXT = 1 << 32


class LinkRefused(BrokerError):
    """The broker closed a link, or did not attach it."""

    def __init__(self, url: str, address: str, reason: str) -> None:
        super().__init__(f"{url}: {address}", reason)
        self.address = address
        self.condition = reason.partition(": ")[0]


class Wire:
    """A connected client. One thread; `fd` is readable when `read` has work, and writable when `write` has, if
    `blocked`."""

    def __init__(self, where: BrokerLogin, name: str) -> None:
        """Raises `BrokerError`."""
        self.where = where
        self.properties: dict[str, Any] = {}
        """The properties of the broker in its open frame."""
        self.max_frame = 512
        self.next_id = 0
        """The ID of the next delivery on this connection."""
        self.window = 0
        """The incoming window of the broker, in frames."""
        self.blocked = False
        self._links: dict[int, ClientLink] = {}
        self._remote: dict[int, ClientLink] = {}
        self._by_name: dict[str, ClientLink] = {}
        self._sent: deque[tuple[int, int, Outgoing, int]] = deque()
        """First and last id, whose they are, and the first one's number there."""
        self._sent_frames = self._came_frames = 0
        self._peer_first_id = 0
        self._begun = self._opened = False
        self._flow_due = False
        self._pulse_s = 0.0
        """The interval at which the broker expects frames, in seconds."""
        self._wrote_s = time.monotonic()
        self._out = bytearray()
        self._buffer = bytearray(_BUFFER_BYTES)
        self._view = memoryview(self._buffer)
        self._filled = 0
        door = LoginSocket(where)
        door.enter()
        self._sock: socket.socket = door.sock
        self.fd = self._sock.fileno()
        self.send_frames(p.frame(p.OPEN, name, where.host, Uint(MAX_FRAME), Ushort(0)))
        self.send_frames(p.frame(p.BEGIN, None, Uint(0), Uint(WINDOW), Uint(WINDOW), Uint(1023)))
        try:
            self._await_open()
        except BaseException:
            self._sock.close()
            raise
        self._sock.setblocking(False)

    # ---- links

    def attach(self, link: ClientLink) -> None:
        """Attach a link; it can be used when its `attached` is true."""
        link.handle = len(self._links)
        self._links[link.handle] = link
        self._by_name[link.name] = link
        self.send_frames(link.attach_frame())

    def detach(self, link: ClientLink) -> None:
        """Detach and close a link of this side."""
        self.send_frames(p.frame(p.DETACH, Uint(link.handle), True))
        link.closing = True

    def send(self, link: Outgoing, frames: bytes | memoryview, messages: int, frame_count: int, number: int) -> None:
        """Put messages on the wire; *number*: the first one's at its link. Window and credit are the caller's care.

        Frames of a message that was counted before come with *messages* 0.
        """
        first = self.next_id
        last = first + messages - 1
        if not messages:
            pass
        elif self._sent and self._sent[-1][2] is link and self._sent[-1][1] == first - 1:
            begin, _, _, begin_number = self._sent.pop()
            self._sent.append((begin, last, link, begin_number))
        else:
            self._sent.append((first, last, link, number))
        self.next_id += messages
        self.window -= frame_count
        self._sent_frames += frame_count
        self.send_frames(frames)

    def flow(self, link: Receiver) -> None:
        """Send a link's credit and the window of the session."""
        count = Uint(link.delivery_count & 0xFFFFFFFF)
        self.send_frames(self._flow(Uint(link.handle), count, Uint(link.credit), None, link.drains))
        self._flow_due = False

    # ---- bytes

    def read(self) -> None:
        """Read the available input and pass it to the links. Raises `BrokerError` if the connection is lost."""
        while True:
            try:
                size = self._sock.recv_into(self._view[self._filled :])
            except (BlockingIOError, ssl.SSLWantReadError):
                break
            except OSError as error:
                raise self._removed(str(error)) from error
            if not size:
                raise self._removed("the broker closed the connection")
            self._filled += size
            full = self._filled == _BUFFER_BYTES
            self._digest()
            if not full and not isinstance(self._sock, ssl.SSLSocket):
                break
        if self._flow_due:
            self.send_frames(self._flow())
            self._flow_due = False

    def write(self) -> None:
        """Write pending output to the socket."""
        while self._out:
            try:
                del self._out[: self._sock.send(self._out)]
            except (BlockingIOError, ssl.SSLWantWriteError):
                break
            except OSError as error:
                raise self._removed(str(error)) from error
        self.blocked = bool(self._out)

    @property
    def waiting_bytes(self) -> int:
        """Return the number of bytes that were put and are not written yet."""
        return len(self._out)

    def pulse(self, now_s: float) -> None:
        """Send an empty frame if the idle timeout of the broker requires it."""
        if self._pulse_s and now_s - self._wrote_s > self._pulse_s:
            self.send_frames(p.EMPTY_FRAME)

    def close(self) -> None:
        """Close the connection, as far as the network still permits."""
        with suppress(OSError):
            self._sock.settimeout(2.0)
            self.send_frames(p.frame(p.CLOSE))
            self._sock.sendall(self._out)
            self._out.clear()
            while self._sock.recv(1 << 16):
                pass
        self._sock.close()

    def cut(self) -> None:
        """Close the socket without an AMQP close."""
        self._sock.close()

    # ---- inside

    def _await_open(self) -> None:
        end_s = time.monotonic() + self.where.timeout_s
        while not self._begun:
            left_s = end_s - time.monotonic()
            if left_s <= 0:
                raise self._removed(f"no answer to the open of the connection within {self.where.timeout_s:g} s")
            self._sock.settimeout(left_s)
            try:
                self._sock.sendall(self._out)
                self._out.clear()
                size = self._sock.recv_into(self._view[self._filled :])
            except TimeoutError:
                continue
            except OSError as error:
                raise self._removed(str(error)) from error
            if not size:
                raise self._removed("the broker closed the connection")
            self._filled += size
            self._digest()

    def send_frames(self, frames: bytes | memoryview) -> None:
        """Put frames on the wire. Those of messages are put by `send`."""
        if not self._out and len(frames) > 4096 and self._opened and not self.blocked:
            try:
                frames = frames[self._sock.send(frames) :]
            except (BlockingIOError, ssl.SSLWantWriteError):
                pass
            except OSError as error:
                raise self._removed(str(error)) from error
            self.blocked = bool(frames)
        self._out += frames
        self._wrote_s = time.monotonic()

    def _digest(self) -> None:
        """Process the complete frames in the buffer; move the rest to its beginning."""
        at, end, buffer, view = 0, self._filled, self._buffer, self._view
        try:
            while end - at >= p.HEADER_BYTES:
                size = int.from_bytes(buffer[at : at + 4])
                if not p.HEADER_BYTES <= size <= _BUFFER_BYTES:
                    raise self._removed(f"a frame of {size} bytes")
                if end - at < size:
                    break
                frame = view[at : at + size]
                if is_transfer(frame):
                    at += self._transfers(view[at:end], size)
                    continue
                if is_disposition(frame):
                    at += self._dispositions(view[at:end], size)
                    continue
                if size > p.HEADER_BYTES:
                    self._frame(bytes(frame))
                at += size
        except (Malformed, IndexError, TypeError, KeyError) as error:
            raise self._removed(f"it sent data that is not AMQP: {error!r}") from error
        if at:
            buffer[: end - at] = buffer[at:end]
        self._filled = end - at

    def _transfers(self, data: memoryview, size: int) -> int:
        head = read_transfer(data[:size])
        link: Any = self._remote[head.handle]
        run = read_run(data, head, size) if not link.partial and link.in_runs else None
        if run is None:
            self._count_in(1)
            self._part(link, head, bytes(data[head.payload_at : size]))
            return size
        self._count_in(run.messages)
        link.came_run(run)
        return run.size_bytes

    def _dispositions(self, data: memoryview, size: int) -> int:
        count = outcomes_alike(data, size)
        frame = bytes(data[:size])
        fields = p.fields_of(frame, descriptor(frame, frame[4] * 4)[1], 5)
        if count > 1:
            fields[2] = fields[1] + count - 1
        self._disposition(fields)
        return count * size

    def _part(self, link: Receiver, head: Transfer, payload: bytes) -> None:
        """A frame of a message that has several, or is not one of a run."""
        if head.delivery_id is not None:
            link.partial_id, link.partial_settled = head.delivery_id, head.settled
        link.partial.append(payload)
        if head.more:
            return
        message = b"".join(link.partial)
        link.partial.clear()
        if not head.aborted:
            link.came(link.partial_id, message, link.partial_settled or head.settled)

    def _count_in(self, frames: int) -> None:
        before = self._came_frames // (WINDOW // 4)
        self._came_frames += frames
        self._flow_due |= self._came_frames // (WINDOW // 4) != before

    def _frame(self, frame: bytes) -> None:
        code, at = descriptor(frame, frame[4] * 4)
        fields = p.fields_of(frame, at, 14)
        if code == p.FLOW:
            self._flowed(fields)
        elif code == p.ATTACH:
            link = self._by_name.get(fields[0])
            if link is not None:
                self._remote[fields[1]] = link
                link.came_attach(fields)
        elif code == p.DETACH:
            link = self._remote.get(fields[0])
            if link is not None and not link.closing:
                raise LinkRefused(self.where.url, link.address, p.error_text(fields[2]) or "the link was closed")
        elif code == p.OPEN:
            self._opened = True
            self.max_frame = min(fields[2] if fields[2] is not None else MAX_FRAME, MAX_FRAME)
            self._pulse_s = (fields[4] or 0) / 2000
            self.properties = fields[9] if isinstance(fields[9], dict) else {}
        elif code == p.BEGIN:
            self._begun = True
            self._peer_first_id = fields[1]
            self.window = fields[2]
        elif code in (p.END, p.CLOSE):
            reason = p.error_text(fields[0])
            raise self._removed(f"the broker closed the connection{': ' if reason else ''}{reason}")

    def _flowed(self, fields: list[Any]) -> None:
        next_incoming, window, handle, echo = fields[0], fields[1], fields[4], fields[9]
        seen = next_incoming if next_incoming is not None else 0
        in_flight = (self._sent_frames - seen) % _NEXT
        self.window = window - in_flight
        if handle is not None:
            link = self._remote.get(handle)
            if link is not None:
                link.came_flow(fields[5], fields[6] or 0, echo=bool(echo))
        elif echo:
            self._flow_due = True
        for one in self._links.values():
            one.came_window()

    def _flow(self, *link: Any) -> bytes:
        incoming = Uint((self._peer_first_id + self._came_frames) % _NEXT)
        return p.frame(p.FLOW, incoming, Uint(WINDOW), Uint(self._sent_frames % _NEXT), Uint(WINDOW), *link)

    def _disposition(self, fields: list[Any]) -> None:
        receiver_says, first, last, settled, state = fields[:5]
        last = first if last is None else last
        if not receiver_says:
            return  # a sender has settled its deliveries
        if not settled and outcome_of(state)[0]:  # it waits for our word
            self.send_frames(p.frame(p.DISPOSITION, False, Uint(first), Uint(last), True))
        for low, high, link, number in self._sent:
            if low > last:
                break
            begin, end = max(low, first), min(high, last)
            if begin <= end:
                link.came_outcome(number + begin - low, number + end - low, state)
        while len(self._sent) > 1 and self._sent[0][2].is_settled(
            self._sent[0][3] + self._sent[0][1] - self._sent[0][0]
        ):
            self._sent.popleft()

    def _removed(self, reason: str) -> BrokerError:
        return BrokerError(self.where.url, reason, "see the log of the broker")


def outcome_of(state: Described | None) -> tuple[int, list[Any]]:
    """Return the outcome in a delivery state, also in a transactional one, and its fields."""
    code, fields = p.state_of(state)
    if code == p.TRANSACTIONAL:
        return p.state_of(fields[1] if len(fields) > 1 else None)
    return code, fields

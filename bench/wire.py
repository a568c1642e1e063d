"""A client connection with a non-blocking socket and the C functions of the proton engine."""

from __future__ import annotations

import select
import socket
from collections.abc import Sequence

from cairnmq.amqp.native.proton_ffi import NULL, REMOTE_CLOSED, Pointer, condition_text, ffi, lib

from .table import BenchError

SILENCE_S = 30.0
FRAME_BYTES = 64 << 10
_READ_BYTES = 256 << 10
_LOCAL_UNINIT, _REMOTE_ACTIVE = int(lib.PN_LOCAL_UNINIT), int(lib.PN_REMOTE_ACTIVE)


class Wire:
    """A connection with one link, a non-blocking socket, and a proton engine without an event collector."""

    def __init__(
        self, sock: socket.socket, name: str, *, server: bool = False, buffer_bytes: int = _READ_BYTES
    ) -> None:
        sock.setblocking(False)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.link: Pointer = NULL
        self._sock = sock
        self._connection = lib.pn_connection()
        self._transport = lib.pn_transport()
        self._buffer_bytes = buffer_bytes
        self._in = bytearray(buffer_bytes)
        self._in_pointer = ffi.from_buffer("char[]", self._in)
        self._out = bytearray(buffer_bytes)
        self._out_pointer = ffi.from_buffer("char[]", self._out)
        self._out_view = memoryview(self._out)
        self._poll = select.poll()
        self._poll.register(sock, select.POLLIN)
        self._writing = False
        lib.pn_connection_set_container(self._connection, name.encode())
        lib.pn_connection_set_hostname(self._connection, b"localhost")
        if server:
            lib.pn_transport_set_server(self._transport)
        lib.pn_transport_set_max_frame(self._transport, FRAME_BYTES)
        lib.pn_sasl_allowed_mechs(lib.pn_sasl(self._transport), b"ANONYMOUS")
        lib.pn_transport_bind(self._transport, self._connection)
        lib.pn_connection_open(self._connection)

    def attach(self, address: str, name: str, *, sender: bool) -> None:
        """Open the link to *address* and wait for the answer."""
        session = lib.pn_session(self._connection)
        lib.pn_session_set_incoming_capacity(session, 64 << 20)
        lib.pn_session_open(session)
        self.link = (lib.pn_sender if sender else lib.pn_receiver)(session, name.encode())
        for terminus in (lib.pn_link_source(self.link), lib.pn_link_target(self.link)):
            lib.pn_terminus_set_address(terminus, address.encode())
        lib.pn_link_set_snd_settle_mode(self.link, lib.PN_SND_UNSETTLED)
        lib.pn_link_set_rcv_settle_mode(self.link, lib.PN_RCV_FIRST)
        lib.pn_link_open(self.link)
        while not lib.pn_link_state(self.link) & _REMOTE_ACTIVE:
            self.turn()

    def attach_all(self, addresses: Sequence[str]) -> None:
        """Open a sender to each of *addresses* in one session at once and wait for all answers."""
        session = lib.pn_session(self._connection)
        lib.pn_session_open(session)
        links = []
        for number, address in enumerate(addresses):
            link = lib.pn_sender(session, f"link-{number}".encode())
            lib.pn_terminus_set_address(lib.pn_link_target(link), address.encode())
            lib.pn_link_open(link)
            links.append(link)
        for self.link in links:
            while not lib.pn_link_state(self.link) & _REMOTE_ACTIVE:
                self.turn()

    def coordinator(self) -> Pointer:
        """Attach a link to the coordinator in the same session and return the link."""
        control = lib.pn_sender(lib.pn_link_session(self.link), b"control")
        lib.pn_terminus_set_type(lib.pn_link_target(control), lib.PN_COORDINATOR)
        lib.pn_link_open(control)
        while not lib.pn_link_state(control) & _REMOTE_ACTIVE:
            self.turn()
        return control

    def await_attach(self) -> None:
        """Wait until the peer opens the link and accept its source and target."""
        state = _LOCAL_UNINIT | _REMOTE_ACTIVE
        while not (link := lib.pn_link_head(self._connection, state)):
            self.turn()
        session = lib.pn_link_session(link)
        lib.pn_session_set_incoming_capacity(session, 64 << 20)
        lib.pn_session_open(session)
        lib.pn_terminus_copy(lib.pn_link_source(link), lib.pn_link_remote_source(link))
        lib.pn_terminus_copy(lib.pn_link_target(link), lib.pn_link_remote_target(link))
        lib.pn_link_open(link)
        self.link = link

    def turn(self, wait_ms: int = 0) -> None:
        """Write pending output, wait for input, and process the input.

        Without input within `SILENCE_S`, raise `BenchError`; with *wait_ms*, return after that time instead.
        """
        self.write()
        self.check()
        if not self._poll.poll(wait_ms or SILENCE_S * 1000):
            if wait_ms:
                return
            raise BenchError(f"nothing was heard for {SILENCE_S:.0f} s")
        try:
            size = self._sock.recv_into(self._in)
        except BlockingIOError:
            return
        done = 0
        while done < size:
            taken = lib.pn_transport_push(self._transport, self._in_pointer + done, size - done)
            if taken <= 0:
                break
            done += taken
        if not size:
            lib.pn_transport_close_tail(self._transport)
        if done < size or not size:
            self.check()

    def write(self) -> None:
        """Write pending output until the socket would block."""
        blocked = False
        while (due := lib.pn_transport_pending(self._transport)) > 0:
            size = lib.pn_transport_peek(self._transport, self._out_pointer, min(due, self._buffer_bytes))
            try:
                lib.pn_transport_pop(self._transport, self._sock.send(self._out_view[:size]))
            except BlockingIOError:
                blocked = True
                break
        if blocked != self._writing:
            self._writing = blocked
            self._poll.modify(self._sock, select.POLLIN | (select.POLLOUT if blocked else 0))

    def flush(self) -> None:
        """Write all pending output, waiting for the socket if necessary."""
        self.write()
        while self._writing:
            if not select.select([], [self._sock], [], SILENCE_S)[1]:
                raise BenchError(f"nothing was taken for {SILENCE_S:.0f} s")
            self.write()

    def check(self) -> None:
        """Raise `BenchError` if the peer closed the link or the connection."""
        if self.link and lib.pn_link_state(self.link) & REMOTE_CLOSED:
            raise BenchError(f"the link was closed: {condition_text(lib.pn_link_remote_condition(self.link))}")
        if lib.pn_connection_state(self._connection) & REMOTE_CLOSED:
            error = condition_text(lib.pn_connection_remote_condition(self._connection))
            raise BenchError(f"the connection was closed: {error}")
        if lib.pn_transport_closed(self._transport):
            raise BenchError(f"the connection broke: {condition_text(lib.pn_transport_condition(self._transport))}")

    def close(self) -> None:
        """Close the connection, read pending input, and check that the peer closes the connection, too."""
        lib.pn_connection_close(self._connection)
        try:
            while True:
                self.turn()
        except (BenchError, ConnectionError):
            pass
        if not lib.pn_connection_state(self._connection) & REMOTE_CLOSED:
            raise BenchError("the goodbye was not answered")

    def free(self) -> None:
        self._sock.close()
        lib.pn_transport_unbind(self._transport)
        lib.pn_decref(self._transport)
        lib.pn_connection_release(self._connection)

"""A client link whose unsettled deliveries survive the client, for effects that happen once. Blocking, one thread."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from .client.login import BrokerLogin, LoginSocket
from .codec import decode
from .codec.types import Described, Ubyte, Uint, Ushort
from .frames import performatives as p

ACCEPTED = p.ACCEPTED_STATE
"""The outcome of a delivery that was processed."""
_CREDIT = 100
_KEPT_S = 3600
_SECOND = Ubyte(1)  # the receiver settles after the sender
_UNSETTLED_STATE = Uint(2)


class ResumableLink:
    """A link on a connection of its own. The container ID and the name identify it, also at the next connection."""

    def __init__(
        self, address: str, container: str, name: str, queue: str, unsettled: Mapping[bytes, Described | None], *,
        receives: bool,
    ) -> None:  # fmt: skip
        """Connect to `host:port`, and attach the link. The broker keeps its state for an hour without a connection.

        *unsettled*: the deliveries by tag whose settlement the client does not know, each with its outcome if there is
        one. Raises `BrokerError`.
        """
        host, _, port = address.rpartition(":")
        login = LoginSocket(BrokerLogin(host, int(port)))
        login.enter()
        self._socket = login.sock
        self._others: list[tuple[int, list[Any], bytes]] = []
        """Frames that arrived while another one was expected."""
        self._receives = receives
        self._number = 0
        self._put(p.OPEN, container, host, Uint(65536), Ushort(0))
        self._put(p.BEGIN, None, Uint(0), Uint(2048), Uint(2048))
        remote = p.described(p.SOURCE if receives else p.TARGET, queue, _UNSETTLED_STATE, None, Uint(_KEPT_S))
        local = p.described(p.TARGET if receives else p.SOURCE, "client")
        source, target = (remote, local) if receives else (local, remote)
        count = None if receives else Uint(0)
        mode = Ubyte(0)
        self._put(p.ATTACH, name, Uint(0), receives, mode, _SECOND, source, target, dict(unsettled), None, count)
        self.unsettled: dict[bytes, Described | None] = self._get(p.ATTACH)[0][7] or {}
        """The deliveries by tag that the broker has not forgotten, with their states."""
        if receives:
            self._put(p.FLOW, Uint(0), Uint(2048), Uint(0), Uint(2048), Uint(0), Uint(0), Uint(_CREDIT))
        else:
            while self._get(p.FLOW)[0][6] is None:  # credit
                pass

    def send(self, tag: bytes, message: bytes) -> Described:
        """Send an encoded message, and return its outcome. Raises `ConnectionError`."""
        self._transfer(tag, message)
        found: Described = self._get(p.DISPOSITION)[0][4]
        return found

    def settle_sent(self) -> None:
        """Settle the message that was sent last: the broker forgets its tag."""
        self._put(p.DISPOSITION, False, Uint(self._number - 1), Uint(self._number - 1), True, ACCEPTED)

    def forget(self, tag: bytes) -> None:
        """Settle a delivery of an earlier connection that is in `unsettled`, without content."""
        self._transfer(tag, settled=True, resume=True)

    def receive(self) -> tuple[int, bytes, bytes]:
        """Wait for a message; return the number of the delivery, its tag and the encoded message."""
        fields, message = self._get(p.TRANSFER)
        return fields[1], bytes(fields[2]), message

    def accept(self, number: int) -> None:
        """Accept the delivery *number*, and wait until the broker has settled it: the message is removed."""
        self._put(p.DISPOSITION, True, Uint(number), Uint(number), False, ACCEPTED)
        while not self._get(p.DISPOSITION)[0][3]:
            pass

    def _transfer(self, tag: bytes, message: bytes = b"", *, settled: bool = False, resume: bool = False) -> None:
        fields = (Uint(0), Uint(self._number), tag, Uint(0), settled, False, None, None, resume)
        self._put(p.TRANSFER, *fields, payload=message)
        self._number += 1

    def _put(self, code: int, *fields: Any, payload: bytes = b"") -> None:
        self._socket.sendall(p.frame(code, *fields, payload=payload))

    def _get(self, wanted: int) -> tuple[list[Any], bytes]:
        """Return the fields and the payload of the next frame of this kind."""
        for one in self._others:
            if one[0] == wanted:
                self._others.remove(one)
                return one[1:]
        while True:
            frame = self._read(4)
            frame += self._read(int.from_bytes(frame) - 4)
            if len(frame) > p.HEADER_BYTES:  # else it is a heartbeat
                performative, end = decode.value(frame, p.HEADER_BYTES)
                one = int(performative.descriptor), performative.value + [None] * 8, frame[end:]
                if one[0] == wanted:
                    return one[1:]
                self._others.append(one)

    def _read(self, size: int) -> bytes:
        data = b""
        while len(data) < size:
            part = self._socket.recv(size - len(data))
            if not part:
                raise ConnectionError("the broker closed the connection")
            data += part
        return data

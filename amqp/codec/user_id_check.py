"""Check of the user-id of a message while its sections arrive.

The user-id is a field of the properties. On connections with a login, the broker guarantees that it is correct. A
message with another user-id is rejected. So is a message whose sections are out of order, because other readers might
find a user-id that was not found here (A15).
"""

from __future__ import annotations

from .header import HEADER
from .primitives import Cut, Malformed, descriptor, extent, head
from .sections import DATA, FOOTER, PROPERTIES, SEQUENCE, VALUE, index, properties

_HEAD_BYTES = 64
"""More than a section's descriptor, type and size take."""
_LONGEST_BYTES = 64 << 10
"""The maximum size of properties that arrive in pieces."""
_SIGNS = (b"\x00\x53\x73", b"\x00\x80\0\0\0\0\0\0\0\x73", b"amqp:properties:list")
"""The encodings of the descriptor at the beginning of a properties section."""


class NotTheSender(Exception):
    """The user-id of the message differs from the user of the connection."""


def condition_of(error: NotTheSender | Malformed) -> tuple[str, str]:
    """The AMQP error that a message is refused with."""
    return "amqp:unauthorized-access" if isinstance(error, NotTheSender) else "amqp:decode-error", str(error)


def vouch(content: bytes, user: str) -> None:
    """Check that the user-id of a complete message, if any, is *user*. Raises `NotTheSender`, or `Malformed`."""
    if any(sign in content for sign in _SIGNS):
        section = index(content).properties
        if section is not None:
            _look(content, section.value, user)


def _look(content: bytes, at: int, user: str) -> None:
    if properties(content, at).user_id not in (None, user.encode()):
        raise NotTheSender("the message's user-id is not the user that is logged in")


class Walk:
    """The way along a message that arrives in pieces."""

    def __init__(self, user: str) -> None:
        """*user*: the user of the connection."""
        self._user = user
        self._skip_bytes = 0
        self._tail = b""
        self._last = 0

    def feed(self, data: bytes, *, last: bool) -> None:
        """Check the next bytes of the message. Raises as `vouch`."""
        data = self._tail + data
        self._tail = b""
        at = self._skip_bytes
        while at < len(data):
            left = len(data) - at
            try:
                section, start = descriptor(data, at)
                value = start
                while section == VALUE and data[value : value + 1] == b"\0":  # it is described
                    value = extent(data, value + 1)[2]
                _, _, end = head(data, value)
            except Cut:
                if last or left >= _HEAD_BYTES:
                    raise
                self._wait(data, at)
                return
            if not HEADER <= section <= FOOTER:
                raise Malformed(f"a message has no section 0x{section:02x}")
            if section <= self._last and not section == self._last in (DATA, SEQUENCE):
                raise Malformed(f"section 0x{section:02x} stands behind section 0x{self._last:02x}")
            if DATA <= self._last < section < FOOTER:
                raise Malformed("a message's body is of two kinds")
            if section == PROPERTIES:
                if end > len(data) and not last and left < _LONGEST_BYTES:
                    self._wait(data, at)
                    return
                _look(data, start, self._user)
            self._last = section
            at = end
        self._skip_bytes = at - len(data)
        if last and self._skip_bytes:
            raise Cut("the message ends within a section")

    def _wait(self, data: bytes, at: int) -> None:
        self._tail, self._skip_bytes = data[at:], 0

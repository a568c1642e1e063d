"""The worker's side of a socket: a terminal, or a terminal behind TLS."""

from __future__ import annotations

from collections.abc import Sized
from typing import NamedTuple, Protocol


class Turn(NamedTuple):
    """The effect of what a connection digested last."""

    controls_left: int
    """Control frames that are still allowed."""
    is_behind: bool
    """Something that was read waits: nothing more should be read."""
    has_messages: bool
    """True if messages or outcomes of messages arrived."""
    is_small: bool
    """True if something complete arrived, and no long message is being received or sent."""


class Conversation(Protocol):
    """A terminal, or a terminal behind TLS, as a worker uses it; `Terminal` documents its methods."""

    name: str

    @property
    def user(self) -> str: ...

    @property
    def closed(self) -> bool: ...

    @property
    def is_opening(self) -> bool: ...

    @property
    def brings_long(self) -> bool: ...

    @property
    def patience_s(self) -> float: ...

    @property
    def holding(self) -> Sized: ...

    @property
    def routing(self) -> Sized: ...

    def receive(self, data: bytes | memoryview, controls: int) -> Turn: ...

    def go_on(self, controls: int) -> Turn: ...

    def is_full(self) -> bool: ...

    def end_input(self) -> None: ...

    def output(self) -> bytes | memoryview: ...

    def sent(self, size_bytes: int) -> bytes | memoryview: ...

    def finished(self) -> bool: ...

    def takes_long(self) -> bool: ...

    def unanswered(self) -> int: ...

    def client_is_done(self) -> bool: ...

    def tick(self, now_ms: int) -> int: ...

    def do_work(self) -> bool: ...

    def give_up(self) -> None: ...

    def shut_down(self) -> None: ...

    def free(self) -> None: ...

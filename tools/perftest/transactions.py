"""A client's end of the coordinator: one open transaction at a time, while earlier ones may still be committing."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ...amqp.client.links import Sender
from ...amqp.client.wire import Wire
from ...amqp.codec import encode
from ...amqp.frames import performatives as p
from ...base.errors import BrokerError


class Coordinator:
    """The coordinator link on a wire; the creator attaches it."""

    def __init__(self, wire: Wire, name: str) -> None:
        self.link = Sender(wire, name, "the coordinator", coordinator=True)
        self.txn_id = b""
        """The ID of the open transaction; empty if none is open."""
        self.committing = 0
        self._declaring = False

    @property
    def idle(self) -> bool:
        """True if no transaction is open, or about to be opened."""
        return not self.txn_id and not self._declaring

    def declare(self, then: Callable[[bytes], None]) -> None:
        self._declaring = True

        def declared(fields: list[Any]) -> None:
            self._declaring = False
            self.txn_id = bytes(fields[0])
            then(self.txn_id)

        self._request("declare", p.DECLARED, declared, p.DECLARE)

    def commit(self, then: Callable[[], None]) -> None:
        """Commit the open transaction. It counts as closed immediately, before the broker answers."""
        txn_id, self.txn_id = self.txn_id, b""
        self.committing += 1

        def committed(fields: list[Any]) -> None:
            self.committing -= 1
            then()

        self._request("commit", p.ACCEPTED, committed, p.DISCHARGE, txn_id, False)

    def _request(self, name: str, expected: int, then: Callable[[list[Any]], None], code: int, *about: Any) -> None:
        def came(state: Any) -> None:
            outcome, fields = p.state_of(state)
            if outcome != expected or (outcome == p.DECLARED and not fields):
                rejection = p.error_text(fields[0]) if outcome == p.REJECTED and fields else f"0x{outcome:02x}"
                raise BrokerError(name, f"the coordinator said {rejection}", "see the broker's log")
            then(fields)

        self.link.post(encode.described(0x77, encode.value(p.described(code, *about))), came)

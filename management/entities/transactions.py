"""Transactions that are not over: open ones of clients, and distributed ones in doubt."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

from ...amqp.codec.types import Timestamp
from ...broker.kernel.connections import Connections
from ...broker.kernel.context import CoreContext
from ...broker.nodes.access_control import MANAGE
from ...broker.transactions.registry import Transactions
from ...broker.transactions.staging import ROLLBACK
from ...broker.transactions.transaction import ClientTransaction
from ...broker.transactions.xa import InDoubt
from ..protocol.call import Call
from ..protocol.entity import Operation, Type, number, string, time
from ..protocol.request import BAD_REQUEST, Refusal, flag


class ListedTransaction(NamedTuple):
    """A transaction in the answers of management: an open one of a client, or a distributed one in doubt."""

    name: str
    state: str
    operations: int
    since: Timestamp | None = None
    connection: str | None = None
    transaction: ClientTransaction | None = None


class TransactionType(Type):
    name = "transaction"
    meaning = (
        "An open transaction of a client, or a distributed transaction in doubt: prepared, or decided without its "
        "coordinator. The name of a distributed transaction is its xid."
    )

    def __init__(
        self, core: CoreContext, connections: Connections, open_transactions: Transactions, in_doubt: InDoubt
    ) -> None:
        self._core = core
        self._connections = connections
        self._open_transactions = open_transactions
        self._in_doubt = in_doubt
        super().__init__(
            (
                string("state", "The state of the transaction.", lambda t: t.state),
                number("operations", "Enqueues and dequeues of the transaction.", lambda t: t.operations),
                time("since", "The time of the declaration, if it is open.", lambda t: t.since),
                number("age-seconds", "Seconds since the declaration.", self._age_s),
                string("connection", "The identity of the client's connection, if it is open.", lambda t: t.connection),
            ),
            (
                Operation("PREPARE", (), "Prepares a transaction that its client has discharged (first phase).",
                          self._prepare),
                Operation("COMMIT", (), "Commits the transaction (second phase, or the only one).", self._commit),
                Operation("ROLLBACK", (), "Rolls the transaction back; the client receives the error at its discharge.",
                          self._rollback),
                Operation(
                    "DECIDE", ("commit",),
                    "Decides a prepared transaction without its coordinator, and stores the decision.",
                    self._decide,
                ),
                Operation("FORGET", (), "Removes the decision of a transaction.", self._forget),
            ),
        )  # fmt: skip

    def all(self) -> list[Any]:
        in_doubt = [
            ListedTransaction(one.xid.hex(), one.state.value, len(one.operations))
            for one in self._core.store.transactions.in_doubt()
        ]
        return [*in_doubt, *self._open()]

    def _open(self) -> Iterator[ListedTransaction]:
        by_end = self._connections.by_end
        for end, one in self._open_transactions.open():
            connection = by_end.get(end)
            name = (one.xid or one.id).hex()
            since = Timestamp(one.since_us // 1000)
            identity = None if connection is None else connection.identity
            yield ListedTransaction(name, "open", one.operations, since, identity, one)

    def name_of(self, entity: ListedTransaction) -> str:
        return entity.name

    def _age_s(self, entity: ListedTransaction) -> int | None:
        now_ms = self._core.clock.wall_us() // 1000
        return None if entity.since is None else max(0, now_ms - entity.since) // 1000

    def _xid(self, call: Call) -> bytes:
        """Parse the name of a transaction: its XID in hexadecimal digits."""
        call.asked()
        call.check(MANAGE, "")
        try:
            return bytes.fromhex(call.name())
        except ValueError as error:
            raise Refusal(BAD_REQUEST, "the name of a transaction is its xid in hexadecimal digits") from error

    def _prepare(self, call: Call) -> None:
        self._in_doubt.prepare(self._xid(call), call.answer)

    def _commit(self, call: Call) -> None:
        self._in_doubt.commit(self._xid(call), call.answer)

    def _rollback(self, call: Call) -> None:
        xid = self._xid(call)
        found = next((one.transaction for one in self._open() if one.name == call.name()), None)
        if found is None:
            self._in_doubt.rollback(xid, call.answer)
        else:
            lsn = found.roll_back(ROLLBACK, "management rolled it back")
            self._core.commits.when_durable(lsn, call.answer)

    def _decide(self, call: Call) -> None:
        self._in_doubt.decide(self._xid(call), call.answer, commit=flag(call.asked(), "commit", False))

    def _forget(self, call: Call) -> None:
        self._in_doubt.forget(self._xid(call), call.answer)

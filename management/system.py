"""The broker itself, its store, and the transactions that are not over."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields
from functools import partial
from importlib.metadata import version
from typing import Any

from ..amqp.values import Timestamp
from ..broker.access import MANAGE
from ..broker.broker import Broker
from ..store.journal_store import JournalStore
from ..store.metrics import JournalMetrics, measure
from ..store.transaction import Transaction
from .call import Call
from .entity import Attribute, Operation, Type
from .request import BAD_REQUEST, Refusal, flag, only


class One(Type):
    """A type of which there is one, called as its type is."""

    def all(self) -> list[Any]:
        return [self]

    def find(self, name: str) -> Any:
        return self if name in (self.name, "self") else None

    def name_of(self, entity: Any) -> str:
        return self.name


class BrokerType(One):
    name = "broker"
    meaning = "The broker. There is one, called `broker`."

    def __init__(self, broker: Broker) -> None:
        begun_us = broker.clock.wall_us()
        begun_s = broker.clock.monotonic_s()
        nodes, connections, memory = broker.nodes, broker.connections, broker.memory
        super().__init__(
            (
                Attribute("version", "string", "CairnMQ's.", lambda _: version("cairnmq")),
                Attribute("since", "time", "When it started.", lambda _: Timestamp(begun_us // 1000)),
                Attribute(
                    "uptime-seconds", "number", "How long ago that was.",
                    lambda _: int(broker.clock.monotonic_s() - begun_s),
                ),
                Attribute("queues", "number", "Queues there are.", lambda _: len(nodes.queues)),
                Attribute("exchanges", "number", "Exchanges there are.", lambda _: len(nodes.exchanges)),
                Attribute("connections", "number", "Connections there are.", lambda _: len(connections.by_end)),
                Attribute("links", "number", "Links there are.", lambda _: len(connections.links)),
                Attribute("memory-used-bytes", "number", "What waiting messages hold.", lambda _: memory.used_bytes),
                Attribute("memory-limit-bytes", "number", "What they may hold.", lambda _: memory.limit_bytes),
            ),
            (),
        )  # fmt: skip


class StoreType(One):
    """Its attributes beyond the first are those of a journal, null for a store that has none."""

    name = "store"
    meaning = "Where messages are kept. There is one, called `store`. What begins with `journal-` only a journal has."

    def __init__(self, broker: Broker) -> None:
        self._store = store = broker.store
        super().__init__(
            (
                Attribute("durable-lsn", "number", "What was recorded below is durable.", lambda _: store.durable_lsn),
                Attribute("next-lsn", "number", "Above all that was recorded.", lambda _: store.next_lsn),
                Attribute("full", "string", "Why nothing more can be stored; empty if it can.", lambda _: store.full()),
                *(
                    Attribute(
                        f"journal-{field.name.replace('_', '-')}", _KINDS[str(field.type)],
                        f"`JournalMetrics.{field.name}`.", partial(_figure, field.name),
                    )
                    for field in fields(JournalMetrics)
                    if str(field.type) in _KINDS
                ),
            ),
            (),
        )  # fmt: skip

    def map_of(self, entity: Any) -> Mapping[str, Any]:
        return super().map_of(self._measured())

    def row_of(self, entity: Any, names: Any) -> bytes:
        return super().row_of(self._measured(), names)

    def _measured(self) -> Any:
        return measure(self._store) if isinstance(self._store, JournalStore) else None


def _figure(name: str, metrics: JournalMetrics | None) -> Any:
    return None if metrics is None else getattr(metrics, name)


_KINDS = {"int": "number", "float": "number", "float | None": "number", "int | None": "number", "str": "string",
          "bool": "boolean"}  # fmt: skip


class TransactionType(Type):
    name = "transaction"
    meaning = "A distributed transaction that is in doubt: prepared, or decided on without its coordinator."

    def __init__(self, broker: Broker) -> None:
        self._transactions = broker.store.transactions
        self._in_doubt = broker.in_doubt
        super().__init__(
            (
                Attribute("state", "string", "What has become of it so far.", lambda t: t.state.value),
                Attribute("operations", "number", "What it puts, and takes.", lambda t: len(t.operations)),
            ),
            (
                Operation("PREPARE", (), "The first phase, of one that its client has discharged.", self._prepare),
                Operation("COMMIT", (), "The second phase, or the only one.", self._commit),
                Operation("ROLLBACK", (), "Nothing of it is to be.", self._rollback),
                Operation(
                    "DECIDE", ("commit",), "End one that is prepared, without its coordinator: it is remembered.",
                    self._decide,
                ),
                Operation("FORGET", (), "Let go of one that was decided on.", self._forget),
            ),
        )  # fmt: skip

    def all(self) -> list[Any]:
        return list(self._transactions.in_doubt())

    def find(self, name: str) -> Transaction | None:
        return next((one for one in self._transactions.in_doubt() if self.name_of(one) == name), None)

    def name_of(self, entity: Transaction) -> str:
        return entity.xid.hex()

    def _xid(self, call: Call, *known: str) -> bytes:
        """Of any transaction, in doubt or not: the name is its xid in hexadecimal digits."""
        only(call.request.map(), *known)
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
        self._in_doubt.rollback(self._xid(call), call.answer)

    def _decide(self, call: Call) -> None:
        xid = self._xid(call, "commit")
        self._in_doubt.decide(xid, call.answer, commit=flag(call.request.map(), "commit", False))

    def _forget(self, call: Call) -> None:
        self._in_doubt.forget(self._xid(call), call.answer)

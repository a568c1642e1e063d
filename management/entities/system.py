"""The broker itself, and its store."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import fields
from functools import partial
from typing import Any, NamedTuple

from ... import __version__
from ...amqp.codec.types import Timestamp
from ...base.errors import CairnError
from ...base.texts import counted
from ...broker.kernel.connections import Connections
from ...broker.kernel.context import CoreContext
from ...broker.nodes.access_control import EVERY, MANAGE, OPERATIONS
from ...broker.nodes.registry import NodeRegistry
from ...store.contract.interface import MessageStore
from ...store.journaled.metrics import JournalMetrics, measure
from ...store.journaled.store import JournalStore
from ..protocol.call import Call
from ..protocol.entity import Attribute, Operation, Type, number, string, time
from ..protocol.request import flag, text


class Reloaded(NamedTuple):
    """The result of a reload."""

    closed: int
    """The number of closed connections and links."""
    restart_needed: tuple[str, ...] = ()
    """The changed options that are used from the next start on."""


Reload = Callable[[Callable[[Reloaded | CairnError], None], bool], None]
"""A function that reloads files, or only reads them if the flag is set; on the core, it reports the result or error."""


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
    meaning = "The broker: a single entity with the name `broker`."

    def __init__(self, core: CoreContext, nodes: NodeRegistry, connections: Connections, reload: Reload | None) -> None:
        self._reload = reload
        meaning = (
            "Reads users, access rules, certificates and revocation lists again, and closes connections and links that "
            "are no longer allowed; `closed` is the number of both. `restart-needed` lists changed options that take "
            "effect at the next start. If a file is invalid, or with `dry-run`, nothing changes."
        )
        begun_us = core.clock.wall_us()
        begun_s = core.clock.monotonic_s()
        memory = core.memory
        super().__init__(
            (
                string("version", "The version of CairnMQ.", lambda _: __version__),
                time("since", "The start time.", lambda _: Timestamp(begun_us // 1000)),
                number("uptime-seconds", "Seconds since the start.", lambda _: int(core.clock.monotonic_s() - begun_s)),
                number("queues", "Number of queues.", lambda _: len(nodes.queues)),
                number("exchanges", "Number of exchanges.", lambda _: len(nodes.exchanges)),
                number("connections", "Number of connections.", lambda _: len(connections.by_end)),
                number("links", "Number of links.", lambda _: len(connections.links)),
                number("memory-used-bytes", "Memory used by waiting messages.", lambda _: memory.used_bytes),
                Attribute("list", "alarms", "Scarce resources (disk, memory) with the reason.",
                          lambda _: alarms_of(core)),
                number("memory-limit-bytes", "The memory limit for waiting messages.", lambda _: memory.limit_bytes),
            ),
            (
                Operation(
                    "ACCESS", ("user", "on"),
                    "Returns the `operations` of the access rules, each with `allowed` and the `reason` of a denial, "
                    "for the caller, or another `user`, which requires the right to manage the broker. `on` is a name; "
                    "by default, an operation is allowed if it is on every name. `manager`: connections are reserved "
                    "for the user; `browses`: a rule lets the user browse; `reloads`: of the rules since the start.",
                    self._access,
                ),
                *(() if reload is None else (Operation("RELOAD", ("dry-run",), meaning, self._do_reload),)),
            ),
        )  # fmt: skip

    def _access(self, call: Call) -> None:
        asked = call.asked()
        own = call.link.attach.user
        user, on = text(asked, "user", own), text(asked, "on", EVERY)
        if user != own:
            call.check(MANAGE, "")
        is_pattern = "on" not in asked
        denials = {name: call.denial_reason(name, on, pattern=is_pattern, user=user) for name in OPERATIONS}
        rows = [{"operation": name, "allowed": not reason, "reason": reason} for name, reason in denials.items()]
        call.answer({"user": user, "on": on, "operations": rows, **call.rights_of(user)})

    def _do_reload(self, call: Call) -> None:
        call.check(MANAGE, "")
        is_dry_run = flag(call.asked(), "dry-run", False)

        def done(found: Reloaded) -> dict[str, Any]:
            call.closed = found.closed
            return {"closed": found.closed, "restart-needed": list(found.restart_needed)}

        assert self._reload is not None
        self._reload(call.then_answer(done), is_dry_run)


def alarms_of(core: CoreContext) -> list[str]:
    """Return a sentence for each resource that is short."""
    found: list[str] = []
    if full := core.store.full():
        found.append(f"disk: {full}")
    if waiting := len(core.memory.waiting):
        used, limit = core.memory.used_bytes, core.memory.limit_bytes
        found.append(f"memory: {used} of {limit} bytes are used, and senders to {counted(waiting, 'queue')} wait")
    return found


class StoreType(One):
    """The type `store`; attributes beyond the first are null for a store without a journal."""

    name = "store"
    meaning = "The store: a single entity with the name `store`. The attributes `journal-*` are null without a journal."
    naming = frozenset(("journal-base-held-by",))

    def __init__(self, store: MessageStore) -> None:
        self._store = store
        super().__init__(
            (
                number("durable-lsn", "All records below this LSN are durable.", lambda _: store.durable_lsn),
                number("next-lsn", "An LSN above all records.", lambda _: store.next_lsn),
                string("full", "Why messages cannot be stored; empty if they can.", lambda _: store.full()),
                *(
                    Attribute(
                        _KINDS[str(field.type)], f"journal-{field.name.replace('_', '-')}",
                        field.metadata["meaning"], partial(_figure, field.name),
                    )
                    for field in fields(JournalMetrics)
                    if field.metadata
                ),
                Attribute(
                    "list", "journal-fsync-bounds",
                    "The upper bounds, in seconds, of the classes of syncs by duration.",
                    lambda metrics: None if metrics is None else list(metrics.fsync_s.bounds),
                ),
                Attribute(
                    "list", "journal-fsync-counts",
                    "The number of syncs of each class since the start, and last of those above all bounds.",
                    lambda metrics: None if metrics is None else list(metrics.fsync_s.counts),
                ),
                number("journal-fsync-seconds", "The duration of all syncs since the start.",
                       lambda metrics: None if metrics is None else metrics.fsync_s.total),
            ),
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

"""The command `cairnmq trace`: the lifetime of a message."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from typing import Any, NamedTuple

import click

from ...base.errors import IncompleteResult
from ...base.printable import printable
from ...tools.history.history_view import HistoryView
from ...tools.history.trace import Event, MessageLifetime, find, lifetime_of, message_at, needle_of, sent_as
from ...tools.inspect.point_in_time import time_words
from ...tools.inspect.properties import Properties
from ..common.csv_rows import columns_of
from ..common.output import Bars, answering, long_line_console, output, print_line, print_values, remark
from ..options.common_options import output_options
from ..options.store_options import archives_option, connect_options
from ..options.subjects import INPUT, SELECTION, GroupedCommand, option
from ..tables.text_table import TextTable

_MOST = 20
"""The maximum number of messages that are shown."""

_COLUMNS = ("lsn", "time_us", "event", "message_id")


_Criterion = tuple[Callable[[Properties], bool], bytes]
"""The test for the messages that are asked for, and bytes that the content of each contains."""


class _Traced(NamedTuple):
    store: str
    past: HistoryView
    life: MessageLifetime
    about: Properties


@click.command("trace", cls=GroupedCommand)
@click.argument("arguments", nargs=-1, required=True, metavar="STORE... [MESSAGE]")
@option(SELECTION, "--message-id", metavar="ID", help="Show messages with this AMQP message-id.")
@option(SELECTION, "--correlation-id", metavar="ID", help="Show messages with this correlation-id.")
@option(SELECTION, "--property", "own", metavar="NAME=VALUE", help="Show messages with this application property.")
@archives_option
@option(INPUT, "--also", multiple=True, type=click.Path(), metavar="STORE",
              help="Search the store of another broker for the same message-id, too. Repeatable.")  # fmt: skip
@connect_options("The PostgreSQL server that the store's wiring is on")
@output_options
@answering
def trace(
    arguments: tuple[str, ...], message_id: str | None, correlation_id: str | None, own: str | None,
    archives: tuple[str, ...], also: tuple[str, ...], connect: str | None, catalog: str | None, output_format: str,
) -> int:  # fmt: skip
    """Show the lifetime of a message, from its arrival to the reason for its departure. A broker may be running.

    STORE is a store directory, or a store and its archives. MESSAGE is the store's id for it, or the LSN of any record
    about it; or select it by a property that its sender set. A message that was moved is followed to its copy, and a
    copy back to the original. Nothing is written.

    The exit status is 1 if the message was not found, or if the log is damaged where its records may be, and 2 if no
    log was found.
    """
    chosen = _chosen(message_id, correlation_id, own)
    what = arguments[-1] if chosen is None else message_id or correlation_id or own
    if chosen is None and (len(arguments) + len(archives) < 2 or not arguments[-1].isdecimal()):
        raise click.UsageError("name a store and a message: its id, or --message-id, --correlation-id or --property")
    paths = [*(arguments if chosen else arguments[:-1]), *archives]
    with ExitStack() as opened, Bars() as bars:
        past = opened.enter_context(HistoryView(paths, connect, catalog))
        ids = find(past.history, *chosen, bars.show) if chosen else [message_at(past.history, int(arguments[-1]))]
        traced = _trace(past, paths[0], ids, bars)
        others = [opened.enter_context(HistoryView([store])) for store in also]
        names = {one.about.message_id for one in traced} - {""}
        for store, other in zip(also, others, strict=True):
            traced += _trace(other, store, _ids_in(other, chosen, names, bars), bars)
        reported = [remark for one in (past, *others) for remark in one.all_remarks()]
    for text in reported:
        remark("trace", text)
    if not any(one.life.events for one in traced):
        raise IncompleteResult(f"message {what}", "the log that is kept has no record of it", "name its archive, too")
    return _show_all(traced, with_stores=bool(also), output_format=output_format)


def _show_all(traced: list[_Traced], *, with_stores: bool, output_format: str) -> int:
    """Print the lifetimes; the exit status."""
    status = 1 if any(one.life.damage for one in traced) else 0
    many = len(traced) > 1 or with_stores
    with output(lambda: status):
        rows = [_fields(one, event, with_store=many) for one in traced for event in one.life.events]
        if print_values(rows, columns_of(rows, _COLUMNS), output_format):
            return status
        for one in traced:
            if output_format == "json":
                _show_json(one, many)
            else:
                _show(one, with_stores)
    return status


def _ids_in(other: HistoryView, chosen: _Criterion | None, names: set[str], bars: Bars) -> list[int]:
    """The messages of another store that are asked for, or have one of these message-ids."""
    if chosen is not None:
        return find(other.history, *chosen, bars.show)
    return find(other.history, lambda found: found.message_id in names, b"", bars.show) if names else []


def _chosen(message_id: str | None, correlation_id: str | None, own: str | None) -> _Criterion | None:
    """The criterion of the options; None without one."""
    given = [one for one in (message_id, correlation_id, own) if one is not None]
    if not given:
        return None
    if message_id == "" or correlation_id == "":
        raise click.UsageError("an empty id is that of no message")
    if len(given) > 1:
        raise click.UsageError("give one of --message-id, --correlation-id and --property")
    if own is not None:
        name, equals, value = own.partition("=")
        if not equals or not name:
            raise click.UsageError(f"--property {own}: give NAME=VALUE")
        return lambda found: found.properties.get(name) == value, name.encode()
    if message_id is not None:
        return lambda found: found.message_id == message_id, needle_of(message_id)
    return lambda found: found.correlation_id == correlation_id, needle_of(str(correlation_id))


def _trace(past: HistoryView, store: str, ids: list[int], bars: Bars) -> list[_Traced]:
    if len(ids) > _MOST:
        past.remarks.append(f"first {_MOST} of {len(ids)} messages that match")
    found: list[_Traced] = []
    done: set[int] = set()
    for message_id in ids[:_MOST]:
        if message_id in done:
            continue
        life = lifetime_of(past.history, message_id, bars.show)
        done.update(life.message_ids)
        found.append(_Traced(store, past, life, sent_as(past.history, life)[0]))
    return found


def _status(one: _Traced) -> str:
    if not one.life.on:
        return "on no queue"
    places = [
        f"{message_id} on {', '.join(sorted(one.past.name_of(queue) for queue in queues))}"
        for message_id, queues in one.life.on.items()
    ]
    return "; ".join(places)


def _fields(one: _Traced, event: Event, *, with_store: bool) -> dict[str, Any]:
    fields: dict[str, Any] = {"lsn": event.lsn, "time_us": event.time_us, "event": event.what}
    if with_store:
        fields["store"] = one.store
    fields["message_id"] = event.message_id
    if event.queue_id:
        fields |= {"queue_id": event.queue_id, "queue": one.past.name_of(event.queue_id)}
    if event.txn_id:
        fields |= {"txn_id": event.txn_id, "xid": one.life.xids.get(event.txn_id)}
    return fields | event.more


def _show_json(one: _Traced, with_store: bool) -> None:
    print_line({
        "message": {
            "store": one.store, "ids": one.life.message_ids, "message_id": one.about.message_id or None,
            "correlation_id": one.about.correlation_id or None, "properties": one.about.properties,
            "on": {str(key): sorted(map(one.past.name_of, queues)) for key, queues in one.life.on.items()},
            "missing": one.life.missing,
            "acquisitions_not_written": one.life.unwritten,
            "damage": [[damage.first_lsn, damage.end_lsn, damage.reason] for damage in one.life.damage],
        }
    })  # fmt: skip
    for event in one.life.events:
        print_line(_fields(one, event, with_store=with_store))


def _more(one: _Traced, event: Event) -> str:
    """Return the details of an event as text."""
    details = dict(event.more)
    if "link" in details:
        details = {"by": f"{details['container']}/{details['link']}"}
    more = [
        printable(key.replace("_", " ") if value is True else f"{key.replace('_', ' ')} {value}")
        for key, value in details.items()
    ]
    if event.txn_id:
        xid = one.life.xids.get(event.txn_id)
        more.append(f"transaction {event.txn_id}" + (f", xid {xid}" if xid else ""))
    return ", ".join(more)


def _show(one: _Traced, with_store: bool) -> None:
    out = long_line_console()
    said = [f"{name} {value}" for name, value in one.about._asdict().items() if isinstance(value, str) and value]
    said += [f"{name}={value}" for name, value in one.about.properties.items()]
    title = f"message {', '.join(map(str, one.life.message_ids))}" + (f" in {one.store}" if with_store else "")
    out.print(printable(title + (f" ({', '.join(said)})" if said else "")))
    with_message = len(one.life.message_ids) > 1
    table = TextTable("LSN", "when", *(("message",) if with_message else ()), "what", "queue", "more", prose=("more",))
    for event in one.life.events:
        queue = one.past.name_of(event.queue_id) if event.queue_id else ""
        table.add_row(
            str(event.lsn), time_words(event.time_us), *((str(event.message_id),) if with_message else ()), event.what,
            printable(queue), _more(one, event),
        )  # fmt: skip
    out.print(table)
    for first, end in one.life.missing:
        out.print(f"LSN {first} to {end} is not kept: the history there is unknown")
    for damage in one.life.damage:
        out.print(f"LSN {damage.first_lsn} to {damage.end_lsn} can't be read: {damage.reason}")
    for first, end in one.life.unwritten:
        out.print(f"LSN {first} to {end}: acquisitions were not written down, or not all; the broker does that with "
                  "--journal-acquisitions")  # fmt: skip
    if one.life.unwritten and one.life.on:
        out.print("for the present number of messages of each consumer: cairnmq ctl links list")
    out.print(f"now: {printable(_status(one))}")

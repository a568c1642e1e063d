"""Tests of the properties of the wiring, on SQLite and on PostgreSQL."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from alembic.autogenerate import compare_metadata
from alembic.runtime.migration import MigrationContext
from sqlalchemy import Connection, insert, inspect

from cairnmq.base.errors import CairnError, ForeignStore, StoreError
from cairnmq.store.contract.wiring_rows import BindingRow, ConfigRow, ExchangeRow, QueueRow, Rows
from cairnmq.store.wiring import schema
from cairnmq.store.wiring.database import explaining, parse_address
from cairnmq.store.wiring.wiring import Wiring

Open = Callable[[], Wiring]
"""A function that opens the same wiring at each call, and closes the earlier one."""


@pytest.fixture(params=["sqlite", "postgresql"])
def again(request: pytest.FixtureRequest, tmp_path: Path, catalog: str) -> Iterator[Open]:
    opened: list[Wiring] = []
    if request.param == "postgresql":
        server = request.getfixturevalue("server")

    def open_it() -> Wiring:
        for wiring in opened:  # as the broker before has ended
            wiring.close()
        if request.param == "sqlite":
            opened.append(Wiring.open(str(tmp_path / "wiring.sqlite")))
        else:
            opened.append(Wiring.connect(parse_address(server.url(), catalog)))
        opened[-1].identify(uuid4())
        return opened[-1]

    yield open_it
    for wiring in opened:
        wiring.close()


def test_a_store_keeps_its_uuid(again: Open) -> None:
    first, second = uuid4(), uuid4()
    wiring = again()
    uuid, formatted = wiring.identify(first)
    assert not formatted
    assert wiring.owner() == uuid
    wiring.set_formatted()
    assert again().identify(second) == (uuid, True)


def test_a_queue_is_made_once(again: Open) -> None:  # E1, E64
    wiring = again()
    made = [wiring.create_queue(name) for name in ("a", "b", "a", "ä€𝄞 '\";-- %s :x", "b")]
    assert made[0] == made[2]
    assert made[1] == made[4]
    assert len({row.id for row in made}) == 3
    assert all(row.id > 0 for row in made)
    assert again().rows().queues == sorted({*made}, key=lambda row: row.id)


def test_arguments_come_back_as_they_were(again: Open) -> None:  # E1
    arguments: dict[str, Any] = {"max": 1 << 40, "ratio": 0.5, "ä": [None, True, {"\0": "'"}], "": ""}
    wiring = again()
    queue = wiring.create_queue("q", arguments)
    assert wiring.create_queue("q", {"other": 1}) == queue == QueueRow(queue.id, "q", arguments)
    exchange = wiring.create_exchange("x", "headers", arguments)
    wiring.bind(BindingRow(exchange.id, queue.id, "key", arguments))
    wiring.create_config("c", {"old": 1})
    wiring.create_config("c", arguments)
    rows = again().rows()
    assert rows.queues == [QueueRow(queue.id, "q", arguments)]
    assert rows.exchanges == [ExchangeRow(exchange.id, "x", "headers", arguments)]
    assert rows.bindings == [BindingRow(exchange.id, queue.id, "key", arguments)]
    assert rows.configs == [ConfigRow("c", arguments)]
    again().destroy_config("c")
    again().destroy_config("c")
    assert again().rows().configs == []


def test_an_id_is_never_used_again(again: Open) -> None:
    """No ID is reused, as the journal may still contain it."""
    given: list[int] = []
    for name in "abc":
        wiring = again()
        queue, exchange = wiring.create_queue(name), wiring.create_exchange(name, "direct")
        given += [queue.id, exchange.id]
        wiring.begin_destroy_queue(queue.id)
        wiring.finish_destroy_queue(queue.id)
        wiring.destroy_exchange(exchange.id)
        assert wiring.rows() == Rows(last_id=max(given))
    assert given == sorted(set(given))
    wiring.skip_ids(1000)
    wiring.skip_ids(10)
    assert again().create_queue("d").id == 1001


def test_an_id_of_a_transaction_that_failed_was_never_given(again: Open) -> None:
    wiring = again()
    with pytest.raises(StoreError):
        wiring.create_queue("q", {"unspeakable": object()})
    assert again().create_queue("q").id == 1


def test_bindings_refer_to_what_is_there(again: Open) -> None:  # E2
    wiring = again()
    queue, exchange = wiring.create_queue("q"), wiring.create_exchange("x", "topic")
    for exchange_id, queue_id in ((exchange.id, 99), (99, queue.id), (queue.id, exchange.id)):
        with pytest.raises(StoreError, match=f"queue {queue_id} can't be bound to exchange {exchange_id}"):
            wiring.bind(BindingRow(exchange_id, queue_id, ""))
    assert again().rows().bindings == []


def test_bindings_go_first_and_with_what_they_bind(again: Open) -> None:  # E2
    wiring = again()
    queues = [wiring.create_queue(name) for name in "ab"]
    exchanges = [wiring.create_exchange(name, "direct") for name in "xy"]
    bindings = [BindingRow(x.id, q.id, key) for x in exchanges for q in queues for key in ("", "k")]
    for binding in (*bindings, *bindings):
        wiring.bind(binding)
    assert wiring.rows().bindings == bindings
    for table, row in ((schema.queue, queues[0]), (schema.exchange, exchanges[0])):
        with (  # SQL refuses to delete them without their bindings
            pytest.raises(StoreError, match=r"(?i)foreign key"),
            explaining(wiring.database, "alone"),
            wiring.database.engine.begin() as sql,
        ):
            sql.execute(table.delete().where(table.c.id == row.id))
    wiring.unbind(bindings[-1])
    wiring.unbind(bindings[-1])
    wiring.begin_destroy_queue(queues[0].id)
    wiring.destroy_exchange(exchanges[0].id)
    wiring.destroy_exchange(exchanges[0].id)
    rows = again().rows()
    assert rows.bindings == [BindingRow(exchanges[1].id, queues[1].id, "")]
    assert (rows.queues, rows.exchanges) == (queues[1:], exchanges[1:])


def test_an_exchange_keeps_its_type(again: Open) -> None:
    wiring = again()
    made = wiring.create_exchange("x", "topic")
    assert wiring.create_exchange("x", "topic") == made
    with pytest.raises(StoreError, match="exchange 'x': it already exists with type topic"):
        wiring.create_exchange("x", "fanout")
    assert again().rows().exchanges == [made]


def test_a_queue_goes_in_two_steps(again: Open) -> None:  # E53
    wiring = again()
    old = wiring.create_queue("q")
    for _ in range(2):
        wiring.begin_destroy_queue(old.id)
        assert again().rows().going == [QueueRow(old.id, "q")]
        wiring = again()
        assert wiring.rows().queues == []
    new = wiring.create_queue("q")
    assert new.id > old.id
    assert again().rows().going == [QueueRow(old.id, "q")]
    for _ in range(2):
        again().finish_destroy_queue(old.id)
        assert again().rows() == Rows(queues=[new], last_id=new.id)
    again().begin_destroy_queue(old.id)  # deleted already
    assert again().rows() == Rows(queues=[new], last_id=new.id)


def test_names_have_a_length(again: Open) -> None:
    wiring = again()
    longest = "€" * 341 + "x"
    queue, exchange = wiring.create_queue(longest), wiring.create_exchange(longest, "topic")
    wiring.bind(BindingRow(exchange.id, queue.id, longest))
    wiring.create_config(longest, {})
    calls: list[Callable[[str], object]] = [
        wiring.create_queue,
        lambda name: wiring.create_exchange(name, "topic"),
        lambda name: wiring.create_config(name, {}),
        lambda name: wiring.bind(BindingRow(exchange.id, queue.id, name or longest + "x")),
    ]
    before = again().rows()
    for call in calls:
        for name in ("", longest + "x"):
            with pytest.raises(StoreError, match="to 1024 bytes"):
                call(name)
    assert again().rows() == before


def test_all_of_it_can_be_put_back_elsewhere(again: Open, tmp_path: Path) -> None:
    wiring = again()
    queues = [wiring.create_queue(name, {"n": name}) for name in "abc"]
    exchange = wiring.create_exchange("x", "topic")
    wiring.bind(BindingRow(exchange.id, queues[0].id, "k", {"a": 1}))
    wiring.create_config("c", {"s": 1})
    wiring.begin_destroy_queue(queues[2].id)
    wiring.skip_ids(50)
    rows = again().rows()
    other, uuid = Wiring.open(str(tmp_path / "other.sqlite")), uuid4()
    other.restore(uuid, rows, formatted=True)
    assert other.rows() == rows
    assert other.identify(uuid4()) == (uuid, True)
    assert other.create_queue("d").id == 51
    with pytest.raises(ForeignStore, match="a store's wiring already exists there"):
        again().restore(uuid, rows, formatted=True)
    assert again().rows() == rows
    other.close()


def test_a_new_schema_is_what_the_revisions_make(again: Open) -> None:
    database = again().database
    with database.engine.begin() as sql:
        created = described(sql, database.namespace)
        schema.metadata.drop_all(sql)
        sql.exec_driver_sql(f"DROP TABLE {schema.VERSION_TABLE}")
        assert described(sql, database.namespace) == {}
        schema._migrate(sql, database.namespace)
        assert described(sql, database.namespace) == created
        assert {*created} == {*schema.metadata.tables, schema.VERSION_TABLE}
        context = MigrationContext.configure(sql, opts={"compare_type": True})
        assert compare_metadata(context, schema.metadata) == []
        assert context.get_current_revision() == str(schema.VERSION)


def described(sql: Connection, namespace: str | None) -> dict[str, str]:
    """Return the columns, keys and indexes of each table."""
    found = inspect(sql)
    return {
        table: repr(
            [
                [{**column, "type": repr(column["type"])} for column in found.get_columns(table, namespace)],
                found.get_pk_constraint(table, namespace),
                sorted(found.get_foreign_keys(table, namespace), key=repr),
                sorted(found.get_unique_constraints(table, namespace), key=repr),
                sorted(found.get_indexes(table, namespace), key=repr),
            ]
        )
        for table in found.get_table_names(namespace)
    }


def test_sql_that_refuses_is_told_and_the_next_call_works(again: Open) -> None:
    wiring = again()
    with wiring.database.engine.begin() as sql:
        sql.exec_driver_sql("ALTER TABLE config RENAME TO elsewhere")
    with pytest.raises(CairnError, match="configuration 'c' can't be kept"):
        wiring.create_config("c", {})
    with wiring.database.engine.begin() as sql:
        sql.exec_driver_sql("ALTER TABLE elsewhere RENAME TO config")
    wiring.create_config("c", {})
    assert wiring.rows().configs == [ConfigRow("c", {})]


def test_a_second_identity_is_no_wiring(again: Open) -> None:
    wiring = again()
    with wiring.database.engine.begin() as sql:
        sql.execute(insert(schema.store).values(uuid=str(uuid4()), schema_version=3, formatted=False))
    with pytest.raises(ForeignStore, match="not a wiring database of CairnMQ"):
        wiring.identify(uuid4())
